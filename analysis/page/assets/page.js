// Puts the page together: verdicts in words first, then the charts of the chosen run, or the comparison.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const SIGN = { stable: "✓", compute: "✓", oscillating: "≈", rotating: "↻", collapsed: "▼", imbalanced: "⚖", diverging: "↗", out_of_memory: "■", memory: "■", communication: "⇄", imbalance: "⚖", host: "◷", bubble: "◌", data: "◷" };

function verdictCard(v) {
  const where = [known(v.layer) ? "layer " + v.layer : null, v.strength, known(v.onset_step) ? "from step " + v.onset_step + (known(v.end_step) ? " to " + v.end_step : "") : null,
    known(v.period_steps) ? "period " + fmt.plain(v.period_steps) + " steps" : null, known(v.amplitude) ? "amplitude " + v.amplitude.toFixed(2) + " of the mean load" : null,
    known(v.confidence) ? "confidence " + v.confidence.toFixed(2) : null].filter(Boolean).join(" · ");
  const knobs = v.knobs || [];
  return el("article", { class: "verdict " + v.kind }, el("h3", {}, el("span", { class: "mark", "aria-hidden": "true" }, SIGN[v.kind] || "•"), v.title || v.kind.replace(/_/g, " "), " ", el("span", { class: "where" }, where)),
    el("p", {}, v.evidence),
    knobs.length ? el("ul", {}, knobs.map(k => el("li", {}, el("code", {}, k.key), ": " + k.change + " — " + k.effect))) : null,
    (v.advice_list || []).length ? el("ul", {}, v.advice_list.map(a => el("li", {}, a))) : null);
}

function section(parent, title) {
  parent.append(el("h2", {}, title));
  const grid = el("div", { class: "grid" });
  parent.append(grid);
  return grid;
}

