"""The numbers in the text of the further experiments with leaky ReLUs are those of their tables."""

import re

import pytest
import torch
from gnbook.leaky_relu.experiment import losses_of, preparations, weights_of
from gnbook.shared.training import one_hot

import gnlib
from tests.pages.pages import prose, table, texts, words_of


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/leaky-relu-further")


def test_width_helps_on_raw_images(text):
    assert "to some 600 units with the ReLU, and still at 1,200 with a slope of 0.6:" in text
    _, relu, slightly = zip(
        *(map(float, words) for words in words_of("leaky-relu-further", "150 raw images")), strict=True
    )
    for kappas in (relu, slightly):
        assert kappas[2] < 0.7 * kappas[0] and kappas[3] > 0.9 * kappas[2]
    assert relu[3] > relu[2] and slightly[3] < slightly[2]


def test_bounds_on_white_and_on_raw_images(text):
    lines = [line.split() for line in table("leaky-relu-further", "bounds over κ")]
    above, below = (
        {name: [float(line[at]) for line in lines if line[0] == name] for name in ("white", "raw")} for at in (4, 5)
    )
    assert "from width 1,000 on" in text
    assert "of figure 23 the bound" in text
    assert max(above["white"]) < 1.2 and min(below["white"]) > 0.8
    assert 5 < max(above["raw"]) < 10 and min(below["raw"]) > 0.1


def test_from_which_width_on_the_bounds_are_within_a_fifth(text):
    assert "from width 1,000 on, twice" in text
    lines = table("leaky-relu-further", "slope 0.01, 500 white samples")
    assert "infinite width, 228 (dotted)" in text and any(
        "limit for infinite width: 227.7" in x for x in texts("leaky-relu-further")
    )
    rows = [line.split() for line in lines]
    measured = [row for row in rows if row[1] != "-"]
    assert {int(row[0]) for row in measured} == {500, 1000, 2000, 4000, 8000}
    for width, kappa, _, below, above, *_ in measured:
        near = 0.8 * float(kappa) < float(below) and float(above) < 1.2 * float(kappa)
        assert near == (int(width) >= 1000)


def test_six_sets_of_images(text):
    lines = {
        line[:23].strip(): line[23:].split() for line in table("leaky-relu-further", "condition number of the fig")
    }
    assert len(lines) == 6
    nearly = [float(cell) for cell in lines["nearly white"]]
    assert "slope of 0.6, better still" in text and nearly[2] == min(nearly)
    assert nearly[0] < nearly[-1]  # the ReLU is better than the linear network
    relu, *_, linear = map(float, lines["more images than pixels"])
    assert linear < relu / 1000


def test_a_rate_that_is_not_stable_at_the_start_is_stable_twenty_steps_later(text):
    lines = [line.split() for line in table("leaky-relu-further", "λ after twenty steps")]
    *found, stable = ([float(cell) for cell in line[-3:]] for line in lines)
    assert len(found) == 4 and stable[0] == 1
    for first, *larger in found:
        assert 0.9 < first <= 1 and all(share < min(0.5, most) for share, most in zip(larger, stable[1:], strict=True))


def test_a_linear_network_learns_fewer_directions(text):
    lines = [list(map(float, words)) for words in words_of("leaky-relu-further", "49 pixels")]
    for n, r, rank, kappa, _, _, of_linear, linear in lines:
        assert of_linear <= rank and (of_linear < rank if n > r else linear < kappa)


def test_slopes_on_images_less_their_mean(text):
    assert "slope of 0.3 are about" in text
    lines = {
        line[:23].strip(): line[23:].split() for line in table("leaky-relu-further", "condition number of the fig")
    }
    relu, slightly, more, most, _ = map(float, lines["centred"])
    assert 0.8 < slightly / relu < 1.25 and 2 * relu < more < most
    white = [float(cell) for cell in lines["white"]]
    assert white == sorted(white, reverse=True) and white[-1] > 0.95 * white[-2]


def cells(start, page="leaky-relu-further"):
    """Return the cells of each line of a table whose words are more than one."""
    return [re.split(r"  +", line.strip()) for line in table(page, start)]


