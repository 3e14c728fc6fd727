// Draws what a view shows. A view: t0 and t1 in ns, size of the canvas, how far it is scrolled down.

const FONT = '12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const SMALL_FONT = FONT.replace("12px", "11px");

function themeNow() {
  const style = getComputedStyle(document.documentElement);
  const theme = {};
  for (const name of ["panel", "text", "faint", "line", "lane", "accent", "before", "after", "dim"])
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  return theme;
}

// Pixels per ns, and where a time is.
function scaleOf(view) { return (view.width - GUTTER) / (view.t1 - view.t0); }
function xOf(view, t) { return GUTTER + (t - view.t0) * scaleOf(view); }

// Text cut to a width, by the width of a usual letter: nothing is measured per frame.
let letterWidth = 0;
function fitted(text, width) {
  if (!letterWidth) {
    const ctx = document.createElement("canvas").getContext("2d");
    ctx.font = FONT;
    letterWidth = ctx.measureText("layer4.conv1.weight_grad").width / 24;
  }
  const letters = Math.floor(width / letterWidth);
  if (text.length <= letters) return text;
  return letters < 4 ? "" : `${text.slice(0, letters - 1)}…`;
}

// Tasks narrower than a pixel, gathered by the pixel they begin in: a bar as high as the pixel is busy, in the colour
// that took most of it. Neighbours that look the same become one rectangle.
class Density {
  constructor(ctx, colours, y, height) {
    Object.assign(this, { ctx, colours, y, height, column: -1, total: 0, best: 0, bestTime: 0 });
    this.times = new Map();
    this.bar = null;
  }
  add(column, colour, width) {
    if (column !== this.column) { this.endColumn(); this.column = column; }
    const time = (this.times.get(colour) ?? 0) + width;
    this.times.set(colour, time);
    this.total += width;
    if (time > this.bestTime) { this.bestTime = time; this.best = colour; }
  }
  endColumn() {
    if (this.column < 0) return;
    const height = Math.max(3, Math.round(this.height * Math.min(1, this.total)));
    const bar = this.bar;
    if (bar && bar.end === this.column && bar.colour === this.best && bar.height === height) ++bar.end;
    else {
      this.endBar();
      this.bar = { begin: this.column, end: this.column + 1, colour: this.best, height };
    }
    this.times.clear();
    this.column = -1;
    this.total = this.bestTime = 0;
  }
  endBar() {
    const bar = this.bar;
    if (!bar) return;
    this.ctx.fillStyle = this.colours[bar.colour];
    this.ctx.fillRect(bar.begin, this.y + this.height - bar.height, bar.end - bar.begin, bar.height);
    this.bar = null;
  }
  end() { this.endColumn(); this.endBar(); }
}

// How long transfers have waited for other ranks, as lines that lead to them.
function drawWaiting(ctx, view, state, { run, row }, y) {
  const { begin, until, kind, waited } = run;
  ctx.globalAlpha = 0.45;
  for (let i = firstAbove(until, row.first, row.last, view.t0); i < row.last; ++i) {
    if (!waited[i] || state.hidden[kind[i]] || begin[i] - waited[i] > view.t1) continue;
    const left = Math.max(xOf(view, begin[i] - waited[i]), GUTTER), right = Math.min(xOf(view, begin[i]), view.width);
    ctx.fillStyle = state.colours[kind[i]];
    if (right > left) ctx.fillRect(left, y, right - left, 2);
  }
  ctx.globalAlpha = 1;
}

function drawTasks(ctx, view, state, { run, row }, y, height) {
  const { begin, until, kind, names } = run;
  const { colours, hidden, matched, texts } = state;
  const { t0, t1 } = view, scale = scaleOf(view), dim = colours.length - 1;
  const density = new Density(ctx, colours, y, height);
  for (let i = firstAbove(until, row.first, row.last, t0); i < row.last && begin[i] < t1; ++i) {
    if (hidden[kind[i]]) continue;
    const colour = matched && !matched[names[i]] ? dim : kind[i];
    const x = GUTTER + (begin[i] - t0) * scale, width = (until[i] - begin[i]) * scale;
    if (width < 1) { density.add(Math.floor(x), colour, width); continue; }
    density.end();
    const left = Math.max(x, GUTTER), right = Math.min(x + width, view.width);
    ctx.fillStyle = colours[colour];
    ctx.fillRect(left, y, Math.max(right - left - (width > 3 ? 1 : 0), 0.6), height);
    if (right - left < 34) continue;
    const label = fitted(texts[names[i]].replace(`.${texts[kind[i]]}`, ""), right - left - 8);
    if (!label) continue;
    ctx.fillStyle = colour === dim ? state.theme.faint : state.inks[kind[i]];
    ctx.fillText(label, left + 4, y + height / 2 + 0.5);
  }
  density.end();
}

