// The charts of one run.
"use strict";

// Lines over steps. series: {name, color(), x[], y[], low[], high[], format}.
function lines(parent, o) {
  o.legend = o.series.length > 1 ? o.series.map(s => ({ name: s.name, color: s.color })) : null;
  o.table = () => [["step", ...o.series.map(s => s.name)], ...o.series[0].x.map((x, i) => [x, ...o.series.map(s => s.format(s.y[i]))])];
  return frame(parent, o, (plot, width, read) => {
    const m = { left: 58, right: 12, top: 14, bottom: 38 }, h = o.height || 210, w = width - m.left - m.right;
    const g = svg(plot, width, h + m.top + m.bottom, m);
    const ys = o.series.flatMap(s => [...(s.low || s.y), ...(s.high || s.y)]).filter(known);
    const x = d3.scaleLinear().domain(d3.extent(o.series.flatMap(s => s.x))).range([0, w]);
    const low = o.zero ? 0 : d3.min(ys), high = d3.max(ys), pad = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
    const y = d3.scaleLinear().domain([o.zero ? 0 : low - pad, high + pad]).range([h, 0]).nice();
    axes(g, x, y, w, h, { xLabel: "step", yFormat: o.series[0].format });
    for (const s of o.series) {
      const at = s.x.map((v, i) => i);
      if (s.low) g.append("path").datum(at).attr("fill", s.color()).attr("opacity", 0.22)
        .attr("d", d3.area().defined(i => known(s.low[i])).x(i => x(s.x[i])).y0(i => y(s.low[i])).y1(i => y(s.high[i])));
      g.append("path").datum(at).attr("fill", "none").attr("stroke", s.color()).attr("stroke-width", 1.6).attr("stroke-dasharray", s.dash || null)
        .attr("d", d3.line().defined(i => known(s.y[i])).x(i => x(s.x[i])).y(i => y(s.y[i])));
    }
    if (o.line) {
      g.append("line").attr("x1", 0).attr("x2", w).attr("y1", y(o.line.value)).attr("y2", y(o.line.value)).attr("stroke", css("bad")).attr("stroke-dasharray", "2 3");
      g.append("text").attr("x", w).attr("y", y(o.line.value) - 4).attr("text-anchor", "end").text(o.line.text);
    }
    marks(g, x, h, o.marks);
    const cursor = g.append("line").attr("class", "cursor").attr("y1", 0).attr("y2", h).attr("opacity", 0);
    const first = o.series[0];
    let at = -1;
    const show = i => {
      at = Math.max(0, Math.min(first.x.length - 1, i));
      cursor.attr("x1", x(first.x[at])).attr("x2", x(first.x[at])).attr("opacity", 0.6);
      const text = "step " + first.x[at] + ": " + o.series.map(s => {
        const j = s.x === first.x ? at : Math.min(s.x.length - 1, d3.bisectLeft(s.x, first.x[at]));
        return s.name + " " + s.format(s.y[j]) + (s.low && s.low[j] !== s.high[j] ? ` (${s.format(s.low[j])} to ${s.format(s.high[j])})` : "");
      }).join(", ");
      read(text);
      return text;
    };
    g.append("rect").attr("width", w).attr("height", h).attr("fill", "transparent")
      .on("mousemove", function () { tip.show(show(d3.bisectCenterOf(first.x, x.invert(d3.mouse(this)[0]))), d3.event); })
      .on("mouseleave", tip.hide);
    return key => { show(key === "Home" ? 0 : key === "End" ? 1e9 : at + (key === "ArrowRight" || key === "ArrowUp" ? 1 : -1)); return true; };
  });
}
d3.bisectCenterOf = (xs, v) => {
  const i = Math.min(xs.length - 1, d3.bisectLeft(xs, v));
  return i > 0 && v - xs[i - 1] < xs[i] - v ? i - 1 : i;
};

