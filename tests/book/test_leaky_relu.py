"""The numbers in the text of "Leaky ReLU" beside its slider are those that the slider shows."""

import re
from itertools import combinations

import pytest
import torch

import gnlib
from gnlib.chapters.leaky_relu.experiment import preparations, weights_of
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


TRIED = (0.0, 0.3, 0.6, 0.9, 1.0)
TUNED = (0.0, 0.3, 0.6, 0.9)


def cells(start, page="leaky-relu"):
    """Return the cells of each line of a table whose words are more than one."""
    return [re.split(r"  +", line.strip()) for line in table(page, start)]


def number(cell):
    return None if cell == "-" else float(cell.replace(",", ""))


@pytest.fixture(scope="module")
def learned():
    return {
        (images, what): [number(cell) for cell in found]
        for images, what, *found in cells("gradient descent, 100 images")
    }


@pytest.fixture(scope="module")
def slow():
    return {images: [float(cell) for cell in found] for images, *found in cells("loss at the start in slow")}


def test_the_first_figure_and_the_slider_agree(learned, kappas):
    for at, images in enumerate(("white", "raw")):
        kappa = learned[images, "κ"]
        assert [kappa[0], kappa[-1]] == pytest.approx([kappas[0][at], kappas[1][at]], rel=0.2 if at == 0 else 0.01)


def test_the_slopes_have_the_same_order_in_both_panels(text, learned):
    assert "On each kind of images the slopes have the same order in both panels." in text
    for images in ("white", "raw", "standardised", "centred"):
        steps, forecasts = learned[images, "steps"], learned[images, "forecast"]
        full = [a or b or float("inf") for a, b in zip(steps, forecasts, strict=True)]
        for (kappa, count), (other, more) in combinations(zip(learned[images, "κ"], full, strict=True), 2):
            assert (kappa - other) * (count - more) >= 0
            assert count != more or (images == "white" and count == 4)
    assert "within five per cent of the steps taken, in all trainings of more than twenty steps." in text
    pairs = [
        (a, b)
        for images in ("white", "raw", "standardised", "centred")
        for a, b in zip(learned[images, "steps"], learned[images, "forecast"], strict=True)
        if a and a > 20
    ]
    assert len(pairs) > 10 and all(abs(b / a - 1) < 0.05 for a, b in pairs)


def test_steps_to_a_common_goal(text, learned, kappas):
    white = learned["white", "steps"]
    said = "falls {:.0f}-fold, and the steps {:.0f}-fold, from {:.0f} to {:.0f}."
    assert said.format(kappas[0][0] / kappas[1][0], white[0] / white[-1], white[0], white[-1]) in text
    kappa, raw = learned["raw", "κ"], learned["raw", "steps"]
    said = "$\\kappa$ grows {:.1f}-fold, and the steps {:.1f}-fold, from {:.0f} to {:.0f}."
    assert said.format(kappa[2] / kappa[0], raw[2] / raw[0], raw[0], raw[2]) in text
    relu, slightly, *_, linear = learned["centred", "steps"]
    assert f"It takes {slightly:.0f} steps, and a ReLU {relu:.0f}. Slope 1 does not get there" in text
    assert linear is None and learned["centred", "forecast"][-1] is None
    standardised = learned["standardised", "steps"][0]
    assert f"a smaller $\\kappa$ than on raw ones, and takes {standardised:.0f} steps." in text
    assert standardised > raw[0] and learned["standardised", "κ"][0] < kappa[0]
    starts = {
        images: found for images, what, *found in cells("a goal that moves", "leaky-relu-further") if "loss" in what
    }
    loss, of_raw = (float(starts[images][0]) for images in ("standardised", "raw"))
    assert f"The loss starts at {loss:.1f}, and at {of_raw:.1f} on raw images" in text
    assert "They change less than $\\kappa$ does." in text


def test_what_slow_directions_hold(text, slow):
    goal = 0.025
    for images in ("raw", "standardised"):
        assert slow[images][0] < goal / 4 < goal < slow[images][2]
    assert "At a slope of 0.6 it is more than the goal allows" in text and 0.999**600 > 0.5
    assert max(slow["white"]) < 5e-4 and max(slow["centred"][:2]) < 5e-4
    assert "**Centred images at 0.9 and 1:** the slow directions are back." in text
    assert slow["centred"][3] >= 0.01 and slow["centred"][4] > goal


def test_the_largest_eigenvalue_on_centred_images(text):
    images = gnlib.load("mnist", 100, stride=2)[0]
    x = preparations(images)["centred"]
    ends = [torch.linalg.eigvalsh(gnlib.leaky_relu_gram(weights_of(x, 1000), x, a))[-1].item() for a in (0.0, 0.3)]
    assert "$\\lambda$ is {:.1f} for a ReLU and {:.1f} at a slope of 0.3".format(*ends) in text


