"""The numbers in the text of "What a condition number costs" that its tables show."""

from functools import partial
from itertools import pairwise
from statistics import geometric_mean

import pytest
import torch
from torch import nn

import gnlib
from tests.book.pages import prose, table


def test_a_report_costs_some_six_condition_numbers():
    (line,) = (line for line in table("cost", "the CNN above, 40 images, cross-entropy") if "gnlib.report" in line)
    assert "a report without Adam takes some six times that" in prose("notebooks/cost")
    assert float(line.split()[-1]) == pytest.approx(6, abs=1.5)


def test_what_the_calls_take():
    lines = table("cost", "the CNN above, 40 images, cross-entropy")
    seconds, share = {line.split()[0]: line.split()[-2:] for line in lines}["gnlib.cost"]
    assert f"`gnlib.cost(module, x)` | {seconds} s for the CNN of this page" in prose("notebooks/cost")
    assert float(share) < 1
    (line,) = (line for line in lines if "gnlib.forecast" in line)
    assert "[some two condition numbers]" in prose("notebooks/cost")
    assert float(line.split()[-1]) == pytest.approx(2, abs=0.5)


def test_what_fits_into_a_minute_and_an_hour():
    lines = table("cost", "samples in the largest batch, for both ends of the spectrum")
    large = [line.split()[-2:] for line in lines if line.startswith(("ResNet-50", "language model"))]
    assert "take up to an hour on one thread, and five of them up to a minute" in prose("notebooks/cost")
    assert large == [["5", "50"]] * 2
    said = "By estimate a minute is enough for some hundreds of samples of a small network, and for five to fifteen of"
    said += " a large one."
    assert said in prose("notebooks/cost")
    minute = [int(line.split()[-2]) for line in lines]
    assert min(minute[:4]) >= 200 and max(minute[:4]) < 1000
    assert (min(minute[4:]), max(minute[4:])) == (5, 15)
    hour = [float(line.split()[-1]) for line in lines if line.startswith(("ResNet-50", "language model"))]
    assert "from some seconds to about a minute for each sample" in prose("notebooks/cost")
    assert all(60 <= 3600 / most < 80 for most in hour) and 60 / max(minute[4:]) < 5


def test_what_three_of_ten_outputs_keep():
    """Here, and in the last figure of "Condition a network of your own", whose CNN this is."""
    text = prose("notebooks/cost")
    lines = table("cost", "the CNN above, up to 80 images and ten outputs")
    whole, some = (
        next(float(line.split()[-1].replace(",", "")) for line in lines if line.startswith(name))
        for name in ("all", "three of the outputs")
    )
    assert "Three of ten keep a half of $\\kappa$ here" in text and some / whole == pytest.approx(0.5, abs=0.06)
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
    assert "and [a third on another CNN]" in text and geometric_mean(kept) == pytest.approx(1 / 3, abs=0.05)


def test_what_comes_on_top():
    rows, text = [line.split()[-3:-1] for line in table("cost", "seconds of the figure")], prose("notebooks/cost")
    assert "up to a second here, at 800 rows or fewer" in text and "up to a second at 800 rows" in text
    assert all(0 < float(taken) - float(foretold) < 1 for foretold, taken in rows)
    assert "at 10,000 we expect [more than a minute]" in text and "a minute or more at 10,000" in text
    in_a_minute = table("cost", "samples in the largest batch, for both ends of the spectrum")[0].split()[-2]
    assert int(in_a_minute) < 1000  # images, of ten outputs each
    matrices = [line.rsplit(maxsplit=5) for line in table("your-own-network", "p parameters, n images, k = 10")]
    (half,) = (float(line[-2]) for line in matrices if line[0].strip() == "perceptron" and line[3] == "5,000")
    assert 4 * half < 30  # seconds for the matrix of 10,000 rows, so most of the minute is for its eigenvalues


def test_a_few_seconds_with_adam():
    (line,) = (line for line in table("cost", "seconds of the figure") if line.split()[:2] == ["CNN", "20"])
    assert "on 20 that is a few seconds" in prose("notebooks/cost")
    assert 2 < 25 * float(line.split()[-2]) < 8
