"""What the text of "Batch normalisation" says of its tables is what they show."""

import re
from itertools import product
from statistics import mean, median

import pytest
import torch
from gnbook import results
from gnbook.batch_normalization.gauss_newton import batch_norm_gauss_newton
from gnbook.batch_normalization.networks import best_steps

import gnlib
from tests.pages.pages import prose, table, texts

FURTHER = "batch-normalization-further"


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/batch-normalization")


@pytest.fixture(scope="module")
def further():
    return prose(f"notebooks/{FURTHER}")


@pytest.fixture(scope="module")
def kappas():
    """From how the images and the hidden units are prepared to what Kaiming's weights and torch's default give."""
    return {key: (kaiming[0], default[0]) for key, (kaiming, default) in networks().items()}


def networks():
    """From the preparation of images and units to median, smallest and largest, for Kaiming's and torch's weights."""
    found = {}
    for line in table(FURTHER, "convolutional network, 20 colour images"):
        images, hidden, *cells = re.split(r" {2,}", line.strip())
        numbers = [float(number.replace(",", "")) for cell in cells for number in cell.split(" to ")]
        found[images, hidden] = numbers[:3], numbers[3:]
    return found


def test_share_of_centring_at_each_width(text):
    lines = table(FURTHER, "condition number, means over 5 networks; share")
    rows = [[float(cell) for cell in line.split()] for line in lines]
    assert f"nearly all of the gain in narrow networks, and {rows[-1][-1]:.2f} of it in the widest" in text
    assert all(0.8 < row[-1] <= 1.02 for row in rows)


def test_range_of_the_improvement(further):
    lines = [line.split() for line in table(FURTHER, "means over 5 networks; BN improves")]
    _, _, _, middle, low, high = zip(*([float(cell) for cell in line] for line in lines), strict=True)
    means = f"({min(middle):.0f} to {max(middle):.0f} in the mean of a width)"
    assert f"BN lowers $\\kappa$ of those of this run by {min(low):.0f} to {max(high):.0f} {means}." in further


def test_range_of_the_improvement_in_the_kept_table(text):
    kappas = {(row["network"], row["width"], row["seed"]): row["kappa"] for row in results.kept("batch-normalization")}
    ratios = {key[1:]: value / kappas["with BN", *key[1:]] for key, value in kappas.items() if key[0] == "without BN"}
    low, high = min(ratios.values()), max(ratios.values())
    assert f"of the {len(ratios)} of the kept table by a factor of {low:.1f} to {high:.0f}." in text and low > 1
    assert "BN divides the mean condition number of each width by 13 and more" in text
    for width in {width for width, _ in ratios}:
        means = [mean(kappas[name, width, seed] for seed in range(20)) for name in ("without BN", "with BN")]
        assert means[0] > 13 * means[1]


def test_the_mean_image_does_what_the_mean_of_each_channel_does(further):
    assert "comes to the same (last row)" in further
    by_channel, by_image = (networks()[name, "nothing"] for name in ("centred", "less mean image"))
    assert all(0.8 < a[0] / b[0] < 1.25 for a, b in zip(by_channel, by_image, strict=True))


def test_centring_makes_a_network_of_default_weights_worse(further):
    assert "Of the three networks one even gets worse." in further
    (_, low, _), (_, low_centred, _) = (networks()[name, "nothing"][1] for name in ("raw", "centred"))
    assert low < low_centred


def test_evaluation_mode_harms_the_narrowest_and_helps_the_widest(further):
    assert "at width 16 it harms in the mean" in further
    raw = [float(line.split()[1]) for line in table(FURTHER, "means over 5 networks; BN improves")]
    evaluated = [float(line.split()[3]) for line in table(FURTHER, "means over 5 networks; evaluation mode")]
    assert evaluated[0] > raw[0] and evaluated[-1] < raw[-1] / 10


def test_scale_and_shift_change_little_up_to_512_units(further):
    assert "Up to 512 units the curves of training mode with and without scale and shift coincide." in further
    rows = [[float(cell) for cell in line.split()] for line in table(FURTHER, "means over 5 networks; ev")]
    assert all((affine / plain < 1.01) == (width <= 512) for width, plain, affine, _ in rows)


