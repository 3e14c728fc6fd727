// Puts the page together.

function stateOf(data, byKind) {
  const colours = data.texts.map((text) => byKind.get(text) ?? "");
  const inks = colours.map((colour) => (colour ? inkOn(colour) : ""));
  const peaks = data.runs.flatMap((run) => run.devices.map((device) => device.memory.peak));
  return {
    texts: data.texts, colours: [...colours, ""], inks, hidden: new Uint8Array(data.texts.length), matched: null,
    mostMemory: Math.max(1, ...peaks), theme: null,
  };
}

function readTheme(state) {
  state.theme = themeNow();
  state.colours[state.colours.length - 1] = state.theme.dim;
}

// A button that is pressed while something is shown.
function toggle(name, onChange, ...content) {
  const button = make("button", { type: "button", "aria-pressed": "true", title: `hide or show ${name}` }, ...content);
  button.addEventListener("click", () => {
    const isShown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isShown));
    onChange(isShown);
  });
  return button;
}

function addLegend(data, state, byKind, timeline) {
  for (const [kind, colour] of byKind) {
    const id = data.texts.indexOf(kind);
    document.getElementById("legend").append(toggle(kind, (isShown) => {
      state.hidden[id] = Number(!isShown);
      timeline.drawSoon();
    }, swatch(colour), kind));
  }
  const groups = new Map(data.runs.flatMap((run) => run.devices).flatMap((device) => device.memory.groups)
    .map(({ name, colour }) => [name, colour]));
  if (groups.size === 0) return;
  document.getElementById("memory-legend").append(
    toggle("memory", (isShown) => timeline.setMemory(isShown), "memory"),
    ...[...groups].map(([name, colour]) => make("span", {}, swatch(colour), name)));
}

function addSearch(data, state, timeline) {
  const input = document.getElementById("search"), found = document.getElementById("found");
  let hits = [], next = 0;
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    hits = [];
    next = 0;
    state.matched = wanted ? Uint8Array.from(data.texts, (text) => Number(text.toLowerCase().includes(wanted))) : null;
    if (wanted)
      for (const run of data.runs)
        for (let task = 0; task < run.count; ++task) if (state.matched[run.names[task]]) hits.push({ run, task });
    hits.sort((a, b) => a.run.number - b.run.number || a.run.begin[a.task] - b.run.begin[b.task]);
    found.textContent = wanted ? `${hits.length.toLocaleString("en")} found` : "";
    timeline.drawSoon();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && hits.length) {
      const step = event.shiftKey ? hits.length - 2 : 0;
      const at = (next + step) % hits.length;
      timeline.goTo(hits[at]);
      next = (at + 1) % hits.length;
      found.textContent = `${at + 1} of ${hits.length.toLocaleString("en")}`;
    } else if (event.key === "Escape") {
      input.value = "";
      input.dispatchEvent(new Event("input"));
      timeline.base.focus();
    }
  });
}

function addButtons(timeline) {
  const on = (id, action) => document.getElementById(id).addEventListener("click", action);
  on("zoom-in", () => timeline.zoom(1.6));
  on("zoom-out", () => timeline.zoom(1 / 1.6));
  on("zoom-fit", () => timeline.fit());
}

// Paper is white whatever the screen is, and has no scroll bars.
function followTheme(state, timeline) {
  const repaint = (isPaper) => {
    document.documentElement.classList.toggle("paper", isPaper);
    readTheme(state);
    timeline.resize(isPaper);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => repaint(false));
  window.addEventListener("beforeprint", () => repaint(true));
  window.addEventListener("afterprint", () => repaint(false));
}

function start() {
  const data = readData(), byKind = kindColours(data), state = stateOf(data, byKind);
  readTheme(state);
  showFigures(data.figures, byKind);
  const timeline = new Timeline(data, state);
  addLegend(data, state, byKind, timeline);
  addSearch(data, state, timeline);
  addButtons(timeline);
  followTheme(state, timeline);
  timeline.resize();
  window.overtakeReport = timeline;  // for people with a console, and for tests
}

start();
