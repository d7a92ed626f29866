// Where the processes sit, and what they did in one step.
"use strict";

// Nodes as boxes, ranks as cells; a row of a node's cells is one expert-parallel group.
function layout(parent, run) {
  const l = run.layout;
  const ranks = l.ranks;
  const describe = r => `rank ${r.rank}: node ${r.node}, expert copy ${r.edp}, EP ${r.ep}, TP ${r.tp}, stage ${r.pp}` + (r.experts ? `, experts ${r.experts}` : "");
  frame(parent, {
    id: "layout", wide: l.shown > 16, title: "Process layout", source: "report.json settings.distributed_config",
    about: `${l.world} ranks = ${l.edp} expert copies × ${l.ep} expert-parallel × ${l.etp} expert-TP × ${l.pp} stages` + (l.shown < l.world ? `; the first ${l.shown} are shown` : "") + ". Cells of one colour hold the same experts; a blue line joins the ranks of an all-to-all, a dashed orange line the copies of the same experts.",
    table: () => [["rank", "node", "expert copy", "EP", "TP", "stage", "experts"], ...ranks.map(r => [r.rank, r.node, r.edp, r.ep, r.tp, r.pp, r.experts || "–"])],
  }, (plot, width, read) => {
    const nodes = d3.nest().key(r => r.node).entries(ranks).map(n => n.values), perNode = d3.max(nodes, n => n.length);
    const cell = l.shown > 64 ? 34 : l.shown > 16 ? 62 : 78, tall = l.shown > 64 ? 26 : 46, gap = l.shown > 16 ? 8 : 18, pad = 12;
    const cols = Math.max(1, Math.min(perNode, l.ep * l.etp > 1 ? l.ep * l.etp : 4, Math.floor((width - 2 * pad) / (cell + gap))));
    const boxW = cols * (cell + gap) - gap + 2 * pad, rows = Math.ceil(perNode / cols), boxH = rows * (tall + gap) - gap + pad + 26;
    const across = Math.max(1, Math.floor((width + 16) / (boxW + 16))), down = Math.ceil(nodes.length / across);
    const g = svg(plot, width, down * (boxH + 16) - 12, { left: 0, top: 2 });
    const place = new Map();
    nodes.forEach((list, n) => list.forEach((r, i) => place.set(r.rank, { x: (n % across) * (boxW + 16) + pad + (i % cols) * (cell + gap), y: Math.floor(n / across) * (boxH + 16) + 22 + Math.floor(i / cols) * (tall + gap) })));
    nodes.forEach((list, n) => {
      const x = (n % across) * (boxW + 16), y = Math.floor(n / across) * (boxH + 16);
      g.append("rect").attr("x", x + 0.5).attr("y", y).attr("width", boxW).attr("height", boxH).attr("rx", 9).attr("fill", "none").attr("stroke", css("line")).attr("stroke-width", 1.5);
      g.append("text").attr("x", x + pad).attr("y", y + 15).text("node " + list[0].node);
    });
    const join = (list, colour, dash, dy) => list.forEach((r, i) => {
      if (!i) return;
      const a = place.get(list[i - 1].rank), b = place.get(r.rank);
      if (a && b) g.append("line").attr("x1", a.x + cell / 2).attr("y1", a.y + tall * dy).attr("x2", b.x + cell / 2).attr("y2", b.y + tall * dy).attr("stroke", colour).attr("stroke-width", 2.5).attr("stroke-dasharray", dash).attr("opacity", 0.75);
    });
    const by = key => d3.nest().key(key).entries(ranks).map(e => e.values);
    if (l.ep > 1) by(r => `${r.pp}.${r.edp}.${r.etp}`).forEach(v => join(v, css("compute"), null, 0.3));
    if (l.edp > 1 && l.shown <= 64) by(r => `${r.pp}.${r.ep}.${r.etp}`).forEach(v => join(v, css("other_communication"), "5 4", 0.75));
    const hue = i => d3.lab(d3.interpolateCividis(l.columns > 1 ? 0.15 + 0.75 * i / (l.columns - 1) : 0.5));
    const boxes = g.selectAll("g.rank").data(ranks).enter().append("g").attr("transform", r => `translate(${place.get(r.rank).x},${place.get(r.rank).y})`);
    const face = boxes.append("rect").attr("width", cell).attr("height", tall).attr("rx", 6).attr("fill", r => hue(r.column)).attr("stroke", css("card")).attr("stroke-width", 1.5)
      .on("mousemove", r => { tip.show(describe(r), d3.event); read(describe(r)); }).on("mouseleave", tip.hide);
    const ink = r => hue(r.column).l > 58 ? "#17202b" : "#ffffff";
    boxes.append("text").attr("x", cell / 2).attr("y", tall > 30 ? 18 : 17).attr("text-anchor", "middle").style("fill", ink).style("font-weight", 600).style("pointer-events", "none").text(r => tall > 30 ? "rank " + r.rank : r.rank);
    if (tall > 30) boxes.append("text").attr("x", cell / 2).attr("y", 35).attr("text-anchor", "middle").style("fill", ink).style("font-size", "10px").style("pointer-events", "none").text(r => r.experts ? "E " + r.experts : "EP " + r.ep);
    let at = -1;
    return key => {
      at = key === "Home" ? 0 : key === "End" ? ranks.length - 1 : Math.max(0, Math.min(ranks.length - 1, at + (key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : key === "ArrowDown" ? cols : -cols)));
      face.attr("stroke", (r, i) => i === at ? css("ink") : css("card")).attr("stroke-width", (r, i) => i === at ? 3 : 1.5);
      read(describe(ranks[at]));
      return true;
    };
  });
}

