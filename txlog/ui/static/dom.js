// Elements from data. Text becomes text nodes only: nothing that a log holds can be markup.

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined).map(
    (child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

// Change `old` into `fresh` in place, so that focus, selection and scrolling stay where they are.
// Elements with the same data-keep are left alone: charts, and forms that someone types in.
export function patch(old, fresh) {
  const news = [...fresh.childNodes];
  news.forEach((node, place) => {
    const there = old.childNodes[place];
    if (!there) old.append(node);
    else if (!same(there, node)) there.replaceWith(node);
    else if (node.nodeType === Node.TEXT_NODE) {
      if (there.data !== node.data) there.data = node.data;
    } else if (!node.dataset?.keep) {
      attributes(there, node);
      patch(there, node);
    }
  });
  while (old.childNodes.length > news.length) old.lastChild.remove();
}

function same(a, b) {
  return a.nodeName === b.nodeName && a.nodeType === b.nodeType
    && a.dataset?.keep === b.dataset?.keep;
}

function attributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

// Columns are [header, cell of a row, class]. A cell is text, an element, or null. Of a row with an
// error only the first one is known.
export function table(caption, columns, rows, empty) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  const head = columns.map(([name, , kind]) => h("th", { scope: "col", class: kind }, name));
  const body = rows.map((row) => h("tr", { class: row.gap ? "gap" : null },
    (row.error ? columns.slice(0, 1) : columns).map(([name, cell, kind]) =>
      h("td", { class: kind, "data-label": name }, cell(row) ?? "-")),
    row.error ? h("td", { class: "look", colspan: columns.length - 1, "data-label": "Not readable" },
      row.error) : null));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export function facts(pairs) {
  return h("dl", {}, pairs.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value ?? "-")]));
}

export const link = (text, ...parts) => h("a", { href: to(parts) }, text);

export function to(parts, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== "" && v != null));
  const path = parts.map(encodeURIComponent).join("/");
  return `#/${path}${query.size ? `?${query}` : ""}`;
}

export const number = (value) => (value === null || value === undefined ? "unknown"
  : value.toLocaleString("en-US"));

export const counted = (count, one, several) => `${number(count)} ${count === 1 ? one : several}`;

export function bytes(count) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  for (; count >= 1000 && unit < units.length - 1; unit += 1) count /= 1000;
  return `${count.toLocaleString("en-US", { maximumFractionDigits: unit ? 1 : 0 })} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const parts = [];
  let rest = Math.max(Math.floor(seconds), 0);
  for (const [name, size] of units) {
    if (rest >= size || (name === "s" && !parts.length)) parts.push(`${Math.floor(rest / size)} ${name}`);
    rest %= size;
  }
  return parts.slice(0, 2).join(" ");
}

export const time = (iso) => (iso ? iso.replace("T", " ").replace("Z", "") : null);
