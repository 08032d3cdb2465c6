"""Previews of links, the page for addresses of none and the list of all pages, with an address and without."""

import importlib.util
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document

from tests.pages.pages import ROOT

PICTURE = "_static/picture.png"
SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"


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


@pytest.mark.parametrize("base", ["", "https://example.org/b"])
def test_the_page_of_no_address_leads_home_from_any_folder(extension, base):
    ((name, context, _),) = extension.nowhere(SimpleNamespace(config=SimpleNamespace(html_baseurl=base)))
    links = [link["href"] for link in BeautifulSoup(context["body"], "html.parser").find_all("a")]
    assert name == "404" and links == ["index.html", "search.html"]
    whole = BeautifulSoup(context["metatags"], "html.parser").find("base")
    assert whole["href"] == "https://example.org/b/" if base else whole is None


@pytest.mark.parametrize("base", ["", "https://example.org/b"])
def test_the_list_of_all_pages_waits_for_an_address(extension, base, tmp_path):
    app = SimpleNamespace(config=SimpleNamespace(html_baseurl=base), outdir=tmp_path)
    app.builder, app.env = SimpleNamespace(format="html"), SimpleNamespace(found_docs={"book/index", "book/b"})
    extension.write_sitemap(app, None)
    assert (tmp_path / "sitemap.xml").exists() is bool(base)
    if base:
        listed = ElementTree.parse(tmp_path / "sitemap.xml").getroot().iter(f"{SITEMAP}loc")
        assert [place.text for place in listed] == [f"{base}/book/b.html", f"{base}/book/index.html"]
