// The timeline: what is in view, and what pointer and keys do to it.

const LEAST_NS = 50;  // the shortest time that fills the view
const REACH = 4;      // pixels by which a pointer may miss a task
const TALL = 600;     // pixels beyond which a timeline gets a page of its own on paper

class Timeline {
  constructor(data, state) {
    this.data = data;
    this.state = state;
    this.layout = state.layout = layoutOf(data.runs, true);
    // What was under way before can be scrolled to.
    this.begin = data.runs.reduce((least, run) => Math.min(least, run.countsFrom), Infinity);
    this.end = data.runs.reduce((most, run) => Math.max(most, run.end), 1);
    for (const id of ["stage", "layers", "spacer", "base", "overlay", "card"]) this[id] = document.getElementById(id);
    this.view = { t0: 0, t1: this.end, width: 0, height: 0, scroll: 0 };
    this.hovered = this.pinned = null;
    this.pointerX = null;
    this.pointers = new Map();  // those pressed
    this.listen();
    this.fit();
  }

  // Drawing. ------------------------------------------------------------------------------------------------------
  resize(isPaper = false) {
    const room = Math.max(300, Math.round(window.innerHeight * 0.68));
    const height = isPaper ? this.layout.height : Math.min(this.layout.height, room);
    const width = this.stage.clientWidth, density = isPaper ? 2 : window.devicePixelRatio || 1;
    this.stage.classList.toggle("tall", height > TALL);
    this.stage.style.height = `${height + 2}px`;
    this.layers.style.height = `${height}px`;
    this.spacer.style.height = `${this.layout.height - height}px`;
    Object.assign(this.view, { width: this.stage.clientWidth || width, height });
    for (const canvas of [this.base, this.overlay]) {
      canvas.width = Math.round(this.view.width * density);
      canvas.height = Math.round(height * density);
      canvas.style.width = `${this.view.width}px`;
      canvas.style.height = `${height}px`;
      canvas.getContext("2d").setTransform(density, 0, 0, density, 0, 0);
    }
    this.view.scroll = isPaper ? 0 : this.stage.scrollTop;
    this.draw();
  }

  draw() {
    drawTimeline(this.base.getContext("2d"), this.view, this.state, this.layout);
    drawOverlay(this.overlay.getContext("2d"), this.view, this.state, this.layout, this.pinned ?? this.hovered,
      this.pointerX);
    this.base.dataset.from = this.view.t0;
    this.base.dataset.to = this.view.t1;
  }

  // At most one frame per refresh of the screen, however many events come.
  drawSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  setMemory(isShown) {
    this.layout = this.state.layout = layoutOf(this.data.runs, isShown);
    this.resize();
  }

  // What is in view. ----------------------------------------------------------------------------------------------
  show(t0, t1) {
    const length = Math.min(Math.max(t1 - t0, LEAST_NS), this.end * 1.04);
    const middle = (t0 + t1) / 2, slack = Math.min(this.end * 0.02, length * 0.5);
    const begin = Math.min(Math.max(middle - length / 2, -slack), this.end + slack - length);
    this.view.t0 = begin;
    this.view.t1 = begin + length;
    this.drawSoon();
  }
  fit() { this.show(this.begin, this.end * 1.01); }
  timeAt(x) { return this.view.t0 + (x - GUTTER) / scaleOf(this.view); }
  zoom(factor, x = (GUTTER + this.view.width) / 2) {
    const t = this.timeAt(x), { t0, t1 } = this.view;
    this.show(t - (t - t0) / factor, t + (t1 - t) / factor);
  }
  pan(pixels) {
    const ns = pixels / scaleOf(this.view);
    this.show(this.view.t0 + ns, this.view.t1 + ns);
  }

  // Brings a task into view and pins it.
  goTo(found) {
    const { run, task } = found, length = Math.max(run.until[task] - run.begin[task], 1);
    const middle = run.begin[task] + length / 2, { t0, t1 } = this.view;
    const isFine = length * scaleOf(this.view) > 8 && run.begin[task] >= t0 && run.until[task] <= t1;
    if (!isFine) {
      const shown = Math.min(Math.max(length * 14, 2 * LEAST_NS), this.end);
      this.show(middle - shown / 2, middle + shown / 2);
    }
    const band = bandOfTask(this.layout, run, task);
    const y = band.y - this.stage.scrollTop;
    if (y < AXIS_HEIGHT || y + band.height > this.view.height) this.stage.scrollTop = band.y - this.view.height / 2;
    this.view.scroll = this.stage.scrollTop;
    const at = this.base.getBoundingClientRect();
    this.pin(found, at.left + xOf(this.view, middle), at.top + band.y - this.view.scroll + band.height / 2);
  }

  // Tasks. --------------------------------------------------------------------------------------------------------
  bandAt(y) {
    const at = y + this.view.scroll;
    return y < AXIS_HEIGHT ? undefined : this.layout.bands.find((band) => band.y <= at && at < band.y + band.height);
  }

