#!/usr/bin/env python3
"""TensorBoard's own reader loads our event files.

usage: test_tensorboard.py MOETWIN
Installs PyPI's tensorboard into a folder of its own; exit code 77 (skipped) where that cannot be had.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
tags = events.Tags()
print(json.dumps({"scalars": {tag: [[e.step, e.value, e.wall_time] for e in events.Scalars(tag)]
                              for tag in tags["scalars"]},
                  "texts": {tag: [e.tensor_proto.string_val[0].decode() for e in events.Tensors(tag)]
                            for tag in tags["tensors"]}}))
"""


def main():
    moetwin = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = subprocess.run(
            f"'{sys.executable}' -m venv '{folder / 'env'}' && '{folder / 'env/bin/pip'}' install -q tensorboard",
            shell=True, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            print(f"skipped: tensorboard cannot be installed: {made.stderr.strip()[-300:]}")
            return 77
        run = folder / "run"
        run.mkdir()
        (run / "report.json").write_text('{"schema": "moetwin-report/1", "scenario": "made"}')
        (run / "steps.csv").write_text("step,loss,step_seconds\n" + "".join(
            f"{s},{'' if s == 3 else 3 / s},0.5\n" for s in range(1, 101)))
        (run / "routing.csv").write_text("step,layer,rank,expert,assigned,kept\n" + "".join(
            f"{s},1,all,{e},{3 - 2 * e},{3 - 2 * e}\n" for s in range(1, 101) for e in (0, 1)))
        subprocess.run([moetwin, "report", run, "--tensorboard", folder / "logs"], check=True)
        out = subprocess.run([folder / "env/bin/python", "-c", READ, folder / "logs"], check=True,
                             capture_output=True, text=True).stdout
        read = json.loads(out.splitlines()[-1])
    loss = read["scalars"]["steps/loss"]
    assert len(loss) == 99 and [s for s, _, _ in loss] == [s for s in range(1, 101) if s != 3], loss
    for step, value, wall in loss:
        assert abs(value - 3 / step) < 1e-6 * 3 and abs(wall - .5 * step) < 1e-9, (step, value, wall)
    # Loads 3 and 1: mean 2, deviation 1, so the coefficient of variation is a half.
    assert all(value == .5 for _, value, _ in read["scalars"]["layer_1/load_cv"])
    assert "verdicts" in read["texts"], read["texts"]
    print("1 passed, 0 failed, 0 skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
