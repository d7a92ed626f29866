"""The arrows of the house: what a folder may include, by the paths of its includes."""
import posixpath
import re

from sources import cpp_files, line_of, read

# From the ground up. A folder may include itself and every folder of a lower row; two folders of
# one row do not know each other.
CORE = [
    {"core/base"},
    {"core/scenario"},
    {"core/topology"},
    {"core/device"},
    {"core/ops"},
    {"core/nn"},
    {"core/moe"},
    {"core/parallel"},
    {"core/record"},
    {"core/train"},
]
ABOVE = [
    {"backends/sim", "backends/cuda", "analysis"},
    {"cli"},
    {"tests"},
]
ROWS = CORE + ABOVE

# Headers in <> and who alone may include them, besides tests.
OUTSIDE = [
    (r"simgrid/|xbt[./]", "backends/sim", "SimGrid"),
    (r"cu(da|blas|rand|b/)|nccl|nvtx|nvToolsExt|thrust/|mma\.h", "backends/cuda", "CUDA and NCCL"),
]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.M)


def folder_of(path):
    """The folder of the table that `path` lies in, or None."""
    parts = posixpath.dirname(path).split("/")
    for length in (2, 1):
        folder = "/".join(parts[:length])
        if any(folder in row for row in ROWS):
            return folder
    return None


def may_include(source, target):
    level = {folder: i for i, row in enumerate(ROWS) for folder in row}
    return source == target or level[target] < level[source]


def check(root):
    """The violations found, as "file:line: what" strings."""
    found = []
    known = set(cpp_files(root))
    for name in sorted(known):
        source = folder_of(name)
        if source is None:
            found.append(f"{name}:1: its folder is not in the table of tests/style/layering.py")
            continue
        text = read(root, name)
        for match in INCLUDE.finditer(text):
            place = f"{name}:{line_of(text, match.start())}"
            if match[1]:
                target = folder_of(match[1])
                if match[1] not in known or target is None:
                    found.append(f'{place}: "{match[1]}" is no path from the root')
                elif not may_include(source, target):
                    found.append(f"{place}: {source} must not include {target} ({match[1]})")
            elif source != "tests":
                for pattern, owner, what in OUTSIDE:
                    if re.match(pattern, match[2]) and source != owner:
                        found.append(f"{place}: only {owner} includes {what} (<{match[2]}>)")
    return found
