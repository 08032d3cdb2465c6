"""The rendered site as a reader meets it: opened from disk, in Chromium, without a network."""

import os
import re
import shutil
import subprocess
import tomllib
from functools import cache
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from bs4 import BeautifulSoup
from gnbook.checkout import ROOT

SITE = ROOT / "_build" / "html"
PAGES = [path for path in sorted(SITE.rglob("*.html")) if "_static" not in path.parts]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Without a sandbox, as it refuses to run as root otherwise, as it does in a container.
OFFLINE = "--headless --no-sandbox --disable-gpu --enable-logging=stderr --window-size=1200,900 --dump-dom".split()
OFFLINE += ["--virtual-time-budget=30000", "--host-resolver-rules=MAP * ~NOTFOUND"]
TROUBLE = re.compile("uncaught|error|fail|refused|blocked|denied", re.IGNORECASE)
# Frames come with a screen, which there is not: here they come with the clock.
FRAMES = "requestAnimationFrame = draw => setTimeout(() => draw(performance.now()), 16);"
# Marks what is wider than its box, once formulas are typeset; takes the slider of each figure to its end, and watches
# its curves.
SCRIPT = """
setInterval(() => {
  for (const box of document.querySelectorAll("div.math, div.cell_output pre"))
    box.toggleAttribute("data-wide", box.scrollWidth > box.clientWidth + 1);
}, 500);
addEventListener("load", () => setTimeout(() => {
  for (const plot of document.querySelectorAll(".moving .plotly-graph-div")) {
    const drawn = () => [...plot.querySelectorAll("path.js-line")].map(line => line.getAttribute("d")).join();
    const rail = plot.querySelector(".slider-rail-touch-rect"), box = rail.getBoundingClientRect(), before = drawn();
    const end = {clientX: box.right - 1, clientY: box.top + box.height / 2, bubbles: true};
    for (const kind of ["mousedown", "mouseup"]) rail.dispatchEvent(new MouseEvent(kind, end));
    setInterval(() => plot.dataset.moved = before !== drawn(), 500);
  }
}, 2000));
"""
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)")


def each(pages, nightly=()):
    """Run a test on each of these pages, all tests of a page in one process, which opens it once."""
    params = []
    for page in pages:
        name = str(page.relative_to(SITE))
        marks = [pytest.mark.xdist_group(name), *[pytest.mark.nightly] * (page in nightly)]
        params.append(pytest.param(page, marks=marks, id=name))
    return pytest.mark.parametrize("page", params)


MOVING = [page for page in PAGES if 'class="moving"' in page.read_text()]


@cache
def written(page):
    return BeautifulSoup(page.read_text(), "html.parser")


@cache
def anchors(page):
    return {tag["id"] for tag in written(page).find_all(id=True)}


@cache
def opened(page, query=""):
    """Return the page once its scripts have run, ours too, and what they complained of on the console."""
    copy = page.with_stem(f"{page.stem}-opened-by-{os.getpid()}")
    text = page.read_text().replace("<head>", f"<head><script>{FRAMES}</script>", 1)
    copy.write_text(text.replace("</body>", f"<script>{SCRIPT}</script></body>"))
    try:
        command = [CHROMIUM, *OFFLINE, copy.as_uri() + query]
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    finally:
        copy.unlink()
    said = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    return BeautifulSoup(run.stdout, "html.parser"), [line for line in said if TROUBLE.search(line)]


@pytest.fixture(autouse=True, scope="module")
def site():
    if not PAGES:
        pytest.fail("There is no site in _build/html: run `make book` first.", pytrace=False)


@each(PAGES)
def test_every_link_leads_somewhere_and_every_image_is_described_and_there(page):
    dead = []
    for link in written(page).select("a[href]"):
        address, anchor = urldefrag(link["href"])
        if urlsplit(address).scheme:
            continue
        target = page.parent / unquote(address) if address else page
        if not target.is_file() or (anchor and target.suffix == ".html" and unquote(anchor) not in anchors(target)):
            dead.append(link["href"])
    assert dead == []
    for image in written(page).select("img"):
        # Sphinx puts the name of the file where an author wrote nothing.
        alt = image.get("alt", "")
        assert alt and not alt.endswith((".png", ".svg")), f"{image} needs a text for alt"
        assert image["src"].startswith("data:") or (page.parent / image["src"]).is_file()
    if page.is_relative_to(SITE / "notebooks"):
        blocks = written(page).select("div.cell_output pre, div.cell_output table")
        assert [block for block in blocks if re.search(r"\b(True|False)\b", block.get_text())] == []
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert "Repository" in urls or "colab.research.google" not in page.read_text()


@needs_chromium
@each(PAGES, nightly={*PAGES} - {*MOVING, SITE / "index.html"})  # ten seconds a page
def test_it_opens_without_a_script_error_or_the_network_and_every_formula_is_typeset_in_its_box(page):
    dom, console = opened(page)
    assert console == []
    assert [str(formula) for formula in dom.select(".math") if not formula.select("mjx-container")] == []
    assert dom.select("mjx-merror, [data-mjx-error]") == []
    raw = [text for text in dom.find_all(string=re.compile(r"\$|\\\(|\\\["))]
    assert [text for text in raw if not text.find_parent(["pre", "code", "script", "style"])] == []
    assert [box.get_text()[:60] for box in dom.select("[data-wide]")] == []
    parts = dom.select("script[src], img[src], iframe[src], link[href]:not([rel=canonical])")
    addresses = [part.get("src") or part["href"] for part in parts]
    assert [a for a in addresses if a.startswith(("http:", "https:", "//"))] == []


def test_no_style_takes_anything_from_the_network():
    styles = " ".join(path.read_text() for path in SITE.rglob("*.css"))
    assert styles
    assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']*", styles) == []


@needs_chromium
@each(MOVING)
def test_each_slider_moves_its_figure(page):
    plots = opened(page)[0].select(".moving .plotly-graph-div")
    assert plots and [plot.get("data-moved") for plot in plots] == ["true"] * len(plots)
    assert len(page.read_bytes()) < 3e6


@needs_chromium
@pytest.mark.parametrize("words", ["neural tangent kernel", "sharpness", "skip", "condition"])
def test_a_search_finds_lessons_first(words):
    dom, console = opened(SITE / "search.html", f"?q={words.replace(' ', '+')}")
    assert console == []
    links = [link["href"] for link in dom.select("ul.search li > a")]
    lesson = re.compile(r"notebooks/[\w-]+\.html")
    if words == "condition":  # which is everywhere
        found = [result.get_text() for result in dom.select("ul.search li p.context")]
        assert len(found) > 10 and words in found[0].lower()
        return
    assert len(links) > 3 and any(map(lesson.match, links[:2]))  # or the glossary
    ours = [i for i, link in enumerate(links) if lesson.match(link)]
    assert max(ours) < min((i for i, link in enumerate(links) if link.startswith("book/api")), default=len(links))


def test_the_first_picture_of_a_lesson_stands_below_its_question():
    lessons = [page for page in PAGES if page.parent == SITE / "notebooks"]
    assert len(lessons) >= 14
    for page in lessons:
        children = written(page).select_one("article section").find_all(["p", "figure", "div"], recursive=False)
        assert [child.name for child in children[:2]] == ["p", "figure"], page
