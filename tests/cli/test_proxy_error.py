#!/usr/bin/env python3
"""How far step times of a layout are off when a smaller router drives it, against the layout's own training (docs/workloads.md).
Arguments: MOETWIN. Exit code 77 (skipped) without the fortune texts."""
import csv
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MOETWIN, TEXTS = sys.argv[1], "/usr/share/games/fortunes"
STEPS, SETTLED = 240, 120


def scenario(layers, ranks, batch, balance, scope):
    """English by bytes; the modelled GPU of 1 Tflop/s, so that experts and not launches take the time."""
    return {
        "model_config": {"hidden_size": 32, "num_layers": layers, "num_attention_heads": 2, "vocab_size": 256, "sequence_length": 32,
                         "position_embedding": "rotary", "init_std": 0.05,
                         "moe_layer_config": {"num_experts": 8, "top_k": 2, "aux_loss_factor": balance, "aux_loss_scope": scope,
                                              "expert_hidden_size": 128}},
        "distributed_config": {"world_size": ranks, "expert_parallel_size": ranks},
        "training_config": {"steps": STEPS, "global_batch_size": batch, "micro_batch_size": batch // ranks, "learning_rate": 0.004,
                            "schedule": {"kind": "cosine", "warmup_steps": 20}},
        "routing": {"normalize_weights": 1},
        "data": {"format": "text", "files": [TEXTS + "/*", "!*.dat", "!ascii-art", "!debian", "!perl", "!translate-me", "!zippy"]},
        "cluster": {"profile": "toy-8gpu"}}


def step_seconds(folder, name, what):
    (folder / f"{name}.json").write_text(json.dumps(what))
    subprocess.run([MOETWIN, "run", f"{name}.json", "--quiet", "--out", name], cwd=folder, check=True, stderr=subprocess.DEVNULL)
    with open(folder / name / "steps.csv", encoding="utf-8") as rows:
        return [float(row["step_seconds"]) for row in csv.DictReader(rows)][SETTLED:]


def error(folder, truth, large, source):
    driven = json.loads(json.dumps(large))
    driven["training_config"]["numerics"] = "none"
    driven["routing"] = source
    times = step_seconds(folder, "driven-" + source["source"] + "-" + Path(source.get("scenario", "")).name, driven)
    return statistics.median(abs(a / b - 1) for a, b in zip(times, truth))


# (balance loss, over which tokens, {(layers, ranks, batch) of the small model: highest median error}). Where the loss is over micro-batches, one
# model balances otherwise with other micro-batches: that is no error of the proxy, so one model on fewer ranks has the other scope.
QUARTER, SAME_BATCH, SAME_MODEL = (2, 2, 16), (2, 2, 64), (4, 2, 64)
CASES = [(0.01, "micro_batch", {QUARTER: 0.05, SAME_BATCH: 0.05}), (0.01, "global_batch", {SAME_MODEL: 0.05}),
         (0, "micro_batch", {QUARTER: 0.12, SAME_BATCH: 0.05, SAME_MODEL: 0.05})]


def main():
    if not Path(TEXTS).is_dir():
        return 77
    failed = False
    for balance, scope, smalls in CASES:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            large = scenario(4, 8, 64, balance, scope)
            truth = step_seconds(folder, "large", large)
            uniform = error(folder, truth, large, {"source": "uniform"})
            for (layers, ranks, batch), most in smalls.items():
                name = f"{layers}-layers-{ranks}-ranks-batch-{batch}"
                step_seconds(folder, name, scenario(layers, ranks, batch, balance, scope))
                found = error(folder, truth, large, {"source": "proxy", "scenario": name})
                print(f"balance loss {balance} over a {scope}, {name}: median error {found:.1%} (at most {most:.0%}); uniform {uniform:.1%}", flush=True)
                failed |= not found <= most or not found < uniform / 2
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
