"""The numbers in the text of "The law of depth", and its findings."""

import re
from functools import cache

import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize
from gnbook import results

from gnlib.laws import deep_linear, kappa
from tests.pages.pages import ROOT, cells, parameters, texts

PAGE = (ROOT / "notebooks/laboratory/law-of-depth.md").read_text()
RANK, INPUTS, OUTPUTS = 587, 784, 10


def code(pattern):
    """Return the number that the code of the page has at a place."""
    (found,) = {float(number) for number in re.findall(pattern, PAGE)}
    return found


@cache
def ten_lines():
    """Return the function `edges` as the page has it."""
    (cell,) = [cell for cell in re.findall(r"```\{code-cell\} ipython3\n(.*?)```", PAGE, re.S) if "def edges" in cell]
    assert len(cell.strip().splitlines()) == 10
    names = {"np": np}
    exec(cell, names)
    return names["edges"]


def kappa_by_ten_lines(layers, ratio):
    with np.errstate(all="ignore"):
        low, high = ten_lines()(layers, ratio)
    return high / low


def laplace_limit():
    theta = scipy.optimize.brentq(lambda x: x * np.tanh(x) - 1, 1, 2, xtol=1e-14)
    return theta / np.cosh(theta)


@cache
def measured():
    """By figure, width and depth: means over networks of both parts of figure 2."""
    found = {}
    for row in results.kept("deep-linear"):
        if row["figure"] in ("2a", "2b"):
            width = row["line"] * (row["depth"] if row["figure"] == "2b" else 1)
            found.setdefault((row["figure"], width, row["depth"]), []).append(row["kappa"])
    return {key: np.mean(kappas) for key, kappas in found.items()}


@cache
def values():
    given, constant = parameters("laboratory/law-of-depth"), laplace_limit() ** -2
    first = next(L for L in range(2, 60) if kappa_by_ten_lines(L, 1 / 4) >= 100)
    return {
        "images": given["n"],
        "rank": RANK,
        "thin": code(r"width > ([\d.]+) \* rank"),
        "square": given["square"],
        "deepest": 2 ** (code(r"2\*\*i for i in range\(1, (\d+)\)") - 1),
        "branches": kappa(2),
        "laplace": laplace_limit(),
        "frozen": kappa(1 / 8),
        "exercise_t": (100 / constant) ** 0.5,
        "exercise_formula": 4 * (100 / constant) ** 0.5,
        "exercise_edges": first,
    }


def test_the_constant_is_the_inverse_square_of_the_laplace_limit():
    assert f"{laplace_limit() ** -2:.4f}\\, t^2" in PAGE


def test_filled_dots_lie_within_a_fifth_of_the_curve():
    """And open ones far below it."""
    widths = np.geomspace(11_000, 360_000, 12).round()  # of 200 layers; the curve is smooth between
    laws = [deep_linear(200, int(width), RANK, inputs=INPUTS, outputs=OUTPUTS).kappa for width in widths]
    curve = scipy.interpolate.CubicSpline(np.log(widths), np.log(laws))
    within = {(m, L): found for (_, m, L), found in measured().items() if 200 * m / L > widths[0]}
    off = {(m, L): found / np.exp(curve(np.log(200 * m / L))) for (m, L), found in within.items()}
    filled = [value for (width, L), value in off.items() if width > values()["thin"] * RANK and L >= 4]
    assert len(filled) > 25 and 0.8 < min(filled) and max(filled) < 1.2
    assert min(off.values()) < 0.1


def test_the_first_figure_holds_for_all_widths():
    """Dots lie within a quarter of the curves, those of figure 2b too."""
    for (_, width, L), found in measured().items():
        assert 0.75 < found / deep_linear(L, width, RANK, inputs=INPUTS, outputs=OUTPUTS).kappa < 1.25


def test_the_edges_of_networks_are_near_the_law():
    rows = cells("laboratory/law-of-depth", "edges of the spectrum")
    assert [row[0] for row in rows] == parameters("laboratory/law-of-depth")["layers"]
    for _, low, lower, high, upper in rows:
        assert lower == pytest.approx(low, rel=0.15) and upper == pytest.approx(high, rel=0.15)


def test_depth_is_a_crossover():
    """Twice the depth costs little at first and a factor of four in the end."""
    times = [row[2] for row in cells("laboratory/law-of-depth", "many layers, and twice")]
    assert times == sorted(times) and times[0] < 1.2 and times[-1] == pytest.approx(4, abs=0.1)


def test_a_random_residual_takes_half_of_the_steps_of_the_worst():
    rows = cells("laboratory/law-of-depth", "steps to a hundredth")
    for layers, worst, law, network, _ in rows:
        assert 4 / 5 < network / law < 5 / 4
        assert layers == 2 or 0.45 < law / worst < 0.65


def test_norms_spread_with_the_root_of_the_depth():
    """Each layer multiplies the squared norm of a row by a mean of m squares."""
    rng, logs = np.random.default_rng(0), []
    for _ in range(200):
        row, total = rng.standard_normal(60) / 60**0.5, 0.0
        for _ in range(30):
            row = row @ rng.standard_normal((60, 60)) / 60**0.5
        logs.append(np.log(row @ row) + total)
    assert np.std(logs) == pytest.approx((2 * 31 / 60) ** 0.5, rel=0.15)


def test_branches_of_any_depth_stay_below_the_limit():
    kappas = [deep_linear(L, 100, 100, scale=L**-0.5, skip=1.0).kappa for L in (4, 64, 1000)]
    assert kappas == sorted(kappas) and kappas[-1] < kappa(2)
    assert deep_linear(1000, 100, 100).kappa > 1e6


def test_width_in_proportion_to_depth_freezes_kappa():
    kappas = [kappa_by_ten_lines(L, 1 / (8 * L)) for L in (10, 100, 1000)]
    assert kappas == sorted(kappas) and kappas[-1] == pytest.approx(kappa(1 / 8), rel=2e-3)


def upper_end_over_law(d, draws):
    """The mean for four layers of width 2 d, without the noise of one output."""
    rng, off = np.random.default_rng(0), []
    for _ in range(draws):
        below, whole = np.eye(2 * d)[:, :d], np.eye(d)
        for _ in range(3):
            below = rng.standard_normal((2 * d, 2 * d)) @ below / (2 * d) ** 0.5
            whole += below.T @ below
        off.append(np.linalg.eigvalsh(whole)[-1] / deep_linear(4, 2 * d, d, inputs=2 * d).upper - 1)
    return np.mean(off)


def test_edges_come_nearer_like_a_power_of_the_rank():
    few, many = upper_end_over_law(40, 60), upper_end_over_law(320, 12)
    assert few < many < 0
    assert few / many == pytest.approx(8 ** (2 / 3), rel=0.35)


def test_turned_layers_are_between():
    assert any("same direction: 6.33\nright angle: 2.10" in text for text in texts("laboratory/law-of-depth"))
