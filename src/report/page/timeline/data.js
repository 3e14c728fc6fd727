// The page's data, made ready to draw. The form it comes in is described in src/report/timeline_page.cpp.

function runningSums(distances, restarts) {
  const out = new Float64Array(distances.length);
  let sum = 0, next = 0;
  for (let i = 0; i < out.length; ++i) {
    if (i === restarts[next]) { sum = 0; ++next; }
    out[i] = sum += distances[i];
  }
  return out;
}

// Compressed rows: the entries of i are list[first[i]] to list[first[i + 1] - 1].
function waitsOf(counts, distances) {
  const first = new Uint32Array(counts.length + 1);
  const list = new Uint32Array(distances.length);
  for (let i = 0, k = 0; i < counts.length; ++i) {
    for (let n = 0; n < counts[i]; ++n, ++k) list[k] = i - distances[k];
    first[i + 1] = k;
  }
  return { first, list };
}

function reversed({ first, list }) {
  const out = { first: new Uint32Array(first.length), list: new Uint32Array(list.length) };
  for (const to of list) ++out.first[to + 1];
  for (let i = 1; i < first.length; ++i) out.first[i] += out.first[i - 1];
  const next = out.first.slice();
  for (let i = 0; i + 1 < first.length; ++i)
    for (let k = first[i]; k < first[i + 1]; ++k) out.list[next[list[k]]++] = i;
  return out;
}

function entriesOf(rows, i) { return rows.list.subarray(rows.first[i], rows.first[i + 1]); }

function memoryOf(raw) {
  const at = runningSums(raw.at, []);
  const total = new Float64Array(at.length);
  for (const column of raw.bytes) for (let i = 0; i < at.length; ++i) total[i] += column[i];
  // What lives longest lies at the bottom.
  const known = [...MEMORY_COLOURS.keys()], order = raw.groups.map((group, g) => ({ group, bytes: raw.bytes[g] }));
  order.sort((a, b) => known.indexOf(a.group) - known.indexOf(b.group));
  return {
    at, total, peak: total.reduce((a, b) => Math.max(a, b), 0),
    groups: order.map(({ group, bytes }) => ({ name: group, bytes, colour: MEMORY_COLOURS.get(group) ?? "#9aa4af" })),
  };
}

function runOf(raw, number) {
  const t = raw.tasks;
  const begin = runningSums(t.begin, t.row_firsts);
  const waits = waitsOf(t.waits_count, t.waits);
  return {
    number, name: raw.name, model: raw.model, schedule: raw.schedule, tracks: raw.tracks,
    countsFrom: raw.counts_from, end: raw.end,
    steps: raw.steps.map(([from, to]) => ({ from, to })),
    devices: raw.devices.map((d) => ({ name: d.name, arena: d.arena_bytes, memory: memoryOf(d.memory) })),
    rows: t.row_firsts.map((first, r) =>
      ({ track: t.row_tracks[r], first, last: t.row_firsts[r + 1] ?? begin.length })),
    count: begin.length, begin, until: begin.map((b, i) => b + t.duration[i]),
    waited: t.waited.length ? Float64Array.from(t.waited) : null,  // of transfers: for other ranks, before they begin
    names: Uint32Array.from(t.name), kind: Uint32Array.from(t.kind), op: Uint32Array.from(t.op),
    layer: Uint32Array.from(t.layer), step: Uint32Array.from(t.step),
    waitsFor: waits, waitedBy: reversed(waits),
  };
}

function readData() {
  const raw = JSON.parse(document.getElementById("data").textContent);
  return {
    texts: raw.texts, figures: raw.figures, communication: new Set(raw.communication), runs: raw.runs.map(runOf),
  };
}

// The first i in [from, to) with list[i] > value; `to` if there is none. The list ascends.
function firstAbove(list, from, to, value) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (list[middle] > value) to = middle; else from = middle + 1;
  }
  return from;
}
