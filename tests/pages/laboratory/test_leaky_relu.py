"""The numbers in the text of "Leaky ReLU" and of its further experiments are those of tables and of the slider."""

import re
from itertools import combinations

import numpy as np
import pytest

from tests.pages.pages import cells, named, number, prose, slider, texts

FIRST, SECOND = "laboratory/leaky-relu", "laboratory/leaky-relu-further"
TEXT, FURTHER = prose(f"notebooks/{FIRST}"), prose(f"notebooks/{SECOND}")
KINDS, TUNED = ("raw", "standardised", "centred", "white"), (0.0, 0.3, 0.6, 0.9)


def frames():
    """By slope: condition numbers of white and of raw images, and both spectra over their mean."""
    found = {}
    for name, curves in slider(FIRST).items():
        slope, *kappas = map(number, re.fullmatch(r"(\S+), κ (\S+) \| (\S+)", name).groups())
        found[slope] = kappas, [dict(zip(*curve, strict=True)) for curve in curves]
    return found


def kappas():
    return {slope: kappas for slope, (kappas, _) in frames().items()}


def learned():
    return named(FIRST, "gradient descent, 100 images", 2)


def factors():
    return named(FIRST, "the factors of the", 2)


def at_best_rates():
    """By images and slope: steps of three networks to the fixed goal and to the moving one, and the rates that won."""
    rows = cells(SECOND, "steps at the best rate") + cells(SECOND, "white images: steps")
    return {tuple(row[:2]): (row[2:5], row[6:9], [str(row[5]), str(row[9])]) for row in rows}


def networks(kind, goal=0):
    """For each of three networks the steps at four slopes."""
    return [*zip(*(at_best_rates()[kind, slope][goal] for slope in TUNED), strict=True)]


def many():
    """By images: κ of 500 of them at each slope."""
    return named(SECOND, "condition number of the figure")


def test_the_slider_shows_both_ends_of_the_spectrum():
    assert [*kappas()] == sorted(kappas(), reverse=True) and max(kappas()) == 1 and min(kappas()) == -1
    for slope, (_, curves) in frames().items():
        ratios = [curve[min(curve)] / curve[max(curve)] for curve in curves]
        assert ratios == pytest.approx(kappas()[slope], rel=0.01)
    assert "of {:,.0f}, {:,.0f} and {:,.0f} stand".format(*(kappas()[a][1] for a in (1, 0, -1))) in TEXT
    assert "are {:.0f}, {:.0f} and {:.0f}.".format(*(kappas()[a][0] for a in (1, 0, -1))) in TEXT


def test_the_slopes_have_the_same_order_in_both_panels():
    pairs = []
    for kind in KINDS:
        steps, forecasts = learned()[kind, "steps"], learned()[kind, "forecast"]
        pairs += [(a, b) for a, b in zip(steps, forecasts, strict=True) if a and a > 20]
        full = [a or b or float("inf") for a, b in zip(steps, forecasts, strict=True)]
        for (kappa, count), (other, more) in combinations(zip(learned()[kind, "κ"], full, strict=True), 2):
            assert (kappa - other) * (count - more) >= 0 and (count != more or (kind == "white" and count == 4))
    assert len(pairs) > 10 and all(abs(b / a - 1) < 0.05 for a, b in pairs)


def test_tuned_rates():
    for kind in KINDS:
        steps = (at_best_rates()[kind, slope][0] for slope in TUNED)
        spans = (" to ".join(f"{end:.0f}" for end in sorted({min(three), max(three)})) for three in steps)
        assert f"| {kind} | {' | '.join(spans)} |" in TEXT
    raw, _, centred, _ = map(networks, KINDS)
    gains = [a[0] / b[0] for a, b in zip(raw, centred, strict=True)]
    assert f"takes {min(gains):.1f} to {max(gains):.1f} times" in TEXT
    assert all(0.64 < slightly / relu < 0.69 for relu, slightly, *_ in centred)
    assert all(min(each) == each[0] < sorted(each)[1] for each in raw)
    rates = [at_best_rates()["centred", slope][2][0] for slope in TUNED[:3]]
    assert [*map(float, rates)] == [2.8, 2.8, 4]
    assert all(more < relu and most > relu > slightly for relu, slightly, more, most in centred)