// Per pixel, the sample of the most memory in it; -1 before the first.
function samplesByPixel(memory, view) {
  const width = Math.max(1, Math.floor(view.width - GUTTER)), scale = scaleOf(view);
  const samples = new Int32Array(width);
  let next = firstAbove(memory.at, 0, memory.at.length, view.t0), held = next - 1;
  for (let x = 0; x < width; ++x) {
    const end = view.t0 + (x + 1) / scale;
    let most = held;
    for (; next < memory.at.length && memory.at[next] < end; ++next) {
      held = next;
      if (most < 0 || memory.total[next] > memory.total[most]) most = next;
    }
    samples[x] = most;
  }
  return samples;
}

function drawMemory(ctx, view, state, { run, device }, y, height) {
  const { memory } = device, samples = samplesByPixel(memory, view);
  const end = Math.min(samples.length, Math.ceil((run.end - view.t0) * scaleOf(view)));
  const perByte = (height - 14) / state.mostMemory, base = y + height;
  const below = new Float64Array(samples.length), above = new Float64Array(samples.length);
  for (const { bytes, colour } of memory.groups) {
    for (let x = 0; x < end; ++x) above[x] = below[x] + (samples[x] < 0 ? 0 : bytes[samples[x]] * perByte);
    ctx.beginPath();
    for (let x = 0; x < end; ++x) {
      if (x > 0 && x + 1 < end && samples[x] === samples[x - 1] && samples[x] === samples[x + 1]) continue;
      ctx.lineTo(GUTTER + x, base - above[x]);
      ctx.lineTo(GUTTER + x + 1, base - above[x]);
    }
    for (let x = end - 1; x >= 0; --x) {
      if (x > 0 && x + 1 < end && samples[x] === samples[x - 1] && samples[x] === samples[x + 1]) continue;
      ctx.lineTo(GUTTER + x + 1, base - below[x]);
      ctx.lineTo(GUTTER + x, base - below[x]);
    }
    ctx.fillStyle = colour;
    ctx.fill();
    below.set(above);
  }
  const top = Math.round(base - memory.peak * perByte) + 0.5;
  ctx.strokeStyle = state.theme.faint;
  ctx.setLineDash([2, 3]);
  ctx.beginPath();
  ctx.moveTo(GUTTER, top);
  ctx.lineTo(Math.min(view.width, xOf(view, run.end)), top);
  ctx.stroke();
  ctx.setLineDash([]);
}

// Distance between two marks of the axis: 1, 2 or 5 times a power of ten, some 110 pixels.
function tickOf(view) {
  const least = 110 / scaleOf(view), power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((f) => f * power).find((tick) => tick >= least);
}

function tickLabel(t, tick) {
  const [unit, name] = tick < 1e3 ? [1, "ns"] : tick < 1e6 ? [1e3, "µs"] : tick < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  return `${Math.round(t / unit).toLocaleString("en")} ${name}`;
}

function drawAxis(ctx, view, theme) {
  ctx.fillStyle = theme.panel;
  ctx.fillRect(0, 0, view.width, AXIS_HEIGHT);
  ctx.fillStyle = theme.faint;
  ctx.font = SMALL_FONT;
  const tick = tickOf(view);
  for (let k = Math.ceil(view.t0 / tick); k * tick < view.t1; ++k) {
    const x = xOf(view, k * tick);
    ctx.fillRect(Math.round(x), AXIS_HEIGHT - 6, 1, 6);
    if (x + 60 < view.width) ctx.fillText(tickLabel(k * tick, tick), x + 4, AXIS_HEIGHT / 2);
  }
  ctx.fillText(formatTime(view.t1 - view.t0) + " shown", 12, AXIS_HEIGHT / 2);
  ctx.fillStyle = theme.line;
  ctx.fillRect(0, AXIS_HEIGHT - 1, view.width, 1);
}

