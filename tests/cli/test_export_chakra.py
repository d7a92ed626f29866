#!/usr/bin/env python3
"""Chakra traces of `run --export-chakra`, read by a reader of its own: nodes, bytes, groups and order by arithmetic. Argument: MOETWIN."""
import json
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

MOETWIN = sys.argv[1]

# et_def.proto of the Chakra schema 0.0.4.
COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7
ALL_REDUCE, ALL_TO_ALL = 0, 6

LAYERS, HIDDEN, WIDTH, EXPERTS, TOKENS, TOP_K = 2, 64, 256, 8, 256, 2
SCENARIO = {
    "model_config": {"hidden_size": HIDDEN, "num_layers": LAYERS, "num_attention_heads": 2, "vocab_size": 100,
                     "sequence_length": TOKENS, "tie_embeddings": False,
                     "moe_layer_config": {"num_experts": EXPERTS, "top_k": TOP_K, "expert_hidden_size": WIDTH}},
    "distributed_config": {"world_size": 8, "data_parallel_size": 2, "expert_parallel_size": 4},
    "training_config": {"steps": 2, "numerics": "none", "dtype": "bf16", "global_batch_size": 8, "micro_batch_size": 1},
    "data": {"format": "synthetic"},
    "cluster": {"profile": "toy-8gpu"},
}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data):
    """(number, value) of a message: integers, or bytes of what has a length."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
            if len(value) != length:
                raise ValueError("a field is cut off")
        else:
            raise ValueError(f"wire type {key & 7}")
        yield key >> 3, value


def read_trace(path):
    data, at, messages = path.read_bytes(), 0, []
    while at < len(data):
        length, at = varint(data, at)
        messages.append(data[at:at + length])
        at += length
    metadata = dict(fields(messages[0]))
    nodes = []
    for message in messages[1:]:
        node = {"deps": [], "duration": 0}
        for number, value in fields(message):
            if number in (1, 3, 7):
                node[{1: "id", 3: "type", 7: "duration"}[number]] = value
            elif number == 2:
                node["name"] = value.decode()
            elif number == 5:
                end = 0
                while end < len(value):
                    dep, end = varint(value, end)
                    node["deps"].append(dep)
            elif number == 10:
                parts = dict(fields(value))
                name = parts.pop(1).decode()
                (kind, what), = parts.items()
                # int32, int64, uint64, bool, string: what feeders look for under each name.
                expected = {"is_cpu_op": 27, "num_ops": 9, "tensor_size": 13, "comm_type": 9, "comm_size": 9,
                            "comm_src": 7, "comm_dst": 7, "comm_tag": 7, "pg_name": 29}[name]
                if kind != expected:
                    raise ValueError(f"{name} is field {kind}")
                node[name] = what.decode() if kind == 29 else what
            else:
                raise ValueError(f"field {number} of a node")
        nodes.append(node)
    return metadata[1].decode(), nodes


class Chakra(unittest.TestCase):
    def export(self, *sets, profile=None):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        place = Path(folder.name)
        (place / "case.json").write_text(json.dumps(SCENARIO))
        words = [MOETWIN, "run", place / "case.json", "--quiet", "--out", place / "run", "--export-chakra", place / "et"]
        if profile:
            (place / "profile.json").write_text(json.dumps(profile))
            sets += (f"cluster.profile={place / 'profile.json'}",)
        for each in sets:
            words += ["--set", each]
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        groups = {number: members for number, members in json.loads((place / "et/comm_groups.json").read_text()).items()}
        report = json.loads((place / "run/report.json").read_text())
        traces = []
        for rank in range(report["world_size"]):
            version, nodes = read_trace(place / f"et/step.{rank}.et")
            self.assertEqual(version, "0.0.4")
            traces.append(nodes)
        self.assertEqual(len(list((place / "et").iterdir())), len(traces) + 1)
        self.sound(traces, groups)
        return place, traces, groups, report

    def sound(self, traces, groups):
        """What holds for every trace: order, groups, pairs."""
        passes = Counter()
        calls = Counter()
        for rank, nodes in enumerate(traces):
            ids = [n["id"] for n in nodes]
            collectives = [n for n in nodes if n["type"] == COLLECTIVE]
            # All ranks start them in the order of the program: nobody waits in another.
            for before, after in zip(collectives, collectives[1:]):
                self.assertIn(before["id"], after["deps"])
            self.assertTrue(all(n["duration"] > 0 for n in collectives))
            for n in nodes:
                if n["type"] == COMP:  # a roofline divides by both
                    self.assertGreaterEqual(n["num_ops"], 1)
                    self.assertGreaterEqual(n["tensor_size"], 4096)
            self.assertEqual(ids, list(range(1, len(nodes) + 1)))
            for n in nodes:
                self.assertTrue(all(dep < n["id"] for dep in n["deps"]), n)  # so no circle
                self.assertEqual(n["is_cpu_op"], 0)
                if n["type"] == COLLECTIVE:
                    self.assertIn(rank, groups[n["pg_name"]])
                    calls[n["pg_name"], n["name"], n["comm_type"], n["comm_size"], rank] += 1
                elif n["type"] == SEND:
                    self.assertEqual(n["comm_src"], rank)
                    passes[n["comm_src"], n["comm_dst"], n["comm_tag"], n["comm_size"]] += 1
                elif n["type"] == RECV:
                    self.assertEqual(n["comm_dst"], rank)
                    passes[n["comm_src"], n["comm_dst"], n["comm_tag"], n["comm_size"]] -= 1
        self.assertEqual([p for p, count in passes.items() if count], [], "a send without its receive")
        for (group, name, kind, size, rank), count in calls.items():
            for other in groups[group]:
                if kind != ALL_TO_ALL:  # of these each member may put in its own
                    self.assertEqual(calls[group, name, kind, size, other], count, f"{name} of ranks {rank} and {other}")

    def of(self, nodes, **want):
        return [n for n in nodes if all(n.get(k) == v for k, v in want.items())]

    def test_balanced_step(self):
        place, traces, groups, report = self.export()
        self.assertEqual(sorted(map(tuple, groups.values())),
                         sorted([(0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (1, 5), (2, 6), (3, 7), tuple(range(8))]))
        rows = TOKENS * TOP_K  # sent, and by symmetry received, by every rank
        for rank, nodes in enumerate(traces):
            for purpose in ("dispatch", "combine", "dispatch backward", "combine backward"):
                exchanges = self.of(nodes, type=COLLECTIVE, name=purpose)
                self.assertEqual(len(exchanges), LAYERS)
                for n in exchanges:
                    self.assertEqual((n["comm_type"], n["comm_size"]), (ALL_TO_ALL, rows * HIDDEN * 2))
                    self.assertEqual(groups[n["pg_name"]], [0, 1, 2, 3] if rank < 4 else [4, 5, 6, 7])
            # Both products of a two-layer expert, their gradients of inputs and of weights.
            products = self.of(nodes, name="grouped_gemm") + self.of(nodes, name="grouped_gemm_weight_grad")
            self.assertEqual(sum(n["num_ops"] for n in products), LAYERS * 3 * 2 * (2 * rows * HIDDEN * WIDTH))
            # Weights and biases of this rank's experts, gradients in fp32.
            experts = LAYERS * EXPERTS // 4 * (2 * HIDDEN * WIDTH + WIDTH + HIDDEN)
            reduced = self.of(nodes, type=COLLECTIVE, name="expert gradients")
            self.assertGreater(len(reduced), 0)
            self.assertTrue(all(groups[n["pg_name"]] == [rank % 4, rank % 4 + 4] for n in reduced))
            size = sum(n["comm_size"] for n in reduced)
            self.assertGreaterEqual(size, 4 * experts)
            self.assertLess(size, 4 * experts + 4096)  # buckets are rounded up
        # A ring of 2 sends as much as it sums.
        purposes = report["traffic"]["bytes_per_step_by_purpose"]
        self.assertEqual(sum(n["comm_size"] for nodes in traces for n in self.of(nodes, name="expert gradients")),
                         purposes["expert gradients"])
        self.assertEqual(sum(n["comm_size"] for nodes in traces for n in self.of(nodes, name="dispatch")) * 3 // 4,
                         purposes["dispatch"])

    def test_durations_add_up_to_the_machines(self):
        place, traces, _, _ = self.export("training_config.steps=1")
        events = json.loads((place / "run/timeline.json").read_text())["traceEvents"]
        launched = [e for e in events if e.get("ph") == "X" and e["pid"] == 3 and e["tid"] == 1 and
                    e["cat"] in ("compute", "offload", "data") and e["name"] != "slowed by communication"]
        nodes = [n for n in traces[3] if n["type"] == COMP and n["name"] not in ("read", "write")]
        kept = [e for e in launched if e["name"] not in ("read", "write")]
        self.assertEqual([n["name"] for n in nodes], [e["name"] for e in kept])
        self.assertEqual([n["tensor_size"] for n in nodes], [max(4096, e["args"]["bytes"]) for e in kept])
        self.assertAlmostEqual(sum(n["duration"] for n in nodes), sum(e["dur"] for e in kept), delta=40)

    def test_a_slow_gpu_takes_longer(self):
        _, usual, _, _ = self.export()
        # By 2.5 and, as a fault that never ends, by 2; one that comes later is of none of the steps.
        faults = [{"what": "gpu", "rank": 3, "left": 0.5}, {"what": "gpu", "rank": 5, "left": 0.5, "from_seconds": 1000}]
        _, slow, _, _ = self.export(profile={"base": "toy-8gpu", "slow_ranks": {"3": 2.5}, "faults": faults})
        for rank in range(8):
            kernels = [[n["duration"] for n in traces[rank] if n["type"] == COMP and n["name"] not in ("read", "write")]
                       for traces in (usual, slow)]
            factor = 5 if rank == 3 else 1
            # Whole microseconds whose sum is right.
            self.assertAlmostEqual(sum(kernels[1]), factor * sum(kernels[0]), delta=1 + 3 * factor)

    def test_uneven_exchanges_are_pairs(self):
        _, traces, groups, report = self.export("routing.without_numerics=W1", "routing.workload.hot_fraction=0.7")
        for nodes in traces:
            self.assertEqual(self.of(nodes, type=COLLECTIVE, name="dispatch"), [])
        sent = sum(n["comm_size"] for nodes in traces for n in self.of(nodes, type=SEND, name="dispatch"))
        self.assertEqual(sent, report["traffic"]["bytes_per_step_by_purpose"]["dispatch"])
        # What was dispatched from i to j is combined from j to i.
        there, back = Counter(), Counter()
        for nodes in traces:
            for n in self.of(nodes, type=SEND, name="dispatch"):
                there[n["comm_src"], n["comm_dst"]] += n["comm_size"]
            for n in self.of(nodes, type=SEND, name="combine"):
                back[n["comm_dst"], n["comm_src"]] += n["comm_size"]
        self.assertEqual(there, back)

    def test_pipeline_sends_and_receives(self):
        _, traces, _, _ = self.export("distributed_config.pipeline_parallel_size=2", "distributed_config.data_parallel_size=1",
                                      "training_config.global_batch_size=12")
        # Three micro-batches of one sequence: activations one way, gradients the other, in bf16.
        bytes_each = TOKENS * HIDDEN * 2
        for rank, nodes in enumerate(traces):
            for kind in (SEND, RECV):
                passed = self.of(nodes, type=kind)
                self.assertEqual([n["comm_size"] for n in passed], [bytes_each] * 3)
                self.assertEqual({n["comm_dst"] if kind == SEND else n["comm_src"] for n in passed}, {(rank + 4) % 8})

    def test_shares_of_the_optimizer(self):
        _, traces, groups, _ = self.export("distributed_config.zero_stage=1")
        self.assertTrue(all(self.of(nodes, type=COLLECTIVE, comm_type=2) for nodes in traces))  # gathers of parameters

    def test_refuses_what_has_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "case.json").write_text(json.dumps(SCENARIO))
            done = subprocess.run([MOETWIN, "run", f"{folder}/case.json", "--numerics", "full", "--export-chakra",
                                   f"{folder}/et", "--out", f"{folder}/run"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--export-chakra: traces are of a run with training_config.numerics none", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
