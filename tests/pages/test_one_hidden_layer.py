"""The numbers in the text of "One hidden layer" are those of its tables."""

import math

import pytest
import torch

import gnlib
from tests.pages.pages import prose, table


def test_how_slowly_width_helps():
    kappas = {
        int(line.split()[0]): float(line.split()[1]) for line in table("one-hidden-layer", "whitened MNIST, means")
    }
    power = math.log((kappas[4500] - 1) / (kappas[2000] - 1)) / math.log(4500 / 2000)
    page = prose("notebooks/one-hidden-layer")
    assert (
        f"from 2,000 units to 4,500 the condition number falls from {kappas[2000]:.1f} to {kappas[4500]:.1f},"
        in page.lower()
    )
    assert f"its excess over one with the power ${power:.2f}$ of the width" in page
    assert f"from {kappas[150]:.1f} at 150 units to {kappas[900]:.1f} at 900. Beyond, it falls" in page
    assert kappas[900] == max(kappas.values())
    late = 1 + 4 * math.sqrt(587 / 4500)
    said = f"At 4,500 units this simpler expression gives {late:.1f}, which is not yet close."
    assert said in page and late < 0.7 * kappas[4500]


def test_width_on_raw_and_on_centred_images():
    images, times = gnlib.load("mnist", 1000)[0], []
    for moment in map(gnlib.SecondMoment.from_data, (images, images - images.mean(0))):
        nets = (gnlib.linear_weights([784, m, 10], generator=torch.Generator().manual_seed(0)) for m in (150, 4500))
        narrow, wide = (float(gnlib.condition_number(gnlib.linear_gauss_newton(net, moment))) for net in nets)
        times.append(f"{narrow / wide:.1f}")
    said = "On raw and on centred MNIST thirty times the width divides $\\kappa$ by {} or {}, on whitened by less."
    said = said.format(*times)
    assert said in prose("notebooks/one-hidden-layer") and 4500 / 150 == 30


def test_what_raw_images_cost():
    page = prose("notebooks/one-hidden-layer")
    white, raw = (
        [float(line.split()[2]) for line in table("one-hidden-layer", start)]
        for start in ("whitened MNIST, n = 1000", "raw MNIST")
    )
    assert "six orders of magnitude on CIFAR-10 and nine on MNIST" in page
    assert round(math.log10(math.prod(raw) / math.prod(white)) / len(raw)) == 9
    photos = {
        line.split()[0]: float(line.split()[1]) for line in table("one-hidden-layer", "condition number; networks")[:2]
    }
    assert round(math.log10(photos["raw"] / photos["whitened"])) == 6


def test_why_the_first_page_has_less():
    few, many = gnlib.load("cifar10", 100, stride=4)[0], gnlib.load("cifar10", 1000)[0]
    of_few, of_many = (gnlib.SecondMoment.from_data(images).eigenvalues for images in (few, many))
    torch.manual_seed(0)
    layers = [torch.nn.Linear(192, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)]
    networks = (torch.nn.Sequential(*some).double() for some in (layers, layers[::2]))
    whole, linear = (gnlib.condition_number(network, few).value for network in networks)
    page = prose("notebooks/one-hidden-layer")
    assert f"has {round(whole, -3):,.0f} and not millions" in page
    times = (of_many[0] / of_many[-1] / (of_few[0] / of_few[-1])).item()
    assert f"have a $\\kappa(\\Sigma)$ {times:.0f} times as small" in page
    assert 9 < linear / whole < 11 and "Its ReLUs take off another factor of ten" in page
    assert f"from the {round(linear, -4):,.0f} that it has without them" in page
    assert f"$\\kappa$ = {round(linear, -4):,.0f} without ReLUs and {round(whole, -3):,.0f} with them" in page


def test_what_centring_takes_off():
    page, found = prose("notebooks/one-hidden-layer"), {}
    for line in table("one-hidden-layer", "κ of the second moment"):
        name, raw, centred, standardised = line.split()
        found[name] = [float(raw) / float(other) for other in (centred, standardised)]
        assert round(math.log10(found[name][0])) == 1
    assert "Centring takes off one order of magnitude, all of it at the largest eigenvalue. Whitening takes" in page
    for name, times in (("mnist", 7.5), ("cifar10", 13.6)):
        images = gnlib.load(name, 1000)[0]
        raw, centred = (gnlib.SecondMoment.from_data(x).eigenvalues for x in (images, images - images.mean(0)))
        assert [(raw[i] / centred[i]).item() for i in (0, -1)] == pytest.approx([times, 1], rel=0.01)
    assert found["CIFAR-10"][1] == found["CIFAR-10"][0] and found["MNIST"][1] < 2
    assert "Standardising does as much as centring on CIFAR-10" in page and "it does little" in page


def test_the_bound_from_below_on_raw_images():
    rows = [line.split() for line in table("one-hidden-layer", "raw MNIST")]
    assert all(0.8 < float(row[4]) <= 1 and 1 < float(row[2]) / 4.543e9 < 2 for row in rows)
    assert "within a factor of two of that of the data" in prose("notebooks/one-hidden-layer")
    assert f"here {round(4.543e9**0.5, -3):,.0f} times." in prose("notebooks/one-hidden-layer")


def test_what_preparing_the_images_saved_elsewhere():
    page, first = prose("notebooks/one-hidden-layer"), prose("notebooks/ten-minutes")
    assert "standardising divided the steps by about nine, in another one centring by 14, each run at a" in page
    assert "divides κ by 28 and the steps by 14" in first
    assert "divides κ by 26 and the steps by about nine, each run at its best rate" in first


def test_a_singular_hidden_layer_is_made_up_for():
    kappas = [float(line.split()[2]) for line in table("one-hidden-layer", "whitened MNIST, n")]
    assert round(sum(kappas[:3]) / 3) == 5
    assert "At 300 units the hidden layer $V$ is singular" in prose("notebooks/one-hidden-layer")


@pytest.fixture(scope="module")
def white():
    return gnlib.SecondMoment.from_data(gnlib.whiten(gnlib.load("mnist", 1000)[0]))


@pytest.mark.parametrize("width, said", [(150, "1.995"), (300, "2.000"), (600, "1.999"), (900, "1.000")])
def test_orthogonal_weights_on_whitened_images(white, width, said):
    generator = torch.Generator().manual_seed(0)
    weights = [torch.empty(shape, dtype=torch.float64) for shape in ((width, 784), (10, width))]
    for layer in weights:
        torch.nn.init.orthogonal_(layer, generator=generator)
    assert f"{float(gnlib.condition_number(gnlib.linear_gauss_newton(weights, white))):.3f}" == said
    numbers = "at 150, 300 and 600 units $\\kappa$ is 1.995, 2.000 and 1.999, at 900 it is 1 (one network each)"
    assert numbers in prose("notebooks/one-hidden-layer")
