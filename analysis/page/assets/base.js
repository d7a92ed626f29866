// What every chart of the page uses: formats, colours, the frame with its caption, keyboard and table.
"use strict";
const PARTS = ["compute", "all_to_all", "other_communication", "offload", "bubble", "host", "data", "idle"];
const WORDS = s => s.replace(/^all_to_all$/, "all-to-all").replace(/_/g, " ");
const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const known = v => v !== null && v !== undefined && isFinite(v);

const fmt = {
  seconds(v) {
    if (!known(v)) return "–";
    const m = Math.abs(v);
    return m === 0 ? "0 s" : m < 1e-6 ? +(v * 1e9).toPrecision(3) + " ns" : m < 1e-3 ? +(v * 1e6).toPrecision(3) + " µs"
      : m < 1 ? +(v * 1e3).toPrecision(3) + " ms" : +v.toPrecision(4) + " s";
  },
  bytes(v) {
    if (!known(v)) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let i = 0;
    while (Math.abs(v) >= 1024 && i < 5) { v /= 1024; ++i; }
    return (i ? +v.toFixed(v < 10 ? 2 : v < 100 ? 1 : 0) : Math.round(v)) + " " + units[i];
  },
  count(v) { return known(v) ? d3.format(Math.abs(v) >= 1e4 ? ".3~s" : ",.4~r")(v) : "–"; },
  plain(v) { return known(v) ? d3.format(".4~r")(v) : "–"; },
  percent(v) { return known(v) ? d3.format(".1~%")(v) : "–"; },
  of(unit) { return unit === "s" ? fmt.seconds : unit === "bytes" ? fmt.bytes : fmt.plain; },
};

const SERIES = () => [css("compute"), css("other_communication"), css("host"), css("offload"), css("bubble"), css("all_to_all")];

// An element with attributes and children; strings become text, so nothing of a file is ever markup.
function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined) node.setAttribute(key, value);
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

const tip = {
  show(text, event) {
    const node = document.getElementById("tip");
    node.textContent = text;
    node.hidden = false;
    const box = node.getBoundingClientRect();
    node.style.left = Math.max(4, Math.min(innerWidth - box.width - 4, event.clientX + 14)) + "px";
    node.style.top = Math.max(4, event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  },
  hide() { document.getElementById("tip").hidden = true; },
};

const drawers = [];  // of the run that is shown; called again when the width or the theme changes

// The frame of a chart. draw(plot, width, read) fills `plot`; it returns a function (key) => bool that
// handles arrow keys, or nothing.
function frame(parent, o, draw) {
  const read = el("div", { class: "read", "aria-live": "polite" });
  const plot = el("div", { class: "plot", tabindex: 0, role: "img", "aria-label": o.title + ". " + (o.label || o.about || "") + (o.keys === false ? "" : " Arrow keys read values.") });
  const figure = el("figure", { class: o.wide ? "wide" : null, "data-chart": o.id },
    el("figcaption", {}, el("h3", {}, o.title), el("span", { class: "source" }, o.source)),
    o.about ? el("p", { class: "about" }, o.about) : null, o.controls || null,
    o.legend ? el("ul", { class: "legend" }, o.legend.map(l => el("li", {}, el("i", { style: "background:" + l.color() }), l.name))) : null,
    plot, read);
  if (o.table) {
    const details = el("details", {}, el("summary", {}, "Values as a table"));
    const fill = () => { if (details.open && details.children.length === 1) details.append(el("div", { class: "scroll", tabindex: 0 }, table(o.table()))); };
    details.addEventListener("toggle", fill);
    details.open = Boolean(o.open);
    fill();
    figure.append(details);
  }
  parent.append(figure);
  let onKey = null;
  const again = () => {
    plot.replaceChildren();
    if (o.legend) figure.querySelectorAll(".legend i").forEach((mark, i) => { mark.style.background = o.legend[i].color(); });
    onKey = draw(plot, Math.max(240, plot.clientWidth), text => { read.textContent = text; }) || null;
    figure.dataset.drawn = "yes";
  };
  plot.addEventListener("keydown", event => {
    if (onKey && /^(Arrow|Home|End)/.test(event.key) && onKey(event.key)) event.preventDefault();
  });
  drawers.push(again);
  again();
  return again;
}

function table(rows) {
  return el("table", {}, el("thead", {}, el("tr", {}, rows[0].map(cell => el("th", { scope: "col" }, String(cell))))),
    el("tbody", {}, rows.slice(1).map(row => el("tr", {}, row.map((cell, i) => i ? el("td", {}, String(cell)) : el("th", { scope: "row" }, String(cell)))))));
}

function svg(plot, width, height, margin) {
  const root = d3.select(plot).append("svg").attr("width", width).attr("height", height).attr("viewBox", `0 0 ${width} ${height}`).attr("aria-hidden", "true");
  return root.append("g").attr("transform", `translate(${margin.left},${margin.top})`);
}

function axes(g, x, y, w, h, o) {
  g.append("g").attr("class", "gridline").call(d3.axisLeft(y).ticks(o.yTicks || 5).tickSize(-w).tickFormat(""));
  g.append("g").attr("class", "axis").attr("transform", `translate(0,${h})`).call(d3.axisBottom(x).ticks(Math.max(3, Math.floor(w / 90))).tickFormat(o.xFormat || d3.format("~d")).tickSizeOuter(0));
  g.append("g").attr("class", "axis").call(d3.axisLeft(y).ticks(o.yTicks || 5).tickFormat(o.yFormat || fmt.plain).tickSizeOuter(0));
  if (o.xLabel) g.append("text").attr("x", w).attr("y", h + 32).attr("text-anchor", "end").text(o.xLabel);
}

// Round values for an axis; bytes go in powers of two.
function roundTicks(x, n, format) {
  if (format !== fmt.bytes) return x.ticks(n);
  const top = x.domain()[1], unit = Math.pow(1024, Math.floor(Math.log(Math.max(1, top)) / Math.log(1024)));
  return d3.ticks(0, top / unit, n).map(t => t * unit);
}

// Vertical marks at steps, with a word on top.
function marks(g, x, h, list) {
  for (const mark of list || []) {
    if (!known(mark.step) || mark.step < x.domain()[0] || mark.step > x.domain()[1]) continue;
    g.append("line").attr("class", "onset").attr("x1", x(mark.step)).attr("x2", x(mark.step)).attr("y1", 0).attr("y2", h);
    const right = x(mark.step) > x.range()[1] * 0.7;
    g.append("text").attr("class", "strong").attr("x", x(mark.step) + (right ? -5 : 5)).attr("y", 10).attr("text-anchor", right ? "end" : "start").text(mark.text);
  }
}
