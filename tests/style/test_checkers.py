#!/usr/bin/env python3
"""The style checks find what is planted, and only that."""
import tempfile
import unittest
from pathlib import Path

import formatting
import layering
import ops
import places
import rules
import sizes


class Planted(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)

    def plant(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def expect(self, check, *parts):
        """`check` finds one violation for each of `parts`, in any order, and nothing else."""
        found = check.check(self.root)
        self.assertEqual(len(found), len(parts), found)
        for part in parts:
            self.assertTrue(any(part in violation for violation in found), (part, found))


class Layering(Planted):
    def test_arrows_that_are_legal(self):
        for name in ["core/base/a.h", "core/topology/t.h", "core/device/d.h", "core/moe/m.h",
                     "core/train/t.h", "backends/sim/cost/c.h", "analysis/p.h"]:
            self.plant(name, "")
        self.plant("core/device/e.h", '#include "core/base/a.h"\n#include "core/topology/t.h"\n'
                                      '#include "core/device/d.h"\n#include <vector>\n')
        self.plant("core/train/u.cpp", '#include "core/moe/m.h"\n')
        self.plant("backends/sim/s.cpp", '#include "core/train/t.h"\n#include <simgrid/s4u.hpp>\n'
                                         '#include "backends/sim/cost/c.h"\n')
        self.plant("backends/cuda/ops/k.cu", "#include <cuda_runtime.h>\n#include <nccl.h>\n")
        self.plant("cli/main.cpp", '#include "backends/sim/cost/c.h"\n#include "analysis/p.h"\n')
        self.plant("tests/x/t.cpp", '#include "cli/v.h"\n#include <simgrid/s4u.hpp>\n')
        self.plant("cli/v.h", "")
        self.expect(layering)

    def test_arrows_that_are_not(self):
        for name in ["core/nn/n.h", "core/moe/m.h", "core/device/d.h", "backends/cuda/c.h",
                     "analysis/p.h", "tests/support/s.h"]:
            self.plant(name, "")
        self.plant("core/base/a.h", '#pragma once\n#include "core/device/d.h"\n')
        self.plant("core/nn/r.h", '#  include "core/moe/m.h"\n')
        self.plant("core/train/t.h", '#include "backends/cuda/c.h"\n')
        self.plant("backends/sim/s.h", '#include "backends/cuda/c.h"\n#include "analysis/p.h"\n')
        self.plant("cli/m.cpp", '#include "tests/support/s.h"\n')
        self.expect(layering,
                    "core/base/a.h:2: core/base must not include core/device",
                    "core/nn/r.h:1: core/nn must not include core/moe",
                    "core/train must not include backends/cuda",
                    "backends/sim must not include backends/cuda",
                    "backends/sim must not include analysis",
                    "cli must not include tests")

    def test_paths_and_folders(self):
        self.plant("core/base/a.h", "")
        self.plant("core/base/b.h", '#include "a.h"\n')
        self.plant("core/base/c.h", '#include "core/base/gone.h"\n')
        self.plant("helpers/h.h", "")
        self.expect(layering, '"a.h" is no path', '"core/base/gone.h" is no path',
                    "helpers/h.h:1: its folder")

    def test_foreign_headers(self):
        self.plant("core/ops/a.cpp", "#include <simgrid/s4u.hpp>\n")
        self.plant("core/ops/b.cpp", "#include <cuda_bf16.h>\n#include <cub/cub.cuh>\n")
        self.plant("backends/sim/c.cpp", "#include <nccl.h>\n")
        self.plant("cli/d.cpp", "#include <xbt/log.h>\n")
        self.expect(layering, "core/ops/a.cpp:1: only backends/sim", "<cuda_bf16.h>",
                    "<cub/cub.cuh>", "<nccl.h>", "<xbt/log.h>")


class Rules(Planted):
    def test_ordinary_code_passes(self):
        self.plant("core/ops/a.cpp", '''// thread_local, static int x = 0; and steady_clock in a comment
namespace moetwin {
namespace {
constexpr int kSize = 1'000'000;
const std::map<std::string, int> kTable = {{"static int y = 1;", 2}};
static constexpr double kHalf = 0.5;
using Row = std::vector<int>;
struct Forward;
enum class Kind : int { one, two };
template <class T>
T twice(T x) { return x + x; }
static int helper(int x) { return static_cast<int>(x); }
}  // namespace
Row rows(int n) {
  static const Row kRows = {1, 2};
  static_assert(sizeof(int) == 4);
  try {
    return Row(n, helper(n));
  } catch (...) {
    { log("simulated"); }
    throw;
  }
}
std::string Error::text() const { return text_; }
Tensor operator+(const Tensor& a, const Tensor& b);
}  // namespace moetwin
''')
        self.plant("tests/core/t.cpp", "static int calls = 0;\n")
        self.plant("backends/cuda/c.h", "#ifdef __CUDACC__\n#endif\n")
        self.expect(rules)

    def test_each_rule(self):
        self.plant("core/base/clock.cpp", "auto t = 0;\n")
        self.plant("core/base/a.cpp", "double f() { return std::chrono::steady_clock::now(); }\n")
        self.plant("core/base/b.cpp", "void f() {\n  thread_local const int x = 0;\n}\n")
        self.plant("core/base/c.cpp", "int f() {\n  static int calls = 0;\n  return ++calls;\n}\n")
        self.plant("core/base/d.h", "struct D {\n  static inline std::vector<int> all;\n};\n")
        self.plant("backends/sim/e.cpp", "std::map<int, int> table;\nint* list[3] = {};\n")
        self.plant("core/base/f.h", "#pragma once\n#if defined(__CUDACC__)\n#endif\n")
        self.plant("core/moe/g.cpp", "void f() { if (backend.is_simulated()) return; }\n")
        self.plant("core/moe/h.cpp", "void f() {\n  try {\n    g();\n  } catch (...) {\n"
                                     "    if (x) { y(); }\n  }\n  throw;\n}\n")
        self.expect(rules, "core/base/clock.cpp:1: no global", "core/base/a.cpp:1: core has no wall",
                    "core/base/b.cpp:2: no thread_local", "core/base/c.cpp:2: no mutable static",
                    "core/base/d.h:2: no mutable static", "backends/sim/e.cpp:1: no global",
                    "backends/sim/e.cpp:2: no global", "core/base/f.h:2: no #if",
                    "core/moe/g.cpp:1: core does not know", "core/moe/h.cpp:4: core has no catch")

    def test_one_type_of_a_name(self):
        self.plant("core/base/a.h", "namespace moetwin {\nclass Forward;\nstruct Machine : Base {\n"
                                    "  struct Part {};\n};\nenum class Kind { one };\n}\n")
        self.plant("core/base/own.cpp", "namespace moetwin {\nnamespace {\nstruct Machine {};\n}\n"
                                        "void f() {\n  struct Machine {};\n}\nclass Forward {};\n}\n")
        self.plant("cli/b.h", "namespace moetwin::cli {\nstruct Machine {};\n}\n"
                              "namespace moetwin {\nstruct Other {\n  struct Part {};\n};\n}\n")
        self.plant("tests/t.h", "namespace moetwin {\nstruct Machine {};\n}\n")
        self.expect(rules)
        self.plant("core/base/c.h", "namespace moetwin {\nclass Machine final {\n};\n"
                                    "enum class Kind : int { two };\n}\n")
        self.expect(rules, "core/base/c.h:2: moetwin::Machine is a type of core/base/a.h too",
                    "core/base/c.h:4: moetwin::Kind")

    def test_boundary(self):
        twenty = "struct A {\n" + "  virtual void f(int,\n    int) = 0;\n" * 20 + "};\n"
        self.plant("core/device/a.h", twenty)
        self.plant("core/device/b.h", twenty.replace("A", "B").replace(" = 0", "", 15))
        self.expect(rules)
        self.plant("core/device/c.h", "struct C { virtual ~C() = default; virtual int g() = 0; };")
        self.expect(rules, "26 pure virtual functions")


class Others(Planted):
    def test_sizes(self):
        self.plant("core/a.cpp", "\n" * 600)
        self.plant("core/b.cpp", "\n" * 601)
        self.plant("core/c.cpp", "\n" * 10)
        self.plant("docs/long.md", "\n" * 2000)
        self.expect(sizes, "core/b.cpp:601: 601 lines")
        self.assertIn("median 600", sizes.report(self.root))

    def test_places(self):
        slash = "/"
        self.plant("a.md", "the net/work/load and ${root}/work/x are fine, /tmp/x too\n")
        self.plant("b.md", f"one\nsee {slash}work/tree/x\n")
        self.plant("c.sh", f"cd {slash}home/ann/src\n{slash}tmp/build-x\n")
        self.plant("d.txt", "https:" + f"//apt.pkg{'.'}dev/x https://deb.debian.org/debian\n")
        self.expect(places, "b.md:2: names a path", "c.sh:1: names somebody", "c.sh:2: names a scr",
                    "d.txt:1: names a private")

    @unittest.skipUnless(formatting.available(), "clang-format is not installed")
    def test_formatting(self):
        self.plant(".clang-format", "BasedOnStyle: Google\n")
        self.plant("core/a.cpp", "int f() { return 1; }\n")
        self.plant("core/b.cpp", "int f() { return 1; }\nint  g(){return 1;}\nint  h(){return 1;}\n")
        self.expect(formatting, "core/b.cpp:2: not as clang-format")
        self.assertEqual(formatting.fix(self.root), 0)
        self.expect(formatting)


class Ops(Planted):
    def plant_all(self, op):
        self.plant("core/ops/x.cpp", f"const Op op_{op} = {{}};\n")
        self.plant("core/ops/reference/x.cpp", f"void {op}(const ReferenceCall& call) {{}}\n")
        self.plant("backends/cuda/ops/x.cu", f"void {op}(const OpCall& call, CudaLaunchContext& context) {{\n}}\n")
        self.plant("tests/conformance/test_x.cpp", f"launch({op}(a, b));\n")

    def test_an_op_on_both_machines(self):
        self.plant("core/ops/list.h", "#define MOETWIN_OPS(X) \\\n  X(add)\n")
        self.plant_all("add")
        self.expect(ops)

    def test_an_op_that_is_missing_somewhere(self):
        self.plant("core/ops/list.h", "#define MOETWIN_OPS(X) \\\n  X(add) \\\n  X(sub)\n")
        self.plant_all("add")
        self.plant("core/ops/y.cpp", "const Op op_sub = {};\n")
        self.expect(ops, "op sub has no reference", "op sub has no kernel", "op sub has no case")


if __name__ == "__main__":
    unittest.main()
