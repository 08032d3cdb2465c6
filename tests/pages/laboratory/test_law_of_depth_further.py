"""The numbers in the text of "The law of depth, figure by figure" are those of its tables, and its findings hold."""

import numpy as np
import pytest
import scipy.interpolate

from gnlib.laws import deep_linear
from tests.pages.laboratory.test_deep_linear import means
from tests.pages.pages import cells, named, parameters

PAGE = "laboratory/law-of-depth-further"
RULE = 5, 900  # L r / m up to the one, from as many units on as the other
RANK, INPUTS, OUTPUTS = 587, 784, 10
THIN = 2.5  # widths over the rank, from which on the law of many layers is near


def points(figure):
    """By the name of a point: few outputs, law, measured, scatter, networks, ratio."""
    return {row[1]: row[2:] for row in cells(PAGE, "all points;") if str(row[0]) == figure or row[0] == figure}


def sizes(name):
    """Width and depth of a name such as `m = 75 L, L = 4`."""
    width, depth = (part.partition(" = ")[2] for part in name.split(", ")[-2:])
    return int(width.split()[0]) * (int(depth) if width.endswith("L") else 1), int(depth)


def whitened_mnist():
    """Width, depth and ratio of the points of figures 2a and 2b."""
    found = {
        name: row for figure in ("2a", "2b") for name, row in points(figure).items() if not name.startswith("white")
    }
    return [(*sizes(name), row[-1]) for name, row in found.items()]


def near():
    return [(m, depth, ratio) for m, depth, ratio in whitened_mnist() if depth * RANK / m <= RULE[0] and m >= RULE[1]]


def values():
    all_rows = cells(PAGE, "all points;")
    narrow, deepest = 400, max(depth for _, depth, _ in whitened_mnist())
    few, law, *_ = points("2a")[f"m = {narrow}, L = {deepest}"]
    levels = named(PAGE, "figure 2b: the level")
    growth = named(PAGE, "what eight more layers")
    small = [row[-1] for name, row in points("2b hidden").items() if name.startswith("49 ")]
    assert len(small) == 8 and max(small) < 1
    return {
        "near_worst": 100 * max(max(ratio, 1 / ratio) - 1 for *_, ratio in near()),
        "near_count": len(near()),
        "outputs_multiply": law / few,
        "constant": cells(PAGE, "infinitely many layers, few outputs: κ at")[-1][2],
        "least_peak": levels["75 L"][-2],
        "improves": 100 * (1 - levels["600 L"][-1] / levels["600 L"][-3]),
        "white_growth": growth["whitened"][-1],
        "raw_growth": growth["raw"][-1],
        "few_worst": 100 * (1 - min(small)),
        "most_networks": max(row[6] for row in all_rows),
    }


def test_filled_dots_lie_within_a_fifth_of_the_curve():
    """And others far below it, those of fewer layers and of narrower networks."""
    widths = np.geomspace(11_000, 360_000, 12).round()  # of 200 layers; the curve is smooth between
    laws = [deep_linear(200, int(width), RANK, inputs=INPUTS, outputs=OUTPUTS).kappa for width in widths]
    curve = scipy.interpolate.CubicSpline(np.log(widths), np.log(laws))
    two = [(m, L, kappa) for (figure, m, L), kappa in means().items() if figure == "2a"]
    two += [(m * L, L, kappa) for (figure, m, L), kappa in means().items() if figure == "2b"]
    off = [(m, L, kappa / np.exp(curve(np.log(200 * m / L)))) for m, L, kappa in two if 200 * m / L > widths[0]]
    filled = [miss for m, L, miss in off if m > THIN * RANK and L >= 4]
    assert len(filled) > 25 and 0.8 < min(filled) and max(filled) < 1.2
    assert min(miss for *_, miss in off) < 0.1


def test_a_random_residual_takes_half_of_the_steps_of_the_worst():
    rows = cells(PAGE, "steps to a hundredth")
    assert [row[0] for row in rows] == parameters(PAGE)["residual_layers"]
    for layers, worst, law, network, _ in rows:
        assert 4 / 5 < network / law < 5 / 4
        assert layers == 2 or 0.45 < law / worst < 0.65


def test_norms_spread_with_the_root_of_the_depth():
    """Each layer multiplies the squared norm of a row by a mean of m squares."""
    rng, logs = np.random.default_rng(0), []
    for _ in range(200):
        row = rng.standard_normal(60) / 60**0.5
        for _ in range(30):
            row = row @ rng.standard_normal((60, 60)) / 60**0.5
        logs.append(np.log(row @ row))
    assert np.std(logs) == pytest.approx((2 * 31 / 60) ** 0.5, rel=0.15)


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
