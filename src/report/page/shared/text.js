// Numbers as people write them, and elements of the page.

function formatTime(ns) {
  const size = Math.abs(ns);
  if (size < 1e3) return `${Math.round(ns)} ns`;
  const [unit, name] = size < 1e6 ? [1e3, "µs"] : size < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  const value = ns / unit;
  return `${value.toFixed(Math.abs(value) < 10 ? 3 : Math.abs(value) < 100 ? 2 : 1)} ${name}`;
}

function formatBytes(bytes) {
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(value) < 1024) return `${unit === "B" ? value : value.toFixed(2)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(2)} TiB`;
}

function formatShare(part, whole) { return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "–"; }

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "style") Object.assign(element.style, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function swatch(colour) { return make("span", { className: "swatch", style: { background: colour } }); }

function table(title, header, rows, note) {
  const cells = (row, tag) => row.map((cell, i) => {
    const { content, left } = cell?.content ? cell : { content: [cell], left: false };
    const properties = { className: left ? "left" : "" };
    if (tag === "th" || i === 0) properties.scope = tag === "th" ? "col" : "row";
    return make(i === 0 ? "th" : tag, properties, ...content);
  });
  return make("div", {}, make("h2", {}, title),
    make("table", {}, make("thead", {}, make("tr", {}, ...cells(header, "th"))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...cells(row, "td"))))),
    ...(note ? [make("p", {}, note)] : []));
}
