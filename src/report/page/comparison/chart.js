// One figure per area: a line per source, a dot per row at its error.

const SVG = "http://www.w3.org/2000/svg", CHART = { width: 1180, left: 300, right: 30, line: 30, top: 26, bottom: 12 };
const NEAR_PERCENT = 10;  // the band in the middle

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// Errors are drawn by the logarithm of ours / published, so that half and twice are as far from the middle.
function logOf(errorPercent) { return Math.log(Math.max(0.02, 1 + errorPercent / 100)); }

function tickErrors(widest) {
  return [-80, -60, -40, -25, -10, 0, 10, 25, 50, 100, 200, 400].filter((error) => Math.abs(logOf(error)) <= widest);
}

function describe(row) {
  return `${row.what}: published ${publishedOf(row)}, ours ${numberOf(row.ours)} ${row.unit}, ${errorOf(row)}`;
}

// `groups` are sources with their rows; onRow is told of the row that the pointer comes to, or of none.
function errorChart(title, groups, onRow) {
  const widest = 1.08 * Math.max(logOf(25), ...groups.flatMap(({ rows }) => rows).map((row) => Math.abs(logOf(row.error_percent))));
  const height = CHART.top + CHART.line * groups.length + CHART.bottom;
  const middle = (CHART.left + CHART.width - CHART.right) / 2, half = (CHART.width - CHART.right - CHART.left) / 2;
  const xOf = (error) => middle + (half * logOf(error)) / widest;
  const bottom = height - CHART.bottom;
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${CHART.width} ${height}`, role: "img",
    "aria-label": `${title}: errors of ${groups.reduce((sum, { rows }) => sum + rows.length, 0)} rows; the table below has them` });
  chart.append(svg("rect", { class: "near", x: xOf(-NEAR_PERCENT), y: CHART.top - 4, height: bottom - CHART.top + 4,
    width: xOf(NEAR_PERCENT) - xOf(-NEAR_PERCENT) }));
  for (const error of tickErrors(widest)) {
    const x = xOf(error);
    chart.append(svg("line", { class: error === 0 ? "zero" : "axis", x1: x, x2: x, y1: CHART.top - 4, y2: bottom }),
      svg("text", { class: "faint", x, y: CHART.top - 10, "text-anchor": "middle" },
        error === 0 ? "as published" : `${error > 0 ? "+" : "−"}${Math.abs(error)} %`));
  }
  groups.forEach(({ source, rows }, line) => {
    const y = CHART.top + CHART.line * (line + 0.5);
    chart.append(svg("text", { x: 14, y: y + 4 }, source.source));
    // Dots of a line are a little above and below one another, so that equal ones can be told apart.
    rows.forEach((row, i) => {
      const dot = svg("circle", { cx: xOf(row.error_percent), cy: y + ((i * 7) % 13) - 6, r: 4.5, tabindex: -1,
        class: Math.abs(row.error_percent) > 25 ? "off" : "" }, svg("title", {}, describe(row)));
      dot.addEventListener("pointerenter", () => onRow(row));
      dot.addEventListener("pointerleave", () => onRow(null));
      dot.addEventListener("click", () => row.element.scrollIntoView({ block: "center", behavior: "smooth" }));
      row.dot = dot;
      chart.append(dot);
    });
  });
  return chart;
}