def test_kaiming_weights_gain_by_subtracting(text, kappas):
    raw, centred, subtracted, divided, whole = (
        kappas[key][0]
        for key in (
            ("raw", "nothing"),
            ("centred", "nothing"),
            ("raw", "mean subtracted"),
            ("raw", "divided by deviation"),
            ("raw", "BN"),
        )
    )
    assert "Centring the images divides $\\kappa$ by about ten" in text and 8 < raw / centred < 13
    assert whole < subtracted < centred < divided < raw


def test_the_default_weights_gain_by_dividing_and_by_both_halves_most(text, kappas):
    raw, centred, standardised, subtracted, divided, whole = (
        kappas[key][1]
        for key in (
            ("raw", "nothing"),
            ("centred", "nothing"),
            ("standardised", "nothing"),
            ("raw", "mean subtracted"),
            ("raw", "divided by deviation"),
            ("raw", "BN"),
        )
    )
    assert "With torch's default centring does next to nothing.** " in text and raw / centred < 2
    assert max(standardised, divided) < raw / 10
    assert "multiply their two factors, and it is still ahead" in text
    assert raw / whole > (raw / subtracted) * (raw / divided)


def test_normalising_standardised_images_gains_another_factor(text, kappas):
    images, both, units = (kappas[key] for key in (("standardised", "nothing"), ("standardised", "BN"), ("raw", "BN")))
    kaiming, default = (before / after for before, after in zip(images, both, strict=True))
    assert "by another 20 with Kaiming weights, and by another 40 with torch's default" in text and 18 < kaiming < 22
    assert 38 < default < 47
    assert "With BN it does not matter whether the images are standardised." in text
    assert all(0.8 < a / b < 1.25 for a, b in zip(both, units, strict=True))
    assert "in the last two rows, both medians are below a hundred" in text and max(*both, *units) < 100


def biases():
    """From weights, biases and whether these are trained to κ by images and the largest eigenvalue."""
    lines = table(FURTHER, "the same network without normalisation")
    rows = [re.split(r" {2,}", line.strip()) for line in lines]
    return {tuple(row[:3]): [float(number.replace(",", "")) for number in row[3:]] for row in rows}


def test_biases_undo_what_centring_gains(further):
    found = biases()
    gains = {key: raw / centred for key, (raw, centred, *_) in found.items()}
    torchs = {key[1:]: gain for key, gain in gains.items() if key[0] == "torch's default"}
    assert "Without any biases (fourth row) centring divides $\\kappa$ by five." in further
    assert list(found)[3][1:] == ("zero", "no") and round(torchs.pop(("zero", "no"))) == 5
    assert list(found)[1][1:] == ("zero", "yes") and list(found)[2][1:] == ("drawn", "no")
    assert len(torchs) == 3 and max(torchs.values()) < 1.6
    largest = [row[-1] for row in found.values()]
    assert "the largest eigenvalue is above 1 in place of 0.023" in further and largest[1] > 1 and largest[3] == 0.023
    said = "stronger than the biases: on centred images the largest eigenvalue is {:.0f}, in place of {:.1f}."
    ends = found["Kaiming", "zero", "yes"][-1], found["torch's default", "drawn", "yes"][-1]
    assert said.format(*ends) in further and "With Kaiming weights (last two rows) neither matters." in further
    kaiming = [row for key, row in found.items() if key[0] == "Kaiming"]
    assert len(kaiming) == 2 and all(0.8 < a / b < 1.25 for a, b in zip(*kaiming, strict=True))


def trainings(rate="first"):
    """From the preparation of images and units to the steps with Kaiming's weights and with torch's, at a rate."""
    rows = [re.split(r" {2,}", line.strip()) for line in table("batch-normalization", "steps of gradient descent")]
    some = slice(2, 4) if rate == "first" else slice(4, 6)
    return {(row[0], row[1]): tuple(map(float, row[some])) for row in rows}


