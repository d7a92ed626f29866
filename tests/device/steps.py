"""What run.py does, step by step: commands, limits, and the numbers that are kept of each."""
import csv
import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import quickstart
import rates

SCENARIO = "scenarios/quickstart.json"
# Two correct builds agree on the losses of the first steps to this (nats a token).
LOSS_TOLERANCE = 1e-4


def nothing_wrong(code, _numbers):
    return "" if code == 0 else f"exit code {code}"


@dataclass
class Step:
    name: str
    what: str
    command: list
    seconds: float
    numbers: Callable = lambda code, text: {}
    wrong: Callable = nothing_wrong
    missing: Callable = lambda: ""
    environment: dict = field(default_factory=dict)
    least_seconds: float = 5


def catch_numbers(_code, text):
    """Of Catch2's last line."""
    if match := re.search(r"All tests passed \((\d+) assertions? in (\d+) test cases?\)", text):
        return {"assertions": int(match[1]), "cases": int(match[2]), "failed": 0}
    match = re.search(r"test cases:\s*(\d+)\s*\|.*?(\d+) failed", text)
    if not match:
        raise ValueError("no summary of Catch2")
    return {"cases": int(match[1]), "failed": int(match[2]), "failures": failed_cases(text)}


def failed_cases(text):
    return re.findall(r"^-{20,}\n(.+)\n-{20,}", text, re.M)[:40]


def losses(folder):
    with open(Path(folder) / "steps.csv", newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def run_numbers(folder, beside=None):
    """Of a run directory; with `beside`, the losses' largest difference to another run's."""
    report = json.loads((Path(folder) / "report.json").read_text())
    numbers = {key: report[key] for key in ("loss", "throughput", "step_parts_seconds", "verdicts", "environment")}
    if "profile" in report:
        numbers["ops"] = report["profile"]["ops"][:15]
    if beside:
        here, there = losses(folder), losses(beside)
        if len(here) != len(there):
            raise ValueError(f"{len(here)} steps beside {len(there)}")
        numbers["largest_loss_difference"] = max(abs(a - b) for a, b in zip(here, there))
    return numbers


def losses_differ(code, numbers):
    if code:
        return f"exit code {code}"
    off = numbers.get("largest_loss_difference", 0)
    return f"losses are {off:.2g} from the modelled run's, allowed {LOSS_TOLERANCE:g}" if off > LOSS_TOLERANCE else ""


def several_ranks(program, folder):
    """A shell line that starts two ranks on one GPU as a launcher would, each a host of its own to NCCL."""
    arguments = quickstart.arguments({"world_size": 2, "expert_parallel_size": 2})
    quoted = " ".join(f"'{a}'" for a in ["run", SCENARIO, *arguments, "--backend", "cuda", "--quiet"])
    ranks = [f"RANK={r} LOCAL_RANK={r} NCCL_HOSTID=rank{r} {program} {quoted} --out '{folder}' & pids=\"$pids $!\""
             for r in range(2)]
    return "\n".join(["pids=", *ranks, "code=0", "for pid in $pids; do wait $pid || code=$?; done", "exit $code"])


def all_steps(carry, out):
    program, conformance = str(carry / "moetwin-device"), str(carry / "conformance-device")
    work = out / "work"  # run directories; only their numbers are kept
    quick = work / "quickstart"
    shared = {"MOETWIN_SHARE_GPUS": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": "29517"}

    def forget(folder, beside=None):
        def numbers(code, text):
            kept = run_numbers(folder, beside) if code == 0 else {}
            shutil.rmtree(folder, ignore_errors=True)
            return kept
        return numbers

    def tool(name):
        return lambda: "" if shutil.which(name) else f"{name} is not installed"

    return [
        Step("doctor", "what the machine has", [program, "doctor"], 30, lambda code, text: {"text": text}),
        Step("conformance", "every op against plain loops", [conformance], 150, catch_numbers),
        Step("quickstart", "the quickstart in numbers, 20 steps, beside the modelled run",
             [program, "run", SCENARIO, *quickstart.arguments(), "--backend", "cuda", "--out", str(quick), "--quiet"],
             60, forget(quick, carry / "quickstart-sim"), losses_differ),
        Step("profile", "ops by device time of a step, temperature and clocks",
             [program, "run", SCENARIO, *quickstart.arguments(), "--backend", "cuda", "--out", str(quick), "--quiet",
              "--set", "profile.active=5", "--set", "training_config.dtype=bf16"], 60, forget(quick)),
        Step("two ranks", "expert parallelism of two ranks on one GPU",
             ["bash", "-c", several_ranks(program, quick)], 60, forget(quick), environment=shared),
        Step("calibrate", "rates of kernels against the chip's limits, and a profile of this GPU",
             [program, "calibrate", "--backend", "cuda", "--gpus", "1", "--raw", str(out / "measurements.json"), "-o",
              str(out / "profile.json"), "--json"], 120,
             lambda code, text: rates.summary(json.loads((out / "measurements.json").read_text())) if code == 0 else {}),
        Step("sanitizer", "no access out of bounds in routing and dispatch",
             ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9", conformance, "[dispatch]"], 90,
             catch_numbers, missing=tool("compute-sanitizer")),
        Step("races", "no races in shared memory of the router's kernels",
             ["compute-sanitizer", "--tool", "racecheck", "--error-exitcode", "9", conformance, "[router]"], 90,
             catch_numbers, missing=tool("compute-sanitizer")),
    ]
