"""The numbers in the text of "Leaky ReLU" beside its slider are those that the slider shows."""

import math
import re
from itertools import combinations

import pytest
import torch
from gnbook.leaky_relu.experiment import module_of, preparations, weights_of
from gnbook.shared.descent import losses_until
from gnbook.shared.training import half_squared_error, one_hot

import gnlib
from tests.pages.pages import prose, slider, table


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


def ends(frames, at):
    """Return the largest and the smallest eigenvalue of white (0) or raw (1) images for each slope, over their mean."""
    return {float(name.split(",")[0]): (curves[at][1][0], curves[at][1][-1]) for name, curves in frames.items()}


def test_the_figure_of_both_ends_is_described_as_the_slider_has_it(text, frames, kappas):
    white, raw = (ends(frames, at) for at in (0, 1))
    for kind, at in ((white, 0), (raw, 1)):
        assert all(high / low == pytest.approx(kappas[a][at], rel=0.01) for a, (high, low) in kind.items())
    said = "numbers of {:,.0f}, {:,.0f} and {:,.0f} stand between"
    assert said.format(*(kappas[a][1] for a in (1, 0, -1))) in text
    said = "numbers are {:.0f}, {:.0f} and {:.0f}."
    assert said.format(*(kappas[a][0] for a in (1, 0, -1))) in text
    assert max(high for high, _ in raw.values()) < 1.4 * min(high for high, _ in raw.values())
    assert raw[-1][1] > 50 * raw[1][1] and [low for _, low in raw.values()] == sorted(low for _, low in raw.values())
    assert white[-1][0] > 30 * white[1][0] and white[1][1] < 2 * white[-1][1]


def test_of_the_slopes_from_0_to_1_the_relu_is_an_end(text, kappas, learned):
    some = {a: found for a, found in kappas.items() if a >= 0}
    assert min(some, key=lambda a: some[a][1]) == 0 == max(some, key=lambda a: some[a][0])
    assert learned["white", "κ"][0] == max(learned["white", "κ"]) and learned["raw", "κ"][0] == min(learned["raw", "κ"])


def test_ten_eigenvalues_of_white_images_leave_the_others_behind(text, frames):
    for name, (white, _) in frames.items():
        points = dict(zip(*white, strict=True))
        next_one, last = points[min(x for x in points if x > 10)], points[max(points)]
        assert next_one < 4 * last  # the others stay together
        if float(name.split(",")[0]) <= 0:
            assert points[10] > 10 * next_one and points[1] < 1.01 * points[10]


def test_the_slider_goes_from_no_activation_to_the_absolute_value(text, kappas):
    assert "from slope $1$ through the ReLU to the absolute value at $-1$:" in text
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
def factors():
    return {(images, what): [number(cell) for cell in found] for images, what, *found in cells("the factors of the")}


def test_the_first_figure_and_the_slider_agree(learned, kappas):
    for at, images in enumerate(("white", "raw")):
        kappa = learned[images, "κ"]
        assert [kappa[0], kappa[-1]] == pytest.approx([kappas[0][at], kappas[1][at]], rel=0.2 if at == 0 else 0.01)


def test_the_slopes_have_the_same_order_in_both_panels(text, learned):
    for images in ("white", "raw", "standardised", "centred"):
        steps, forecasts = learned[images, "steps"], learned[images, "forecast"]
        full = [a or b or float("inf") for a, b in zip(steps, forecasts, strict=True)]
        for (kappa, count), (other, more) in combinations(zip(learned[images, "κ"], full, strict=True), 2):
            assert (kappa - other) * (count - more) >= 0
            assert count != more or (images == "white" and count == 4)
    assert "arrive within 800 steps." in text
    arrived = [count for (_, what), counts in learned.items() if what == "steps" for count in counts]
    assert (len(arrived), sum(count is not None for count in arrived)) == (20, 15)
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
    assert f"It takes {slightly:.0f} steps, and a ReLU {relu:.0f}. Slope 1 does not" in text
    assert linear is None and learned["centred", "forecast"][-1] is None
    standardised = learned["standardised", "steps"][0]
    assert f"and takes {standardised:.0f} steps." in text
    assert standardised > raw[0] and learned["standardised", "κ"][0] < kappa[0]
    starts = {
        images: found for images, what, *found in cells("a goal that moves", "leaky-relu-further") if "loss" in what
    }
    loss, of_raw = (float(starts[images][0]) for images in ("standardised", "raw"))
    assert f"starts at {loss:.1f}, and at {of_raw:.1f} on raw" in text


def test_the_steps_are_a_product(text, learned, factors):
    assert "At the rate $1 / \\lambda$ this" in text
    for (images, what), forecasts in learned.items():
        if what == "forecast":
            for at, forecast in enumerate(forecasts):
                largest, time = factors[images, "λ / μ"][at], factors[images, "τ μ"][at]
                if forecast is None:
                    assert time is None and (images, at) == ("centred", 4)
                else:
                    assert largest * time == pytest.approx(forecast, rel=0.05, abs=0.5)