def test_steps_go_with_kappa_in_a_column_and_not_between(text, further, kappas):
    steps = trainings()
    raw, whole, both = ("raw", "nothing"), ("raw", "BN"), ("standardised", "BN")
    assert len(steps) == 7 and "**To divide alone goes against κ, at either rate.**" in text
    assert "**With Kaiming weights fewer steps go with a smaller κ**, in all rows at the first rate, though" in text
    against = "raw", "divided by deviation"
    for which in range(2):
        assert all(0.8 < found[whole][which] / found[both][which] < 1.25 for found in (steps, kappas))
        order = sorted({*steps} - {both} - ({against} if which else set()), key=lambda key: -kappas[key][which])
        counts = [steps[key][which] for key in order]
        assert counts == sorted(counts, reverse=True) and order[0] == raw and order[-1] == whole
        assert counts[0] / counts[-1] < kappas[raw][which] / kappas[whole][which]
    assert "have a smaller $\\kappa$ than standardised images, and take the most steps of all" in further
    assert kappas[against][1] < kappas["standardised", "nothing"][1]
    assert steps[against][1] == max(default for _, default in steps.values())
    assert "in a tenth of the steps that they take without it, and in a quarter of those" in text
    assert steps["standardised", "nothing"][1] / steps[whole][1] == pytest.approx(4, rel=0.15)
    assert steps[raw][1] / steps[whole][1] == pytest.approx(10, rel=0.15)
    assert "on raw images Kaiming weights have the smaller $\\kappa$ and take more steps at the first rate" in text
    assert kappas[raw][0] < kappas[raw][1] and steps[raw][0] > steps[raw][1]


def test_what_the_halves_and_centring_do_to_steps(text):
    steps = trainings()
    raw, centred, standardised = (steps[name, "nothing"] for name in ("raw", "centred", "standardised"))
    subtracted, divided, whole = (steps["raw", how] for how in ("mean subtracted", "divided by deviation", "BN"))
    said = "standardise, and do not only centre** ({:.0f} steps against {:.0f}, at either rate)."
    assert said.format(standardised[1], centred[1]) in text and standardised[1] < centred[1]
    assert centred[0] < standardised[0] and "At the first rate it more than doubles the steps." in text
    assert raw[1] / subtracted[1] == pytest.approx(2, rel=0.1) and 2 < divided[1] / raw[1] < 3
    assert f"is nearly all of BN there: {subtracted[0]:.0f} steps and {whole[0]:.0f}." in text
    assert centred[1] / raw[1] == pytest.approx(2 / 3, abs=0.03)
    assert f"of the first number, {raw[0]:.0f}, does not arrive" in text


def test_at_the_best_rate_to_divide_alone_gains_little(text, kappas):
    first, best = trainings(), trainings("best")
    raw, centred, standardised = (best[name, "nothing"] for name in ("raw", "centred", "standardised"))
    subtracted, divided = (best["raw", how] for how in ("mean subtracted", "divided by deviation"))
    whole = [best["raw", "BN"], best["standardised", "BN"]]
    assert all(few <= many for key in first for few, many in zip(best[key], first[key], strict=True))
    low, high = (end(count for counts in whole for count in counts) for end in (min, max))
    assert f"At the best rate it is done in {low:.0f} to {high:.0f} steps. Raw images without it take some 200." in text
    assert [round(count, -2) for count in raw] == [200, 200] and "and as many at the best." in text
    for which, rows in product(range(2), (first, best)):
        order = sorted(rows, key=lambda key: rows[key][which])
        assert {*order[:2]} == {("raw", "BN"), ("standardised", "BN")}
    assert f"it nearly halves them, from {raw[1]:.0f} to {divided[1]:.0f};" in text and divided[1] / raw[1] < 0.6
    assert "standardised images and subtracted means need fewer, with a larger $\\kappa$." in text
    assert max(standardised[1], subtracted[1]) < divided[1]
    for key in (("standardised", "nothing"), ("raw", "mean subtracted")):
        assert kappas[key][1] > kappas["raw", "divided by deviation"][1]
    assert "With Kaiming weights it gains nothing at the best rate." in text and divided[0] >= raw[0]
    assert (standardised[1], centred[1]) == (first["standardised", "nothing"][1], first["centred", "nothing"][1])
    assert f"other way, {standardised[0]:.0f} against {centred[0]:.0f} at the best rate." in text
    assert centred[0] < standardised[0]
    rates = [row["factor"] for row in results.kept(FURTHER)]
    assert "in factors of two from half of that to 64 times" in text and (min(rates), max(rates)) == (0.5, 64)
    kept = best_steps(results.kept(FURTHER))
    assert {rate for _, rate in kept["raw", "divided by deviation", False]} == {8, 16}
    assert "8 to 16 times as large" in text and all(rate < 64 for pairs in kept.values() for _, rate in pairs)


