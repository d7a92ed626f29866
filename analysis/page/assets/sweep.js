// A sweep: a map of two keys coloured by a figure, and all points as a table.
"use strict";

const lastWord = key => key.slice(key.lastIndexOf(".") + 1);
const figureText = (point, figure) => point.texts[figure.name] || "–";

// The best of the points of a cell: done before not done, then by the figure.
function bestOf(points, figure) {
  const rank = p => p.state !== "done" || !known(p.figures[figure.name]) ? Infinity : figure.better > 0 ? -p.figures[figure.name] : p.figures[figure.name];
  return points.length ? points.reduce((a, b) => rank(b) < rank(a) ? b : a) : null;
}

function chooser(label, names, chosen, onChange) {
  const select = el("select", { "aria-label": label }, names.map((name, i) => el("option", { value: i }, name)));
  select.value = chosen;
  select.addEventListener("change", () => onChange(+select.value));
  return el("label", {}, label + " ", select, " ");
}

function sweepMap(parent, sweep) {
  const figures = sweep.figures.filter(f => sweep.points.some(p => known(p.figures[f.name])));
  if (!figures.length) return;
  const state = { row: 0, column: Math.min(1, sweep.axes.length - 1), figure: Math.max(0, figures.findIndex(f => f.name === sweep.rank_by)) };
  const keys = sweep.axes.map(a => lastWord(a.key));
  let redraw = () => {};
  const choose = name => value => { state[name] = value; redraw(); };
  const controls = el("div", { class: "controls" }, sweep.axes.length > 1 ? [chooser("Rows", keys, state.row, choose("row")), chooser("Columns", keys, state.column, choose("column"))] : null, chooser("Figure", figures.map(f => f.title), state.figure, choose("figure")));
  const cells = () => {
    const rows = sweep.axes[state.row].values, columns = state.row === state.column ? [""] : sweep.axes[state.column].values, figure = figures[state.figure];
    return rows.map(r => columns.map(c => bestOf(sweep.points.filter(p => p.values[state.row] === r && (c === "" || p.values[state.column] === c)), figure)));
  };
  const word = (point, figure) => !point ? "" : point.state === "done" ? figureText(point, figure) : point.state;
  redraw = frame(parent, {
    id: "sweep-map", wide: true, title: "Two keys against each other", source: "report.json of each point", controls,
    about: "Of several points in one cell the best is shown. Darker is better where a figure has a better end; grey cells did not run to their end.",
    table: () => { const grid = cells(), columns = state.row === state.column ? [""] : sweep.axes[state.column].values; return [[keys[state.row] + " \\ " + keys[state.column], ...columns], ...grid.map((line, i) => [sweep.axes[state.row].values[i], ...line.map(p => word(p, figures[state.figure]))])]; },
  }, (plot, width, read) => {
    const figure = figures[state.figure], grid = cells(), rows = sweep.axes[state.row].values, columns = state.row === state.column ? [""] : sweep.axes[state.column].values;
    const m = { left: 30 + 7 * d3.max(rows, r => Math.min(24, r.length)), right: 12, top: 40, bottom: 12 }, w = Math.min(width - m.left - m.right, 150 * columns.length), band = 38, h = band * rows.length;
    const g = svg(plot, width, h + m.top + m.bottom, m), cellW = w / columns.length;
    const values = grid.flat().filter(p => p && p.state === "done").map(p => p.figures[figure.name]).filter(known);
    const [low, high] = d3.extent(values), share = v => high > low ? (v - low) / (high - low) : 1;
    const tone = v => 0.12 + 0.78 * (figure.better < 0 ? 1 - share(v) : share(v));
    const fill = p => p && p.state === "done" && known(p.figures[figure.name]) ? d3.interpolateLab(css("card"), css("compute"))(tone(p.figures[figure.name])) : css("line");
    columns.forEach((c, i) => g.append("text").attr("x", (i + 0.5) * cellW).attr("y", -8).attr("text-anchor", "middle").text(c));
    if (state.row !== state.column) g.append("text").attr("x", 0).attr("y", -26).text(keys[state.column]);
    g.append("text").attr("x", -8).attr("y", -8).attr("text-anchor", "end").text(keys[state.row]);
    const best = bestOf(grid.flat().filter(Boolean), figure);
    const describe = (p, r, c) => !p ? "no point" : `${keys[state.row]} ${r}${c === "" ? "" : `, ${keys[state.column]} ${c}`}: ${figure.title} ${word(p, figure)} (point ${p.index}${p.message ? ": " + p.message : ""})`;
    grid.forEach((line, i) => {
      g.append("text").attr("x", -8).attr("y", i * band + band / 2 + 4).attr("text-anchor", "end").text(rows[i].length > 24 ? rows[i].slice(0, 23) + "…" : rows[i]);
      line.forEach((p, j) => {
        g.append("rect").attr("x", j * cellW + 1).attr("y", i * band + 1).attr("width", cellW - 2).attr("height", band - 2).attr("rx", 4).attr("fill", fill(p)).attr("stroke", p && p === best ? css("ink") : "none").attr("stroke-width", 2)
          .on("mousemove", () => { const text = describe(p, rows[i], columns[j]); tip.show(text, d3.event); read(text); }).on("mouseleave", tip.hide);
        g.append("text").attr("x", (j + 0.5) * cellW).attr("y", i * band + band / 2 + 4).attr("text-anchor", "middle").style("pointer-events", "none").style("fill", d3.lab(fill(p)).l > 55 ? "#17202b" : "#ffffff").text(word(p, figure));
      });
    });
    let at = 0;
    return key => {
      const count = rows.length * columns.length, step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns.length, ArrowUp: -columns.length }[key];
      at = key === "Home" ? 0 : key === "End" ? count - 1 : Math.max(0, Math.min(count - 1, at + step));
      const i = Math.floor(at / columns.length), j = at % columns.length;
      read(describe(grid[i][j], rows[i], columns[j]));
      return true;
    };
  });
}

function showSweep() {
  const sweep = data.sweep, main = document.getElementById("content");
  main.replaceChildren();
  drawers.length = 0;
  const rank = sweep.figures.find(f => f.name === sweep.rank_by), best = bestOf(sweep.points, rank);
  const count = state => sweep.points.filter(p => p.state === state).length;
  const tile = (name, text, source) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, text, el("small", {}, source)));
  main.append(el("dl", { class: "tiles" }, tile("best " + rank.title, best && best.state === "done" ? figureText(best, rank) : "–", best ? sweep.axes.map((a, i) => lastWord(a.key) + " " + best.values[i]).join(", ") : ""),
    tile("points", String(sweep.points.length), `${count("done")} done, ${count("refused")} refused, ${count("does not fit")} do not fit, ${count("failed")} failed, ${count("missing")} missing`)));
  sweepMap(section(main, "The map"), sweep);
  main.append(el("h2", {}, "All points"));
  const figures = sweep.figures.filter(f => sweep.points.some(p => known(p.figures[f.name])));
  const order = sweep.points.slice().sort((a, b) => bestOf([a, b], rank) === a ? -1 : 1);
  main.append(el("div", { class: "panel scroll", tabindex: 0 }, table([["point", ...sweep.axes.map(a => lastWord(a.key)), ...figures.map(f => f.title), "verdicts, or why not"],
    ...order.map(p => [p.index, ...p.values, ...figures.map(f => figureText(p, f)), p.state === "done" ? p.verdicts : p.state + (p.message ? ": " + p.message : "")])])));
}