def test_each_force_acts_on_one_factor(text, factors):
    def span(images, what):
        found = [value for value in factors[images, what] if value is not None]
        return max(found) / min(found)

    assert span("white", "λ / μ") > 15 and span("white", "τ μ") < 1.2
    for images in ("raw", "standardised"):
        assert span(images, "τ μ") > 3 and span(images, "λ / μ") < 1.45
        assert factors[images, "τ μ"] == sorted(factors[images, "τ μ"])
    assert "ReLU to 0.3 $\\lambda /" in text
    (relu, slightly, *others), (short, longer, *times) = factors["centred", "λ / μ"], factors["centred", "τ μ"]
    assert 0.42 < slightly / relu < 0.55 and 1.45 < longer / short < 1.55
    assert all(0.9 < other / slightly < 1.02 for other in others) and longer < times[0] < times[1]
    for what in ("λ / μ", "τ μ"):
        assert 1.9 < factors["raw", what][0] / factors["centred", what][0] < 2.1


def test_the_small_eigenvalues_of_standardised_images_sink_too(text):
    x = preparations(gnlib.load("mnist", 100, stride=2)[0])["standardised"]
    lows = []
    for a in (0.0, 0.6):
        values = torch.linalg.eigvalsh(gnlib.leaky_relu_gram(weights_of(x, 1000), x, a))
        lows.append((values[0] / values.mean()).item())
    assert lows[1] < 0.3 * lows[0]


def test_the_relu_goes_off_at_the_best_rate_of_another_slope(text):
    assert "is $4 / \\lambda$," in text
    images, digits = gnlib.load("mnist", 100, stride=2)
    x, labels = preparations(images)["centred"], one_hot(digits, 10)
    for seed in range(3):
        weights = weights_of(x, 1000, seed)
        largest = torch.linalg.eigvalsh(gnlib.leaky_relu_gram(weights, x, 0.0))[-1].item()
        losses = losses_until(module_of(weights, 0.0), x, labels, 4 / largest, 0.025, 20)
        assert len(losses) < 10 and losses[-1] > 1000 * losses[0]


def test_the_set_up(text):
    assert "ReLU $\\varphi$, 1,000 hidden units" in text
    for weight in weights_of(torch.zeros(2, 196).double(), 1000):
        assert weight.var().item() * weight.shape[1] == pytest.approx(1, abs=0.05)
    assert "loss of 0.5;" in text
    labels = one_hot(torch.arange(10), 10)
    assert half_squared_error(torch.zeros_like(labels), labels).item() == 0.5


def test_the_second_force_by_hand(text):
    mean, square = 1 / (2 * math.pi) ** 0.5, 0.5
    assert "the mean 0.40 and the mean square 0.50." in text
    z = torch.randn(10**6, generator=torch.Generator().manual_seed(0)).relu()
    assert z.mean().item() == pytest.approx(mean, abs=0.003) and (z**2).mean().item() == pytest.approx(
        square, abs=0.005
    )
    assert f"0.50 on the diagonal and $0.40^2 = {mean**2:.2f}$ beside it." in text
    values = torch.linalg.eigvalsh((square - mean**2) * torch.eye(100) + mean**2)
    said = (
        f"For 100 images that makes one eigenvalue of {values[-1]:.0f}, and the others are {values[0]:.2f}: a ratio of "
    )
    said += f"{values[-1] / values[0]:.0f}. (The network below, of finite width and with the other term, has 69.)"
    assert said in text and values[-2] == pytest.approx(values[0].item(), rel=1e-3)


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
    assert f"takes {min(gains):.1f} to {max(gains):.1f} times fewer" in text
    assert all(b[0] > a[0] for a, b in zip(raw, standardised, strict=True))
    assert "slope of 0.3 saves a" in text
    assert all(0.64 < b / a < 0.69 for a, b, *_ in centred)
    assert all(min(each) == each[0] < sorted(each)[1] for each in raw)
    assert all(9.5 < relu / most < 11.5 for relu, most in zip(steps["white", 0.0], steps["white", 0.9], strict=True))
    assert {relu < slightly for relu, slightly, *_ in standardised} == {True, False}
    further = prose("notebooks/leaky-relu-further")
    said = "rate was $2.8 / \\lambda$ for the ReLU and at 0.3, and $4 / \\lambda$ at 0.6."
    assert said in further and "centred images 0.6 gets ahead" in text
    assert [rates["centred", a] for a in TUNED[:3]] == ["2.8", "2.8", "4"]
    assert all(more < relu for relu, _, more, _ in centred)
    assert "slopes of 0.3 and 0.6, but not behind 0.9." in further
    assert all(most > relu > slightly for relu, slightly, _, most in centred)


