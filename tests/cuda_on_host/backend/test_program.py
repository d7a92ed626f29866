#!/usr/bin/env python3
"""`moetwin run --backend cuda` on emulated GPUs as a user starts it: one process, or one per GPU.

usage: test_program.py MOETWIN_ON_EMULATED_GPUS
"""
import csv
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = 8
SCENARIO = {
    "model_config": {"hidden_size": 16, "num_layers": 2, "num_attention_heads": 2, "vocab_size": 61, "sequence_length": 12,
                     "moe_layer_config": {"num_experts": 4, "top_k": 2, "expert_hidden_size": 24}},
    "distributed_config": {"world_size": 4, "data_parallel_size": 2, "expert_parallel_size": 2, "timeout_seconds": 10},
    "training_config": {"steps": STEPS, "global_batch_size": 16, "micro_batch_size": 2, "learning_rate": 0.01,
                        "validation_sequences": 5},
    "data": {"format": "synthetic"},
    "cluster": {"profile": "toy-8gpu"},
    "output": {"timeline_steps": [STEPS]},
}


class Place:
    """A folder with the scenario in it, and the program."""

    def __init__(self, program, folder):
        self.program, self.folder = program, Path(folder)
        self.scenario = self.folder / "small.json"
        self.scenario.write_text(json.dumps(SCENARIO))

    def start(self, out, *options, **variables):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("SLURM_", "OMPI_", "PMI_", "MPI_", "CUDA_VISIBLE_DEVICES"))}
        environment |= {"MOETWIN_EMULATED_GPUS": "4", **variables}
        return subprocess.Popen([self.program, "run", self.scenario, "--out", self.folder / out, *options], text=True,
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, out, *options):
        process = self.start(out, *options)
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, (process.returncode, output, errors)

    def start_ranks(self, out, *options, sees=None):
        """One process per GPU, as torchrun starts them; `sees`: the GPU that each is shown, if not all."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shown = [{"CUDA_VISIBLE_DEVICES": str(gpu)} for gpu in sees] if sees else [{}] * 4
        return [self.start(out, "--backend", "cuda", *options, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="4",
                           LOCAL_WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **shown[rank])
                for rank in range(4)]

    def rows(self, out, name="steps.csv"):
        with open(self.folder / out / name, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def report(self, out):
        return json.loads((self.folder / out / "report.json").read_text())


def sent_by_group(traffic):
    """Bytes of all ranks by line of the table, whatever algorithm moved them: a GPU does not tell it."""
    sent = {}
    for line in traffic["collectives"]:
        key = tuple(line[k] for k in ("collective", "purpose", "group", "group_size"))
        sent[key] = sent.get(key, 0) + round(line["bytes_per_step"] * line["ranks"] * STEPS)
    return sent


def trains_alike(place):
    place.run("modelled", "--backend", "sim", "--threads", "1")
    place.run("one", "--backend", "cuda")
    processes = place.start_ranks("four")
    ends = [process.communicate(timeout=300) for process in processes]
    assert [p.returncode for p in processes] == [0] * 4, ends

    modelled, one, four = (place.rows(out) for out in ("modelled", "one", "four"))
    assert len(modelled) == len(one) == len(four) == STEPS
    assert float(modelled[-1]["loss"]) < float(modelled[0]["loss"])
    for row in zip(modelled, one, four):
        losses = [float(r["loss"]) for r in row]
        assert abs(losses[1] - losses[0]) <= 1e-4, losses
        assert losses[2] == losses[1], losses  # whatever moves the bytes, they are summed in one order
    assert place.rows("one", "routing.csv") == place.rows("four", "routing.csv")
    validation = [place.report(out)["loss"]["validation_last"] for out in ("modelled", "one", "four")]
    assert abs(validation[1] - validation[0]) <= 1e-4 and validation[2] == validation[1], validation
    for out in ("one", "four"):
        report = place.report(out)
        assert report["backend"] == "cuda" and report["steps_done"] == STEPS and report["world_size"] == 4, report
        assert len(report["memory"]["peak_bytes_per_rank"]) == 4, report["memory"]
        traffic = place.report("modelled")["traffic"]
        assert sent_by_group(traffic) == sent_by_group(report["traffic"]), (report["traffic"], traffic)
        del traffic["collectives"], report["traffic"]["collectives"]
        assert report["traffic"] == traffic, (report["traffic"], traffic)
        compared = subprocess.run([place.program, "compare", place.folder / "modelled", place.folder / out, "--json"],
                                  capture_output=True, text=True, check=False)
        assert compared.returncode in (0, 1), compared  # 1: the emulation's times differ, and should
        ops = json.loads(compared.stdout)["pairs"][0]["ops"]
        del ops["classes"]
        assert ops["aligned"] == ops["ops_a"] == ops["ops_b"] > 500 and "first_mismatch" not in ops, ops


def each_sees_its_own_gpu(place):
    """As with Slurm's --gpus-per-task=1: every process has one GPU, whatever its local rank."""
    end_well(place.start_ranks("own", sees=[2, 0, 3, 1]))
    assert [row["loss"] for row in place.rows("own")] == [row["loss"] for row in place.rows("one")]
    places = [gpu["pci"] for gpu in place.report("own")["environment"]["gpus"]]
    assert places == [f"0000:0{gpu + 1}:00.0" for gpu in (2, 0, 3, 1)], places
    processes = place.start_ranks("shared", sees=[2, 0, 2, 1])
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 2 and "ranks 0 and 2 both use GPU 0000:03:00.0" in errors, (process.returncode, errors)