def test_tuned_rates(text):
    rows = cells("steps at the best rate", "leaky-relu-further") + cells("white images: steps", "leaky-relu-further")
    steps, rates = {}, {}
    for images, slope, *found in rows:
        steps[images, float(slope)] = [int(cell) for cell in found[:3]]
        rates[images, float(slope)] = found[3]
    for images in ("raw", "standardised", "centred", "white"):
        spans = [sorted({min(steps[images, a]), max(steps[images, a])}) for a in TUNED]
        assert f"| {images} | " + " | ".join(" to ".join(map(str, span)) for span in spans) + " |" in text
    raw, standardised, centred = (
        [*zip(*(steps[images, a] for a in TUNED), strict=True)] for images in ("raw", "standardised", "centred")
    )
    gains = [a[0] / b[0] for a, b in zip(raw, centred, strict=True)]
    assert f"takes {min(gains):.1f} to {max(gains):.1f} times fewer steps than on raw ones." in text
    assert "Standardising saves none here." in text
    assert all(b[0] > a[0] for a, b in zip(raw, standardised, strict=True))
    assert "a slope of 0.3 saves a third on centred images" in text
    assert all(0.64 < b / a < 0.69 for a, b, *_ in centred)
    assert "On raw ones the ReLU is first in all three networks, on standardised ones the two are level." in text
    assert all(min(each) == each[0] < sorted(each)[1] for each in raw)
    assert {relu < slightly for relu, slightly, *_ in standardised} == {True, False}
    further = prose("notebooks/leaky-relu-further")
    said = "the best rate was $2.8 / \\lambda$ for the ReLU and at 0.3, and $4 / \\lambda$ at 0.6."
    assert said in further and "On centred images 0.6 gets ahead of the ReLU, against the order of" in text
    assert [rates["centred", a] for a in TUNED[:3]] == ["2.8", "2.8", "4"]
    assert all(more < relu for relu, _, more, _ in centred)
    assert "the ReLU stays behind slopes of 0.3 and 0.6, but not behind 0.9." in further
    assert all(most > relu > slightly for relu, slightly, _, most in centred)


def test_adam(text):
    rows = {
        (images, rate): [float(cell.rstrip("%")) for cell in found] for images, rate, *found in cells("Adam: steps")
    }
    assert "**No slope takes fewer steps than the ReLU** in the mean." in text and len(rows) == 6
    assert all(min(found[:4]) == found[0] for found in rows.values())
    assert "A slope of 0.9 takes up to a fifth more." in text
    assert 1.17 < max(found[3] / found[0] for found in rows.values()) < 1.23
    assert "torch's 0.01 is about as good as a ReLU." in text
    assert all(found[1] < 1.03 * found[0] and abs(found[5] - found[4]) < 0.5 for found in rows.values())
    said = "standardising takes the ReLU from {:.0f} steps to {:.0f}. A rate of 0.01 takes it to {:.0f}."
    assert (
        said.format(*(rows[key][0] for key in (("raw", "0.001"), ("standardised", "0.001"), ("standardised", "0.01"))))
        in text
    )
    assert "about one to three points behind on prepared images" in text
    for (images, _), found in rows.items():
        assert images == "raw" or all(0.8 < found[4] - after < 3.5 for after in found[6:])
    assert "no slope was clearly ahead of the ReLU" in text
    assert all(after < found[4] + 0.5 for found in rows.values() for after in found[5:])


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
    assert "These are white, and yet κ is some 20,000." in text and 15_000 < relu < 25_000
    assert "360 eigenvalues of the matrix of their inner products are zero" in text
    (line,) = (row for row in table("leaky-relu-further", "K = x x") if row.startswith("more images"))
    count, _, rank, *_ = map(float, line.split()[4:])
    assert (count, rank) == (500, 140)
    assert relu < slightly < more and 1.2 < more / relu < 1.27 and round(most / relu) == 8


def test_the_third_exercise(text, kappas):
    for at, images in enumerate(("white", "raw")):
        assert f"On {images} images it is {kappas[-0.5][at]:,.0f}, and {kappas[0][at]:,.0f} for the ReLU" in text


def test_two_samples_that_look_alike(text):
    (_, linear, _), _, (_, relu, _) = numbers("two samples that look alike")
    assert "Without activation $\\kappa$ is 50." in text
    assert "The ReLU tells the two samples apart, since no unit is active on both: it is 1." in text
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
