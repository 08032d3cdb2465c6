"""The printed book: one document of all pages, whose links lead within it, or a sentence on why there is none."""

import re
import shutil
import subprocess

import pytest
import yaml
from bs4 import BeautifulSoup

from book import pdf

PAGE = """<!DOCTYPE html><html><head><link rel="stylesheet" href="{up}_static/theme.css"/>
<script>window.MathJax = {{}}</script><script src="{up}_static/other.js"></script>
<meta name="docbuild:last-update" content="1 May 2026"/></head><body><nav>not on paper</nav>
<article class="bd-article"><section id="top"><h1>{title}<a class="headerlink" href="#top">#</a></h1>{body}</section>
</article></body></html>"""
FIRST = """<p><a href="../notebooks/second.html#end">there</a>, <a href="#top">up</a>,
<a href="../genindex.html">index</a>, <a href="https://example.org">out</a></p><img src="../_images/a.png"/>"""
SECOND = """<details class="hide">folded code</details><details>a solution</details><button>copy</button>
<div class="moving"><div>it moves</div><img class="still" src="data:image/png;base64,AA"/></div><p id="end">end</p>"""
TOC = {"root": "book/index", "parts": [{"caption": "Part", "chapters": [{"file": "notebooks/second"}]}]}
CONFIG = {"title": "A book", "author": "Its authors", "html": {"extra_footer": "Free."}}
needs_chromium = pytest.mark.skipif(
    not (shutil.which("chromium") or shutil.which("chromium-browser")), reason="Chromium is not installed"
)


@pytest.fixture
def root(tmp_path):
    site = tmp_path / "_build" / "html"
    for name, title, body in (("book/index", "First", FIRST), ("notebooks/second", "Second", SECOND)):
        path = site / f"{name}.html"
        path.parent.mkdir(parents=True)
        path.write_text(PAGE.format(up="../", title=title, body=body))
    for name, content in (("_toc.yml", TOC), ("_config.yml", CONFIG)):
        (tmp_path / name).write_text(yaml.safe_dump(content))
    return tmp_path


@pytest.fixture
def document(root):
    return BeautifulSoup(pdf.document(root / "_build" / "html", TOC, CONFIG, {"notebooks-second": 7}), "html.parser")


def test_links_lead_within_the_document_and_what_is_of_the_screen_is_left_out(document):
    names = {element["id"] for element in document.find_all(id=True)}
    links = [link["href"] for link in document.find_all("a")]
    assert "#notebooks-second--end" in links and "#book-index--top" in links and "https://example.org" in links
    assert all(link.removeprefix("#") in names for link in links if link.startswith("#"))
    assert document.find("img")["src"] == "_images/a.png" and document.find("link")["href"] == "_static/theme.css"
    text = document.body.get_text()
    assert "index" in text and not any("genindex" in link for link in links)
    assert "a solution" in text and document.find("details").has_attr("open") and document.find(class_="still")
    assert not any(words in text for words in ("not on paper", "folded code", "copy", "it moves", "#"))
    assert [script.get_text().strip() for script in document("script")] == ["window.MathJax = {}", pdf.FIT.strip()]


def test_pages_stand_in_the_order_of_the_contents_below_their_parts(document):
    headings = [(heading.name, heading.get_text()) for heading in document.find_all(["h1", "h2"])]
    assert headings == [("h1", "A book"), ("h1", "Contents"), ("h2", "First"), ("h1", "Part"), ("h2", "Second")]
    assert [link.get_text(" ") for link in document.select(".contents a")] == ["First", "Second 7"]


@needs_chromium
def test_a_book_of_two_pages_is_printed_with_a_page_number_for_each(root, capsys, monkeypatch):
    asked, whole = [], pdf.document
    monkeypatch.setattr(pdf, "document", lambda *arguments: asked.append(arguments[-1]) or whole(*arguments))
    pdf.main(root)
    printed = (root / "_build" / "book.pdf").read_bytes()
    assert printed.startswith(b"%PDF") and b"/Outlines" in printed
    begins = pdf.beginnings(printed)  # after the title and the contents
    assert (begins["book-index"], begins["notebooks-second"]) == (3, 4)
    assert asked == [{}, begins] * 2  # the lessons are the whole book here
    assert re.findall(r"(\w+)\.pdf", capsys.readouterr().out) == ["lessons", "book"]
    left = {path.name for path in (root / "_build").rglob("*") if path.is_file()}
    assert left == {"index.html", "second.html", "lessons.pdf", "book.pdf"}


@needs_chromium
def test_a_formula_wider_than_its_place_is_made_to_fit(root):
    page = root / "fit.html"
    formula = """<mjx-container display="true" style="display: block; overflow: auto; width: 100px">
        <div style="width: {}px">f</div></mjx-container>"""
    formulas = "".join(formula.format(width) for width in (50, 200))
    typeset = "<script>MathJax = {startup: {promise: Promise.resolve()}}</script>"
    page.write_text(f"{typeset}{formulas}<script>{pdf.FIT}</script>")
    command = [shutil.which("chromium") or "chromium-browser", "--headless", "--no-sandbox", "--disable-gpu"]
    run = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, check=True)
    dom = BeautifulSoup(run.stdout, "html.parser")
    zooms = [re.search(r"zoom: ([\d.]+)", formula["style"]) for formula in dom.select("mjx-container")]
    assert zooms[0] is None and float(zooms[1][1]) == 0.5