def ends_when_one_is_killed(place):
    processes = place.start_ranks("killed", "--set", "training_config.steps=100000")
    while not processes[0].stderr.readline().lstrip().startswith("step"):
        assert processes[0].poll() is None, processes[0].communicate()
    processes[2].send_signal(signal.SIGKILL)
    since = time.monotonic()
    for rank, process in enumerate(processes):
        _, errors = process.communicate(timeout=10 + SCENARIO["distributed_config"]["timeout_seconds"])
        if rank != 2:
            assert process.returncode == 4 and "rank 2 (pid" in errors and "is gone" in errors, (rank, process.returncode, errors)
    assert processes[2].returncode == -signal.SIGKILL
    assert place.report("killed")["steps_done"] >= 1
    print(f"the others ended {time.monotonic() - since:.2f} s after the kill")


def stops_on_a_signal(place):
    processes = place.start_ranks("stopped", "--set", "training_config.steps=100000")
    while not processes[0].stderr.readline().lstrip().startswith("step"):
        assert processes[0].poll() is None, processes[0].communicate()
    processes[1].send_signal(signal.SIGTERM)
    ends = [process.communicate(timeout=60) for process in processes]
    assert all(p.returncode in (0, 143) for p in processes) and processes[1].returncode == 143, ends
    done = place.report("stopped")["steps_done"]
    assert 1 <= done < 100000 and len(place.rows("stopped")) == done
    saved = [path.name for path in (place.folder / "stopped" / "checkpoints").iterdir()]
    assert saved == [f"step-{done:08}"], (saved, done)


def end_well(processes):
    ends = [process.communicate(timeout=300) for process in processes]
    assert [p.returncode for p in processes] == [0] * 4, ends


def saves_and_goes_on(place):
    """Four processes save together; they, one process and the modelled cluster go on from it."""
    columns = ("step", "loss", "grad_norm")
    for kind, beside in (("sharded", "true"), ("full", "false")):
        saving = ("--set", f"checkpoint.type={kind}", "--set", f"checkpoint.async={beside}", "--set", "checkpoint.every_steps=3",
                  "--set", "checkpoint.keep_last=0")
        whole = f"whole-{kind}"
        end_well(place.start_ranks(whole, *saving))
        saved = place.folder / whole / "checkpoints" / "step-00000003"
        files = sorted(path.name for path in saved.iterdir())
        assert files == ["manifest.json"] + ([f"rank-{r:05}-of-00004.safetensors" for r in range(4)] if kind == "sharded"
                                             else ["state.safetensors"]), files
        end_well(place.start_ranks(f"four-on-{kind}", "--resume", saved))
        place.run(f"one-on-{kind}", "--backend", "cuda", "--resume", saved)
        place.run(f"modelled-on-{kind}", "--backend", "sim", "--threads", "1", "--resume", saved)
        expected = place.rows(whole)[3:]
        for out in (f"four-on-{kind}", f"one-on-{kind}"):
            assert [[row[c] for c in columns] for row in place.rows(out)] == [[row[c] for c in columns] for row in expected]
            routing = [row for row in place.rows(whole, "routing.csv") if int(row["step"]) > 3]
            assert place.rows(out, "routing.csv") == routing and len(routing) > 100
        for row, other in zip(place.rows(f"modelled-on-{kind}"), expected):
            assert row["step"] == other["step"] and abs(float(row["loss"]) - float(other["loss"])) <= 1e-4, (row, other)


def main():
    with tempfile.TemporaryDirectory() as folder:
        place = Place(sys.argv[1], folder)
        for case in (trains_alike, each_sees_its_own_gpu, saves_and_goes_on, ends_when_one_is_killed, stops_on_a_signal):
            begin = time.monotonic()
            case(place)
            print(f"{case.__name__}: {time.monotonic() - begin:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
