// Small pictures: lines of a row, the course of a transaction, and a chart of uPlot.
import { h, svg } from "./dom.js";

export function sparkline(values, title) {
  const known = values.filter((value) => value !== null);
  const top = Math.max(...known, 1);
  const picture = svg("svg", { viewBox: "0 0 120 24", width: "100%", height: 24,
    preserveAspectRatio: "none", role: "img", "aria-label": title });
  let points = [];
  const draw = () => {
    if (points.length === 1) points.push(points[0].replace(/^[\d.]+/, (x) => Number(x) + 4));
    if (points.length) picture.append(svg("polyline", { points: points.join(" ") }));
    points = [];
  };
  values.forEach((value, place) => {
    if (value === null) draw();
    else {
      const x = (place / Math.max(values.length - 1, 1)) * 119;
      points.push(`${x.toFixed(1)},${(22 - (value / top) * 20).toFixed(1)}`);
    }
  });
  draw();
  return picture;
}

// When a transaction began, was decided and completed, between two moments.
export function course(row, from, until) {
  const place = (iso) => ((Date.parse(iso) - from) / Math.max(until - from, 1)) * 178;
  const start = place(row.begun ?? row.decided);
  const end = row.completed ? place(row.completed) : 178;
  const picture = svg("svg", { viewBox: "0 0 180 16", width: 180, height: 16, role: "img",
    "aria-label": `begun ${row.begun ?? "before"}, decided ${row.decided ?? "not yet"}, `
      + `complete ${row.completed ?? "not yet"}` });
  picture.append(svg("rect", { x: start, y: 4, width: Math.max(end - start, 2), height: 8,
    class: row.completed ? "done" : "open" }));
  if (row.decided) {
    picture.append(svg("rect", { x: place(row.decided), y: 1, width: 1.5, height: 14, class: "tick" }));
  }
  return picture;
}

const short = (value) => value.toLocaleString("en-US", { notation: "compact" });

export function lagChart(place, moments) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 } };
  const times = moments.map((moment) => Date.parse(moment.time) / 1000);
  const options = {
    width: Math.max(place.clientWidth, 200), height: 220,
    scales: { records: { range: (_, low, high) => [0, Math.max(high, 1)] },
      seconds: { range: (_, low, high) => [0, Math.max(high, 1)] } },
    tzDate: (at) => window.uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    axes: [{ ...axis, values: (_, at) => at.map((s) => new Date(s * 1000).toISOString().slice(11, 16)) },
      { ...axis, scale: "records", size: 62, values: (_, all) => all.map(short) },
      { ...axis, scale: "seconds", side: 1, grid: { show: false }, size: 62,
        values: (_, all) => all.map(short) }],
    series: [{ label: "UTC" }, { label: "records", scale: "records", stroke: colour("--bar"), width: 2 },
      { label: "seconds", scale: "seconds", stroke: colour("--second"), width: 2, dash: [5, 4] }],
  };
  const data = [times, moments.map((m) => m.lag), moments.map((m) => m.lag_seconds)];
  place.replaceChildren();
  const plot = new window.uPlot(options, data, place);
  new ResizeObserver(() => {
    if (place.isConnected) plot.setSize({ width: Math.max(place.clientWidth, 200), height: 220 });
    else plot.destroy();
  }).observe(place);
}

export const waiting = (keep, kind) => h("span", { class: kind, "data-keep": keep });