// Ops by the device time of the profile's steps: the table that a run shows at its end.
function ops(parent, run) {
  const p = run.profile, kinds = PARTS.filter(k => p.ops.some(r => r.activity === k));
  stacked(parent, {
    id: "ops", wide: true, open: true, title: "Ops by device time", source: "report.json profile.ops", rowName: "op", keys: kinds, format: fmt.seconds, color: css,
    about: `${p.steps}, ${p.ranks} rank${p.ranks === 1 ? "" : "s"} together: ${fmt.seconds(p.device_seconds)}. Busiest: the most that one rank took for the op in one step, against the mean over ranks and steps.`,
    rows: p.ops.map(r => ({ name: r.op, values: { [r.activity]: r.total_seconds } })),
    table: () => [["op", "part of the step", "calls", "total", "mean", "share", "busiest rank of a step"],
      ...p.ops.map(r => [r.op, WORDS(r.activity), r.calls, fmt.seconds(r.total_seconds), fmt.seconds(r.mean_seconds), fmt.percent(r.share), known(r.busiest) ? `${r.busiest.toFixed(2)} × mean, rank ${r.most_rank}` : "–"])],
  });
}

function collectives(parent, run) {
  const list = run.collectives, timed = known(list[0].seconds), value = c => timed ? c.seconds : c.bytes;
  const part = c => c.collective === "all-to-all" ? "all_to_all" : "other_communication";
  stacked(parent, {
    id: "collectives", wide: true, open: true, title: "Collectives of a rank and step", source: "report.json traffic.collectives", rowName: "collective",
    keys: ["all_to_all", "other_communication"].filter(k => list.some(c => part(c) === k)), format: timed ? fmt.seconds : fmt.bytes, color: css,
    about: "Means of the ranks that send. Bandwidth is the bus bandwidth of nccl-tests: what a rank sends over its time, from the last member's arrival on.",
    rows: list.map(c => ({ name: `${c.collective}, ${c.purpose}`, values: { [part(c)]: value(c) } })),
    table: () => [["collective", "for", "group", "calls", "sends", "of it between nodes", "time", "bandwidth", "algorithm"],
      ...list.map(c => [c.collective, c.purpose, `${c.group} of ${c.group_size}`, fmt.count(c.calls), fmt.bytes(c.bytes), fmt.bytes(c.off_node), fmt.seconds(c.seconds), known(c.bandwidth) ? `${(c.bandwidth / 1e9).toFixed(2)} GB/s` : "–", c.algorithm ?? "–"])],
  });
}