// Load of each expert over time, blue below the mean, orange above, on a scale of doublings.
function heatColour() {
  return d3.scaleLinear().domain([-2, 0, 2]).range([css("heat-low"), css("heat-mid"), css("heat-high")]).interpolate(d3.interpolateLab).clamp(true);
}
function heatmap(parent, run) {
  const select = el("select", { "aria-label": "Layer" }, run.layers.map((l, i) => el("option", { value: i }, "layer " + l.layer)));
  const state = { layer: 0 };
  const scale = el("span", { class: "source" });
  const redraw = frame(parent, {
    id: "heat", wide: true, title: "Load of each expert over time", source: "routing.csv assigned (rank all)",
    about: "Each row is an expert; colour is its load against the mean of all experts.",
    controls: el("div", { class: "controls" }, run.layers.length > 1 ? select : null, scale),
    table: () => { const l = run.layers[state.layer]; return [["step", ...d3.range(l.experts).map(e => "expert " + e)], ...l.steps.map((s, c) => [s, ...d3.range(l.experts).map(e => (l.load[e][c] / 100).toFixed(2))])]; },
  }, (plot, width, read) => {
    const l = run.layers[state.layer], m = { left: 58, right: 12, top: 14, bottom: 38 };
    const h = Math.max(120, Math.min(460, l.experts * (l.experts > 24 ? 8 : 20))), w = width - m.left - m.right, n = l.steps.length;
    const canvas = el("canvas", { width: n, height: l.experts, style: `left:${m.left}px;top:${m.top}px;width:${w}px;height:${h}px` });
    plot.append(canvas);
    const colour = heatColour(), context = canvas.getContext("2d"), image = context.createImageData(n, l.experts);
    const cache = new Map();
    for (let e = 0; e < l.experts; ++e) for (let c = 0; c < n; ++c) {
      const v = l.load[e][c];
      if (!cache.has(v)) cache.set(v, d3.rgb(colour(v > 0 ? Math.log2(v / 100) : -2)));
      const rgb = cache.get(v), at = 4 * (e * n + c);
      image.data[at] = rgb.r; image.data[at + 1] = rgb.g; image.data[at + 2] = rgb.b; image.data[at + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    const g = svg(plot, width, h + m.top + m.bottom, m);
    const x = d3.scaleLinear().domain([l.steps[0], l.steps[n - 1]]).range([0, w]), y = d3.scaleBand().domain(d3.range(l.experts)).range([0, h]);
    const every = Math.ceil(l.experts / (h / 16));
    g.append("g").attr("class", "axis").attr("transform", `translate(0,${h})`).call(d3.axisBottom(x).ticks(Math.max(3, Math.floor(w / 90))).tickFormat(d3.format("~d")));
    g.append("g").attr("class", "axis").call(d3.axisLeft(y).tickValues(d3.range(0, l.experts, every)).tickFormat(e => (l.experts > 24 ? "" : "expert ") + e).tickSize(0));
    g.append("text").attr("x", w).attr("y", h + 32).attr("text-anchor", "end").text("step");
    marks(g, x, h, run.marks.filter(k => k.layer === l.layer));
    const box = g.append("rect").attr("fill", "none").attr("stroke", css("ink")).attr("stroke-width", 1.5).attr("opacity", 0);
    scale.textContent = "";
    [["¼ or less", -2], ["½", -1], ["mean", 0], ["2×", 1], ["4× or more", 2]].forEach(([text, v]) => scale.append(el("i", { style: `display:inline-block;width:1.1em;height:.9em;border:1px solid ${css("line")};vertical-align:-.1em;margin:0 .25em 0 .7em;background:${colour(v)}` }), text));
    let col = -1, row = 0;
    const show = (c, e) => {
      col = Math.max(0, Math.min(n - 1, c)); row = Math.max(0, Math.min(l.experts - 1, e));
      box.attr("x", col * w / n).attr("y", y(row)).attr("width", Math.max(2, w / n)).attr("height", y.bandwidth()).attr("opacity", 1);
      const text = `step ${l.steps[col]}${n > 1 && l.width > 1 ? " to " + (l.steps[col] + l.width - 1) : ""}, expert ${row}: ${(l.load[row][col] / 100).toFixed(2)} times the mean load`;
      read(text);
      return text;
    };
    g.append("rect").attr("width", w).attr("height", h).attr("fill", "transparent")
      .on("mousemove", function () { const p = d3.mouse(this); tip.show(show(Math.floor(p[0] / w * n), Math.floor(p[1] / h * l.experts)), d3.event); }).on("mouseleave", tip.hide);
    return key => { show(key === "Home" ? 0 : key === "End" ? n : col + (key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : 0), row + (key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0)); return true; };
  });
  select.addEventListener("change", () => { state.layer = +select.value; redraw(); });
}

// Horizontal bars, one per row, stacked by `keys`. rows: {name, values{}}.
function stacked(parent, o) {
  o.legend = o.keys.filter(k => o.rows.some(r => r.values[k] > 0)).map(k => ({ name: WORDS(k), color: () => o.color(k) }));
  o.table = o.table || (() => [[o.rowName, ...o.keys.map(WORDS)], ...o.rows.map(r => [r.name, ...o.keys.map(k => o.format(r.values[k]))])]);
  return frame(parent, o, (plot, width, read) => {
    const longest = d3.max(o.rows, r => r.name.length) || 0;
    const m = { left: Math.min(width * 0.36, 18 + 6.4 * longest), right: 20, top: 12, bottom: 30 }, w = width - m.left - m.right;
    const room = Math.floor((m.left - 12) / 6.2), short = name => name.length > room ? name.slice(0, room - 1) + "…" : name;
    const band = o.rows.length > 40 ? 7 : o.rows.length > 16 ? 13 : 22, h = Math.max(60, band * o.rows.length);
    const g = svg(plot, width, h + m.top + m.bottom, m);
    const total = r => d3.sum(o.keys, k => r.values[k] || 0);
    const x = d3.scaleLinear().domain([0, Math.max(d3.max(o.rows, total) || 1, o.limit ? Math.min(o.limit.value, 1.6 * d3.max(o.rows, total)) : 0)]).range([0, w]);
    const ticks = roundTicks(x, Math.max(2, Math.floor(w / 100)), o.format);
    const y = d3.scaleBand().domain(d3.range(o.rows.length)).range([0, h]).paddingInner(o.rows.length > 40 ? 0.1 : 0.22);
    g.append("g").attr("class", "gridline").attr("transform", `translate(0,${h})`).call(d3.axisBottom(x).tickValues(ticks).tickSize(-h).tickFormat(""));
    g.append("g").attr("class", "axis").attr("transform", `translate(0,${h})`).call(d3.axisBottom(x).tickValues(ticks).tickFormat(o.format).tickSizeOuter(0));
    const every = Math.max(1, Math.ceil(o.rows.length / (h / 14)));
    g.append("g").attr("class", "axis").call(d3.axisLeft(y).tickValues(d3.range(0, o.rows.length, every)).tickFormat(i => short(o.rows[i].name)).tickSize(0));
    const cells = [];
    o.rows.forEach((r, i) => {
      let from = 0;
      for (const k of o.keys) {
        const v = r.values[k] || 0;
        if (v <= 0) continue;
        cells.push({ i, k, v, from, share: v / total(r) });
        from += v;
      }
    });
    const text = c => `${o.rows[c.i].name}: ${WORDS(c.k)} ${o.format(c.v)} (${fmt.percent(c.share)} of ${o.format(total(o.rows[c.i]))})`;
    const bars = g.selectAll("rect.cell").data(cells).enter().append("rect").attr("class", "cell").attr("x", c => x(c.from)).attr("y", c => y(c.i))
      .attr("width", c => Math.max(0.5, x(c.from + c.v) - x(c.from))).attr("height", y.bandwidth()).attr("fill", c => o.color(c.k)).attr("stroke", css("card")).attr("stroke-width", o.rows.length > 40 ? 0 : 0.8)
      .on("mousemove", c => { tip.show(text(c), d3.event); read(text(c)); }).on("mouseleave", tip.hide);
    if (o.limit && o.limit.value <= x.domain()[1]) {
      g.append("line").attr("class", "onset").attr("x1", x(o.limit.value)).attr("x2", x(o.limit.value)).attr("y1", -4).attr("y2", h);
      g.append("text").attr("class", "strong").attr("x", x(o.limit.value) - 4).attr("y", 6).attr("text-anchor", "end").text(o.limit.text);
    }
    let at = -1;
    return key => {
      at = key === "Home" ? 0 : key === "End" ? cells.length - 1 : Math.max(0, Math.min(cells.length - 1, at + (key === "ArrowRight" || key === "ArrowDown" ? 1 : -1)));
      bars.attr("stroke", (c, i) => i === at ? css("ink") : css("card")).attr("stroke-width", (c, i) => i === at ? 2 : 0.8);
      if (cells[at]) read(text(cells[at]));
      return true;
    };
  });
}

// Who sends how many assignments to which expert column.
function matrix(parent, run) {
  const select = el("select", { "aria-label": "Layer" }, run.matrix.map((l, i) => el("option", { value: i }, "layer " + l.layer)));
  const state = { layer: 0 };
  const redraw = frame(parent, {
    id: "matrix", title: "All-to-all matrix", source: "routing.csv assigned (rows by rank)",
    about: "Assignments that each source rank sends to the experts of each expert-parallel rank, in the last step with rows by rank.",
    controls: run.matrix.length > 1 ? el("div", { class: "controls" }, select) : null,
    table: () => { const l = run.matrix[state.layer]; return [["source rank", ...d3.range(l.columns).map(c => "to EP rank " + c)], ...l.ranks.map((r, i) => [r, ...l.values[i]])]; },
  }, (plot, width, read) => {
    const l = run.matrix[state.layer], m = { left: 62, right: 14, top: 26, bottom: 8 }, w = width - m.left - m.right;
    const cell = Math.max(3, Math.min(40, w / l.columns, 420 / l.ranks.length)), tall = Math.max(3, Math.min(30, 420 / l.ranks.length)), wide = Math.min(w, Math.max(cell, Math.min(90, w / l.columns)) * l.columns);
    const h = tall * l.ranks.length, g = svg(plot, width, h + m.top + m.bottom, m);
    const x = d3.scaleBand().domain(d3.range(l.columns)).range([0, wide]), y = d3.scaleBand().domain(d3.range(l.ranks.length)).range([0, h]);
    const most = d3.max(l.values, r => d3.max(r)) || 1, colour = d3.scaleLinear().domain([0, most]).range([css("card"), css("compute")]).interpolate(d3.interpolateLab);
    const cells = l.ranks.flatMap((r, i) => d3.range(l.columns).map(c => ({ i, c, v: l.values[i][c] })));
    const text = d => `rank ${l.ranks[d.i]} to EP rank ${d.c}: ${d.v} assignments`;
    const boxes = g.selectAll("rect").data(cells).enter().append("rect").attr("x", d => x(d.c)).attr("y", d => y(d.i)).attr("width", x.bandwidth()).attr("height", y.bandwidth())
      .attr("fill", d => colour(d.v)).attr("stroke", css("line")).attr("stroke-width", tall < 8 ? 0 : 1).on("mousemove", d => { tip.show(text(d), d3.event); read(text(d)); }).on("mouseleave", tip.hide);
    if (x.bandwidth() > 34 && tall > 16) g.selectAll("text.v").data(cells).enter().append("text").attr("class", "v").attr("x", d => x(d.c) + x.bandwidth() / 2).attr("y", d => y(d.i) + tall / 2 + 4).attr("text-anchor", "middle")
      .style("fill", d => d3.lab(colour(d.v)).l > 55 ? "#17202b" : "#ffffff").text(d => fmt.count(d.v));
    g.append("g").attr("class", "axis").call(d3.axisTop(x).tickValues(d3.range(0, l.columns, Math.ceil(l.columns * 34 / wide))).tickFormat(c => "EP " + c).tickSize(0)).select("path").remove();
    g.append("g").attr("class", "axis").call(d3.axisLeft(y).tickValues(d3.range(0, l.ranks.length, Math.max(1, Math.ceil(14 / tall)))).tickFormat(i => "rank " + l.ranks[i]).tickSize(0)).select("path").remove();
    let at = -1;
    return key => {
      at = key === "Home" ? 0 : key === "End" ? cells.length - 1 : at < 0 ? 0 : Math.max(0, Math.min(cells.length - 1, at + ({ ArrowRight: 1, ArrowLeft: -1, ArrowDown: l.columns, ArrowUp: -l.columns })[key]));
      boxes.attr("stroke", (d, i) => i === at ? css("ink") : css("line")).attr("stroke-width", (d, i) => i === at ? 2.5 : 1);
      read(text(cells[at]));
      return true;
    };
  });
  select.addEventListener("change", () => { state.layer = +select.value; redraw(); });
}
