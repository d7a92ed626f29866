#!/usr/bin/env python3
"""The device script without a GPU: it skips everything with a reason, its JSON is whole, limits hold, numbers are read."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.dont_write_bytecode = True
import rates  # noqa: E402
import run  # noqa: E402
import steps  # noqa: E402


class WithoutGpu(unittest.TestCase):
    def test_skips_everything_and_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([Path(__file__).with_name("run.sh")], capture_output=True, text=True, check=False,
                                  env={**os.environ, "OUT": folder, "CUDA_VISIBLE_DEVICES": ""})
            self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
            self.assertEqual([p.name for p in Path(folder).iterdir()], ["device.json"])
            report = json.loads((Path(folder) / "device.json").read_text())
        self.assertEqual(report["schema"], "moetwin-device/1")
        self.assertEqual(report["gpus"], 0)
        names = [s["step"] for s in report["steps"]]
        self.assertEqual(names, ["doctor", "conformance", "quickstart", "profile", "two ranks", "calibrate", "sanitizer",
                                 "races"])
        for step in report["steps"]:
            self.assertEqual(step["status"], "skipped")
            self.assertRegex(step["reason"], "driver|GPU")
        self.assertIn("0 passed, 0 failed, 8 skipped", done.stdout)


class Steps(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = Path(self.folder.name)

    def perform(self, step, left=60):
        return run.perform(step, dict(os.environ), left, self.out)

    def test_a_step_ends_at_its_limit_with_what_it_started(self):
        step = steps.Step("slow", "", ["bash", "-c", "echo begun; sleep 60 & wait"], 0.5, least_seconds=0)
        result = self.perform(step)
        self.assertEqual(result["status"], "failed")
        self.assertIn("not done after", result["reason"])
        self.assertIn("begun", result["output_end"])
        self.assertLess(result["seconds"], 20)

    def test_no_time_left_and_missing_tools_are_stated_skips(self):
        step = steps.Step("late", "", ["true"], 30, least_seconds=20)
        self.assertIn("10 s are left", self.perform(step, left=10)["reason"])
        step = steps.Step("tool", "", ["true"], 30, missing=lambda: "no-such-tool is not installed")
        self.assertEqual(self.perform(step)["status"], "skipped")

    def test_failures_and_unreadable_output(self):
        self.assertEqual(self.perform(steps.Step("f", "", ["bash", "-c", "exit 3"], 9))["reason"], "exit code 3")
        result = self.perform(steps.Step("c", "", ["echo", "nothing"], 9, steps.catch_numbers))
        self.assertIn("no summary of Catch2", result["reason"])
        self.assertEqual(self.perform(steps.Step("ok", "", ["true"], 9))["status"], "passed")

    def test_numbers_of_catch2(self):
        good = steps.catch_numbers(0, "All tests passed (1234 assertions in 56 test cases)\n")
        self.assertEqual(good, {"assertions": 1234, "cases": 56, "failed": 0})
        line = "-" * 79
        bad = steps.catch_numbers(1, f"{line}\na case that fails\n{line}\n...\ntest cases:  7 |  6 passed | 1 failed\n"
                                     "assertions: 9 | 8 passed | 1 failed\n")
        self.assertEqual((bad["cases"], bad["failed"], bad["failures"]), (7, 1, ["a case that fails"]))

    def test_losses_beside_the_modelled_run(self):
        for name, second in (("here", 4.00005), ("there", 4.0)):
            (self.out / name).mkdir()
            (self.out / name / "steps.csv").write_text(f"step,loss\n1,5.0\n2,{second}\n")
        (self.out / "here" / "report.json").write_text(json.dumps(
            dict.fromkeys(("loss", "throughput", "step_parts_seconds", "verdicts", "environment"))))
        numbers = steps.run_numbers(self.out / "here", self.out / "there")
        self.assertAlmostEqual(numbers["largest_loss_difference"], 5e-5)
        self.assertEqual(steps.losses_differ(0, numbers), "")
        self.assertIn("allowed 0.0001", steps.losses_differ(0, {"largest_loss_difference": 2e-4}))

    def test_two_ranks_report_the_failure_of_either(self):
        program = self.out / "program"
        program.write_text("#!/bin/bash\n[ $RANK = 0 ] || exit 4\n[ $NCCL_HOSTID = rank0 ]\n")
        program.chmod(0o755)
        line = steps.several_ranks(program, self.out)
        self.assertEqual(subprocess.run(["bash", "-c", line], check=False).returncode, 4)


class Rates(unittest.TestCase):
    def test_shares_of_the_chips_limits(self):
        def kernel(what, flop, moved):
            return {"what": what, "seconds": 1.0, "flop_per_second": flop, "bytes_per_second": moved}

        summary = rates.summary({
            "device": "GPU", "dtype": "bf16", "peak_flop_per_second": 1000.0, "launch_seconds": 4e-6,
            "kernels": [kernel("gemm bf16 1x1x1", 600.0, 1.0), kernel("gemm bf16 2x2x2", 800.0, 1.0),
                        kernel("gemm fp32 1x1x1", 900.0, 1.0), kernel("grouped gemm bf16 even", 560.0, 1.0),
                        kernel("copy bf16 9 elements", 0.0, 100.0), kernel("permute bf16 9 rows", 0.0, 90.0),
                        kernel("permute_backward bf16", 0.0, 99.0), kernel("adamw fp32 9", 0.0, 85.0)]})
        self.assertEqual(summary["gemm_flop_per_second"], 800.0)
        self.assertEqual(summary["shares"], {"permute_of_copy": 0.9, "adamw_of_copy": 0.85, "grouped_of_gemm": 0.7})
        self.assertEqual(summary["below_wanted"], ["grouped_of_gemm"])
        self.assertEqual(summary["kernels"][1]["share_of_peak"], 0.8)


if __name__ == "__main__":
    unittest.main(verbosity=1)