function showRun(run) {
  const main = document.getElementById("content");
  main.replaceChildren();
  drawers.length = 0;
  main.append(el("dl", { class: "tiles" }, run.facts.map(f => el("div", { class: "tile" }, el("dt", {}, f.name), el("dd", {}, f.text, el("small", {}, f.source))))));
  main.append(el("h2", {}, "Verdicts"));
  main.append(el("div", { class: "verdicts" }, [...run.verdicts, ...run.bottlenecks].map(verdictCard)));
  for (const note of run.notes) main.append(el("p", { class: "note" }, "Note: " + note));
  const blue = () => css("compute"), orange = () => css("other_communication"), green = () => css("host");
  if (run.loss || run.seconds || run.churn) {
    const grid = section(main, "Training");
    if (run.loss) lines(grid, { id: "loss", title: "Loss", source: "steps.csv loss", about: "Cross-entropy per token in nats" + (run.loss.bucket > 1 ? `; mean of ${run.loss.bucket} steps, the band from their lowest to their highest.` : "."), label: "", wide: !run.churn && !run.seconds, marks: run.marks, series: [{ name: "loss", color: blue, ...run.loss, format: fmt.plain }] });
    if (run.churn) lines(grid, { id: "churn", title: "Churn of the probe batch", source: "probe.csv churn", about: "Share of a fixed batch whose first expert changed since the last probe.", marks: run.marks, zero: true, series: run.churn.map((c, i) => ({ name: "layer " + c.layer, color: () => SERIES()[i % 6], dash: i > 5 ? "4 3" : null, ...c, format: fmt.percent })) });
    if (run.harm) lines(grid, { id: "harm", title: "Tokens harmed by their expert", source: "probe.csv harm", about: "Share of routed tokens whose loss falls with a smaller weight of the expert they got; above 60% the router soon pushes them around.", marks: run.marks, zero: true, series: run.harm.map((c, i) => ({ name: "layer " + c.layer, color: () => SERIES()[i % 6], dash: i > 5 ? "4 3" : null, ...c, format: fmt.percent })) });
    if (run.seconds) lines(grid, { id: "seconds", title: "Seconds of a step", source: "steps.csv step_seconds", about: "On the machine's clock, from the end of the step before to the last rank's end.", zero: true, series: [{ name: "step", color: green, ...run.seconds, format: fmt.seconds }] });
    if (run.imbalance) lines(grid, { id: "imbalance", title: "Imbalance", source: "steps.csv imbalance_experts, imbalance_ranks", about: "Highest load over the mean, of the worst layer; 1 is even.", series: [{ name: "experts", color: orange, ...run.imbalance.experts, format: fmt.plain }, { name: "ranks", color: blue, dash: "5 3", ...run.imbalance.ranks, format: fmt.plain }] });
  }
  if (run.layers.length || run.matrix.length) {
    const grid = section(main, "Routing");
    if (run.layers.length) heatmap(grid, run);
    if (run.matrix.length) matrix(grid, run);
    if (run.traffic.length) stacked(grid, { id: "traffic", title: "Traffic of a step", source: "report.json traffic", about: "Bytes sent by all ranks together.", rowName: "collective", keys: ["in_node", "between_nodes"], rows: run.traffic, format: fmt.bytes, color: k => css(k === "in_node" ? "compute" : "other_communication") });
  }
  if (run.parts || run.memory || run.profile) {
    const grid = section(main, "Where the time and the memory go");
    if (run.parts) stacked(grid, { id: "parts", title: `Parts of step ${run.parts.step}, by rank`, source: "report.json step_parts_seconds_per_rank", about: "The step of median duration" + (run.parts.shown < run.parts.world ? `; ${run.parts.shown} of ${run.parts.world} ranks, evenly picked` : "") + ".", rowName: "rank", keys: PARTS, rows: run.parts.rows, format: fmt.seconds, color: css });
    if (run.memory) stacked(grid, { id: "memory", title: "Peak memory, by rank", source: "report.json memory.peak_bytes_per_rank", about: run.memory.about, rowName: "rank", keys: ["peak"], rows: run.memory.rows, format: fmt.bytes, color: () => css("bubble"), limit: run.memory.capacity ? { value: run.memory.capacity, text: "capacity " + fmt.bytes(run.memory.capacity) } : null });
    if (run.memory && run.memory.classes.length) stacked(grid, { id: "classes", title: "What fills the fullest rank", source: "report.json memory.classes", about: `Rank ${run.memory.fullest} at its peak.`, rowName: "class", keys: ["bytes"], rows: run.memory.classes, format: fmt.bytes, color: () => css("data") });
    if (run.collectives.length) collectives(grid, run);
    if (run.profile) ops(grid, run);
    if (run.layout && run.layout.shown <= 16) layout(grid, run);
  }
  const whole = run.layout && (run.layout.shown > 16 || !(run.parts || run.memory));
  if (whole || run.timeline) {
    const grid = section(main, "The machine");
    if (whole) layout(grid, run);
    if (run.timeline) timeline(grid, run);
  }
}

