#!/usr/bin/env python3
"""Prints, one a line, the arguments of `moetwin run` that make the quickstart a run of one GPU for 20 steps on
the text that is carried along: the same for the modelled run here and the real one there."""
import json

CARRIED = "../build-device/carry/text"  # seen from the scenario's directory
RANKS = {"world_size": 1, "data_parallel_size": 1, "expert_parallel_size": 1}
SKIPPED = ["!*.dat", "!*.u8", "!ascii-art", "!debian", "!perl", "!translate-me", "!zippy"]


def arguments(ranks=None, steps=20):
    sizes = {**RANKS, **(ranks or {})}
    values = {f"distributed_config.{key}": value for key, value in sizes.items()}
    values["training_config.steps"] = steps
    values["data.files"] = json.dumps([f"{CARRIED}/*", *SKIPPED], separators=(",", ":"))
    return [text for key, value in values.items() for text in ("--set", f"{key}={value}")]


if __name__ == "__main__":
    print("\n".join(arguments()))
