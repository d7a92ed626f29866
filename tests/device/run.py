#!/usr/bin/env python3
"""The steps of run.sh. Results are written after every step, so that a run that is cut off leaves what it has."""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gpu
import steps

ROOT = Path(__file__).resolve().parents[2]
TOTAL_SECONDS = 470


def run_step(step, environment, seconds, folder):
    """Runs a step's command in a process group of its own; returns (exit code or None at the limit, output)."""
    log = folder / f"{step.name}.log"
    with open(log, "wb") as out:
        child = subprocess.Popen(step.command, cwd=ROOT, env={**environment, **step.environment},
                                 stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            code = None
    text = log.read_text(errors="replace")
    log.unlink()
    return code, text


def perform(step, environment, left, folder):
    """The result of one step as it is written."""
    result = {"step": step.name, "what": step.what}
    if reason := step.missing():
        return {**result, "status": "skipped", "reason": reason}
    limit = min(step.seconds, left)
    if limit < step.least_seconds:
        return {**result, "status": "skipped", "reason": f"{left:.0f} s are left, it takes {step.least_seconds:.0f}"}
    began = time.monotonic()
    code, text = run_step(step, environment, limit, folder)
    result["seconds"] = round(time.monotonic() - began, 2)
    result["output_end"] = text[-4000:]
    if code is None:
        return {**result, "status": "failed", "reason": f"not done after {limit:.0f} s"}
    result["exit_code"] = code
    try:
        result["numbers"] = step.numbers(code, text)
    except (OSError, KeyError, ValueError, IndexError) as error:
        return {**result, "status": "failed", "reason": f"its output cannot be read: {error!r}"}
    if reason := step.wrong(code, result["numbers"]):
        return {**result, "status": "failed", "reason": reason}
    return {**result, "status": "passed"}


def write(folder, report):
    target = folder / "device.json"
    part = target.with_suffix(".part")
    part.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    part.replace(target)


def main():
    folder = Path(os.environ.get("OUT") or ROOT / "analysis" / "results")
    folder.mkdir(parents=True, exist_ok=True)
    carry = ROOT / "build-device" / "carry"
    gpus, reason = gpu.count()
    path, absent = gpu.library_path()
    if not reason and not carry.is_dir():
        reason = "build-device/carry is not there: run tests/device/build.sh where moetwin is built"
    if not reason and absent:
        reason = f"these libraries are not on this machine: {', '.join(absent)}"
    report = {"schema": "moetwin-device/1", "gpus": gpus, "libraries": path, "steps": []}
    environment = {**os.environ, "LD_LIBRARY_PATH": path, "MOETWIN_FIXTURES": str(carry / "fixtures")}
    began = time.monotonic()
    for step in steps.all_steps(carry, folder):
        if reason:
            result = {"step": step.name, "what": step.what, "status": "skipped", "reason": reason}
        else:
            result = perform(step, environment, TOTAL_SECONDS - (time.monotonic() - began), folder)
        report["steps"].append(result)
        report["seconds"] = round(time.monotonic() - began, 1)
        write(folder, report)
        print(f"{result['status']:8} {step.name}" + (f": {result['reason']}" if "reason" in result else ""),
              flush=True)
    states = [result["status"] for result in report["steps"]]
    print(f"{states.count('passed')} passed, {states.count('failed')} failed, {states.count('skipped')} skipped; "
          f"{folder / 'device.json'}")
    if "failed" in states:
        return 1
    return 0 if "passed" in states else 77


if __name__ == "__main__":
    sys.exit(main())
