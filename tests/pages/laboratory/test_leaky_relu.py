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
    white, raw = (
        {slope: (curves[at][min(curves[at])], curves[at][max(curves[at])]) for slope, (_, curves) in frames().items()}
        for at in (0, 1)
    )
    for at, kind in enumerate((white, raw)):
        assert all(high / low == pytest.approx(kappas()[a][at], rel=0.01) for a, (high, low) in kind.items())
        found = learned()[("white", "raw")[at], "κ"]
        assert [found[0], found[-1]] == pytest.approx([kappas()[0][at], kappas()[1][at]], rel=(0.2, 0.01)[at])
    assert "of {:,.0f}, {:,.0f} and {:,.0f} stand".format(*(kappas()[a][1] for a in (1, 0, -1))) in TEXT
    assert "are {:.0f}, {:.0f} and {:.0f}.".format(*(kappas()[a][0] for a in (1, 0, -1))) in TEXT
    assert max(high for high, _ in raw.values()) < 1.4 * min(high for high, _ in raw.values())
    assert raw[-1][1] > 50 * raw[1][1] and [low for _, low in raw.values()] == sorted(low for _, low in raw.values())
    assert white[-1][0] > 30 * white[1][0] and white[1][1] < 2 * white[-1][1]
    for slope, (_, (points, _)) in frames().items():
        next_one = points[min(x for x in points if x > 10)]
        assert next_one < 4 * points[max(points)]  # the others stay together
        assert slope > 0 or (points[10] > 10 * next_one and points[1] < 1.01 * points[10])


def test_the_slopes_have_the_same_order_in_both_panels():
    arrived, pairs = [], []
    for kind in KINDS:
        steps, forecasts = learned()[kind, "steps"], learned()[kind, "forecast"]
        arrived += [count is not None for count in steps]
        pairs += [(a, b) for a, b in zip(steps, forecasts, strict=True) if a and a > 20]
        full = [a or b or float("inf") for a, b in zip(steps, forecasts, strict=True)]
        for (kappa, count), (other, more) in combinations(zip(learned()[kind, "κ"], full, strict=True), 2):
            assert (kappa - other) * (count - more) >= 0 and (count != more or (kind == "white" and count == 4))
    assert (len(arrived), sum(arrived)) == (20, 15)
    assert len(pairs) > 10 and all(abs(b / a - 1) < 0.05 for a, b in pairs)


def test_steps_to_a_common_goal():
    (raw, prepared, centred), kappa = [learned()[k, "steps"] for k in KINDS[:3]], learned()["raw", "κ"]
    assert centred[-1] is None is learned()["centred", "forecast"][-1]
    assert prepared[0] > raw[0]
    assert learned()["standardised", "κ"][0] < kappa[0]


def test_tuned_rates():
    for kind in KINDS:
        steps = (at_best_rates()[kind, slope][0] for slope in TUNED)
        spans = (" to ".join(f"{end:.0f}" for end in sorted({min(three), max(three)})) for three in steps)
        assert f"| {kind} | {' | '.join(spans)} |" in TEXT
    raw, standardised, centred, white = map(networks, KINDS)
    gains = [a[0] / b[0] for a, b in zip(raw, centred, strict=True)]
    assert f"takes {min(gains):.1f} to {max(gains):.1f} times" in TEXT
    assert all(b[0] > a[0] for a, b in zip(raw, standardised, strict=True))
    assert all(0.64 < slightly / relu < 0.69 for relu, slightly, *_ in centred)
    assert all(min(each) == each[0] < sorted(each)[1] for each in raw)
    assert all(9.5 < relu / most < 11.5 for relu, *_, most in white)
    assert {relu < slightly for relu, slightly, *_ in standardised} == {True, False}
    rates = [at_best_rates()["centred", slope][2][0] for slope in TUNED[:3]]
    assert [*map(float, rates)] == [2.8, 2.8, 4]
    assert all(more < relu and most > relu > slightly for relu, slightly, more, most in centred)


def test_adam():
    rows = named(FIRST, "Adam: steps", 2)
    assert len(rows) == 6 and all(min(found[:4]) == found[0] for found in rows.values())
    assert 1.17 < max(found[3] / found[0] for found in rows.values()) < 1.23
    assert all(found[1] < 1.03 * found[0] and abs(found[5] - found[4]) < 0.5 for found in rows.values())
    for (kind, _), found in rows.items():
        assert kind == "raw" or all(0.8 < found[4] - after < 3.5 for after in found[6:])
        assert all(after < found[4] + 0.5 for after in found[5:])
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
    assert [row[:2] for row in rows[:2]] == [["white", 0], ["white", 0.01]]
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
    assert (
        found["nearly white"][2] == min(found["nearly white"]) and found["nearly white"][0] < found["nearly white"][-1]
    )
    relu, slightly, more, most, _ = found["centred"]
    assert 0.8 < slightly / relu < 1.25 and 2 * relu < more < most
    assert found["white"] == sorted(found["white"], reverse=True) and found["white"][-1] > 0.95 * found["white"][-2]
    for kind in KINDS:
        assert np.argsort(learned()[kind, "κ"][:4]).tolist() == np.argsort(found[kind][:4]).tolist()


def test_more_images_than_pixels():
    relu, slightly, more, most, linear = many()["more images than pixels"]
    count, _, rank, *_ = named(SECOND, "K = x x")["more images than pixels"]
    assert f"of which {rank:.0f} are" in FURTHER and f"{count - rank:.0f} eigenvalues" in FURTHER
    assert 19_000 < relu < slightly < more < 24_000 and 1.2 < more / relu < 1.27
    assert round(most / relu) == 8 and linear < relu / 1000


def test_a_goal_that_moves_with_the_start():
    found, of = named(SECOND, "a goal that moves", 2), {kind: learned()[kind, "κ"] for kind in KINDS}
    (raw_first, raw), (white_first, white) = (
        [found[kind, f"steps to 1/{share}"] for share in (10, 20)] for kind in ("raw", "white")
    )
    steps, centred = (found[kind, "steps to 1/20"] for kind in ("standardised", "centred"))
    assert centred[-1] is None
    assert all(before / after >= 2 for of in (steps, centred) for before, after in zip(raw, of, strict=True) if after)
    assert white == sorted(white, reverse=True) and white_first == sorted(white_first, reverse=True)
    assert raw[:-1] == sorted(raw[:-1]) and raw[-1] > raw[2] and max(raw_first) < 1.3 * min(raw_first)
    kappa = of["standardised"]
    assert kappa == sorted(kappa) and steps == sorted(steps, reverse=True)
    relu, slightly, *more, _ = centred
    assert slightly < min(relu, *more)
    starts = found["standardised", "loss at the start"]
    goals = starts[0] / 20, starts[-1] / 20
    assert starts == sorted(starts) and 0.4 < goals[1] / 0.5 < 0.5


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
    assert 1.9 < min(gains["standardising"]) < max(gains["standardising"]) < 2.3
    assert 2.6 < min(gains["less the mean"]) < max(gains["less the mean"]) < 3.3
    assert all(0.7 < a[2] / b[1] < 1.3 for a, b in zip(standardised, less, strict=True))
    assert all(relu > slightly > more for relu, slightly, more, _ in standardised)
    assert all(relu > max(others) for relu, *others in [*standardised, *less])
    assert not any(all(min(each) == each[at] < sorted(each)[1] for each in raw) for at in range(4))
    won = {float(rate) for *_, goals in at_best_rates().values() for rates in goals for rate in rates.split(", ")}
    assert won <= {1, 2, 2.8, 4}
