"""A report as one file of HTML: all that the page says, with pictures, and nothing from elsewhere."""

import re
import sys

import pytest
import torch

import gnlib
from gnlib.diagnosis import pictures
from tests.gnlib.networks import perceptron

BeautifulSoup = pytest.importorskip("bs4").BeautifulSoup

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randn(12, 2, generator=torch.Generator().manual_seed(1))


def made(**options):
    return gnlib.GaussNewton(perceptron(4, 2, width=12), X, options.pop("y", Y), **options)


REPORT, BY_PRODUCTS = made().report(), made(dtype=torch.float64)
OVERVIEW, DENSITY = BY_PRODUCTS.report(budget=1e-3), BY_PRODUCTS.spectral_density(steps=8)
PAGES = [
    (REPORT, REPORT.to_html(), "number of the eigenvalue"),
    (OVERVIEW, OVERVIEW.to_html(density=DENSITY), "eigenvalues up to it"),
]


@pytest.mark.parametrize(("result", "page", "axis"), PAGES, ids=["report", "overview"])
def test_a_page_stands_by_itself_and_says_in_words_and_pictures_what_the_text_says(result, page, axis, monkeypatch):
    soup = BeautifulSoup(page, "html.parser")
    assert not soup.find_all(["script", "link", "img", "iframe"])
    assert not re.findall(r'(?:src|href)="(?!#)|url\((?!#)|@import', page)
    rows = [tuple(cell.text for cell in row.find_all(["th", "td"])) for row in soup.select("table.lines tr")]
    assert rows == [tuple(line) for line in result.lines()]
    figures = soup.find_all("figure")
    written = {text.text.strip() for figure in figures for text in figure.find_all("text")}
    assert len(figures) == 3 and {axis, "eigenvalue", "step", "loss", "share in per cent"} <= written
    assert all(figure.figcaption.text == figure.svg["aria-label"] for figure in figures)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "<svg" not in result.to_html() and result.lines()[0].value in result.to_html()


def test_the_spectrum_has_all_eigenvalues_that_are_not_zero():
    assert REPORT.spectrum == pytest.approx(made().eigenvalues().tolist(), abs=1e-12)
    assert PAGES[0][1].count("24 eigenvalues from") == 2
    _, says = pictures.spectrum([3.0, 1.0, -1e-17, -1e-16], 3, None)  # a rank that singular values have found
    assert says == "Spectrum: 2 eigenvalues from 3 to 1; 2 more are not told from zero."


def test_a_page_is_written_whole_the_same_each_time_with_names_escaped(tmp_path):
    assert REPORT.to_html(tmp_path / "a.html") == PAGES[0][1] == (tmp_path / "a.html").read_text()
    _, says = pictures.shares({"trace": {"<b>": 1.0}})
    drawn = pictures.picture(lambda axes: axes.set_title("<i>"), says)
    assert "&lt;b&gt;" in drawn and "<i>" not in drawn
