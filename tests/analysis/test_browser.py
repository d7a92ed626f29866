#!/usr/bin/env python3
"""Opens pages in headless Chromium and looks at them: no console error, every chart drawn, every chart
read by keyboard, no request, nothing wider than the screen.

usage: test_browser.py MOETWIN
Exit code 77 (skipped) where there is no Chromium.
"""
import html
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HARNESS = """<!DOCTYPE html><body style="margin:0"><iframe id="f" src="PAGE"
style="border:0;width:WIDTHpx;height:3000px"></iframe><pre id="result"></pre><script>
function look(document, window) {
  const figures = [...document.querySelectorAll("figure")];
  for (const plot of document.querySelectorAll(".plot")) {
    plot.focus();
    plot.dispatchEvent(new window.KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
  }
  return {
    wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    requests: window.performance.getEntriesByType("resource").length,
    verdicts: [...document.querySelectorAll(".verdict h3")].map(v => v.textContent),
    figures: figures.map(f => ({chart: f.dataset.chart, drawn: f.dataset.drawn,
      marks: f.querySelectorAll("svg path[d], svg rect[width]").length,
      label: f.querySelector(".plot").getAttribute("aria-label") || "",
      source: f.querySelector(".source").textContent, read: f.querySelector(".read").textContent}))
  };
}
document.getElementById("f").addEventListener("load", event => {
  const inner = event.target.contentDocument, window = event.target.contentWindow, views = [];
  const tabs = [...inner.querySelectorAll("nav button")];
  if (tabs.length === 0) views.push(look(inner, window));
  for (const tab of tabs) { tab.click(); views.push(look(inner, window)); }
  document.getElementById("result").textContent = JSON.stringify(
    {ready: inner.documentElement.dataset.ready, views});
});
</script></body>"""


def write_run(folder, sick):
    """A run directory with every file: 400 steps, two layers, 8 experts, 8 ranks."""
    folder.mkdir()
    parts = {"compute": .6, "all_to_all": .3, "host": .1}
    settings = {"model_config": {"num_layers": 2, "moe_layer_config": {"num_experts": 8, "top_k": 1}},
                "distributed_config": {"world_size": 8, "data_parallel_size": 4,
                                       "expert_parallel_size": 2},
                "training_config": {"global_batch_size": 8}}
    (folder / "report.json").write_text(json.dumps({
        "schema": "moetwin-report/1", "scenario": "sick" if sick else "calm", "backend": "sim",
        "cluster": "8 GPUs", "seed": 1, "world_size": 8, "steps_done": 400, "median_step": 200,
        "throughput": {"tokens_per_second": 1e5, "step_seconds_median": 1, "mfu": .4,
                       "warmup_steps_excluded": 2},
        "step_parts_seconds": parts,
        "step_parts_seconds_per_rank": {k: [v] * 8 for k, v in parts.items()},
        "memory": {"peak_bytes_per_rank": [2 ** 30 + r for r in range(8)], "fullest_rank": 7,
                   "capacity_bytes": 2 ** 32, "classes": {"parameters": 1e9, "workspace": 0}},
        "traffic": {"all_to_all_bytes_per_step": 1e9, "all_to_all_off_node_bytes_per_step": 4e8},
        "profile": {"steps": [199, 200], "ranks": 8, "device_seconds": 9, "file": "profile.csv", "ops": [
            {"op": name, "activity": part, "calls": 320, "total_seconds": seconds, "mean_seconds": seconds / 320,
             "share": seconds / 9, "bytes": 1, "most_seconds_of_a_rank_and_step": seconds / 8, "most_rank": 3}
            for name, part, seconds in (("gemm", "compute", 6), ("all_to_all_v", "all_to_all", 2), ("norm", "compute", 1))]},
        "loss": {"last": 2.5}, "verdicts": [], "notes": ["a note"], "settings": settings}))
    steps = ["step,loss,step_seconds,imbalance_experts,imbalance_ranks"]
    routing = ["step,layer,rank,expert,assigned,kept"]
    probe = ["step,layer,churn,harm," + ",".join(f"share_{e}" for e in range(8))]
    for s in range(1, 401):
        steps.append(f"{s},{2 + 3 / s},{1 + .01 * (s % 5)},1.5,1.2")
        swing = .7 * math.cos(2 * math.pi * s / 20) if sick else 0
        for layer in (0, 1):
            shares = [(1 + (swing if e % 2 else -swing)) / 8 for e in range(8)]
            for e in range(8):
                routing.append(f"{s},{layer},all,{e},{round(8000 * shares[e])},{round(8000 * shares[e])}")
            if s == 400:
                routing += [f"{s},{layer},{r},{e},{round(1000 * shares[e])},{round(1000 * shares[e])}"
                            for r in range(8) for e in range(8)]
            churn = "" if s == 1 else .2 if sick else .002
            probe.append(f"{s},{layer},{churn},{.7 if sick else .3}," + ",".join(map(str, shares)))
    (folder / "steps.csv").write_text("\n".join(steps) + "\n")
    (folder / "routing.csv").write_text("\n".join(routing) + "\n")
    (folder / "probe.csv").write_text("\n".join(probe) + "\n")
    events = [{"name": "gemm" if i % 2 else "all_to_all_v", "ph": "X", "pid": rank, "tid": 1 + i % 2,
               "cat": "compute" if i % 2 else "all_to_all", "ts": 1000 * i, "dur": 900,
               "args": {"step": 200, "phase": "forward", "bytes": 4096, "group": "ep"}}
              for rank in range(8) for i in range(40)]
    (folder / "timeline.json").write_text(json.dumps({"traceEvents": events}))


def chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


def look(browser, folder, page, width):
    harness = folder / "harness.html"
    harness.write_text(HARNESS.replace("PAGE", page.name).replace("WIDTH", str(width)))
    done = subprocess.run(
        [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--allow-file-access-from-files", f"--user-data-dir={folder / 'profile'}",
         f"--window-size={max(width, 600)},3000", "--virtual-time-budget=8000",
         "--enable-logging=stderr", "--dump-dom", harness.as_uri()],
        capture_output=True, text=True, timeout=240, check=False)
    found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.S)
    assert found and found[1], f"the page gave no result:\n{done.stderr[-3000:]}"
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return json.loads(html.unescape(found[1])), console


def check(result, console, expected, where):
    assert not console, f"{where}: console: {console}"
    assert result["ready"] == "yes", f"{where}: the script did not end"
    for view, charts in zip(result["views"], expected, strict=True):
        assert view["requests"] == 0, f"{where}: {view['requests']} requests left the page"
        assert not view["wide"], f"{where}: wider than the screen"
        names = [figure["chart"] for figure in view["figures"]]
        assert names == charts, f"{where}: charts {names}, expected {charts}"
        for figure in view["figures"]:
            assert figure["drawn"] == "yes" and figure["marks"] >= 3, f"{where}: not drawn: {figure}"
            assert figure["label"] and figure["source"], f"{where}: no label or source: {figure}"
            assert figure["read"] or figure["chart"] == "timeline", f"{where}: no keyboard: {figure}"


def main():
    moetwin = sys.argv[1]
    browser = chromium()
    if not browser:
        print("skipped: no Chromium (package chromium)")
        return 77
    one = ["loss", "churn", "harm", "seconds", "imbalance", "heat", "matrix", "traffic", "parts", "memory",
           "classes", "ops", "layout", "timeline"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HOME"] = name
        for sick in (True, False):
            write_run(folder / ("sick" if sick else "calm"), sick)
        single, both = folder / "single.html", folder / "both.html"
        subprocess.run([moetwin, "report", folder / "sick", "-o", single], check=True)
        subprocess.run([moetwin, "report", folder / "sick", folder / "calm", "-o", both], check=True)
        for width in (1280, 390):
            result, console = look(browser, folder, single, width)
            check(result, console, [one], f"one run, {width} wide")
            verdicts = result["views"][0]["verdicts"]
            assert any("oscillating" in v for v in verdicts), verdicts
            result, console = look(browser, folder, both, width)
            check(result, console, [["losses", "secondses", "partses"], one, one],
                  f"two runs, {width} wide")
    print("1 passed, 0 failed, 0 skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
