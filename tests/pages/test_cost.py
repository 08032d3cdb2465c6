"""The numbers in the text of "What a condition number costs" that its tables show."""

from functools import partial
from itertools import pairwise
from statistics import geometric_mean

import pytest
import torch
from gnbook.cost.feasible import eigenvalue_seconds, foretold
from gnbook.cost.networks import cnn, perceptron
from torch import nn

import gnlib
from tests.pages.pages import prose, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/cost")


def test_the_direct_way(text):
    rows = [line.replace(",", "").split() for line in table("cost", "perceptrons of two hidden layers, 20 images")]
    parameters, ours, direct, held, counted = (
        [float(cell) if cell != "-" else None for cell in column] for column in zip(*rows, strict=True)
    )
    assert "factor of 220, and the seconds of `gnlib` by less than 20" in text
    assert round(parameters[-1] / parameters[0], -1) == 220 and ours[-1] / ours[0] < 20
    assert "At 660,000 parameters the" in text
    *_, last = (i for i, seconds in enumerate(direct) if seconds)
    assert round(parameters[last], -4) == 660_000 and direct[last] > 10 * ours[last] and counted[last] < 1024
    assert "parameters and 200 rows that is 8.6 GiB. `gnlib` needs 7 MiB" in text
    assert round(parameters[-1] / 1e6) == 6 and round(held[-1]) == 7
    assert f"{200 * parameters[-1] * 8 / 2**30:.1f}" == f"{counted[-1] / 1024:.1f}" == "8.6"
    (smallest,) = (line for line in table("cost", "seconds of the figure") if line.split()[:2] == ["transformer", "20"])
    assert max(ours[-1], float(smallest.split()[-2])) < 1


def test_a_report_costs_some_six_condition_numbers(text):
    (line,) = (line for line in table("cost", "the CNN above, 40 images, cross-entropy") if "gnlib.report" in line)
    assert float(line.split()[-1]) == pytest.approx(6, abs=1.5)


def test_what_the_calls_take(text):
    lines = table("cost", "the CNN above, 40 images, cross-entropy")
    seconds, share = {line.split()[0]: line.split()[-2:] for line in lines}["GaussNewton.cost"]
    assert float(seconds) < 0.3 and float(share) < 1
    (line,) = (line for line in lines if "GaussNewton.forecast" in line)
    assert float(line.split()[-1]) == pytest.approx(2, abs=0.5)


def test_what_fits_into_a_minute_and_an_hour(text):
    lines = table("cost", "samples in the largest batch, for both ends of the spectrum")
    said = "By estimate a minute is enough for some hundreds of samples of a small network, and for five to fifteen of"
    said += " a large one."
    assert said in text
    minute = [int(line.split()[-2]) for line in lines]
    assert 200 / 2 <= min(minute[:4]) and max(minute[:4]) < 1000
    assert 5 / 2 <= min(minute[4:]) <= 5 * 2 and 15 / 2 <= max(minute[4:]) <= 15 * 2
    hour = [float(line.split()[-1]) for line in lines if line.startswith(("ResNet-50", "language model"))]
    assert all(30 <= 3600 / most < 160 for most in hour) and 60 / max(minute[4:]) < 10


def test_what_three_of_ten_outputs_keep(text):
    """Here, and in the last figure of "Condition a network of your own", whose CNN this is."""
    lines = table("cost", "the CNN above, up to 80 images and ten outputs")
    whole, some = (
        next(float(line.split()[-1].replace(",", "")) for line in lines if line.startswith(name))
        for name in ("all", "three of the outputs")
    )
    assert some / whole == pytest.approx(0.5, abs=0.06)
    images, _ = gnlib.load("cifar10", stride=2)
    images = images.view(-1, 3, 16, 16)
    x = ((images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True))[:20]
    kept = []
    for seed in range(3):
        torch.manual_seed(seed)
        widths, conv = (3, 16, 32, 64), partial(nn.Conv2d, kernel_size=3, stride=2, padding=1)
        layers = [part for a, b in pairwise(widths) for part in (conv(a, b), nn.ReLU())]
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
        for name, weight in network.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            else:
                nn.init.kaiming_normal_(weight, nonlinearity="relu")
        few = gnlib.condition_number(network, x, output=lambda y: y[:, :3])
        kept.append(few.value / gnlib.condition_number(network, x).value)
    assert geometric_mean(kept) == pytest.approx(1 / 3, abs=0.05)


def test_what_comes_on_top(text):
    rows = [line.split()[-3:-1] for line in table("cost", "seconds of the figure")]
    assert "here, at 800 rows or" in text
    assert all(0 < float(taken) - float(foretold) < 2 for foretold, taken in rows)
    assert "matrix takes 0.75 GiB" in text
    assert f"{10_000**2 * 8 / 2**30:.2f}" == "0.75"
    images = torch.randn(16, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    whole, eigenvalues = foretold(perceptron(1024), images, [1000])[1000], 10_000**3 * eigenvalue_seconds()
    assert "At 10,000 they are" in text
    assert eigenvalues > whole / 2


def test_what_twice_the_rows_take(text):
    images = torch.randn(16, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    half, whole = (gnlib.GaussNewton(cnn(), some).cost() for some in (images[:8], images))
    assert half.backward == 80 and whole.backward == 160
    assert "By 10, by up to 100, and by 1,000." in text
    grown = [two.flops / one.flops for one, two in zip(half.steps, whole.steps, strict=True)]
    assert max(grown) == pytest.approx(4) and min(grown) > 2


def test_a_few_seconds_with_adam(text):
    (line,) = (line for line in table("cost", "seconds of the figure") if line.split()[:2] == ["CNN", "20"])
    assert "On 20 images of" in text
    assert 2 < 25 * float(line.split()[-2]) < 8


def test_fewer_outputs_of_a_singular_matrix_may_raise_kappa(text):
    """The third exercise, and where the bound holds."""
    c = 2.0**-6
    jacobian = torch.tensor([[1, 0], [1, c], [0, 1]], dtype=torch.float64)
    all_three, two = (gnlib.condition_number(some @ some.mT, rank=2) for some in (jacobian, jacobian[:2]))
    assert all_three.value == pytest.approx(2, rel=1e-3) and two.value == pytest.approx(4 / c**2, rel=1e-3)
    assert "$\\kappa \\approx 2$" in text
