"""What our extensions of Sphinx do to pages, folds, the search and links, and what they add beyond our pages."""

import importlib.util
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document
from gnbook.checkout import ROOT

ADDRESS = "https://example.org/b"


def extension(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "book" / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page_of(*children):
    document = new_document("page")
    document += list(children)
    return document


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("notebooks/waiting", "title paragraph figure paragraph container container"),
        ("notebooks/laboratory/waiting", "title paragraph paragraph container container"),
        ("book/index", "title paragraph paragraph container container"),
    ],
)
def test_the_first_picture_of_a_lesson_comes_before_its_code(name, order):
    first, second = (
        nodes.container("", nodes.literal_block("", "code"), nodes.container("", nodes.figure())) for _ in range(2)
    )
    second[1] += nodes.literal_block("", "printed")
    texts = nodes.title("", "Title"), nodes.paragraph("", "Question?"), nodes.paragraph("", "Code:")
    page = page_of(nodes.section("", *texts, first, second))
    extension("picture_first").show_first(SimpleNamespace(env=SimpleNamespace(docname=name)), page)
    assert [type(child).__name__ for child in page[0]] == order.split()
    assert len(first.children) == (1 if "figure" in order else 2)  # nothing is left of its output


def test_a_search_knows_prose_and_no_code():
    text = nodes.paragraph("", "", nodes.Text("sharpness "), nodes.math("", "lambda"), nodes.literal("", "report"))
    document = page_of(text, nodes.literal_block("", "axis.plot"), nodes.math_block("", "eta"))
    collector = extension("search_prose").Prose(document, SimpleNamespace(lang="en", split=str.split))
    document.walk(collector)
    assert collector.found_words == ["sharpness", "report"]


TABLE = "<table><caption>both <i>ends</i></caption></table>"


@pytest.mark.parametrize(
    ("classes", "source", "output", "name"),
    [
        (["tag_parameters"], "n = 1", (), "The parameters"),
        ([], "f()", [nodes.caption("", "Loss against steps. Dots: runs.")], "The drawing: Loss against steps"),
        ([], "f()", [nodes.raw("", TABLE, format="html")], "The table: both ends"),
        ([], "import numpy as np\na, b = 1, 2\ndef c(): pass\n_ = d = 1\ne = 1", (), "Code: a, b, c, d, ..."),
        ([], "%pip install x\nimport numpy as np", (), "Code: np"),
        ([], "f()", (), "Code: what is shown"),
    ],
)
def test_a_fold_is_named_by_what_its_cell_makes(classes, source, output, name):
    cell = nodes.container("", nodes.literal_block(source, source), *output, classes=classes)
    cell["prompt_show"] = "Show code cell {type}"
    named = nodes.container(prompt_show="The slider")
    extension("named_folds").name_folds(None, page_of(cell, named))
    assert (cell["prompt_show"], named["prompt_show"]) == (name, "The slider")


def test_no_page_shows_an_anchor():
    anchor, line_break = (nodes.raw("", text, format="html") for text in ("<!-- growth -->", "<br>"))
    paragraph = nodes.paragraph("", "", nodes.Text("390"), anchor, nodes.Text(" times"), line_break)
    extension("without_comments").leave_out(None, paragraph)
    assert paragraph.astext() == "390 times<br>"


@pytest.mark.parametrize("base", ["", ADDRESS, f"{ADDRESS}/"])
def test_a_preview_says_title_and_first_paragraph_and_with_an_address_of_the_site_has_a_picture(base):
    app, context = SimpleNamespace(config=SimpleNamespace(html_title="A book", html_baseurl=base)), {"title": 'On "k"'}
    page = page_of(nodes.paragraph("", "Wide & deep <networks>.\nMore."))
    extension("beyond_the_pages").add_preview(app, "notebooks/page", "page.html", context, page)
    tags = BeautifulSoup(context["metatags"], "html.parser").find_all("meta")
    found = {tag["property"].removeprefix("og:"): tag["content"] for tag in tags}
    assert found["title"] == 'On "k"' and found["description"] == "Wide & deep <networks>. More."
    if base:
        assert found["url"] == f"{ADDRESS}/notebooks/page.html"
        assert (ROOT / "book" / found["image"].removeprefix(f"{ADDRESS}/")).exists()
    else:  # a part of an address would lead nowhere
        assert "image" not in found and "url" not in found


@pytest.mark.parametrize("base", ["", ADDRESS])
def test_the_page_of_no_address_leads_home_and_the_list_of_all_pages_waits_for_an_address(base, tmp_path):
    app = SimpleNamespace(config=SimpleNamespace(html_baseurl=base), outdir=tmp_path)
    app.builder, app.env = SimpleNamespace(format="html"), SimpleNamespace(found_docs={"book/index", "book/b"})
    ((name, context, _),) = extension("beyond_the_pages").nowhere(app)
    links = [link["href"] for link in BeautifulSoup(context["body"], "html.parser").find_all("a")]
    assert name == "404" and links == ["index.html", "search.html"]
    whole = BeautifulSoup(context["metatags"], "html.parser").find("base")
    assert whole["href"] == f"{base}/" if base else whole is None
    extension("beyond_the_pages").write_sitemap(app, None)
    if base:
        places = ElementTree.parse(tmp_path / "sitemap.xml").findall(".//{*}loc")
        assert [place.text for place in places] == [f"{base}/book/b.html", f"{base}/book/index.html"]
    else:
        assert not (tmp_path / "sitemap.xml").exists()
