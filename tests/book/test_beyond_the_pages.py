"""Previews of links and the page for addresses that lead nowhere, with an address of the site and without."""

import importlib.util
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document

from tests.book.pages import ROOT

PICTURE = "_static/picture.png"


@pytest.fixture
def extension():
    spec = importlib.util.spec_from_file_location("beyond_the_pages", ROOT / "book" / "_ext" / "beyond_the_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tags(extension, text, base=""):
    page, context = new_document("page"), {"title": 'On "kappa"'}
    page += nodes.paragraph("", text)
    app = SimpleNamespace(config=SimpleNamespace(html_title="A book", html_baseurl=base))
    extension.add_preview(app, "notebooks/page", "page.html", context, page)
    found = BeautifulSoup(context["metatags"], "html.parser").find_all("meta")
    return {tag["property"].removeprefix("og:"): tag["content"] for tag in found}


def test_a_preview_says_the_title_and_the_first_paragraph(extension):
    found = tags(extension, "Wide & deep <networks>.\nMore.")
    assert found["title"] == 'On "kappa"' and found["description"] == "Wide & deep <networks>. More."
    assert "image" not in found and "url" not in found  # a part of an address would lead nowhere


@pytest.mark.parametrize("base", ["https://example.org/b", "https://example.org/b/"])
def test_with_an_address_of_the_site_it_has_a_picture(extension, base):
    found = tags(extension, "One.", base)
    assert found["image"] == f"https://example.org/b/{PICTURE}" and (ROOT / "book" / PICTURE).exists()
    assert found["url"] == "https://example.org/b/notebooks/page.html"


@pytest.mark.parametrize(
    ("base", "home"), [("", "index.html"), ("https://example.org/b", "https://example.org/b/index.html")]
)
def test_the_page_of_no_address_leads_home(extension, base, home):
    ((name, context, _),) = extension.nowhere(SimpleNamespace(config=SimpleNamespace(html_baseurl=base)))
    assert name == "404" and BeautifulSoup(context["body"], "html.parser").find("a")["href"] == home