  // The task at a place of the canvas, or the nearest within reach.
  taskAt(x, y) {
    const band = x < GUTTER ? undefined : this.bandAt(y);
    if (band?.type !== "row") return null;
    const { run, row } = band, t = this.timeAt(x), scale = scaleOf(this.view);
    const at = firstAbove(run.until, row.first, row.last, t);
    let best = null, bestMiss = REACH;
    for (const task of [at - 1, at]) {
      if (task < row.first || task >= row.last || this.state.hidden[run.kind[task]]) continue;
      const miss = Math.max(run.begin[task] - t, t - run.until[task], 0) * scale;
      if (miss < bestMiss) { bestMiss = miss; best = { run, task }; }
    }
    return best;
  }

  hover(x, y, clientX, clientY) {
    this.pointerX = x;
    this.hovered = this.taskAt(x, y);
    if (!this.pinned) {
      const band = this.bandAt(y);
      const content = this.hovered ? taskCard(this.state, this.hovered, (found) => this.goTo(found))
        : band?.type === "memory" && x >= GUTTER ? memoryCard(band, this.timeAt(x)) : null;
      this.fillCard(content, clientX, clientY);
    }
    this.drawSoon();
  }

  pin(found, clientX, clientY) {
    this.pinned = found;
    this.card.classList.toggle("pinned", found !== null);
    this.fillCard(found && taskCard(this.state, found, (next) => this.goTo(next)), clientX, clientY);
    this.drawSoon();
  }

  fillCard(content, clientX, clientY) {
    this.card.hidden = !content;
    if (!content) return;
    this.card.replaceChildren(...content);
    placeCard(this.card, clientX, clientY);
  }

  // Pointer and keys. ---------------------------------------------------------------------------------------------
  listen() {
    const { base } = this;
    base.addEventListener("wheel", (e) => this.onWheel(e), { passive: false });
    base.addEventListener("pointerdown", (e) => this.onDown(e));
    base.addEventListener("pointermove", (e) => this.onMove(e));
    base.addEventListener("pointerup", (e) => this.onUp(e));
    base.addEventListener("pointercancel", (e) => this.pointers.delete(e.pointerId));
    base.addEventListener("pointerleave", () => {
      this.pointerX = this.hovered = null;
      if (!this.pinned) this.card.hidden = true;
      this.drawSoon();
    });
    this.stage.addEventListener("scroll", () => {
      this.view.scroll = this.stage.scrollTop;
      this.drawSoon();
    });
    window.addEventListener("resize", () => this.resize());
    document.addEventListener("keydown", (e) => this.onKey(e));
  }

  onWheel(event) {
    if (event.offsetX < GUTTER && !event.ctrlKey) return;  // over the names the wheel scrolls as it does elsewhere
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
      this.pan((event.deltaX || event.deltaY) * lines);
    else this.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002)), event.offsetX);
  }

  onDown(event) {
    if (event.button !== 0) return;
    this.base.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.moved = 0;
  }

  onMove(event) {
    const last = this.pointers.get(event.pointerId);
    const { offsetX: x, offsetY: y } = event;
    if (!last) return this.hover(x, y, event.clientX, event.clientY);
    this.moved += Math.abs(x - last.x) + Math.abs(y - last.y);
    if (this.pointers.size === 2) this.pinch(event.pointerId, last, x);
    else if (this.moved > 3) {
      this.base.classList.add("dragging");
      this.pan(last.x - x);
      this.stage.scrollTop += last.y - y;
    }
    this.pointers.set(event.pointerId, { x, y });
  }

  // Two fingers keep the times under them.
  pinch(moving, last, x) {
    const other = [...this.pointers].find(([id]) => id !== moving)[1];
    const before = Math.abs(last.x - other.x), now = Math.abs(x - other.x);
    if (before > 8 && now > 8) this.zoom(now / before, other.x);
  }

  onUp(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    this.base.classList.remove("dragging");
    if (this.moved <= 3) this.pin(this.taskAt(event.offsetX, event.offsetY), event.clientX, event.clientY);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLInputElement) return;
    const actions = {
      ArrowLeft: () => this.pan(-120), ArrowRight: () => this.pan(120),
      ArrowUp: () => { this.stage.scrollTop -= 60; }, ArrowDown: () => { this.stage.scrollTop += 60; },
      "+": () => this.zoom(1.4), "=": () => this.zoom(1.4), "-": () => this.zoom(1 / 1.4), 0: () => this.fit(),
      Escape: () => this.pin(null), "/": () => document.getElementById("search").focus(),
    };
    const isArrow = event.key.startsWith("Arrow");
    if (!actions[event.key] || (isArrow && event.target !== this.base && event.target !== document.body)) return;
    // Where all lanes are in view, the page scrolls.
    if ((event.key === "ArrowUp" || event.key === "ArrowDown") && this.layout.height <= this.view.height) return;
    event.preventDefault();
    actions[event.key]();
  }
}
