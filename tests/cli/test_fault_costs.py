#!/usr/bin/env python3
"""What a run says of its faults is what runs without them show. Argument: MOETWIN."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

MOETWIN = sys.argv[1]

SCENARIO = {
    "model_config": {"hidden_size": 64, "num_layers": 2, "num_attention_heads": 2, "vocab_size": 100, "sequence_length": 256,
                     "moe_layer_config": {"num_experts": 8, "top_k": 2}},
    "distributed_config": {"world_size": 16, "data_parallel_size": 4, "expert_parallel_size": 4},
    "training_config": {"steps": 3, "numerics": "none", "global_batch_size": 32, "micro_batch_size": 1},
    "data": {"format": "synthetic"},
}
SLOW_GPU = {"what": "gpu", "rank": 9, "left": 0.5}
LOST_NIC = {"what": "nic", "rank": 2, "left": 0}
STUTTER = {"what": "gpu", "left": 0.25, "mean_seconds_between": 0.05, "for_seconds": 0.01, "to_seconds": 60, "seed": 3}
TOKENS = 32 * 256


class FaultCosts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = Path(folder.name)
        (self.place / "case.json").write_text(json.dumps(SCENARIO))

    def run_with(self, faults, *options):
        machine = self.place / "machine.json"
        machine.write_text(json.dumps({"base": "toy-8gpu", "faults": faults}))
        out = self.place / f"run-{len(list(self.place.iterdir()))}"
        done = subprocess.run([MOETWIN, "run", self.place / "case.json", "--out", out, "--set", f"cluster.profile={machine}", *options],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((out / "report.json").read_text()), done.stdout

    def seconds(self, faults):
        return self.run_with(faults)[0]["throughput"]["device_seconds"]

    def check(self, said, lost, with_seconds):
        without = with_seconds - lost
        self.assertAlmostEqual(said["step_seconds_lost"], lost / 3, delta=1e-12)
        self.assertAlmostEqual(said["share_lost"], lost / without, delta=1e-9)
        self.assertAlmostEqual(said["tokens_per_second_lost"], 3 * TOKENS / without - 3 * TOKENS / with_seconds, delta=1e-3)

    def test_each_and_all(self):
        faults = [SLOW_GPU, LOST_NIC, STUTTER]
        report, screen = self.run_with(faults)
        with_all, said = report["throughput"]["device_seconds"], report["faults"]
        without = self.seconds([])
        self.assertGreater(with_all, without)
        self.check(said, with_all - without, with_all)
        self.assertAlmostEqual(said["step_seconds"], with_all / 3)
        self.assertAlmostEqual(said["step_seconds_without"], without / 3)
        self.assertEqual([each["fault"] for each in said["each"]],
                         ["gpu of rank 9 at 0.5", "nic of rank 2 at 0", "every gpu at 0.25 for 0.01 s about every 0.05 s (seed 3)"])
        for i, each in enumerate(said["each"]):
            self.check(each, with_all - self.seconds(faults[:i] + faults[i + 1:]), with_all)
        # Ranks that wait for slow GPUs anyway may not wait longer for the NIC; alone it is waited for.
        self.assertGreater(said["each"][0]["step_seconds_lost"], 0)
        self.assertGreater(said["each"][2]["step_seconds_lost"], 0)
        self.assertGreater(self.seconds([LOST_NIC]), without)
        self.assertIn("What faults cost", screen)
        self.assertEqual(report["faults"], self.run_with(faults)[0]["faults"])  # the same faults again

    def test_a_slow_gpu_makes_everybody_wait(self):
        # The work of a rank at half its rate takes twice as long; the others wait for it.
        report, _ = self.run_with([SLOW_GPU])
        slow, others = (report["step_parts_seconds_per_rank"]["compute"][rank] for rank in (9, 0))
        self.assertAlmostEqual(slow / others, 2, delta=0.02)
        self.assertEqual(len(report["faults"]["each"]), 1)
        self.assertAlmostEqual(report["faults"]["each"][0]["step_seconds_lost"], report["faults"]["step_seconds_lost"])
        # Not more than if everything took twice as long.
        self.assertLess(report["faults"]["step_seconds_lost"], report["faults"]["step_seconds_without"])

    def test_nothing_is_said_where_nothing_is_known(self):
        report, screen = self.run_with([])
        self.assertNotIn("faults", report)
        self.assertNotIn("What faults cost", screen)
        report, _ = self.run_with([SLOW_GPU] * 9)
        self.assertEqual(report["faults"]["each"], [])  # of more than eight only all together


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
