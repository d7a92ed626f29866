#!/usr/bin/env python3
"""What docs/advice.md and docs/dp-ep-tradeoff.md say of each piece of advice: its direction, and its size where arithmetic gives it.
Arguments: SOURCE_ROOT MOETWIN."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT, MOETWIN = Path(sys.argv[1]), sys.argv[2]
HIDDEN, LAYERS, WIDTH, EXPERTS, VOCABULARY, SEQUENCE, BATCH = 2048, 12, 4096, 16, 32000, 2048, 64  # advice.json
DISTRIBUTED, TRAINING, MOE = "distributed_config.", "training_config.", "model_config.moe_layer_config."


def sweep(name, over, settings=()):
    """(how it ended, its report or None) of every point: the first values of all keys together, the second ones, ..."""
    with tempfile.TemporaryDirectory() as folder:
        words = [MOETWIN, "sweep", ROOT / "scenarios" / name, "--list", "--quiet", "--out", folder + "/out"]
        for key, values in over.items():
            words += ["--over", f"{key}={','.join(map(str, values))}"]
        for text in settings:
            words += ["--set", text]
        subprocess.run(words, capture_output=True, check=False)
        points = []
        for i in range(len(next(iter(over.values())))):
            point = Path(folder) / "out/points" / f"{i:04}"
            ended = json.loads((point / "point.json").read_text())
            points.append((ended, json.loads((point / "report.json").read_text()) if ended["exit_code"] == 0 else None))
        return points


def reports(name, over, settings=()):
    found = sweep(name, over, settings)
    if wrong := [ended for ended, report in found if report is None]:
        raise AssertionError(wrong)
    return [report for _, report in found]


def step(report):
    return report["throughput"]["step_seconds_median"]


def part(report, name):
    return report["step_parts_seconds"][name]


def sent(report, kind):
    return report["traffic"].get(f"{kind}_bytes_per_step", 0)


def off_node(report):
    return sum(v for k, v in report["traffic"].items() if k.endswith("_off_node_bytes_per_step"))


def memory(report, name=None):
    return report["memory"]["classes"][name] if name else max(report["memory"]["peak_bytes_per_rank"])


def expert_weights(experts):
    return LAYERS * experts * (2 * HIDDEN * WIDTH + WIDTH + HIDDEN)


def dense_weights(experts=EXPERTS):
    """Embedding, positions, last norm; two norms, attention and router of each layer."""
    return ((VOCABULARY + SEQUENCE) * HIDDEN + 2 * HIDDEN
            + LAYERS * (4 * HIDDEN + 4 * HIDDEN**2 + 4 * HIDDEN + HIDDEN * experts))


class Close(unittest.TestCase):
    def close(self, value, expected, share=1e-3):
        self.assertLessEqual(abs(value - expected), share * abs(expected), f"{value} is not {expected}")


class Tradeoff(Close):
    """docs/dp-ep-tradeoff.md"""
    COPIES, SPREAD = [16, 8, 4, 2, 1], [1, 2, 4, 8, 16]
    OVER = {DISTRIBUTED + "data_parallel_size": COPIES, DISTRIBUTED + "expert_parallel_size": SPREAD}

    def test_the_model_of_the_guide(self):
        hidden, moe_layers, experts, width = 4096, 16, 64, 16384
        one = 2 * hidden * width + width + hidden
        found = reports("dp-ep-tradeoff.json", self.OVER)
        weights = [memory(r, "parameters") for r in found]
        for ep, r in zip(self.SPREAD, found):
            # What a GPU has beyond the last one's: its further experts, 4 bytes a weight.
            self.close(memory(r, "parameters") - weights[-1], 4 * moe_layers * (experts / ep - 4) * one, 1e-3)
            bytes_ = 4 * moe_layers * 64 * 2048 * 2 * hidden * 4 * (ep - 1) / ep
            self.assertLess(abs(sent(r, "all_to_all") - bytes_), 1e-3 * 275e9)
            self.assertEqual([v["kind"] for v in r["verdicts"]], ["out_of_memory"])
        peaks = [memory(r) for r in found]
        self.assertEqual(peaks, sorted(peaks, reverse=True))
        exposed = [part(r, "all_to_all") for r in found]
        self.assertEqual(exposed, sorted(exposed))
        sums = [sent(r, "all_reduce") for r in found]
        self.assertEqual(sums, sorted(sums, reverse=True))

    def test_the_model_cut_to_fit_is_fastest_where_a_group_fills_a_node(self):
        found = sweep("seed-high-dp-fits.json", self.OVER, [TRAINING + "steps=2"])
        self.assertEqual([ended["exit_code"] for ended, _ in found], [3, 0, 0, 0, 0])
        found = [report for _, report in found[1:]]
        rates = [r["throughput"]["tokens_per_second"] for r in found]
        self.assertEqual(self.SPREAD[1 + rates.index(max(rates))], 8)
        self.assertEqual([r["traffic"]["all_to_all_off_node_bytes_per_step"] for r in found[:3]], [0, 0, 0])
        self.assertGreater(found[3]["traffic"]["all_to_all_off_node_bytes_per_step"], 0.5 * sent(found[3], "all_to_all"))
        self.assertGreater(part(found[3], "all_to_all"), 3 * part(found[2], "all_to_all"))


class Advice(Close):
    """docs/advice.md, in its order"""

    def test_experts_a_multiple_of_gpus(self):
        (refused, _), (_, whole) = sweep("advice.json", {MOE + "num_experts": [12, 16]})
        self.assertEqual(refused["exit_code"], 2)
        self.assertIn("expert_parallel_size", refused["message"])
        three, fewer = reports("advice.json", {MOE + "num_experts": [12, 8], DISTRIBUTED + "expert_parallel_size": [4, 16],
                                               DISTRIBUTED + "data_parallel_size": [4, 1]})
        # Three experts a layer on a GPU instead of two, though there are fewer; 2 bytes a weight.
        self.close(memory(three, "parameters") - memory(whole, "parameters"), 2 * (expert_weights(1) - LAYERS * HIDDEN * 4))
        # More GPUs than experts: each has half of one.
        self.close(memory(whole, "parameters") - memory(fewer, "parameters"), 2 * (expert_weights(1.5) + LAYERS * HIDDEN * 8), 2e-3)

    def test_larger_batch_by_accumulation(self):
        found = reports("advice.json", {TRAINING + "global_batch_size": [16, 64, 256]})
        rates = [r["throughput"]["tokens_per_second"] for r in found]
        self.assertGreater(rates[1], 1.4 * rates[0])
        self.assertGreater(rates[2], 1.1 * rates[1])
        for r in found:  # gradients are summed once a step, however many tokens it has; memory stays
            self.close(sent(r, "all_reduce"), sent(found[0], "all_reduce"), 1e-6)
            self.assertEqual(memory(r), memory(found[0]))

    def test_larger_micro_batch(self):
        one, four = reports("advice.json", {TRAINING + "micro_batch_size": [1, 4]})
        self.assertGreater(step(one), 1.15 * step(four))
        self.close(memory(four, "activations"), 4 * memory(one, "activations"), 0.15)

    def test_sharding_strategy(self):
        none, one, two, three, hybrid = reports("advice.json", {DISTRIBUTED + "fsdp.sharding_strategy": [
            "NO_SHARD", "SHARD_OPTIMIZER", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"]})
        # 12 bytes a weight of master copy and moments, over 16 copies of dense weights and 2 of each expert.
        dense, experts = dense_weights(), expert_weights(2)
        self.close(memory(none, "optimizer"), 12 * (dense + experts))
        self.close(memory(one, "optimizer"), 12 * (dense / 16 + experts / 2), 2e-3)
        peaks = [memory(r) for r in (none, one, two, three)]
        self.assertEqual(peaks, sorted(peaks, reverse=True))
        self.assertLess(step(one), step(none))
        self.assertGreater(step(three), 1.15 * step(two))
        # Sharing inside a node only: less between nodes, faster, more memory.
        self.assertLess(off_node(hybrid), 0.35 * off_node(three))
        self.assertLess(step(hybrid), step(three))
        self.assertGreater(memory(hybrid), 1.5 * memory(three))

    def test_offload(self):
        on_gpu, off = reports("advice.json", {DISTRIBUTED + "fsdp.cpu_offload": ["false", "true"]},
                              [DISTRIBUTED + "fsdp.sharding_strategy=FULL_SHARD"])
        self.assertEqual(memory(off, "optimizer"), 0)
        self.close(off["memory"]["host_bytes"], 12 * (dense_weights() / 16 + expert_weights(1)), 2e-3)
        self.assertGreater(step(off), 1.8 * step(on_gpu))

    def test_mixed_precision(self):
        full, half = reports("advice.json", {TRAINING + "dtype": ["fp32", "bf16"]})
        self.assertGreater(step(full), 8 * step(half))
        self.close(sent(full, "all_to_all"), 2 * sent(half, "all_to_all"))
        self.close(memory(full, "parameters"), 2 * memory(half, "parameters"))
        # Gradients and a master copy stay fp32: with AdamW 16 bytes a weight become 18.
        state = lambda r: sum(memory(r, name) for name in ("parameters", "gradients", "optimizer"))
        self.close(state(half) / state(full), 18 / 16)

    def test_reducing_in_16_bit(self):
        wide, narrow = reports("advice.json", {DISTRIBUTED + "fsdp.mixed_precision.reduce_dtype": ["fp32", "bf16"]},
                               [DISTRIBUTED + "fsdp.sharding_strategy=FULL_SHARD"])
        self.close(sent(wide, "reduce_scatter"), 2 * sent(narrow, "reduce_scatter"))
        self.assertGreater(step(wide), 1.1 * step(narrow))

    def test_prefetching_the_backward_changes_nothing_where_the_host_runs_ahead(self):
        none, before = reports("advice.json", {DISTRIBUTED + "fsdp.backward_prefetch": ["none", "BACKWARD_PRE"]},
                               [DISTRIBUTED + "fsdp.sharding_strategy=FULL_SHARD"])
        self.close(step(none), step(before), 0.01)

    def test_trees(self):
        ring, tree = reports("advice.json", {"cluster.collective_algorithm": ["ring", "tree"]})
        self.assertGreater(step(tree), 1.02 * step(ring))

    def test_sparse_models_compute_the_same(self):
        few, many = reports("advice.json", {MOE + "num_experts": [16, 64]})
        self.close(few["compute_parts_seconds"]["forward"], many["compute_parts_seconds"]["forward"], 0.01)
        self.close(sent(few, "all_to_all"), sent(many, "all_to_all"))
        self.close(memory(many, "parameters") - memory(few, "parameters"), 2 * (expert_weights(6) + LAYERS * HIDDEN * 48))
        self.assertGreater(step(many), 1.5 * step(few))  # but their gradients travel

    def test_uneven_loads(self):
        even, hot = reports("advice.json", {"routing.without_numerics": ["uniform", "W1"]}, ["routing.workload.hot_fraction=0.25"])
        # The hot expert's GPU gets a quarter and a fifteenth of the rest, instead of an eighth.
        self.close(hot["routing"]["layers"][0]["imbalance_ranks"], (0.25 + 0.75 / 15) * 8, 0.01)
        self.assertGreater(step(hot), 1.3 * step(even))
        self.assertGreater(part(hot, "idle"), 0.2 * step(hot))

    def test_capacity(self):
        found = reports("advice.json", {MOE + "capacity_factor": ["null", 2, 1.25, 1]},
                        ["routing.without_numerics=W1", "routing.workload.hot_fraction=0.25"])
        for factor, r in zip((None, 2, 1.25, 1), found):
            dropped = 0.25 - factor / EXPERTS if factor else 0
            self.assertAlmostEqual(r["routing"]["layers"][0]["dropped_share"], dropped, 3)
        times = [step(r) for r in found]
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertGreater(times[0], 1.3 * times[2])

    def test_shared_expert(self):
        without, shared = reports("advice.json", {MOE + "shared_expert_hidden_size": [0, WIDTH]})
        self.close(memory(shared, "parameters") - memory(without, "parameters"), 2 * expert_weights(1))
        self.assertLess(part(shared, "all_to_all"), 0.6 * part(without, "all_to_all"))  # it computes while tokens travel
        self.assertGreater(step(shared), 1.1 * step(without))

    def test_every_second_layer(self):
        every, second = reports("advice.json", {"model_config.moe_layer_config.moe_every_k_layers": [1, 2]})
        self.close(sent(every, "all_to_all"), 2 * sent(second, "all_to_all"))
        self.assertLess(step(second), 0.9 * step(every))

    def test_overlap_hides_part_of_the_exchange(self):
        plain, overlapped = reports("quickstart.json", {DISTRIBUTED + "comm_optimization.all_to_all_overlap": ["false", "true"]}, [
            "cluster.profile=toy-8gpu", TRAINING + "steps=6", TRAINING + "schedule.warmup_steps=0", TRAINING + "validation_sequences=32"])
        self.assertLess(part(overlapped, "all_to_all"), 0.75 * part(plain, "all_to_all"))
        self.assertLess(step(overlapped), 0.98 * step(plain))

    def test_the_variance_of_counts_is_no_balance_loss(self):
        # Counts have no gradient by the scores: the same losses to the last digit.
        without, with_ = reports("load-imbalance.json", {MOE + "load_variance_factor": [0, 1]}, [TRAINING + "steps=60",
                                                                                               TRAINING + "schedule.warmup_steps=10"])
        self.assertEqual(without["loss"]["last"], with_["loss"]["last"])
        self.assertGreater(with_["routing"]["layers"][0]["load_variance"], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
