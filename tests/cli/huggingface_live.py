#!/usr/bin/env python3
"""Imports the stored Hugging Face models, trains a step at rate 0 over four ranks, exports the checkpoint, and asks
the transformers package for its logits: they must be those it had when the models were stored.

huggingface_live.py PROGRAM FIXTURES. Exit code 77 (skipped) where torch or transformers is not installed.
"""
import os
import subprocess
import sys
import tempfile

try:
    import safetensors  # noqa: F401
    import torch  # noqa: F401
    import transformers  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}; install torch, transformers and safetensors for {sys.executable}")
    sys.exit(77)

SPLIT = ["expert_parallel_size=2", "tensor_parallel_size=2"]
LAYOUTS = {"mixtral": SPLIT, "qwen3_moe": SPLIT, "olmoe": ["expert_parallel_size=4"], "deepseek_v3": SPLIT}


def run(*command):
    print("$", " ".join(command), flush=True)
    subprocess.run(command, check=True)


def main(program, fixtures):
    maker = os.path.join(fixtures, "make_huggingface_fixtures.py")
    for name, layout in LAYOUTS.items():
        with tempfile.TemporaryDirectory() as directory:
            scenario, trained, out = (os.path.join(directory, p) for p in ("model.json", "run", "out"))
            run(program, "import", os.path.join(fixtures, "huggingface", name), "-o", scenario)
            keys = ["data.format=synthetic", "training_config.dtype=fp32", "training_config.learning_rate=0",
                    "training_config.weight_decay=0", "training_config.steps=1", "training_config.global_batch_size=4",
                    "checkpoint.every_steps=1", "cluster.profile=toy-8gpu",
                    "model_config.moe_layer_config.bias_update_rate=" + ("1e-12" if name == "deepseek_v3" else "0"),
                    "distributed_config.world_size=4"] + ["distributed_config." + key for key in layout]
            sets = [word for key in keys for word in ("--set", key)]
            run(program, "run", scenario, "--weights", os.path.join(directory, "model-weights"), "--out", trained,
                "--quiet", *sets)
            run(program, "export", trained, "--out", out, "--dtype", "fp32", "--max-shard-gigabytes", "0.00004")
            run(sys.executable, maker, "--check", out, "--fixture", name)


if __name__ == "__main__":
    main(*sys.argv[1:])