def test_a_goal_that_moves_with_the_start(text):
    found = {
        (images, what): [None if cell == "-" else float(cell) for cell in values]
        for images, what, *values in cells("a goal that moves")
    }
    kappas = {
        images: [float(cell.replace(",", "")) for cell in values]
        for images, what, *values in cells("gradient descent, 100 images", "leaky-relu")
        if what == "κ"
    }
    raw_steps = found["raw", "steps to 1/20"]
    assert "for slope 1 on centred" in text
    for images in ("standardised", "centred"):
        for before, after in zip(raw_steps, found[images, "steps to 1/20"], strict=True):
            assert before / after >= 2 if after else images == "centred" and before == raw_steps[-1]
    white_first, white = found["white", "steps to 1/10"], found["white", "steps to 1/20"]
    raw_first, raw = found["raw", "steps to 1/10"], found["raw", "steps to 1/20"]
    assert white == sorted(white, reverse=True) and white_first == sorted(white_first, reverse=True)
    assert raw[:-1] == sorted(raw[:-1]) and raw[-1] > raw[2] and max(raw_first) < 1.3 * min(raw_first)
    assert "$\\kappa$ grows 23-fold" in text and 20 < kappas["white"][0] / kappas["white"][-1] < 26  # 69 and 3, rounded
    said = "a twentieth {:.0f}-fold, from {:.0f} to {:.0f}."
    assert said.format(white[0] / white[-1], white[-1], white[0]) in text
    said = "$\\kappa$ falls {:.0f}-fold, and the steps {:.1f}-fold, from {:.0f} to {:.0f}."
    assert said.format(kappas["raw"][-1] / kappas["raw"][0], raw[-1] / raw[0], raw[-1], raw[0]) in text
    assert f"{raw_first[-1]:.0f} at slope 1 and {raw_first[0]:.0f} for the" in text
    kappa, steps = kappas["standardised"], found["standardised", "steps to 1/20"]
    said = "$\\kappa$ falls {:.0f}-fold from slope 1 to the ReLU, and the steps grow from {:.0f} to {:.0f}."
    assert said.format(kappa[-1] / kappa[0], steps[-1], steps[0]) in text
    assert kappa == sorted(kappa) and steps == sorted(steps, reverse=True)
    relu, slightly, *more, linear = found["centred", "steps to 1/20"]
    assert f"It takes {slightly:.0f} steps, and a ReLU {relu:.0f}. Slope 1 does not" in text and linear is None
    assert slightly < min(relu, *more)
    starts = found["standardised", "loss at the start"]
    goals = starts[0] / 20, starts[-1] / 20, found["raw", "loss at the start"][0] / 20
    said = "loss is {:.2f} for the ReLU, and {:.2f} at slope 1, nearly half"
    assert said.format(*goals) in text and f"it is {goals[2]:.2f} for the" in text
    assert starts == sorted(starts) and 0.4 < goals[1] / 0.5 < 0.5


def test_slopes_at_the_best_rate_and_the_moving_goal(text):
    rows = cells("steps at the best rate")
    steps = {(images, slope): [float(word) for word in words[4:7]] for images, slope, *words in rows}
    raw, standardised, less = (
        [*zip(*(steps[images, slope] for slope in ("0", "0.3", "0.6", "0.9")), strict=True)]
        for images in ("raw", "standardised", "centred")
    )
    gains = {
        "standardising": [before[0] / after[0] for before, after in zip(raw, standardised, strict=True)],
        "0.6 then": [relu / more for relu, _, more, _ in standardised],
        "0.9 then": [relu / most for relu, *_, most in standardised],
        "less the mean": [before[0] / after[0] for before, after in zip(raw, less, strict=True)],
        "0.3 then": [relu / slightly for relu, slightly, *_ in less],
    }
    spans = {name: f"{min(found):.1f} to {max(found):.1f}" for name, found in gains.items()}
    said = "standardised | {} | 0.6: {}; 0.9: {} |"
    assert said.format(spans["standardising"], spans["0.6 then"], spans["0.9 then"]) in text
    assert f"centred | {spans['less the mean']} | 0.3: {spans['0.3 then']} |" in text
    assert min(gains["standardising"] + gains["less the mean"]) > 1.9
    assert max(gains["standardising"]) < 2.3 and 2.6 < min(gains["less the mean"]) < max(gains["less the mean"]) < 3.3
    assert "slope of 0.6, and centred ones with 0.3." in text
    assert all(0.7 < a[2] / b[1] < 1.3 for a, b in zip(standardised, less, strict=True))
    assert len(raw) == len(standardised) == len(less) == 3
    assert all(relu > slightly > more for relu, slightly, more, _ in standardised)
    assert all(relu > max(others) for relu, *others in [*standardised, *less])
    assert not any(all(min(each) == each[at] < sorted(each)[1] for each in raw) for at in range(4))
    won = {
        rate
        for _, _, *words in [*rows, *cells("white images: steps")]
        for at in (3, 7)
        for rate in words[at].split(", ")
    }
    assert "rate of $5.6 / \\lambda$" in text and won <= {"1", "2", "2.8", "4"}


