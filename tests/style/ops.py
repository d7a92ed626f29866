"""Every op of the list exists on both machines and has a conformance case. Machines find an op through the
list alone, so that none has one of its own."""
import re

from sources import code_only, cpp_files, read

LIST = "core/ops/list.h"
# Where an op must be: (what, folder, pattern with the op's name as %s).
PLACES = [
    ("row in core/ops", "core/ops/", r"\bconst Op op_%s\b"),
    ("reference arithmetic in core/ops/reference", "core/ops/reference/", r"\bvoid %s\(const ReferenceCall\b"),
    ("kernel in backends/cuda/ops", "backends/cuda/ops/", r"\bvoid %s\(const OpCall\b"),
    ("case in tests/conformance", "tests/conformance/test_", r"\b%s\("),
]


def check(root):
    names = cpp_files(root)
    if LIST not in names:
        return []
    ops = re.findall(r"\bX\((\w+)\)", read(root, LIST).split("MOETWIN_OPS(X)", 1)[-1])
    found = []
    for what, folder, pattern in PLACES:
        text = "\n".join(code_only(read(root, name)) for name in names if name.startswith(folder) and name != LIST)
        found += [f"{LIST}:1: op {op} has no {what} [ops]" for op in ops
                  if not re.search(pattern % re.escape(op), text)]
    return found
