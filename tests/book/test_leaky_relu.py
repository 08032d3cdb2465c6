"""The numbers in the text of "Leaky ReLU" beside its slider are those that the slider shows."""

import re

import pytest

from tests.book.pages import prose, slider, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/leaky-relu")


@pytest.fixture(scope="module")
def frames():
    return slider("leaky-relu")


@pytest.fixture(scope="module")
def kappas(frames):
    """Those of white and of raw images for each slope."""
    words = [re.fullmatch(r"(\S+), κ (\S+) \| (\S+)", name).groups() for name in frames]
    return {float(slope): (float(white), float(raw.replace(",", ""))) for slope, white, raw in words}


def test_condition_numbers_beside_the_slope(text, kappas):
    for slope, name in ((1, "1, no activation"), (0, "0, ReLU"), (-1, "$-1$, absolute value")):
        white, raw = kappas[slope]
        assert f"| {name} | {white:.0f} | {raw:,.0f} |" in text


def test_ten_eigenvalues_of_white_images_leave_the_others_behind(text, frames):
    assert "It raises ten eigenvalues, one for each output." in text
    for name, (white, _) in frames.items():
        points = dict(zip(*white, strict=True))
        next_one, last = points[min(x for x in points if x > 10)], points[max(points)]
        assert next_one < 4 * last  # the others stay together
        if float(name.split(",")[0]) <= 0:
            assert points[10] > 10 * next_one and points[1] < 1.01 * points[10]


def test_the_slider_goes_from_no_activation_to_the_absolute_value(text, kappas):
    assert "Here are all eigenvalues for the 100 images, raw and white." in text
    assert [*kappas] == sorted(kappas, reverse=True) and max(kappas) == 1 and min(kappas) == -1


def numbers(start, words=0):
    """Return the numbers of a table, without the words at the left of its lines."""
    return [[float(cell) for cell in line.split()[words:]] for line in table("leaky-relu", start)]


def test_steps_of_training(text, kappas):
    lines = [re.split(r"  +", line.strip()) for line in table("leaky-relu", "gradient descent, 100 images")]
    found = {
        (images, what): [float(cell.replace(",", "")) if cell != "-" else None for cell in cells]
        for images, what, *cells in lines
    }
    for at, images in enumerate(("white", "raw")):  # at slopes 0 and 1, as beside the slider
        kappa = found[images, "κ"]
        assert [kappa[0], kappa[-1]] == pytest.approx([kappas[0][at], kappas[1][at]], rel=0.2 if at == 0 else 0.01)
    raw_steps = found["raw", "steps to 1/20"]
    prepared = [found[images, "steps to 1/20"][0] for images in ("standardised", "centred")]
    assert 1.9 < raw_steps[0] / prepared[0] < 2.1
    assert raw_steps[0] / max(prepared) > max(raw_steps) / raw_steps[0]
    assert "a factor of two or more at each slope, but for slope 1 on centred images" in text
    for images in ("standardised", "centred"):
        for before, after in zip(raw_steps, found[images, "steps to 1/20"], strict=True):
            assert before / after >= 2 if after else images == "centred" and before == raw_steps[-1]
    white_first, white = found["white", "steps to 1/10"], found["white", "steps to 1/20"]
    raw_first, raw = found["raw", "steps to 1/10"], found["raw", "steps to 1/20"]
    assert white == sorted(white, reverse=True) and white_first == sorted(white_first, reverse=True)
    assert raw[:-1] == sorted(raw[:-1]) and raw[-1] > raw[2] and max(raw_first) < 1.3 * min(raw_first)
    (white_linear, raw_linear), (white_relu, raw_relu) = kappas[1], kappas[0]
    assert f"$\\kappa$ grows {white_relu / white_linear:.0f}-fold" in text
    said = "and the steps {:.0f}-fold, from {:.0f} to {:.0f}."
    assert said.format(white[0] / white[-1], white[-1], white[0]) in text
    said = "$\\kappa$ falls {:.0f}-fold, and the steps {:.1f}-fold, from {:.0f} to {:.0f}."
    assert said.format(raw_linear / raw_relu, raw[-1] / raw[0], raw[-1], raw[0]) in text
    assert f"{raw_first[-1]:.0f} at slope 1 and {raw_first[0]:.0f} for the ReLU." in text
    kappa, steps = found["standardised", "κ"], found["standardised", "steps to 1/20"]
    said = "$\\kappa$ falls {:.0f}-fold from slope 1 to the ReLU, and the steps grow from {:.0f} to {:.0f}."
    assert said.format(kappa[-1] / kappa[0], steps[-1], steps[0]) in text
    relu, slightly, *more, linear = found["centred", "steps to 1/20"]
    assert (
        f"It takes {slightly:.0f} steps, and a ReLU {relu:.0f}. Slope 1 does not get there" in text and linear is None
    )
    assert "Centred ones (green): a slope of 0.3 takes the fewest steps; its κ is little below that of the" in text
    assert slightly < min(relu, *more)
    of_relu, of_slightly, *_ = found["centred", "κ"]
    assert of_slightly == min(found["centred", "κ"]) and 0.8 < of_slightly / of_relu < 1
    assert "**The slope with the smallest κ is not always the one that trains soonest.**" in text
    assert "κ rises with the slope and the steps fall" in text
    assert kappa == sorted(kappa) and steps == sorted(steps, reverse=True)


