// Puts the page together, from what `overtake validate --json` prints.

function numberOf(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

function publishedOf(row) {
  const [low, high] = row.published;
  return low === high ? numberOf(low) : `${numberOf(low)} to ${numberOf(high)}`;
}

function errorOf(row) {
  if (row.error_percent === 0 && row.published[0] !== row.published[1]) return "inside the range";
  return `${row.error_percent < 0 ? "−" : "+"}${Math.abs(row.error_percent).toFixed(1)} %`;
}

function titleOf(area) { return `${area.area}${area.arithmetic ? ": arithmetic of schedules" : ""}`; }
function idOf(area) { return titleOf(area).replace(/[^a-z]+/g, "-"); }

function areaCard(area) {
  const facts = [["rows", area.rows], ["on average", `${area.mean_error_percent.toFixed(1)} %`],
    ["at most", `${area.largest_error_percent.toFixed(1)} %`]];
  if (area.ranges > 0) facts.push(["ranges met", `${area.inside} of ${area.ranges}`]);
  return make("a", { className: "run", href: `#${idOf(area)}` },
    make("h2", {}, titleOf(area)),
    make("div", { className: "big" }, `${area.median_error_percent.toFixed(1)} %`, make("small", {}, " median error")),
    make("dl", {}, ...facts.map(([what, value]) => make("div", {}, make("dt", {}, what), make("dd", {}, String(value))))));
}

function sourceTable({ source, rows }) {
  const about = make("p", {}, source.citation, ": ", make("a", { href: source.url, rel: "noreferrer" }, source.url));
  const built = table(source.source, ["figure", "published", "ours", "unit", "error", { content: ["why"], left: true }],
    rows.map((row) => [row.what, publishedOf(row), numberOf(row.ours), row.unit,
      { content: [make("span", { className: Math.abs(row.error_percent) > 25 ? "bad" : "" }, errorOf(row))] },
      { content: [row.note], left: true }]));
  built.append(about);
  const lines = built.querySelectorAll("tbody tr");
  rows.forEach((row, i) => {
    row.element = lines[i];
    row.element.lastChild.className = "reason";
    row.element.addEventListener("pointerenter", () => mark(row));
    row.element.addEventListener("pointerleave", () => mark(null));
  });
  return built;
}

let marked = null;
function mark(row) {
  for (const [which, isOn] of [[marked, false], [row, true]]) {
    which?.element.classList.toggle("marked", isOn);
    which?.dot.classList.toggle("marked", isOn);
  }
  marked = row;
}

function addArea(area, data) {
  const groups = data.sources.filter((s) => s.area === area.area && s.arithmetic === area.arithmetic)
    .map((source) => ({ source, rows: data.rows.filter((row) => row.source === source.source) }));
  const tables = make("div", { className: "tables" }, ...groups.map(sourceTable));
  document.getElementById("main").append(make("section", { id: idOf(area) }, make("h2", {}, titleOf(area)),
    errorChart(titleOf(area), groups, mark), tables));
}

function filter(data, text) {
  let shown = 0;
  for (const row of data.rows) {
    const isShown = `${row.source} ${row.what} ${row.note}`.toLowerCase().includes(text.toLowerCase());
    row.element.hidden = !isShown;
    row.dot.classList.toggle("faded", !isShown);
    shown += isShown;
  }
  document.getElementById("found").textContent = text === "" ? "" : `${shown} of ${data.rows.length} rows`;
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  document.getElementById("areas").append(...data.areas.map(areaCard));
  for (const area of data.areas) addArea(area, data);
  const search = document.getElementById("search");
  search.addEventListener("input", () => filter(data, search.value));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || document.activeElement === search) return;
    event.preventDefault();
    search.focus();
  });
}

start();
