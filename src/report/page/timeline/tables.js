// The cards at the top and the tables at the bottom, from the figures that `overtake report --json` prints.

function sumOver(list, key) { return list.reduce((sum, item) => sum + item[key], 0); }
function mostOf(list, key) { return list.reduce((most, item) => Math.max(most, item[key]), 0); }

// A dash where two runs cannot be compared.
function formatRatio(ratio) { return ratio === null ? "–" : `${ratio.toFixed(3)}×`; }

function runCard(run, isFirst) {
  const deviceTime = run.run_ms * run.devices.length;
  const facts = [["idle (bubbles)", formatShare(sumOver(run.devices, "idle_ms"), deviceTime)]];
  if (sumOver(run.devices, "communication_ms") > 0)
    facts.push(["exposed communication", formatShare(sumOver(run.devices, "exposed_ms"), deviceTime)]);
  else facts.push(["overlap", formatShare(sumOver(run.devices, "overlap_ms"), deviceTime)]);
  const peak = mostOf(run.devices, "peak_bytes");
  if (peak > 0) facts.push(["peak memory", formatBytes(peak)]);
  facts.push(["tasks", run.tasks.toLocaleString("en")]);
  const ratio = make("span", { className: run.speed_up >= 1 ? "good" : "bad" }, formatRatio(run.speed_up));
  const about = [run.model, run.schedule !== run.run && run.schedule, run.devices.length > 1 &&
    `${run.devices.length} devices`].filter(Boolean).join(", ") || run.file;
  return make("article", { className: "run" },
    make("h2", {}, run.run, ...(isFirst || run.speed_up === null ? [] : [ratio])),
    make("div", { className: "about" }, about),
    make("div", { className: "big" }, ...(run.tasks === 0 ? ["no tasks", make("small", {}, " nothing was traced")]
      : [formatTime(run.step_ms * 1e6), make("small", {}, ` ${run.steps > 0 ? "per step" : "in all"}: ${run.step_time}`)])),
    make("dl", {}, ...facts.map(([what, value]) => make("div", {}, make("dt", {}, what), make("dd", {}, value)))));
}

function withBar(part, whole, isBad) {
  const width = whole > 0 ? `${Math.min(100, (100 * part) / whole)}%` : "0";
  const bar = make("span", { className: "bar", "aria-hidden": "true" },
    make("span", { className: isBad ? "warn" : "", style: { width } }));
  return { content: [formatShare(part, whole), bar] };
}

function deviceTable(figures) {
  const communicates = figures.some((run) => sumOver(run.devices, "communication_ms") > 0);
  const hasMemory = figures.some((run) => mostOf(run.devices, "peak_bytes") > 0);
  const header = ["run", { content: ["device"], left: true }, "compute", "idle (bubbles)", "overlap",
    ...(communicates ? ["transfers", "exposed"] : []), ...(hasMemory ? ["peak memory"] : [])];
  const rowOf = (name, d, whole) => [
    name, { content: [d.device], left: true }, withBar(d.compute_ms, whole), withBar(d.idle_ms, whole, true),
    withBar(d.overlap_ms, whole),
    ...(communicates ? [formatShare(d.communication_ms, whole), withBar(d.exposed_ms, whole, true)] : []),
    ...(hasMemory ? [d.peak_bytes > 0 ? formatBytes(d.peak_bytes) : "–"] : [])];
  const rows = figures.flatMap((run) => {
    const each = run.devices.map((d, i) => rowOf(i === 0 ? run.run : "", d, run.run_ms));
    if (each.length === 1) return each;
    const all = { device: `all ${each.length}`, peak_bytes: 0 };
    for (const key of ["compute_ms", "idle_ms", "overlap_ms", "communication_ms", "exposed_ms"])
      all[key] = sumOver(run.devices, key);
    return [...each, rowOf("", all, run.run_ms * each.length)];
  });
  const clockError = Math.max(0, ...figures.flatMap((run) => run.devices.map((d) => d.clock_error_us ?? 0)));
  return table("Devices", header, rows,
    "Shares of the run's time. Overlap: tasks of two lanes or more run at once." +
    (communicates ? " Exposed: only transfers run, nothing computes meanwhile; compute, idle and exposed add up to all." : "") +
    (clockError > 0 ? " A transfer between ranks begins when the last of them has come to it; a line shows how long the " +
      `others have waited. Clocks of ranks agree with that of rank 0 within ${formatTime(clockError * 1e3)}.` : ""));
}

// A value with its change against the first run; less is better.
function compared(value, base, format) {
  if (base === undefined || base === 0) return format(value);
  const change = (100 * (value - base)) / base;
  if (Math.abs(change) < 0.05) return { content: [format(value), make("small", {}, "±0 %")] };
  const sign = change > 0 ? "+" : "−";
  return { content: [format(value), make("small", { className: change > 0 ? "bad" : "good" },
    `${sign}${Math.abs(change).toFixed(1)} %`)] };
}

// The run that all are compared with.
function baseOf(figures) { return figures.find((run) => run.tasks > 0) ?? figures[0]; }

// What keeps runs from being compared.
function noteOnSteps(figures) {
  const ran = figures.filter((run) => run.tasks > 0), whole = ran.filter((run) => run.steps === 0);
  if (whole.length === 0) return "";
  const names = whole.map((run) => run.run).join(", ");
  return ` Of ${names} all is of the whole file, which does not say where steps begin` +
    (whole.length < ran.length ? "; it is not compared with runs that do." : ".");
}

function differenceTable(figures, colours) {
  const perStep = (run, ms) => (ms * 1e6) / Math.max(1, run.steps);
  const time = (ns) => formatTime(ns);
  const base = baseOf(figures);
  const row = (title, valueOf, format) => [title, ...figures.map((run) => run.tasks === 0 ? "–" :
    compared(valueOf(run), run === base || run.speed_up === null ? undefined : valueOf(base), format))];
  const rows = [row("step time", (run) => run.step_ms * 1e6, time)];
  if (figures.length > 1) rows.push(["speed-up", ...figures.map((run) => formatRatio(run.speed_up))]);
  for (const [title, key] of [["idle, all devices", "idle_ms"], ["exposed communication", "exposed_ms"]])
    if (figures.some((run) => sumOver(run.devices, key) > 0))
      rows.push(row(title, (run) => perStep(run, sumOver(run.devices, key)), time));
  if (figures.some((run) => mostOf(run.devices, "peak_bytes") > 0))
    rows.push(row("peak memory", (run) => mostOf(run.devices, "peak_bytes"), formatBytes));
  for (const kind of colours.keys()) {
    const of = (run) => perStep(run, run.kinds.find((k) => k.kind === kind)?.ms ?? 0);
    if (figures.some((run) => of(run) > 0))
      rows.push(row({ content: [swatch(colours.get(kind)), kind] }, of, time));
  }
  const header = ["per step", ...figures.map((run) => run.run)];
  return table(figures.length > 1 ? "Differences" : "Time by kind", header, rows,
    (figures.length > 1 ? `Changes are against ${base.run}; time` : "Time") +
    " of a kind is the sum over all lanes. All but the step time is of the steps shown." + noteOnSteps(figures));
}

function showFigures(figures, colours) {
  const models = [...new Set(figures.map((run) => run.model).filter(Boolean))];
  if (models.length) {
    document.getElementById("title").append(make("small", {}, models.join(", ")));
    document.title = `${models.join(", ")} – Overtake report`;
  }
  document.getElementById("runs").append(...figures.map((run) => runCard(run, run === baseOf(figures))));
  document.getElementById("tables").append(differenceTable(figures, colours), deviceTable(figures));
}
