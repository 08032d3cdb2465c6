"""The findings of "Leaky ReLU" and of its further experiments, by their tables and the slider."""

from itertools import combinations

from tests.pages.pages import cells, named

FIRST, SECOND = "laboratory/leaky-relu", "laboratory/leaky-relu-further"
KINDS, TUNED = ("raw", "standardised", "centred", "white"), (0.0, 0.3, 0.6, 0.9)


def learned():
    return named(FIRST, "gradient descent, 100 images", 2)


def at_best_rates():
    """By images and slope: steps of three networks to the fixed goal."""
    rows = cells(SECOND, "steps at the best rate") + cells(SECOND, "white images: steps")
    return {tuple(row[:2]): row[2:5] for row in rows}


def networks(kind):
    """For each of three networks the steps at four slopes."""
    return [*zip(*(at_best_rates()[kind, slope] for slope in TUNED), strict=True)]


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
    raw, _, centred, _ = map(networks, KINDS)
    assert all(0.64 < slightly / relu < 0.69 for relu, slightly, *_ in centred)
    assert all(min(each) == each[0] < sorted(each)[1] for each in raw)
    assert all(more < relu and most > relu > slightly for relu, slightly, more, most in centred)


def test_bounds():
    rows = cells(SECOND, "bounds over κ")
    above, below = ({kind: [row[at] for row in rows if row[0] == kind] for kind in ("white", "raw")} for at in (4, 5))
    assert max(above["white"]) < 1.2 and min(below["white"]) > 0.8
    assert 5 < max(above["raw"]) < 10 and min(below["raw"]) > 0.1
    measured = [row for row in cells(SECOND, "slope 0.01, 500 white samples") if row[1]]
    assert {row[0] for row in measured} == {500, 1000, 2000, 4000, 8000}
    for width, kappa, _, below, above, *_ in measured:
        assert (0.8 * kappa < below and above < 1.2 * kappa) == (width >= 1000)
