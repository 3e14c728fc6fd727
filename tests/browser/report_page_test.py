#!/usr/bin/python3
"""Opens pages of `overtake report` and `overtake validate` in chromium and uses them as a person would.

Usage: report_page_test.py OVERTAKE. Exits 77, for "skipped", where chromium, its driver or selenium is missing.
"""
import base64
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from many_tasks import timeline
from two_ranks import two_ranks

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
try:
    from selenium import webdriver
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
except ImportError:
    webdriver = None

OVERTAKE = ""
MOST_BYTES = 15e6


def open_browser():
    options = webdriver.ChromeOptions()
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1400,1000"):
        options.add_argument(flag)
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(DRIVER), options=options)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="overtake-browser-")
        cls.browser = open_browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.folder.cleanup()

    def tearDown(self):
        said = [e["message"] for e in self.browser.get_log("browser")]
        # Chromium's hint on these tests' own reading of pixels; the page never does.
        self.assertEqual([text for text in said if "Multiple readback operations" not in text], [])

    def js(self, text, *arguments):
        return self.browser.execute_script(text, *arguments)

    def settle(self):
        self.js("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def element(self, name):
        return self.browser.find_element("id", name)


class ReportPage(Page):
    # Writes the page of a trace and opens it.
    def open(self, trace, name="page"):
        path = pathlib.Path(self.folder.name)
        if isinstance(trace, dict):
            (path / f"{name}.json").write_text(json.dumps(trace))
            trace = path / f"{name}.json"
        page = path / f"{name}.html"
        subprocess.run([OVERTAKE, "report", str(trace), "-o", str(page), "--overwrite"], check=True, capture_output=True)
        self.browser.get(page.as_uri())
        self.settle()
        return page

    def shown(self):
        data = self.js("return {...document.getElementById('base').dataset}")
        return float(data["from"]), float(data["to"])

    # Where on the canvas a time (ns) of the n-th lane should be; brings the lane into view.
    def place(self, ns, lane):
        t0, t1 = self.shown()
        width, gutter = self.js("return [document.getElementById('base').clientWidth, GUTTER]")
        y = self.js("""
            const row = overtakeReport.layout.bands.filter((band) => band.type === "row")[arguments[0]];
            const stage = document.getElementById("stage");
            stage.scrollTop = row.y - 200;
            return row.y + row.height / 2 - stage.scrollTop;""", lane)
        self.settle()
        return round(gutter + (ns - t0) / (t1 - t0) * (width - gutter)), round(y)

    # ActionChains count from the middle of an element.
    def move_to(self, chain, x, y):
        size = self.element("base").size
        return chain.move_to_element_with_offset(self.element("base"), x - size["width"] // 2, y - size["height"] // 2)

    def hover(self, x, y):
        self.move_to(ActionChains(self.browser, 0), x, y).perform()
        self.settle()
        card = self.element("card")
        return card.text if card.is_displayed() else ""

    def wheel(self, x, y, delta):
        size = self.element("base").size
        origin = ScrollOrigin.from_element(self.element("base"), x - size["width"] // 2, y - size["height"] // 2)
        ActionChains(self.browser, 0).scroll_from_origin(origin, 0, delta).perform()
        self.settle()

    def pixels_of(self, colour):
        return self.js("""
            const canvas = document.getElementById("base"), [r, g, b] = arguments[0];
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let n = 0;
            for (let i = 0; i < data.length; i += 4) n += data[i] === r && data[i + 1] === g && data[i + 2] === b;
            return n;""", colour)

    def test_a_real_trace_loads(self):
        trace = pathlib.Path(self.folder.name) / "lenet.json"
        subprocess.run([OVERTAKE, "bench", "lenet", "--batch", "4", "--steps", "1", "--trace", str(trace)], check=True,
                       capture_output=True)
        self.open(trace, "lenet")
        self.assertIn("lenet", self.browser.title)
        self.assertEqual([e.text.split("\n")[0] for e in self.browser.find_elements("css selector", ".run h2")],
                         ["in-order", "ooo"])
        self.assertIn("Differences", self.element("tables").text)
        self.assertGreater(self.pixels_of([0x56, 0xB4, 0xE9]), 20)  # forward tasks and activations
        self.assertEqual(self.js("return performance.getEntriesByType('resource').length"), 0)  # nothing was fetched

    def test_runs_without_tasks_and_without_steps(self):
        def described(run, name, **more):
            about = {"run": run, "name": name, "model": "made-up", "schedule": name, "device": "cpu", "arena_bytes": 0}
            return {"ph": "M", "pid": run, "tid": 0, "name": "overtake_run", "args": {**about, **more}}

        def task(run, length):
            args = {"task": 0, "step": 0, "layer": "fc", "kind": "forward", "op": "linear", "waits_for": []}
            return {"ph": "X", "pid": run, "tid": 0, "name": "fc", "cat": "forward", "args": args, "ts": 0, "dur": length}

        time = {"us": 2000, "what": "median of 9 measured steps"}
        self.open({"traceEvents": [
            described(0, "nothing", step_us=[]),
            described(1, "measured", step_us=[500], step_time=time), task(1, 500),
            described(2, "traced", step_us=[1000]), task(2, 1000),
            described(3, "whole", step_us=[]), task(3, 7000)]})
        cards = [e.text for e in self.browser.find_elements("css selector", ".run")]
        self.assertIn("no tasks", cards[0])
        self.assertIn("2.000 ms per step: median of 9 measured steps", cards[1].replace("\n", " "))
        self.assertIn("one traced step", cards[2])
        self.assertIn("2.000×", cards[2])  # against the first that has tasks
        self.assertIn("in all", cards[3])
        self.assertNotIn("×", cards[0] + cards[1] + cards[3])
        self.assertIn("it is not compared with runs that do", self.element("tables").text)

    def test_hover_names_the_task_and_its_neighbours(self):
        self.open(timeline(800))
        # Second run, third device: lane 2 * (4 + 2). Task 42 begins at 42 * 16 + 4 us and takes 12.8.
        text = self.hover(*self.place((42 * 16 + 4 + 6) * 1e3, 12))
        for part in ("layer4.input_grad", "linear", "12.80 µs", "676.0 µs", "ooo, gpu 2, main lane", "waits for 1",
                     "ended 3.200 µs before", "1 waits for it"):
            self.assertIn(part, text)
        self.js("overtakeReport.show(600e3, 800e3)")
        self.settle()
        self.assertEqual(self.hover(*self.place((42 * 16 + 4 + 14.4) * 1e3, 12)), "")  # the bubble behind it

    def test_ranks_on_one_clock(self):
        self.open(two_ranks(), "ranks")
        bands = self.js("return overtakeReport.layout.bands.map((b) => b.type === 'device' ? b.device.name : b.label)")
        self.assertEqual([b for b in bands if b], ["rank 0: stage 0", "compute", "sends", "rank 1: stage 1", "compute",
                                                   "receives from 0"])
        table = self.element("tables").text
        for part in ("rank 1: stage 1", "all 2", "within 7.000 µs"):
            self.assertIn(part, table)
        # The recv was there from the start, but the send came at 40 us: that is where it is drawn.
        text = self.hover(*self.place(50e3, 3))
        for part in ("fc.recv", "takes\n20.00 µs", "after waiting\n40.00 µs for the other end", "rank 1: stage 1",
                     "fc.send", "rank 0, ended 20.00 µs after its begin"):
            self.assertIn(part, text)
        self.assertEqual(self.hover(*self.place(20e3, 3)), "")

    def test_wheel_zooms_at_the_pointer(self):
        self.open(timeline(800))
        at = 1.0e6
        x, y = self.place(at, 0)
        before = self.shown()
        self.wheel(x, y, -600)
        after = self.shown()
        self.assertAlmostEqual((before[1] - before[0]) / (after[1] - after[0]), 2.718281828 ** 1.2, delta=0.01)
        self.assertAlmostEqual(self.place(at, 0)[0], x, delta=1)
        self.wheel(x, y, 5000)
        self.assertAlmostEqual(self.shown()[1] - self.shown()[0], 2.04e6 * 1.04, delta=1e3)  # no further than all

    def test_drag_pans_and_keys_work(self):
        self.open(timeline(800))
        self.js("overtakeReport.zoom(4)")
        self.settle()
        t0, t1 = self.shown()
        chain = self.move_to(ActionChains(self.browser, 0), 700, 60).click_and_hold()
        self.move_to(chain, 600, 60).release().perform()
        self.settle()
        width, gutter = self.js("return [document.getElementById('base').clientWidth, GUTTER]")
        self.assertAlmostEqual(self.shown()[0] - t0, 100 * (t1 - t0) / (width - gutter), delta=(t1 - t0) / 500)

        body = self.browser.find_element("tag name", "body")
        body.send_keys("+")
        self.settle()
        self.assertAlmostEqual((t1 - t0) / (self.shown()[1] - self.shown()[0]), 1.4, delta=1e-6)
        body.send_keys("0")
        self.settle()
        self.assertAlmostEqual(self.shown()[1], 2.04e6 * 1.01, delta=1)
        body.send_keys("/")
        search = self.element("search")
        self.assertEqual(self.browser.switch_to.active_element, search)
        search.send_keys("layer4.all")
        self.assertEqual(self.element("found").text, "8 found")  # one per device and run
        search.send_keys(Keys.ENTER)
        self.settle()
        self.assertIn("layer4.all_reduce", self.element("card").text)
        search.send_keys(Keys.ESCAPE)
        body.send_keys(Keys.ESCAPE)
        self.assertFalse(self.element("card").is_displayed())

    def test_a_click_pins_and_neighbours_are_links(self):
        self.open(timeline(800))
        x, y = self.place((10 * 20 + 8) * 1e3, 0)
        self.move_to(ActionChains(self.browser, 0), x, y).click().perform()
        self.hover(30, 200)  # away
        card = self.element("card")
        self.assertIn("layer1.forward", card.text)
        card.find_element("css selector", "button").click()
        self.settle()
        self.assertIn("layer0.all_reduce", self.element("card").text.split("\n")[0])

    def test_legend_hides_a_kind(self):
        self.open(timeline(800))
        update = [0xCC, 0x79, 0xA7]
        self.assertGreater(self.pixels_of(update), 1000)
        for button in self.browser.find_elements("css selector", "#legend button"):
            if button.text == "update":
                button.click()
        self.settle()
        self.assertEqual(self.pixels_of(update), 0)

    def test_dark_room_and_paper(self):
        self.open(timeline(800))
        read = "[...document.getElementById('base').getContext('2d').getImageData(2, 2, 1, 1).data]"

        def panel():
            return self.js("return " + read)

        self.assertEqual(panel()[:3], [255, 255, 255])
        media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.settle()
        self.assertLess(max(panel()[:3]), 50)
        self.js(f"window.addEventListener('beforeprint', () => {{ window.onPaper = {read}; }})")
        pdf = base64.b64decode(self.browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
        self.assertEqual(self.js("return window.onPaper")[:3], [255, 255, 255])
        self.assertGreater(len(pdf), 20_000)
        self.assertLess(max(panel()[:3]), 50)  # and dark again
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    # However many tasks there are, a frame draws what pixels have room for: it counts marks, which are the same on a busy
    # machine.
    def test_a_hundred_thousand_tasks_draw_no_more_than_pixels(self):
        page = self.open(timeline(100_000), "large")
        self.assertLess(page.stat().st_size, MOST_BYTES)
        # Frames while zooming in by a thousand and out again.
        frames, width, rows, memories = self.js("""
            const timeline = window.overtakeReport, pen = CanvasRenderingContext2D.prototype, frames = [];
            const usual = Object.fromEntries(["fillRect", "fillText", "lineTo"].map((name) => [name, pen[name]]));
            const drawn = {};
            for (const name in usual)
              pen[name] = function (...place) { ++drawn[name]; return usual[name].apply(this, place); };
            for (let i = 0; i < 120; ++i) {
              timeline.zoom(i < 60 ? 1.12 : 1 / 1.12, 700);
              for (const name in usual) drawn[name] = 0;
              timeline.draw();
              frames.push({ ...drawn });
            }
            Object.assign(pen, usual);
            const { view, layout } = timeline;
            const inView = (type) => layout.bands.filter((band) => band.type === type && band.y < view.height).length;
            return [frames, view.width, inView("row"), inView("memory")];""")
        marks = max(frame["fillRect"] + frame["fillText"] for frame in frames)
        points = max(frame["lineTo"] for frame in frames)
        print(f"100,000 tasks: {page.stat().st_size / 1e6:.1f} MB; in a frame at most {marks} marks on {rows} rows and "
              f"{points} points on {memories} areas of memory, {width} pixels wide")
        self.assertLess(marks, rows * width)
        self.assertLess(points, memories * 4 * 4 * width)  # four kinds of bytes; two points above a pixel, two below


class ComparisonPage(Page):
    def setUp(self):
        path = pathlib.Path(self.folder.name) / "rows.html"
        done = subprocess.run([OVERTAKE, "validate", "--only", "klenk", "-o", str(path), "--overwrite", "--json"],
                              check=True, capture_output=True, text=True)  # fmt: skip
        self.data = json.loads(done.stdout.splitlines()[-1])
        self.browser.get(path.as_uri())
        self.settle()

    def texts(self, selector):
        return [e.text for e in self.browser.find_elements("css selector", selector) if e.is_displayed()]

    def test_every_row_is_there_with_its_source_and_a_dot_at_its_error(self):
        rows = self.data["rows"]
        self.assertEqual(self.texts("tbody th"), [row["what"] for row in rows])
        self.assertIn(self.data["sources"][0]["url"], self.texts("a[rel]"))
        dots = self.js("return [...document.querySelectorAll('circle')].map((dot) => dot.cx.baseVal.value)")
        zero = self.js("return document.querySelector('line.zero').x1.baseVal.value")
        self.assertEqual(len(dots), len(rows))
        for row, x in zip(rows, dots):
            self.assertEqual(x > zero, row["error_percent"] > 0, row["what"])

    def test_search_hides_rows_and_fades_their_dots(self):
        self.browser.find_element("tag name", "body").send_keys("/")
        self.element("search").send_keys("1 GiB")
        self.settle()
        shown = [row["what"] for row in self.data["rows"] if "1 GiB" in row["what"]]
        self.assertEqual(self.texts("tbody th"), shown)
        self.assertEqual(self.element("found").text, f"{len(shown)} of {len(self.data['rows'])} rows")
        faded = self.js("return document.querySelectorAll('circle.faded').length")
        self.assertEqual(faded, len(self.data["rows"]) - len(shown))

    def test_a_row_marks_its_dot(self):
        row = self.browser.find_element("css selector", "tbody tr")
        ActionChains(self.browser).move_to_element(row).perform()
        self.settle()
        self.assertEqual(self.js("return document.querySelectorAll('circle.marked').length"), 1)


if __name__ == "__main__":
    if not (CHROMIUM and DRIVER and webdriver):
        print("skipped: needs chromium, chromium-driver and python3-selenium; `scripts/setup.sh tests` has them")
        sys.exit(77)
    OVERTAKE = sys.argv.pop(1)
    unittest.main(verbosity=2)
