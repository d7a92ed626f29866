#!/usr/bin/env python3
"""How tests/run counts one line of meson's testlog.json."""
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

loader = SourceFileLoader("run", str(Path(__file__).resolve().parents[1] / "run"))
run = module_from_spec(spec_from_loader("run", loader))
loader.exec_module(run)


class Count(unittest.TestCase):
    def expect(self, counts, result, output=""):
        self.assertEqual(run.count({"result": result, "stdout": output}), counts)

    def test_programs(self):
        self.expect((1, 0, 0), "OK")
        self.expect((0, 1, 0), "FAIL")
        self.expect((0, 1, 0), "TIMEOUT")
        self.expect((0, 0, 1), "SKIP")

    def test_catch_cases(self):
        self.expect((7, 0, 0), "OK", "===\nAll tests passed (21 assertions in 7 test cases)\n\n")
        self.expect((1, 0, 0), "OK", "All tests passed (1 assertion in 1 test case)\n")
        self.expect((5, 2, 0), "FAIL",
                    "test cases:  7 |  5 passed | 2 failed\nassertions: 21 | 18 passed | 3 failed\n")
        self.expect((0, 1, 0), "FAIL", "test cases: 1 | 1 failed\nassertions: 1 | 1 failed\n")

    def test_bad_ends(self):
        # All cases passed and the program still ended badly, for example under a sanitizer.
        self.expect((7, 1, 0), "FAIL", "All tests passed (21 assertions in 7 test cases)\n")
        self.expect((0, 1, 0), "OK", "No tests ran\n")
        self.expect((0, 1, 0), "FAIL", "killed before its first line")


if __name__ == "__main__":
    unittest.main()
