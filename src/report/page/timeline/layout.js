// Where things are: bands from top to bottom (a header per run, per device its lanes and its memory), and colours.

const AXIS_HEIGHT = 26, RUN_HEIGHT = 26, DEVICE_HEIGHT = 20, LANE_HEIGHT = 24, NESTED_HEIGHT = 17, MEMORY_HEIGHT = 56;
const GUTTER = 164;

// Okabe and Ito's colours, which stay apart for colour-blind eyes; communication has its own. Kinds of other programs
// have Tol's.
const KIND_COLOURS = new Map(Object.entries({
  forward: "#56b4e9", input_grad: "#e69f00", weight_grad: "#009e73", update: "#cc79a7", all_reduce: "#d55e00",
  reduce_scatter: "#a33f00", all_gather: "#f0e442", all_to_all: "#7d6b00", send: "#7a5cb8", recv: "#b8a2e0", load: "#8a939e",
}));
const OTHER_COLOURS = ["#6699cc", "#88ccee", "#44aa99", "#ddcc77", "#cc6677", "#999933", "#882255", "#8a939e"];
const MEMORY_COLOURS = new Map(Object.entries({
  "weights and states": "#0072b2", activations: "#56b4e9", gradients: "#e69f00", other: "#9aa4af",
}));

// Kinds of all runs with their colours: those of Overtake in their own order, then others.
function kindColours(data) {
  const present = new Set();
  for (const run of data.runs) for (const kind of run.kind) present.add(data.texts[kind]);
  const colours = new Map([...KIND_COLOURS].filter(([kind]) => present.has(kind)));
  let next = 0;
  for (const kind of present)
    if (!colours.has(kind)) colours.set(kind, OTHER_COLOURS[next++ % OTHER_COLOURS.length]);
  return colours;
}

// Black or white, whichever reads better on a colour.
function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10151b" : "#ffffff";
}

function layoutOf(runs, withMemory) {
  const bands = [];
  let y = AXIS_HEIGHT;
  const add = (band) => { bands.push({ y, ...band }); y += band.height; };
  for (const run of runs) {
    run.bandOfRow = [];
    add({ type: "run", height: RUN_HEIGHT, run });
    run.devices.forEach((device, d) => {
      if (run.devices.length > 1) add({ type: "device", height: DEVICE_HEIGHT, run, device });
      run.rows.forEach((row, r) => {
        if (run.tracks[row.track].device !== d) return;
        const isFirst = r === 0 || run.rows[r - 1].track !== row.track;
        run.bandOfRow[r] = bands.length;
        const label = isFirst ? run.tracks[row.track].name : "";
        add({ type: "row", height: isFirst ? LANE_HEIGHT : NESTED_HEIGHT, run, row, label });
      });
      if (withMemory && device.memory.at.length) add({ type: "memory", height: MEMORY_HEIGHT, run, device });
    });
    y += 8;
  }
  return { bands, height: y };
}

function bandOfTask(layout, run, task) {
  const firsts = run.rowFirsts ??= Float64Array.from(run.rows, (row) => row.first);
  return layout.bands[run.bandOfRow[firstAbove(firsts, 0, firsts.length, task) - 1]];
}
