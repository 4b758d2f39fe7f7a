"""The comparison's page in a real browser: it stands alone, fits, and can be read in light and in dark."""

from __future__ import annotations

import functools
import html
import http.server
import json
import random
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from simulated import trial
from sonar_eval.report import Arm, compare_arms, render_html

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
LARGEST = 3_000_000
SCHEMES = {"light": "1", "dark": "0"}

# Frames the page at a width, measures it from outside, and writes down what it found.
MEASURE = """<!doctype html><link rel="icon" href="data:,"><iframe id="page" style="border:0;width:%dpx;height:900px"
src="report.html"></iframe><pre id="found"></pre><script>
const channel = (value) => { const s = value / 255; return s <= .03928 ? s / 12.92 : ((s + .055) / 1.055) ** 2.4; };
const light = (c) => .2126 * channel(c[0]) + .7152 * channel(c[1]) + .0722 * channel(c[2]);
const parsed = (text) => text.match(/[\\d.]+/g).map(Number);
const frame = document.getElementById("page");
frame.addEventListener("load", () => {
  const page = frame.contentDocument, view = frame.contentWindow;
  page.querySelectorAll("details").forEach((part) => { part.open = true; });
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parsed(view.getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const faint = new Set();
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim()) continue;
    const style = view.getComputedStyle(element);
    const ink = light(parsed(element.closest("svg") ? style.fill : style.color)), paper = light(behind(element));
    const contrast = (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
    if (contrast < 4.5) faint.add(element.tagName + "." + element.className + " " + contrast.toFixed(2));
  }
  document.getElementById("found").textContent = JSON.stringify({
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    paper: behind(page.body),
    faint: [...faint],
    headings: [...page.querySelectorAll("h1, h2, h3")].map((heading) => Number(heading.tagName[1])),
    scopeless: page.querySelectorAll("th:not([scope])").length,
  });
});
</script>"""


def chance(name, rate, seed):
    """Make 20 scenarios x 5 trials of an arm, with conversations as long as real ones."""
    draw = random.Random(seed)
    cells = {}
    for place in range(20):
        records = []
        for index in range(5):
            passed = draw.random() < rate
            record = trial(index, passed, scenario=f"scenario_{place}", calls=["look_up"] * 3 + ["pay"] * passed)
            record["conversation"] = [
                {
                    "user": f"Question {turn}, " + "and what about my order? " * 6,
                    "delivered": [f"Answer {turn if turn < 2 else draw.random()}, " + "gladly so. " * 30],
                    "submission": None,
                    "forms": [],
                    "latency_s": draw.random(),
                }
                for turn in range(6)
            ]
            records.append(record)
        cells[f"scenario_{place}", "none"] = records
        cells[f"scenario_{place}", "outage"] = [{**record, "index": record["index"]} for record in records]
    return Arm.of(name, cells)


@pytest.fixture(scope="module")
def markup():
    arms = [chance("careful", 0.9, 1), chance("hasty-with-a-rather-long-name-of-a-model", 0.5, 2)]
    return render_html(compare_arms(arms[0], arms[1:]), arms, stats=True)


class Served:
    """A folder behind an address, and what was asked of it."""

    def __init__(self, folder: Path):
        self.asked = []
        served = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_request(self, code="-", size="-"):
                served.asked.append(self.path)

            def log_message(self, *_):
                """Keep the test's output clean."""

        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
        )
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def served(tmp_path, markup):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "report.html").write_text(markup, encoding="utf-8")
    for width in (1400, 400):
        (folder / f"at-{width}.html").write_text(MEASURE % width, encoding="utf-8")
    found = Served(folder)
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def browse(url, profile, *more):
    """Return the page as it stands in the end, and what Chromium's console said."""
    switches = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --window-size=1500,1000 --virtual-time-budget=10000 --dump-dom "
        "--enable-logging=stderr"
    )
    command = [CHROMIUM, *switches.split(), *more, f"--user-data-dir={profile}", url]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, [line for line in ran.stderr.splitlines() if ":CONSOLE" in line]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [1400, 400])
def test_the_page_fits_and_can_be_read(served, tmp_path, width, scheme):
    colours = f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"
    page, console = browse(f"{served.address}/at-{width}.html", tmp_path / "profile", colours)
    assert console == []
    assert sorted(served.asked) == [f"/at-{width}.html", "/report.html"], "the page asks for nothing else"
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.+?)</pre>', page, re.DOTALL)[1]))
    assert found["overflow"] == 0
    assert (found["paper"][0] > 128) is (scheme == "light")
    assert found["faint"] == []
    assert found["headings"][0] == 1
    assert found["scopeless"] == 0
    steps = zip(found["headings"], found["headings"][1:], strict=False)
    assert all(below <= above + 1 for above, below in steps)


def test_the_page_shows_in_a_frame_that_may_do_nothing(served, tmp_path, markup):
    frame = f'<!doctype html><link rel="icon" href="data:,"><iframe sandbox srcdoc="{html.escape(markup)}"></iframe>'
    folder = Path(served.server.RequestHandlerClass.keywords["directory"])
    (folder / "viewer.html").write_text(frame, encoding="utf-8")
    _, console = browse(f"{served.address}/viewer.html", tmp_path / "profile")
    assert console == []
    assert served.asked == ["/viewer.html"]


def test_a_broken_page_would_be_noticed(served, tmp_path):
    folder = Path(served.server.RequestHandlerClass.keywords["directory"])
    broken = '<!doctype html><body style="color:#bbb">faint<img src="more.png"><p style="width:2000px">wide'
    broken += "<script>no_such_thing()</script>"
    (folder / "report.html").write_text(broken, encoding="utf-8")
    page, console = browse(f"{served.address}/at-400.html", tmp_path / "profile")
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.+?)</pre>', page, re.DOTALL)[1]))
    assert "no_such_thing" in " ".join(console)
    assert "/more.png" in served.asked
    assert found["overflow"] > 1000
    assert "P. 1.92" in found["faint"]


def test_a_sweep_of_twenty_scenarios_makes_a_page_that_opens_quickly(markup):
    assert 100_000 < len(markup.encode()) < LARGEST
    assert markup.count('class="trial"') > 40
