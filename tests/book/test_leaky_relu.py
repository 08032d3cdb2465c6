"""The numbers in the text of "Leaky ReLU" beside its slider are those that the slider shows."""

import re

import pytest

from tests.book.pages import prose, slider, table, texts


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
    (a, b), (c, d), (e, f) = kappas[1], kappas[0], kappas[-1]
    assert f"that of the white images grows from {a:.0f} to {c:.0f}, because" in text
    assert f"that of the raw images falls from {b:,.0f} to {d:,.0f}, because" in text
    assert f"Beyond the ReLU both go on, to {e:.0f} and {f:,.0f}." in text


def test_ten_eigenvalues_of_white_images_leave_the_others_behind(text, frames):
    assert "ten eigenvalues, one for each output, leave the others behind" in text
    for name, (white, _) in frames.items():
        points = dict(zip(*white, strict=True))
        next_one, last = points[min(x for x in points if x > 10)], points[max(points)]
        assert next_one < 4 * last  # the others stay together
        if float(name.split(",")[0]) <= 0:
            assert points[10] > 10 * next_one and points[1] < 1.01 * points[10]


def test_the_slider_goes_from_no_activation_to_the_absolute_value(text, kappas):
    assert "All eigenvalues of $\\widehat G$ for the first 100 images of MNIST" in text
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
    said = "a twentieth of the loss {:.0f}-fold, from {:.0f} to {:.0f}."
    assert said.format(white[0] / white[-1], white[-1], white[0]) in text
    said = "$\\kappa$ falls {:.0f}-fold, and the steps to a twentieth only {:.1f}-fold, from {:.0f} to {:.0f}."
    assert said.format(raw_linear / raw_relu, raw[-1] / raw[0], raw[-1], raw[0]) in text
    assert f"Those to a tenth stay, {raw_first[-1]:.0f} and {raw_first[0]:.0f}." in text
    kappa, steps = found["standardised", "κ"], found["standardised", "steps to 1/20"]
    said = (
        "$\\kappa$ falls {:.0f}-fold from slope 1 to the ReLU, and the steps to a twentieth grow from {:.0f} to {:.0f}."
    )
    assert said.format(kappa[-1] / kappa[0], steps[-1], steps[0]) in text
    relu, slightly, *more, linear = found["centred", "steps to 1/20"]
    said = "the ReLU in {:.0f} steps in place of {:.0f}, a slope of 0.3 in {:.0f} in place of {:.0f}."
    assert said.format(relu, raw[0], slightly, raw[1]) in text and linear is None
    assert "On centred ones (green) a slope of 0.3 takes the fewest steps; its κ is little below that" in text
    assert slightly < min(relu, *more)
    of_relu, of_slightly, *_ = found["centred", "κ"]
    assert of_slightly == min(found["centred", "κ"]) and 0.8 < of_slightly / of_relu < 1
    assert "On standardised images the ReLU has the smallest $\\kappa$ and takes the most steps." in text
    assert "κ rises with the slope and the steps fall" in text
    assert kappa == sorted(kappa) and steps == sorted(steps, reverse=True)


def test_slopes_at_the_best_rate_of_each_training(text):
    lines = [re.split(r"  +", line.strip()) for line in table("leaky-relu", "steps to 1/20, each training at the best")]
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
    said = "| standardised | a factor of {} in steps | 0.6: {}; 0.9: {} |"
    assert said.format(spans["standardising"], spans["0.6 then"], spans["0.9 then"]) in text
    assert f"| centred (less the mean image) | {spans['less the mean']} | 0.3: {spans['0.3 then']} |" in text
    assert "That saves a ReLU about half of its steps or more." in text
    assert min(gains["standardising"] + gains["less the mean"]) > 1.9
    assert f"in training 0.3 is ahead there, by {spans['0.3 then']}." in text
    assert "a slope of 0.6 are learned about as soon as centred ones with 0.3." in text
    assert all(0.7 < a[2] / b[1] < 1.3 for a, b in zip(standardised, less, strict=True))
    assert "the ReLU stays behind all other slopes" in text and len(raw) == len(standardised) == len(less) == 3
    assert all(relu > slightly > more for relu, slightly, more, _ in standardised)
    assert all(relu > max(others) for relu, *others in [*standardised, *less])
    assert "On raw images none is ahead in all three networks." in text
    assert not any(all(min(each) == each[at] < sorted(each)[1] for each in raw) for at in range(4))


