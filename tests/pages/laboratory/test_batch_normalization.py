"""The numbers in the text of "Batch normalisation" and of its further experiments are those of their tables."""

from itertools import product
from statistics import median

import pytest
from gnbook import results

from tests.pages.pages import cells, named, prose, says, span

FIRST, SECOND = "laboratory/batch-normalization", "laboratory/batch-normalization-further"
TEXT, FURTHER = prose(f"notebooks/{FIRST}"), prose(f"notebooks/{SECOND}")
NEAR = 0.8, 1.25  # of a ratio of numbers that are about the same

# How images and hidden units are prepared.
RAW, CENTRED, STANDARDISED = ((images, "nothing") for images in ("raw", "centred", "standardised"))
SUBTRACTED, DIVIDED, WHOLE, BOTH = (
    *(("raw", how) for how in ("mean subtracted", "divided by deviation", "BN")),
    ("standardised", "BN"),
)


def networks():
    """By preparation: κ with Kaiming's weights and its range over three networks, and with torch's default."""
    found = named(SECOND, "convolutional network, 20 colour images", 2)
    return {key: ([row[0], *span(row[1])], [row[2], *span(row[3])]) for key, row in found.items()}


def kappas():
    return {key: (kaiming[0], default[0]) for key, (kaiming, default) in networks().items()}


def trainings(rate="first"):
    """By preparation: steps with Kaiming's weights and with torch's, at a rate."""
    some = slice(0, 2) if rate == "first" else slice(2, 4)
    return {key: tuple(row[some]) for key, row in named(FIRST, "steps of gradient descent", 2).items()}


def near(found, other):
    return all(NEAR[0] < a / b < NEAR[1] for a, b in zip(found, other, strict=True))


def test_perceptrons_by_width():
    shares = [row[-1] for row in cells(SECOND, "condition number, means over 5 networks; share")]
    assert f"and {shares[-1]:.2f} of" in TEXT and all(0.8 < share <= 1.02 for share in shares)
    _, raw, _, middle, low, high = zip(*cells(SECOND, "means over 5 networks; BN improves"), strict=True)
    ends = min(low), max(high), min(middle), max(middle)
    assert says(FURTHER, "by {:.0f} to {:.0f} ({:.0f} to {:.0f} in", *ends)
    widths, plain, affine, evaluated = zip(*cells(SECOND, "means over 5 networks; evaluation mode"), strict=True)
    assert widths[0] == 16
    assert evaluated[0] > raw[0] and evaluated[-1] < raw[-1] / 10
    assert all((a / p < 1.01) == (m <= 512) for m, p, a in zip(widths, plain, affine, strict=True))


def test_factors_of_linear_models():
    """What one change saves with torch's default, by the linear model and in the network at two rates."""

    def factor(counts, change):
        fewer = counts[RAW] / counts[change]
        times, way = (fewer, "fewer") if fewer > 1 else (1 / fewer, "more")
        return f"{times:.{0 if times > 9.5 else 1}f} times {way}"

    counts = named(FIRST, "torch's default: steps to the goal", 2)
    linear = {how: model for how, (_, model) in counts.items()}
    ways = [linear, *({how: steps for how, (_, steps) in trainings(rate).items()} for rate in ("first", "best"))]
    changes = {"standardised images": STANDARDISED, "BN": WHOLE, "units divided by their deviation": DIVIDED}
    for words, change in changes.items():
        assert f"| {words} | {' | '.join(factor(way, change) for way in ways)} |" in TEXT


def test_range_of_the_improvement_in_the_kept_table():
    kept = {(row["network"], row["width"], row["seed"]): row["kappa"] for row in results.kept("batch-normalization")}
    ratios = {key[1:]: value / kept["with BN", *key[1:]] for key, value in kept.items() if key[0] == "without BN"}
    low, high = min(ratios.values()), max(ratios.values())
    assert says(TEXT, f"the {len(ratios)} of ... of {low:.1f} to {high:.0f} (") and low > 1


def test_kaiming_weights_gain_by_subtracting_and_the_default_by_dividing():
    raw, centred, standardised, divided = (kappas()[key][1] for key in (RAW, CENTRED, STANDARDISED, DIVIDED))
    assert raw / centred < 2 and 25 < raw / divided < 35 and standardised < raw / 10
    by_image = networks()["less mean image", "nothing"]
    assert near([some[0] for some in networks()[CENTRED]], [some[0] for some in by_image])
    assert networks()[RAW][1][1] < networks()[CENTRED][1][1]  # one of three gets worse


def test_normalising_standardised_images_gains_another_factor():
    images, both = (kappas()[key] for key in (STANDARDISED, BOTH))
    kaiming, default = (before / after for before, after in zip(images, both, strict=True))
    assert kaiming == pytest.approx(20, abs=2) and default == pytest.approx(42, abs=4)


def test_steps_go_with_kappa_in_a_column_and_not_between():
    steps, of = trainings(), kappas()
    assert len(steps) == 7
    for which in range(2):
        assert near([found[WHOLE][which] for found in (steps, of)], [found[BOTH][which] for found in (steps, of)])
    assert of[DIVIDED][1] < of[STANDARDISED][1]
    assert steps[DIVIDED][1] == max(default for _, default in steps.values())


def test_what_the_halves_and_centring_do_to_steps():
    default = {key: steps for key, (_, steps) in trainings().items()}
    said = f"({default[STANDARDISED]:.0f} steps against {default[CENTRED]:.0f} for"
    assert said in TEXT and default[STANDARDISED] < default[CENTRED]
    assert 2 < default[DIVIDED] / default[RAW] < 3


def test_at_the_best_rate_to_divide_alone_gains_little():
    first, best, of = trainings(), trainings("best"), kappas()
    whole = [*best[WHOLE], *best[BOTH]]
    assert f"in {min(whole):.0f} to {max(whole):.0f} steps," in TEXT
    assert [round(count, -2) for count in best[RAW]] == [200, 200]
    for which, rows in product(range(2), (first, best)):
        assert {*sorted(rows, key=lambda key: rows[key][which])[:2]} == {WHOLE, BOTH}
    assert f"from {best[RAW][1]:.0f} to {best[DIVIDED][1]:.0f};" in TEXT and best[DIVIDED][1] < 0.6 * best[RAW][1]
    assert max(best[STANDARDISED][1], best[SUBTRACTED][1]) < best[DIVIDED][1] and best[DIVIDED][0] >= best[RAW][0]
    assert min(of[STANDARDISED][1], of[SUBTRACTED][1]) > of[DIVIDED][1]
    assert f"way, {best[STANDARDISED][0]:.0f} against {best[CENTRED][0]:.0f} at" in TEXT
    assert best[CENTRED][0] < best[STANDARDISED][0]
    rates = [row["factor"] for row in results.kept("batch-normalization-further")]
    assert f"to {max(rates):.0f} times" in TEXT and min(rates) == 0.5


def test_the_kept_trainings_at_the_first_rate_are_those_of_the_chapter():
    steps = {}
    for row in results.kept("batch-normalization-further"):
        if row["factor"] == 1:
            few = float("inf") if row["steps"] is None else row["steps"]
            steps.setdefault((row["images"], row["units"], row["kaiming"]), []).append(few)
    for key, counts in trainings().items():
        assert [median(steps[*key, kaiming]) for kaiming in (True, False)] == [*counts]
