// The task under the pointer: its card, and lines to what it waits for and to what waits for it.

const MOST_LISTED = 6, MOST_LINES = 200;

// What a task waits for, the last to end first; and what waits for it, the first to begin first.
function neighboursOf({ run, task }) {
  return {
    before: [...entriesOf(run.waitsFor, task)].sort((a, b) => run.until[b] - run.until[a]),
    after: [...entriesOf(run.waitedBy, task)].sort((a, b) => run.begin[a] - run.begin[b]),
  };
}

function outline(ctx, view, layout, run, task, colour, width) {
  const band = bandOfTask(layout, run, task);
  const x0 = Math.max(xOf(view, run.begin[task]), GUTTER - 4);
  const x1 = Math.min(xOf(view, run.until[task]), view.width + 4);
  if (x1 < GUTTER || x0 > view.width) return;
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.strokeRect(x0 - 0.5, band.y - view.scroll + 1.5, Math.max(x1 - x0, 2), band.height - 3);
}

function link(ctx, view, layout, run, from, to, colour) {
  const a = bandOfTask(layout, run, from), b = bandOfTask(layout, run, to);
  // Two ends of a transfer lie beside each other.
  const isBeside = run.until[from] > run.begin[to];
  const x0 = xOf(view, isBeside ? run.begin[from] : run.until[from]);
  const x1 = xOf(view, isBeside ? run.until[to] : run.begin[to]);
  const y0 = a.y - view.scroll + a.height / 2, y1 = b.y - view.scroll + b.height / 2;
  const bend = Math.max(12, Math.min(80, Math.abs(x1 - x0) / 2));
  const sag = a === b ? Math.min(34, 10 + Math.abs(x1 - x0) / 8) : 0;  // not through the names in between
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.bezierCurveTo(x0 + bend, y0 + sag, x1 - bend, y1 + sag, x1, y1);
  ctx.stroke();
  ctx.fillStyle = colour;
  ctx.beginPath();
  ctx.arc(x1, y1, 2.5, 0, 2 * Math.PI);
  ctx.fill();
}

function drawOverlay(ctx, view, state, layout, shown, pointerX) {
  const { theme } = state;
  ctx.clearRect(0, 0, view.width, view.height);
  if (pointerX !== null && pointerX >= GUTTER) {
    const t = view.t0 + (pointerX - GUTTER) / scaleOf(view), label = formatTime(t);
    ctx.fillStyle = theme.faint;
    ctx.fillRect(Math.round(pointerX), AXIS_HEIGHT, 1, view.height);
    ctx.font = SMALL_FONT;
    ctx.textBaseline = "middle";
    const width = ctx.measureText(label).width + 10, x = Math.min(pointerX - width / 2, view.width - width);
    ctx.fillStyle = theme.text;
    ctx.fillRect(x, 3, width, AXIS_HEIGHT - 7);
    ctx.fillStyle = theme.panel;
    ctx.fillText(label, x + 5, AXIS_HEIGHT / 2);
  }
  if (!shown) return;
  const { run, task } = shown, { before, after } = neighboursOf(shown);
  ctx.save();
  ctx.beginPath();
  ctx.rect(GUTTER, AXIS_HEIGHT, view.width - GUTTER, view.height - AXIS_HEIGHT);
  ctx.clip();
  for (const other of before.slice(0, MOST_LINES)) {
    outline(ctx, view, layout, run, other, theme.before, 2);
    link(ctx, view, layout, run, other, task, theme.before);
  }
  for (const other of after.slice(0, MOST_LINES)) {
    outline(ctx, view, layout, run, other, theme.after, 2);
    link(ctx, view, layout, run, task, other, theme.after);
  }
  outline(ctx, view, layout, run, task, theme.text, 2.5);
  ctx.restore();
}

function neighbourList(state, run, list, gapOf, goTo) {
  const items = list.slice(0, MOST_LISTED).map((other) => make("li", {}, swatch(state.colours[run.kind[other]]),
    make("button", { type: "button", onclick: () => goTo({ run, task: other }) }, state.texts[run.names[other]]),
    make("small", {}, gapOf(other))));
  if (list.length > MOST_LISTED)
    items.push(make("li", { className: "more" }, `and ${list.length - MOST_LISTED} more`));
  return make("ul", {}, ...items);
}

function distance(ns, verb, apart, beside) { return `${verb} ${formatTime(Math.abs(ns))} ${ns < 0 ? beside : apart}`; }

function taskCard(state, shown, goTo) {
  const { run, task } = shown, { texts } = state, { before, after } = neighboursOf(shown);
  const band = bandOfTask(state.layout, run, task), track = run.tracks[band.row.track];
  const begin = run.begin[task], until = run.until[task];
  const where = [run.name, run.devices.length > 1 && run.devices[track.device].name, track.name];
  const deviceOf = (t) => run.tracks[bandOfTask(state.layout, run, t).row.track].device;
  const elsewhere = (t) => (deviceOf(t) === track.device ? "" : `${run.devices[deviceOf(t)].name.split(":")[0]}, `);
  const facts = [
    ["kind", texts[run.kind[task]]], ["op", texts[run.op[task]]], ["layer", texts[run.layer[task]]],
    ["takes", formatTime(until - begin)],
    ["after waiting", run.waited?.[task] ? `${formatTime(run.waited[task])} for the other end` : ""],
    ["begins", formatTime(begin)], ["ends", formatTime(until)],
    ["on", where.filter(Boolean).join(", ")],
    ["step", run.step[task] && run.steps.length > 1 ? `${run.step[task]} of ${run.steps.length}` : ""],
  ].filter(([, value]) => value !== "");
  const parts = [
    make("h3", {}, swatch(state.colours[run.kind[task]]), texts[run.names[task]]),
    make("dl", {}, ...facts.flatMap(([what, value]) => [make("dt", {}, what), make("dd", {}, value)])),
  ];
  if (before.length)
    parts.push(make("h4", { className: "before" }, `waits for ${before.length}`), neighbourList(state, run, before,
      (other) => elsewhere(other) + distance(begin - run.until[other], "ended", "before", "after its begin"), goTo));
  if (after.length)
    parts.push(make("h4", { className: "after" }, `${after.length} wait${after.length > 1 ? "" : "s"} for it`),
      neighbourList(state, run, after, (other) =>
        elsewhere(other) + distance(run.begin[other] - until, "began", "later", "before its end"), goTo));
  return parts;
}

function memoryCard({ run, device }, t) {
  const { memory } = device, sample = firstAbove(memory.at, 0, memory.at.length, t) - 1;
  if (sample < 0 || t > run.end) return null;
  return [
    make("h3", {}, `${formatBytes(memory.total[sample])} in use`),
    make("dl", {}, ...memory.groups.flatMap(({ name, bytes, colour }) =>
      [make("dt", {}, swatch(colour), ` ${name}`), make("dd", {}, formatBytes(bytes[sample]))]),
    make("dt", {}, "peak"), make("dd", {}, formatBytes(memory.peak)),
    ...(device.arena ? [make("dt", {}, "set aside"), make("dd", {}, formatBytes(device.arena))] : [])),
  ];
}

// Beside the pointer, inside the window.
function placeCard(card, x, y) {
  const { width, height } = card.getBoundingClientRect();
  const left = x + 18 + width > window.innerWidth ? Math.max(4, x - 18 - width) : x + 18;
  card.style.left = `${left}px`;
  card.style.top = `${Math.max(4, Math.min(y + 14, window.innerHeight - height - 8))}px`;
}