// Lanes by rank and stream; zoom by buttons, + and -, wheel with ctrl; pan with the arrows.
function timeline(parent, run) {
  const t = run.timeline, view = { from: 0, to: t.end };
  const zoom = factor => { const mid = (view.from + view.to) / 2, half = Math.min(t.end, (view.to - view.from) * factor) / 2; view.from = Math.max(0, Math.min(mid - half, t.end - 2 * half)); view.to = view.from + 2 * half; redraw(); };
  const pan = share => { const d = Math.max(-view.from, Math.min(t.end - view.to, (view.to - view.from) * share)); view.from += d; view.to += d; redraw(); };
  const button = (text, label, f) => { const b = el("button", { type: "button", "aria-label": label }, text); b.addEventListener("click", f); return b; };
  const kinds = PARTS.filter(k => t.events.some(e => t.activities[e[5]] === k));
  const describe = e => `rank ${e[0]}, ${e[1] < 0 ? "host" : "stream " + e[1]}: ${t.names[e[4]]}, ${t.phases[e[6]]}\n${fmt.seconds(e[3])} from ${fmt.seconds(e[2])}` + (e[7] ? `, ${fmt.bytes(e[7])}` : "");
  const redraw = frame(parent, {
    id: "timeline", wide: true, title: `Timeline of step ${t.step}`, source: "timeline.json traceEvents",
    about: (t.left_out ? `${t.events.length} longest of ${t.events.length + t.left_out} events; ` : "") + `${t.ranks.length} of ${run.layout ? run.layout.world : t.ranks.length} ranks. The whole file opens in Perfetto or chrome://tracing.`,
    label: "Arrow keys pan, buttons zoom.",
    controls: el("div", { class: "controls" }, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)), button("←", "Earlier", () => pan(-0.4)), button("→", "Later", () => pan(0.4)), button("whole step", "Show the whole step", () => { view.from = 0; view.to = t.end; redraw(); })),
    legend: kinds.map(k => ({ name: WORDS(k), color: () => css(k) })),
    table: () => [["op", "rank", "stream", "start", "duration", "phase", "bytes"], ...t.events.slice(0, 400).map(e => [t.names[e[4]], e[0], e[1] < 0 ? "host" : e[1], fmt.seconds(e[2]), fmt.seconds(e[3]), t.phases[e[6]], e[7]])],
    keys: false,
  }, (plot, width, read) => {
    const lanes = t.lanes, m = { left: 92, right: 12, top: 4, bottom: 34 }, band = lanes.length > 24 ? 13 : 20, h = band * lanes.length, w = width - m.left - m.right;
    const g = svg(plot, width, h + m.top + m.bottom, m), x = d3.scaleLinear().domain([view.from, view.to]).range([0, w]);
    const index = new Map(lanes.map((l, i) => [l[0] + "/" + l[1], i]));
    lanes.forEach((l, i) => {
      g.append("rect").attr("y", i * band).attr("width", w).attr("height", band).attr("fill", l[0] % 2 ? "transparent" : css("shade"));
      g.append("text").attr("x", -6).attr("y", i * band + band / 2 + 4).attr("text-anchor", "end").text(i && lanes[i - 1][0] === l[0] ? (l[1] < 0 ? "host" : "stream " + l[1]) : `rank ${l[0]} ${l[1] < 0 ? "host" : "s" + l[1]}`);
    });
    const shown = t.events.filter(e => e[2] + e[3] >= view.from && e[2] <= view.to);
    const clip = v => Math.max(0, Math.min(w, x(v)));
    g.selectAll("rect.e").data(shown).enter().append("rect").attr("class", "e").attr("x", e => clip(e[2])).attr("y", e => index.get(e[0] + "/" + e[1]) * band + 2).attr("rx", 1.5)
      .attr("width", e => Math.max(0.7, clip(e[2] + e[3]) - clip(e[2]))).attr("height", band - 4).attr("fill", e => css(t.activities[e[5]]) || css("idle"))
      .on("mousemove", e => { tip.show(describe(e), d3.event); read(describe(e).replace("\n", ", ")); }).on("mouseleave", tip.hide);
    if (band > 14) g.selectAll("text.n").data(shown.filter(e => clip(e[2] + e[3]) - clip(e[2]) > 8 * t.names[e[4]].length)).enter().append("text").attr("class", "n").attr("x", e => clip(e[2]) + 4).attr("y", e => index.get(e[0] + "/" + e[1]) * band + band / 2 + 4).style("fill", "#fff").style("pointer-events", "none").style("font-size", "10px").text(e => t.names[e[4]]);
    g.append("g").attr("class", "axis").attr("transform", `translate(0,${h})`).call(d3.axisBottom(x).ticks(Math.max(2, Math.floor(w / 110))).tickFormat(fmt.seconds));
    return key => { pan(key === "ArrowRight" ? 0.2 : key === "ArrowLeft" ? -0.2 : 0); return key !== "ArrowUp" && key !== "ArrowDown"; };
  });
}