def test_standardised_images_keep_the_order_of_raw_ones(text):
    (line,) = (row for row in table("leaky-relu", "condition number of the figure") if row.startswith("standardised"))
    relu, *_, most, _ = map(float, line.split()[1:])
    said = f"$\\kappa$ grows from {round(relu, -2):,.0f} at the ReLU to {round(most, -3):,.0f} at a slope of 0.9."
    assert said in text


def test_more_images_than_pixels(text):
    (line,) = (row for row in table("leaky-relu", "condition number of the figure") if row.startswith("more images"))
    relu, slightly, more, most, _ = map(float, line.split()[4:])
    assert "$\\kappa$ is a quarter larger there than at the ReLU. At 0.9 it is eight times as large" in text
    assert relu < slightly < more and 1.2 < more / relu < 1.27 and round(most / relu) == 8


def test_the_third_exercise(text, kappas):
    for at, images in enumerate(("white", "raw")):
        assert f"On {images} images it is {kappas[-0.5][at]:,.0f}, and {kappas[0][at]:,.0f} for the ReLU" in text


def test_two_samples_that_look_alike(text):
    (_, linear, _), _, (_, relu, _) = numbers("two samples that look alike")
    assert "Without activation $\\kappa$ is 50. The ReLU tells the two samples apart: it is 1." in text
    assert (round(linear), relu) == (50, 1)


WIDTH = "There width helps, up to some 600 units with the ReLU, and still at 1,200 with a slope of 0.6:"


def test_width_helps_on_raw_images(text):
    assert WIDTH in text
    _, relu, slightly = zip(*numbers("150 raw images"), strict=True)
    for kappas in (relu, slightly):
        assert kappas[2] < 0.7 * kappas[0] and kappas[3] > 0.9 * kappas[2]
    assert relu[3] > relu[2] and slightly[3] < slightly[2]


def test_bounds_on_white_and_on_raw_images(text):
    lines = [line.split() for line in table("leaky-relu", "bounds over κ")]
    above, below = (
        {name: [float(line[at]) for line in lines if line[0] == name] for name in ("white", "raw")} for at in (4, 5)
    )
    assert (
        "On white samples they are within a fifth from width 1,000 on, twice the number of samples; "
        "on the raw ones of figure 23 within a factor of ten." in text
    )
    assert max(above["white"]) < 1.2 and min(below["white"]) > 0.8
    relu, torch_default = (float(line[2]) for line in lines[:2])
    assert f"hardly differs from a ReLU in $\\kappa$ ({torch_default:.0f} and {relu:.0f} on white images)." in text
    assert [line[1] for line in lines[:2]] == ["0.0", "0.01"]
    assert 5 < max(above["raw"]) < 10 and min(below["raw"]) > 0.1


def test_from_which_width_on_the_bounds_are_within_a_fifth(text):
    assert "within a fifth from width 1,000 on, twice the number of samples" in text
    lines = table("leaky-relu", "slope 0.01, 500 white samples")
    assert "the limit for infinite width, 228 (dotted)" in text and any(
        "limit for infinite width: 227.7" in x for x in texts("leaky-relu")
    )
    rows = [line.split() for line in lines]
    measured = [row for row in rows if row[1] != "-"]
    assert {int(row[0]) for row in measured} == {500, 1000, 2000, 4000, 8000}
    for width, kappa, _, below, above, *_ in measured:
        near = 0.8 * float(kappa) < float(below) and float(above) < 1.2 * float(kappa)
        assert near == (int(width) >= 1000)


def test_slopes_on_images_less_their_mean(text):
    assert "The ReLU and a slope of 0.3 are about equal, and larger slopes are worse." in text
    lines = {line[:22].strip(): line[22:].split() for line in table("leaky-relu", "condition number of the figure")}
    relu, slightly, more, most, _ = map(float, lines["centred"])
    assert 0.8 < slightly / relu < 1.25 and 2 * relu < more < most
    assert "and both better than on raw ones" in text
    assert all(float(raw) > 4 * centred for raw, centred in zip(lines["raw"][:2], (relu, slightly), strict=True))