function showComparison() {
  const main = document.getElementById("content");
  main.replaceChildren();
  drawers.length = 0;
  for (const pair of data.comparison.pairs) {
    main.append(el("h2", {}, `${pair.b} against ${pair.a}`));
    const panel = el("div", { class: "panel", tabindex: 0 }, el("p", { class: "headline" }, pair.headline));
    const body = el("tbody");
    let group = "";
    for (const f of pair.figures) {
      if (f.group !== group) body.append(el("tr", { class: "group" }, el("th", { colspan: 6, scope: "rowgroup" }, group = f.group)));
      body.append(el("tr", {}, el("th", { scope: "row", title: f.source }, f.name), el("td", {}, f.a), el("td", {}, f.b), el("td", {}, f.change), el("td", {}, f.interval), el("td", {}, el("span", { class: "standing " + (f.beyond ? "beyond" : ""), title: f.why }, f.standing))));
    }
    panel.append(el("table", {}, el("thead", {}, el("tr", {}, ["figure", pair.a, pair.b, "difference", "95% interval", ""].map(t => el("th", { scope: "col" }, t)))), body));
    main.append(panel);
    const scenario = el("div", { class: "panel" }, el("h3", {}, "What differs in the scenarios"));
    scenario.append(pair.scenario.length ? table([["key", pair.a, pair.b], ...pair.scenario]) : el("p", { class: "note" }, pair.scenario_known ? "Nothing." : "Unknown: a report has no settings."));
    main.append(el("p", {}), scenario);
    if (pair.ops) main.append(el("p", {}), el("div", { class: "panel", tabindex: 0 }, el("h3", {}, "Ops that differ most"), el("p", { class: "note" }, pair.ops.sentence), table([["op, group, bytes", "calls", pair.a, pair.b, "difference"], ...pair.ops.rows])));
  }
  const grid = section(main, "Side by side"), several = key => data.runs.filter(r => r[key]);
  const colour = r => () => SERIES()[data.runs.indexOf(r) % 6];
  if (several("loss").length > 1) lines(grid, { id: "losses", title: "Loss", source: "steps.csv loss", about: "Cross-entropy per token in nats.", series: several("loss").map(r => ({ name: r.name, color: colour(r), ...r.loss, format: fmt.plain })) });
  if (several("seconds").length > 1) lines(grid, { id: "secondses", title: "Seconds of a step", source: "steps.csv step_seconds", about: "On each machine's clock.", zero: true, series: several("seconds").map(r => ({ name: r.name, color: colour(r), ...r.seconds, format: fmt.seconds })) });
  if (several("parts").length > 1) stacked(grid, { id: "partses", wide: true, title: "Parts of the step, mean over ranks", source: "report.json step_parts_seconds", about: "The step of median duration of each run.", rowName: "run", keys: PARTS, rows: several("parts").map(r => ({ name: r.name, values: r.parts.mean })), format: fmt.seconds, color: css });
  main.append(el("h2", {}, "Verdicts"));
  for (const run of data.runs) main.append(el("h3", {}, run.name), el("div", { class: "verdicts" }, run.verdicts.map(verdictCard)), el("p", {}));
}

function start() {
  const head = document.getElementById("head");
  head.append(el("h1", {}, data.title), el("p", { class: "sub" }, data.subtitle));
  document.getElementById("foot").append(el("p", {}, data.footer));
  const views = (data.runs || []).map(run => ({ name: run.name, show: () => showRun(run) }));
  if (data.sweep) views.push({ name: "Sweep", show: showSweep });
  if (data.validation) views.push({ name: "Validation", show: showValidation });
  if (data.comparison) views.unshift({ name: "Comparison", show: showComparison });
  const nav = document.getElementById("runs");
  if (views.length > 1) {
    nav.setAttribute("role", "tablist");
    const tabs = views.map((view, i) => el("button", { type: "button", role: "tab", "aria-controls": "content" }, view.name));
    const choose = i => {
      tabs.forEach((tab, j) => { tab.setAttribute("aria-selected", i === j); tab.tabIndex = i === j ? 0 : -1; });
      views[i].show();
    };
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => choose(i));
      tab.addEventListener("keydown", event => {
        const to = event.key === "ArrowRight" ? i + 1 : event.key === "ArrowLeft" ? i - 1 : -1;
        if (tabs[to]) { choose(to); tabs[to].focus(); }
      });
    });
    nav.append(...tabs);
    choose(0);
  } else {
    views[0].show();
  }
  let width = innerWidth, timer = 0;
  addEventListener("resize", () => { if (innerWidth === width) return; width = innerWidth; clearTimeout(timer); timer = setTimeout(() => drawers.forEach(d => d()), 120); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawers.forEach(d => d()));
  document.documentElement.dataset.ready = "yes";
}
start();