def test_slopes_at_the_best_rate_of_each_training(text):
    lines = [re.split(r"  +", line.strip()) for line in table("leaky-relu", "steps to a twentieth of the loss, each")]
    steps = {(images, slope): [float(word) for word in words] for images, slope, *words in lines}
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
    said = "| standardised | {} | 0.6: {}; 0.9: {} |"
    assert said.format(spans["standardising"], spans["0.6 then"], spans["0.9 then"]) in text
    assert f"| centred | {spans['less the mean']} | 0.3: {spans['0.3 then']} |" in text
    assert "That about halves the steps of a ReLU." in text
    assert min(gains["standardising"] + gains["less the mean"]) > 1.9
    assert "standardised images takes about half of the steps, on centred ones about a third." in text
    assert max(gains["standardising"]) < 2.3 and 2.6 < min(gains["less the mean"]) < max(gains["less the mean"]) < 3.3
    assert "standardised images with a slope of 0.6, and centred ones with 0.3." in text
    assert all(0.7 < a[2] / b[1] < 1.3 for a, b in zip(standardised, less, strict=True))
    assert "the ReLU stays behind all other slopes" in text and len(raw) == len(standardised) == len(less) == 3
    assert all(relu > slightly > more for relu, slightly, more, _ in standardised)
    assert all(relu > max(others) for relu, *others in [*standardised, *less])
    assert "On raw ones no slope is ahead in all three networks." in text
    assert not any(all(min(each) == each[at] < sorted(each)[1] for each in raw) for at in range(4))


def test_standardised_images_keep_the_order_of_raw_ones(text):
    (line,) = (
        row for row in table("leaky-relu-further", "condition number of the figure") if row.startswith("standardised")
    )
    relu, *_, most, _ = map(float, line.split()[1:])
    said = f"$\\kappa$ grows from {round(relu, -2):,.0f} at the ReLU to {round(most, -3):,.0f} at a slope of 0.9."
    assert said in text


def test_more_images_than_pixels(text):
    (line,) = (
        row for row in table("leaky-relu-further", "condition number of the figure") if row.startswith("more images")
    )
    relu, slightly, more, most, _ = map(float, line.split()[4:])
    assert "is a quarter larger at a slope of 0.6 than at the ReLU, and eight times as large at 0.9." in text
    assert relu < slightly < more and 1.2 < more / relu < 1.27 and round(most / relu) == 8


def test_the_third_exercise(text, kappas):
    for at, images in enumerate(("white", "raw")):
        assert f"On {images} images it is {kappas[-0.5][at]:,.0f}, and {kappas[0][at]:,.0f} for the ReLU" in text


def test_two_samples_that_look_alike(text):
    (_, linear, _), _, (_, relu, _) = numbers("two samples that look alike")
    assert "Without activation $\\kappa$ is 50. The ReLU tells the two samples apart: it is 1." in text
    assert (round(linear), relu) == (50, 1)


def test_the_first_four_sets_do_as_they_did_with_100_images(text):
    assert "**The first four sets do as they did with 100 images.**" in text
    lines = {
        line[:23].strip(): line[23:].split() for line in table("leaky-relu-further", "condition number of the figure")
    }
    few = {line.split()[0]: line for line in table("leaky-relu", "gradient descent, 100 images") if " κ " in line}
    for name in ("raw", "standardised", "centred", "white"):
        of_few = [float(cell.replace(",", "")) for cell in few[name].split()[2:6]]
        of_many = [float(cell) for cell in lines[name][:4]]
        assert sorted(range(4), key=of_few.__getitem__) == sorted(range(4), key=of_many.__getitem__)


def test_torchs_slope_hardly_differs_from_a_relu(text):
    lines = [line.split() for line in table("leaky-relu-further", "bounds over κ")]
    relu, torch_default = (float(line[2]) for line in lines[:2])
    assert f"$\\kappa$ is {torch_default:.0f} and {relu:.0f} on the 500 white images." in text
    assert [line[:2] for line in lines[:2]] == [["white", "0.0"], ["white", "0.01"]]