def test_the_kept_trainings_at_the_first_rate_are_those_of_the_chapter():
    steps = {}
    for row in results.kept(FURTHER):
        if row["factor"] == 1:
            few = float("inf") if row["steps"] is None else row["steps"]
            steps.setdefault((row["images"], row["units"], row["kaiming"]), []).append(few)
    for (images, units), counts in trainings().items():
        assert [median(steps[images, units, kaiming]) for kaiming in (True, False)] == [*counts]


def test_the_linear_models_keep_the_order_of_kappa_and_the_network_on_raw_images_leaves_its_own(text, kappas):
    lines = [re.split(r" {2,}", line.strip()) for line in table("batch-normalization", "torch's default: steps to the")]
    found = {(row[0], row[1]): [float(cell.replace(",", "")) for cell in row[2:]] for row in lines}
    assert {key: own for key, (own, _) in found.items()} == {key: steps[1] for key, steps in trainings().items()}
    order = sorted(set(found) - {("standardised", "BN")}, key=lambda key: kappas[key][1])
    models = [found[key][1] for key in order]
    assert "The linear models keep the order of $\\kappa$, but for the two rows with BN" in text
    assert models == sorted(models)
    with_bn = [found[name, "BN"] for name in ("raw", "standardised")]
    assert "which are level in both" in text and abs(with_bn[0][1] - with_bn[1][1]) <= 1
    assert kappas["raw", "BN"][1] == pytest.approx(kappas["standardised", "BN"][1], rel=0.1)
    raw, divided = found["raw", "nothing"], found["raw", "divided by deviation"]
    assert "more than thirty times sooner than its model" in text and 30 < raw[1] / raw[0] < 40
    others = [key for key in order if key != ("raw", "divided by deviation") and key[1] != "BN"]
    assert "The others leave their models behind." in text
    assert len(others) == 4 and all(found[key][1] > 5 * found[key][0] for key in others)
    assert "The networks with BN or with divided units follow their models roughly, and are a little slower." in text
    assert all(1 < own / model < 1.4 for own, model in (divided, *with_bn)) and divided[1] < raw[1] / 10
    said = "it makes $\\kappa$ some thirty times smaller"
    assert said in text and 25 < kappas["raw", "nothing"][1] / kappas["raw", "divided by deviation"][1] < 35


def test_a_trained_scale_and_shift_change_little_in_the_convolutional_network(further, kappas):
    assert "changes neither $\\kappa$ nor the steps by more than a few per cent" in further
    for line in table(FURTHER, "BN with a scale and a shift that are trained"):
        images, *cells = line.split()
        kaiming, its_steps, default, other_steps = map(float, cells)
        assert [kaiming, default] == pytest.approx(kappas[images, "BN"], rel=0.05)
        assert [its_steps, other_steps] == pytest.approx(trainings()[images, "BN"], rel=0.05)


@pytest.mark.parametrize(
    ("units", "scale", "finite"),
    [(12, 1e2, True), (12, 1e-2, True), (3, 1e2, False), (3, 1e-2, True), (2, 1e-2, False)],
)
def test_limits_of_an_exercise(further, units, scale, finite):
    """Six inputs and two outputs: as many units as inputs for large first weights, more than outputs for small ones."""
    assert "That takes as many units as directions" in further
    assert "as it has for random weights and more units than outputs" in further
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 6, generator=generator, dtype=torch.float64)
    first, second = gnlib.linear_weights([6, units, 2], generator=generator)
    there, beyond = (
        float(gnlib.condition_number(batch_norm_gauss_newton([c * first, second], x))) for c in (scale, scale**1.5)
    )
    assert beyond / there == pytest.approx(1, rel=0.1) if finite else beyond > 50 * there


def test_what_bn_sees_of_white_images(text):
    (title,) = (shown.splitlines()[0] for shown in texts("batch-normalization") if shown.startswith("|μ|² = "))
    assert "with $\\kappa = 1 / (1 - \\lVert \\mu \\rVert^2)$, here 21.4:" in text and "condition number 21.4;" in title
