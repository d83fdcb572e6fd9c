"use strict";
const SVG = "http://www.w3.org/2000/svg";
const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

function element(name, attributes = {}, text = null, space = null) {
  const made = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function scaled(value, units, base) {
  let unit = 0;
  while (Math.abs(value) >= base && unit < units.length - 1) { value /= base; unit += 1; }
  return [value, units[unit]];
}

function number(value, digits = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

function bytes(value) {
  const [size, unit] = scaled(value, BYTE_UNITS, 1000);
  return number(size) + " " + unit;
}

function seconds(value) {
  if (value === 0) return "0 s";
  if (Math.abs(value) < 1) return number(value * 1000) + " ms";
  if (value >= 7200) return number(value / 3600) + " h";
  return number(value) + " s";
}

/* A scale of an axis: a unit in which its numbers are short, and round ticks. */
function axis(most, unit) {
  let divisor = 1, name = unit;
  if (unit === "bytes") {
    let at = 0;
    while (most / divisor >= 1000 && at < BYTE_UNITS.length - 1) { divisor *= 1000; at += 1; }
    name = BYTE_UNITS[at];
  } else if (unit === "s" && most < 1) { divisor = 0.001; name = "ms"; }
  const top = Math.max(most / divisor, 1e-9), rough = top / 4;
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
  const ticks = [];
  for (let i = 0; i * step <= top * 1.0001; i += 1) ticks.push(i * step);
  return { divisor, name, ticks, top };
}

/* Draws lines or bars over a common x. plot = {x, xLabel, xUnit, yLabel, yUnit, lines: {name: [y]},
   bars: {name: [y]}, the highest first, limit: y, labels: [text of each bar]}. */
function draw(place, plot) {
  place.replaceChildren();
  const width = Math.max(place.clientWidth || 320, 240), height = 230;
  const left = 56, right = 10, top = 10, bottom = 42;
  const bars = Object.values(plot.bars || {}).reverse(), lines = Object.values(plot.lines || {});
  const values = [...lines, ...bars].flat();
  const highest = Math.max(...values, 0);
  const most = plot.limit && plot.limit <= 1.6 * highest ? Math.max(highest, plot.limit) : highest;
  const y = axis(most || (plot.yUnit === "bytes" ? 1000 : 1), plot.yUnit);
  const count = bars.length ? bars[0].length : plot.x.length;
  const last = plot.labels ? count : Math.max(plot.x[count - 1] + (bars.length ? plot.x[1] - plot.x[0] || 1 : 0), 1e-9);
  const x = axis(last, plot.xUnit);
  const px = (v) => left + (v / last) * (width - left - right);
  const py = (v) => height - bottom - (v / y.divisor / y.top) * (height - top - bottom);
  const svg = element("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": summary(plot, highest),
  }, null, SVG);
  const add = (name, attributes, text = null) => svg.append(element(name, attributes, text, SVG));
  for (const tick of y.ticks) {
    const at = py(tick * y.divisor);
    add("line", { class: "grid", x1: left, x2: width - right, y1: at, y2: at });
    add("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, number(tick));
  }
  if (plot.labels) {
    plot.labels.forEach((text, i) => add("text", { x: px(i + 0.5), y: height - bottom + 16, "text-anchor": "middle" }, text));
  } else {
    for (const tick of x.ticks) {
      add("text", { x: px(tick * x.divisor), y: height - bottom + 16, "text-anchor": "middle" }, number(tick));
    }
  }
  add("line", { class: "axis", x1: left, x2: width - right, y1: py(0), y2: py(0) });
  const xName = plot.xUnit === "s" ? `${plot.xLabel}, ${x.name}` : plot.xLabel;
  add("text", { x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle" }, xName);
  const yName = plot.yUnit ? `${plot.yLabel}, ${y.name}` : plot.yLabel;
  const middle = (top + height - bottom) / 2;
  add("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, yName);
  bars.forEach((values_, kind) => values_.forEach((value, i) => {
    const at = plot.labels ? i + 0.2 : plot.x[i];
    const broad = plot.labels ? 0.6 : last / count;
    const bar = element("rect", {
      class: "l" + (bars.length - 1 - kind), x: px(at), y: py(value), width: Math.max(px(at + broad) - px(at) - (plot.labels ? 0 : 0.5), 0.5),
      height: Math.max(py(0) - py(value), 0),
    }, null, SVG);
    svg.append(bar);
  }));
  lines.forEach((line, i) => {
    const points = line.map((value, at) => `${at ? "L" : "M"}${px(plot.x[at]).toFixed(1)} ${py(value).toFixed(1)}`);
    add("path", { class: "l" + i, d: points.join("") });
  });
  if (plot.limit && plot.limit <= most) {
    add("line", { class: "limit", x1: left, x2: width - right, y1: py(plot.limit), y2: py(plot.limit) });
  }
  place.append(svg, legend(plot));
}

function summary(plot, highest) {
  const most = plot.yUnit === "bytes" ? bytes(highest) : plot.yUnit === "s" ? seconds(highest) : number(highest);
  return `${plot.yLabel} over ${plot.xLabel}: at most ${most}`;
}

function legend(plot) {
  const bars = plot.labels ? [] : Object.keys(plot.bars || {});
  const shown = element("div", { class: "legend" });
  [...bars, ...Object.keys(plot.lines || {})].forEach((name, i) => {
    const mark = element("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" }, null, SVG);
    if (i < bars.length) mark.append(element("rect", { class: "l" + i, x: 8, y: 0, width: 12, height: 8 }, null, SVG));
    else mark.append(element("line", { class: "l" + i, x1: 0, x2: 28, y1: 4, y2: 4, "stroke-width": 2 }, null, SVG));
    const item = element("span");
    item.append(mark, document.createTextNode(name));
    shown.append(item);
  });
  if (plot.limit) {
    const mark = element("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" }, null, SVG);
    const line = element("line", { x1: 0, x2: 28, y1: 4, y2: 4, stroke: "currentColor", "stroke-dasharray": "2 4" }, null, SVG);
    mark.append(line);
    const item = element("span");
    item.append(mark, document.createTextNode(`limit ${bytes(plot.limit)}`));
    shown.append(item);
  }
  return shown;
}