def test_adam():
    rows = named(FIRST, "Adam: steps", 2)
    assert len(rows) == 6 and all(min(found[:4]) == found[0] for found in rows.values())
    assert all(after < found[4] + 0.5 for found in rows.values() for after in found[5:])
    standardised, centred = (rows[kind, 0.01] for kind in ("standardised", "centred"))
    for at in range(4):
        slow, soon, less = (rows[kind, 0.001][at] for kind in ("raw", "standardised", "centred"))
        assert soon < 0.7 * min(slow, less)
        assert 0 < standardised[at] - centred[at] < 8 and abs(standardised[at + 4] - centred[at + 4]) < 1


def test_bounds():
    rows = cells(SECOND, "bounds over κ")
    above, below = ({kind: [row[at] for row in rows if row[0] == kind] for kind in ("white", "raw")} for at in (4, 5))
    assert max(above["white"]) < 1.2 and min(below["white"]) > 0.8
    assert 5 < max(above["raw"]) < 10 and min(below["raw"]) > 0.1
    assert f"is {rows[1][2]:.0f} at 0.01, and {rows[0][2]:.0f} at" in FURTHER
    (caption,) = (text for text in texts(SECOND) if text.startswith("slope 0.01, 500 white samples"))
    limit = float(re.search(r"limit for infinite width: ([\d.]+)", caption)[1])
    assert f"infinite width, {limit:.0f}." in FURTHER
    measured = [row for row in cells(SECOND, "slope 0.01, 500 white samples") if row[1]]
    assert {row[0] for row in measured} == {500, 1000, 2000, 4000, 8000}
    for width, kappa, _, below, above, *_ in measured:
        assert (0.8 * kappa < below and above < 1.2 * kappa) == (width >= 1000)


def test_six_sets_of_images():
    found = many()
    assert len(found) == 6
    for kind in KINDS:
        assert np.argsort(learned()[kind, "κ"][:4]).tolist() == np.argsort(found[kind][:4]).tolist()


def test_more_images_than_pixels():
    relu, slightly, more, *_ = many()["more images than pixels"]
    count, _, rank, *_ = named(SECOND, "K = x x")["more images than pixels"]
    assert f"of which {rank:.0f} are" in FURTHER and f"{count - rank:.0f} eigenvalues" in FURTHER
    assert 19_000 < relu < slightly < more < 24_000 and 1.2 < more / relu < 1.27


def test_a_goal_that_moves_with_the_start():
    found = named(SECOND, "a goal that moves", 2)
    steps, centred = (found[kind, "steps to 1/20"] for kind in ("standardised", "centred"))
    assert centred[-1] is None
    kappa = learned()["standardised", "κ"]
    assert kappa == sorted(kappa) and steps == sorted(steps, reverse=True)
    starts = found["standardised", "loss at the start"]
    assert starts == sorted(starts)


def test_slopes_at_the_best_rate_and_the_moving_goal():
    raw, standardised, less = (networks(kind, 1) for kind in KINDS[:3])
    gains = {
        "standardising": [before[0] / after[0] for before, after in zip(raw, standardised, strict=True)],
        "0.6 then": [relu / more for relu, _, more, _ in standardised],
        "0.9 then": [relu / most for relu, *_, most in standardised],
        "less the mean": [before[0] / after[0] for before, after in zip(raw, less, strict=True)],
        "0.3 then": [relu / slightly for relu, slightly, *_ in less],
    }
    spans = {name: f"{min(found):.1f} to {max(found):.1f}" for name, found in gains.items()}
    said = "| {} | 0.6: {}; 0.9: {} |"
    assert said.format(spans["standardising"], spans["0.6 then"], spans["0.9 then"]) in FURTHER
    assert f"| {spans['less the mean']} | 0.3: {spans['0.3 then']} |" in FURTHER