def test_a_slope_of_nine_tenths_bears_a_larger_rate(text):
    assert (
        "at $2 / \\lambda$ and at $2.8 / \\lambda$ it takes more steps than the ReLU, but it bears $4 / \\lambda$"
        in text
    )
    images, digits = gnlib.load("mnist", 100, stride=2)
    x, labels, taken = preparations(images)["centred"], one_hot(digits, 10), {}
    for a in (0.0, 0.9):
        weights = weights_of(x, 1000)
        largest = torch.linalg.eigvalsh(gnlib.leaky_relu_gram(weights, x, a))[-1].item()
        for factor in (2, 2.8, 4):
            losses = losses_of(weights, x, labels, a, factor / largest, 100)
            taken[a, factor] = len(losses) - 1 if losses[-1] <= losses[0] / 20 else None
    assert all(taken[0.0, factor] < taken[0.9, factor] for factor in (2, 2.8))
    assert taken[0.0, 4] is None and taken[0.9, 4] < taken[0.0, 2.8]


def test_torchs_slope_hardly_differs_from_a_relu(text):
    lines = [line.split() for line in table("leaky-relu-further", "bounds over κ")]
    relu, torch_default = (float(line[2]) for line in lines[:2])
    assert f"on the 500 white images $\\kappa$ is {torch_default:.0f} at 0.01, and {relu:.0f} at 0." in text
    assert [line[:2] for line in lines[:2]] == [["white", "0.0"], ["white", "0.01"]]


def test_standardised_images_keep_the_order_of_raw_ones(text):
    (line,) = (
        row for row in table("leaky-relu-further", "condition number of the figure") if row.startswith("standardised")
    )
    relu, *_, most, _ = map(float, line.split()[1:])
    said = f"grows from {round(relu, -2):,.0f} at the ReLU to {round(most, -3):,.0f} at a slope of 0.9."
    assert said in text


def test_more_images_than_pixels(text):
    (line,) = (
        row for row in table("leaky-relu-further", "condition number of the figure") if row.startswith("more images")
    )
    relu, slightly, more, most, _ = map(float, line.split()[4:])
    assert "large at 0.9." in text
    assert "is some 20,000." in text and 15_000 < relu < 25_000
    assert "360 eigenvalues of" in text
    (line,) = (row for row in table("leaky-relu-further", "K = x x") if row.startswith("more images"))
    count, _, rank, *_ = map(float, line.split()[4:])
    assert (count, rank) == (500, 140)
    assert relu < slightly < more and 1.2 < more / relu < 1.27 and round(most / relu) == 8


def test_the_first_four_sets_do_as_they_did_with_100_images(text):
    assert "did with 100 images.**" in text
    lines = {
        line[:23].strip(): line[23:].split() for line in table("leaky-relu-further", "condition number of the figure")
    }
    few = {line.split()[0]: line for line in table("leaky-relu", "gradient descent, 100 images") if " κ " in line}
    for name in ("raw", "standardised", "centred", "white"):
        of_few = [float(cell.replace(",", "")) for cell in few[name].split()[2:6]]
        of_many = [float(cell) for cell in lines[name][:4]]
        assert sorted(range(4), key=of_few.__getitem__) == sorted(range(4), key=of_many.__getitem__)