function drawGrid(ctx, view, theme, top, bottom) {
  const tick = tickOf(view);
  ctx.fillStyle = theme.line;
  for (let k = Math.ceil(view.t0 / tick); k * tick < view.t1; ++k)
    ctx.fillRect(Math.round(xOf(view, k * tick)), top, 1, bottom - top);
}

function drawRunBand(ctx, view, state, run, y, height) {
  const { theme } = state;
  ctx.fillStyle = theme.lane;
  ctx.fillRect(0, y, view.width, height - 3);
  ctx.font = FONT;
  run.steps.forEach(({ from, to }, s) => {
    const left = Math.max(xOf(view, from), GUTTER), right = xOf(view, to);
    if (right < GUTTER || left > view.width) return;
    ctx.fillStyle = theme.faint;
    if (s > 0 && left > GUTTER && right - left > 4) ctx.fillRect(Math.round(left), y, 1, height - 3);
    const room = Math.min(right, view.width) - left - 8;
    const number = run.steps.length > 1 ? ` ${s + 1}` : "";
    if (room > 44) ctx.fillText(fitted(`step${number}  ${formatTime(to - from)}`, room), left + 5, y + 12);
  });
}

function drawGutter(ctx, view, state, band, y) {
  const { theme } = state, middle = y + band.height / 2;
  if (band.type !== "run") {
    ctx.fillStyle = theme.panel;
    ctx.fillRect(0, y, GUTTER, band.height);
  }
  ctx.font = FONT;
  ctx.fillStyle = theme.text;
  if (band.type === "run") {
    ctx.fillStyle = theme.lane;
    ctx.fillRect(0, y, GUTTER, band.height - 3);
    ctx.fillStyle = theme.text;
    ctx.font = `600 ${FONT}`;
    ctx.fillText(fitted(band.run.name, GUTTER - 18), 12, y + 12);
  } else if (band.type === "device") {
    ctx.font = `600 ${SMALL_FONT}`;
    ctx.fillText(fitted(band.device.name, view.width - 24), 12, middle + 1);  // nothing beside it
  } else if (band.type === "row") {
    ctx.fillText(fitted(band.label, GUTTER - 26), 20, middle);
  } else {
    ctx.fillText("memory", 20, y + 22);
    ctx.fillStyle = theme.faint;
    ctx.font = SMALL_FONT;
    ctx.fillText(`peak ${formatBytes(band.device.memory.peak)}`, 20, y + 38);
  }
}

function drawTimeline(ctx, view, state, layout) {
  const { theme } = state;
  ctx.textBaseline = "middle";
  ctx.fillStyle = theme.panel;
  ctx.fillRect(0, 0, view.width, view.height);
  for (const band of layout.bands) {
    const y = band.y - view.scroll;
    if (y + band.height < AXIS_HEIGHT || y > view.height) continue;
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, y, view.width, band.height);
    ctx.clip();
    if (band.type === "run") drawRunBand(ctx, view, state, band.run, y, band.height);
    if (band.type === "row" || band.type === "memory") {
      const end = Math.min(view.width, xOf(view, band.run.end));
      ctx.fillStyle = theme.lane;
      if (band.type === "row" && end > GUTTER) ctx.fillRect(GUTTER, y + 2, end - GUTTER, band.height - 4);
      drawGrid(ctx, view, theme, y, y + band.height);
    }
    ctx.font = SMALL_FONT;
    if (band.type === "row" && band.run.waited) drawWaiting(ctx, view, state, band, y + band.height - 5);
    if (band.type === "row") drawTasks(ctx, view, state, band, y + 2, band.height - 4);
    if (band.type === "memory") drawMemory(ctx, view, state, band, y, band.height - 4);
    drawGutter(ctx, view, state, band, y);
    ctx.restore();
  }
  ctx.fillStyle = theme.line;
  ctx.fillRect(GUTTER - 1, 0, 1, view.height);
  drawAxis(ctx, view, theme);
}
