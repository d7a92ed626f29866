// Published measurements against predictions: one cloud of points a kind, its series and worst rows.
"use strict";

const signedPercent = v => known(v) ? (v >= 0 ? "+" : "−") + d3.format(".1~%")(Math.abs(v)) : "–";

function cloud(parent, kind) {
  const points = kind.points, error = p => p.predicted / p.measured - 1, text = p => `${p.id}: measured ${fmt.of(p.unit)(p.measured)}, predicted ${fmt.of(p.unit)(p.predicted)} (${signedPercent(error(p))}). ${p.why}`;
  frame(parent, {
    id: "cloud-" + kind.name, wide: true, title: kind.what, source: kind.table,
    about: "Each point is a row; on the line the prediction is right, between the dashed lines within 10%.",
    label: `${points.length} rows.`,
    table: () => [["row", "measured", "predicted", "error"], ...points.map(p => [p.id, fmt.of(p.unit)(p.measured), fmt.of(p.unit)(p.predicted), signedPercent(error(p))])],
  }, (plot, width, read) => {
    const m = { left: 64, right: 12, top: 12, bottom: 40 }, w = Math.min(width - m.left - m.right, 640), h = Math.min(w, 420);
    const g = svg(plot, width, h + m.top + m.bottom, m), all = points.flatMap(p => [p.measured, p.predicted]);
    const domain = [d3.min(all) / 1.3, d3.max(all) * 1.3], format = fmt.of(points[0].unit);
    const x = d3.scaleLog().domain(domain).range([0, w]), y = d3.scaleLog().domain(domain).range([h, 0]);
    const decades = d3.range(Math.ceil(Math.log10(domain[0])), Math.floor(Math.log10(domain[1])) + 1).map(e => Math.pow(10, e));
    g.append("g").attr("class", "gridline").call(d3.axisLeft(y).tickValues(decades).tickSize(-w).tickFormat(""));
    g.append("g").attr("class", "axis").attr("transform", `translate(0,${h})`).call(d3.axisBottom(x).tickValues(decades).tickFormat(format).tickSizeOuter(0));
    g.append("g").attr("class", "axis").call(d3.axisLeft(y).tickValues(decades).tickFormat(format).tickSizeOuter(0));
    g.append("text").attr("x", w).attr("y", h + 34).attr("text-anchor", "end").text("measured");
    g.append("text").attr("x", 4).attr("y", 10).text("predicted");
    for (const [factor, dash] of [[1, null], [1.1, "4 3"], [1 / 1.1, "4 3"]])
      g.append("line").attr("x1", x(domain[0] * Math.max(1, 1 / factor))).attr("x2", x(domain[1] / Math.max(1, factor))).attr("y1", y(domain[0] * Math.max(1, factor))).attr("y2", y(domain[1] * Math.min(1, factor))).attr("stroke", css("ink")).attr("stroke-dasharray", dash).attr("opacity", dash ? 0.4 : 0.8);
    const names = kind.series.map(s => s.name), colour = p => SERIES()[names.indexOf(p.series) % 6];
    g.selectAll("circle").data(points).enter().append("circle").attr("cx", p => x(p.measured)).attr("cy", p => y(p.predicted)).attr("r", points.length > 500 ? 2 : 3.2)
      .attr("fill", colour).attr("opacity", 0.7).on("mousemove", p => { tip.show(text(p), d3.event); read(text(p)); }).on("mouseleave", tip.hide);
    let at = -1;
    return key => {
      at = key === "Home" ? 0 : key === "End" ? points.length - 1 : Math.max(0, Math.min(points.length - 1, at + (key === "ArrowRight" || key === "ArrowUp" ? 1 : -1)));
      read(text(points[at]));
      return true;
    };
  });
}

function showValidation() {
  const main = document.getElementById("content"), kinds = data.validation.kinds;
  main.replaceChildren();
  drawers.length = 0;
  main.append(el("div", { class: "panel", tabindex: 0 }, table([["kind", "rows in scope", "scored", "median error", "row median", "95% within", "bias", "pairs in order", "other hardware"],
    ...kinds.map(k => [k.name, k.rows, k.scored, fmt.percent(k.median), fmt.percent(k.row_median), fmt.percent(k.p95), signedPercent(k.bias), k.pairs ? `${k.right} of ${k.pairs}` : "–", k.other])]),
    el("p", { class: "note" }, "Errors without sign, but for bias. The median error of a kind is the median over series of each series' median. Pairs: rows of one workload on the same GPUs whose measured times differ by more than 10%.")));
  for (const kind of kinds) {
    const grid = section(main, kind.name);
    if (kind.points.length) cloud(grid, kind);
    const panel = (title, rows) => main.append(el("details", { class: "panel" }, el("summary", {}, title), el("div", { class: "scroll", tabindex: 0 }, table(rows))));
    panel(`${kind.series.length} series`, [["series", "rows", "median", "95% within", "bias"], ...kind.series.map(s => [s.name, s.rows, fmt.percent(s.median), fmt.percent(s.p95), signedPercent(s.bias)])]);
    panel("Worst rows", [["row", "measured", "predicted", "error", "why"], ...kind.worst.map(p => [p.id, fmt.of(p.unit)(p.measured), fmt.of(p.unit)(p.predicted), signedPercent(p.predicted / p.measured - 1), p.why])]);
    panel(`${d3.sum(kind.left, l => l[1])} rows left out`, [["reason", "rows"], ...kind.left]);
  }
}
