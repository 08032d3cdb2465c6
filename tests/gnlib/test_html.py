"""A report as one file of HTML: all that the page says, with pictures, and nothing from elsewhere."""

import re
import sys

import pytest
import torch
from torch import nn

import gnlib
from gnlib.diagnosis import pictures

BeautifulSoup = pytest.importorskip("bs4").BeautifulSoup

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randn(12, 2, generator=torch.Generator().manual_seed(1))


def made(**options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 2))
    return gnlib.GaussNewton(net, X, options.pop("y", Y), **options)


REPORT, BY_PRODUCTS = made().report(), made(dtype=torch.float64)
OVERVIEW, DENSITY = BY_PRODUCTS.report(budget=1e-3), BY_PRODUCTS.spectral_density(steps=8)
PAGES = {"report": REPORT.to_html(), "overview": OVERVIEW.to_html(density=DENSITY)}


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_stands_by_itself(kind):
    soup = BeautifulSoup(PAGES[kind], "html.parser")
    assert not soup.find_all(["script", "link", "img", "iframe"])
    assert not re.findall(r'(?:src|href)="(?!#)|url\((?!#)|@import', PAGES[kind])
    assert soup.html["lang"] == "en" and soup.find("meta", charset="utf-8") and soup.title.text == soup.h1.text


@pytest.mark.parametrize(("kind", "result"), [("report", REPORT), ("overview", OVERVIEW)])
def test_a_page_says_what_the_text_says(kind, result):
    soup = BeautifulSoup(PAGES[kind], "html.parser")
    rows = [tuple(cell.text for cell in row.find_all(["th", "td"])) for row in soup.select("table.lines tr")]
    assert rows == [tuple(line) for line in result.lines()]


@pytest.mark.parametrize(
    ("kind", "axes"),
    [
        ("report", ["number of the eigenvalue", "eigenvalue", "step", "loss", "share in per cent"]),
        ("overview", ["eigenvalue", "eigenvalues up to it", "step", "loss", "share in per cent"]),
    ],
)
def test_pictures_have_axes_with_names_and_words_for_who_does_not_see_them(kind, axes):
    figures = BeautifulSoup(PAGES[kind], "html.parser").find_all("figure")
    written = [text.text.strip() for figure in figures for text in figure.find_all("text")]
    assert len(figures) == 3 and [name for name in axes if name not in written] == []
    for figure in figures:
        assert figure.svg["role"] == "img" and len(figure.svg["aria-label"]) > 40
        assert figure.figcaption.text == figure.svg["aria-label"] and "width" not in figure.svg.attrs
        assert not re.findall("#0[01][0-9a-f]{4}|#000000|#ffffff|pt;", str(figure.svg)), "colours are the page's"


def test_the_spectrum_has_all_eigenvalues_that_are_not_zero():
    assert REPORT.spectrum == pytest.approx(made().eigenvalues().tolist(), abs=1e-12)
    figure = BeautifulSoup(PAGES["report"], "html.parser").figure
    assert len(figure.find(id="line2d_1") or ()) and PAGES["report"].count("24 eigenvalues from") == 2
    _, says = pictures.spectrum([3.0, 1.0, -1e-17, -1e-16], 3, None)  # a rank that singular values have found
    assert says == "Spectrum: 2 eigenvalues from 3 to 1; 2 more are not told from zero."


def drawn(drawing):
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    drawing[0](axes)
    return axes


def test_real_steps_follow_those_taken_before_and_infinite_losses_leave_a_gap():
    losses = [4.0, 2.0, float("inf"), 1.0]
    axes = drawn(pictures.course(losses, losses, "", (2, [1.9, 1.8]), 3))
    forecast, real, trusted = axes.lines
    assert [*real.get_xdata()] == [2, 3] and [*real.get_ydata()] == [1.9, 1.8] and trusted.get_xdata()[0] == 3
    assert [*map(str, forecast.get_ydata())] == ["4.0", "2.0", "nan", "1.0"]


@pytest.mark.parametrize("result", [REPORT, OVERVIEW])
def test_without_matplotlib_there_are_the_tables_alone(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = result.to_html()
    assert "<figure>" not in page and "<svg" not in page and result.lines()[0].value in page


def test_a_page_is_written_whole_and_the_same_each_time(tmp_path):
    assert REPORT.to_html(tmp_path / "a.html") == PAGES["report"] == (tmp_path / "a.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


def test_names_are_escaped():
    _, says = pictures.shares({"trace": {"<b>": 1.0}})
    assert "&lt;b&gt;" in pictures.picture(lambda axes: axes.set_title("<i>"), says)
    assert "<i>" not in pictures.picture(lambda axes: axes.set_title("<i>"), says)