def test_adam(text):
    rows = {
        (images, rate): [float(cell.rstrip("%")) for cell in found] for images, rate, *found in cells("Adam: steps")
    }
    assert len(rows) == 6
    assert all(min(found[:4]) == found[0] for found in rows.values())
    assert "slope of 0.9 takes up" in text
    assert 1.17 < max(found[3] / found[0] for found in rows.values()) < 1.23
    assert "torch's 0.01 is about" in text
    assert all(found[1] < 1.03 * found[0] and abs(found[5] - found[4]) < 0.5 for found in rows.values())
    before_and_after = ("raw", "0.001"), ("standardised", "0.001"), ("standardised", "0.01"), ("centred", "0.01")
    said = "ReLU from {:.0f} steps to {:.0f}. A rate of 0.01 takes it to {:.0f}, and to {:.0f} on centred"
    assert said.format(*(rows[images, rate][0] for images, rate in before_and_after)) in text
    for (images, _), found in rows.items():
        assert images == "raw" or all(0.8 < found[4] - after < 3.5 for after in found[6:])
    assert "well at 0.01." in text
    for at in range(4):
        raw, standardised, centred = (rows[images, "0.001"][at] for images in ("raw", "standardised", "centred"))
        assert standardised < 0.7 * min(raw, centred)
        standardised, centred = (rows[images, "0.01"] for images in ("standardised", "centred"))
        assert 0 < standardised[at] - centred[at] < 8 and abs(standardised[at + 4] - centred[at + 4]) < 1
    assert all(after < found[4] + 0.5 for found in rows.values() for after in found[5:])


def test_more_images_than_pixels(text):
    (line,) = (
        row for row in table("leaky-relu-further", "condition number of the figure") if row.startswith("more images")
    )
    assert "of 500 white images with 140 independent pixels it is [some 20,000](" in text
    assert "slope of 0.6." in text
    assert all(19_000 < kappa < 24_000 for kappa in map(float, line.split()[4:7]))


def test_the_first_exercise(text, kappas):
    for at, images in enumerate(("white", "raw")):
        assert f"On {images} images it is {kappas[-0.5][at]:,.0f}, and {kappas[0][at]:,.0f} for the" in text
    assert "over units, $1 - 1.8\\, \\theta /" in text
    assert "a ReLU $1 - \\theta" in text
    z = torch.randn(2, 10**6, generator=torch.Generator().manual_seed(0))
    angle = 1.0
    pair = torch.stack([z[0], math.cos(angle) * z[0] + math.sin(angle) * z[1]])
    for a, times in ((-0.5, 1.8), (0.0, 1.0)):
        first, second = torch.where(pair > 0, 1.0, a)
        ratio = ((first * second).mean() / (first * first).mean()).item()
        assert ratio == pytest.approx(1 - times * angle / math.pi, abs=0.005)
    assert "$\\kappa$ is 50 again at $-1$." in text
    pair, x = [torch.tensor([[0.0, 1.0], [0.0, -1.0]]), torch.ones(1, 2)], torch.tensor([[1.0, 0.1], [1.0, -0.1]])
    assert float(gnlib.condition_number(gnlib.leaky_relu_gram(pair, x, -1.0))) == pytest.approx(50, rel=1e-4)


def test_two_samples_that_look_alike(text):
    (_, linear, _), _, (_, relu, _) = numbers("two samples that look alike")
    assert "$\\kappa$ is 50." in text
    assert "both: it is 1." in text
    assert (round(linear), relu) == (50, 1)


def gram_by_autograd(v, w, x, slope):
    """(1/n) J J^T, a row for each sample and output, of both layers' weights."""

    def outputs(v, w):
        h = x @ v.mT
        return (torch.where(h > 0, h, slope * h) @ w.mT).flatten()

    jacobian = torch.cat([part.flatten(1) for part in torch.autograd.functional.jacobian(outputs, (v, w))], 1)
    return jacobian @ jacobian.mT / len(x)


@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0, -1.0])
def test_the_formula_and_the_matrix_by_hand(text, slope):
    generator = torch.Generator().manual_seed(0)
    v, w, x = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((5, 4), (3, 5), (6, 4)))
    active = torch.where(x @ v.mT > 0, 1.0, slope).double()
    h, n = active * (x @ v.mT), len(x)
    terms = [
        torch.kron(d.diag() @ (x @ x.mT / n) @ d.diag(), torch.outer(u, u))
        for d, u in zip(active.mT, w.mT, strict=True)
    ]
    said = "\\Gamma \\otimes I_{10} ."
    assert said in text
    by_terms = sum(terms) + torch.kron(h @ h.mT / n, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(by_terms, gram_by_autograd(v, w, x, slope))

    two = [[[0.0, 1.0], [0.0, -1.0]], [[1.0, 1.0]], [[1.0, 0.1], [1.0, -0.1]]]
    gram = 2 * gram_by_autograd(*(torch.tensor(one, dtype=torch.float64) for one in two), slope)
    diagonal, off = (r"1.02\, (1 + \alpha^2)", 1.02 * (1 + slope**2)), (r"1.96\, \alpha", 1.96 * slope)
    rows = rf"{diagonal[0]} & {off[0]} \\ {off[0]} & {diagonal[0]}"
    assert rf"2\, \widehat G = \begin{{pmatrix}} {rows} \end{{pmatrix}} ." in text
    expected = torch.tensor([[diagonal[1], off[1]], [off[1], diagonal[1]]], dtype=torch.float64)
    torch.testing.assert_close(gram, expected)
