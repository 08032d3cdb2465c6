"""The numbers in the text of "One hidden layer", and its findings."""

import math
from functools import cache

import pytest
import torch
from gnbook import results
from gnbook.one_hidden_layer.bounds import asymptotic_bound

import gnlib
from tests.pages.pages import table

PAGE = "laboratory/one-hidden-layer"


@cache
def moment(name="mnist", stride=1, kind="raw"):
    """The second moment of a thousand images, prepared in some way."""
    x = gnlib.load(name, 1000, stride=stride)[0]
    prepared = {"raw": x, "centred": x - x.mean(0), "standardised": (x - x.mean()) / x.std(), "white": gnlib.whiten(x)}
    return gnlib.SecondMoment.from_data(prepared[kind])


def of_data(moment):
    """The condition number of a second moment on its range."""
    return (moment.eigenvalues[0] / moment.eigenvalues[-1]).item()


def kappa(weights, moment):
    """By the form of the small matrix that the library has for linear layers."""
    return float(gnlib.condition_number(gnlib.linear_gauss_newton(weights, moment)))


def network(width):
    return gnlib.linear_weights([784, width, 10], generator=torch.Generator().manual_seed(0))


@cache
def by_width():
    """Condition numbers on whitened images, means over networks, by the table of the page."""
    rows = (line.split() for line in table(PAGE, "whitened MNIST, means"))
    return {int(width): float(kappa) for width, kappa, *_ in rows}


def six_networks(start, column=2):
    return [float(line.split()[column]) for line in table(PAGE, start)]


@cache
def values():
    kappas, white, many = by_width(), moment(kind="white"), moment("cifar10")
    peak, widest = max(kappas, key=kappas.get), max(kappas)
    return {
        "rank": white.basis.shape[1],
        "gain": network(4500)[0].std().item() * 784**0.5,
        "photo_pixels": len(many.basis),
        "photo_rank": many.basis.shape[1],
        "stretch": round(of_data(moment("mnist")) ** 0.5, -3),
        "peak": peak,
        "rise": kappas[peak],
        "late": [2000, widest],
        "power": math.log((kappas[widest] - 1) / (kappas[2000] - 1)) / math.log(widest / 2000),
        "limit": 1 + 4 * math.sqrt(white.basis.shape[1] / widest),
        "deepest": max(row["depth"] for row in results.kept("one-hidden-layer") if row["figure"] == 19),
    }


def test_whitening_takes_off_nine_orders_of_magnitude_on_mnist_and_six_on_cifar():
    white, raw = (six_networks(start) for start in ("whitened MNIST, n = 1000", "raw MNIST"))
    assert round(math.log10(math.prod(raw) / math.prod(white)) / len(raw)) == 9
    photos = {line.split()[0]: float(line.split()[1]) for line in table(PAGE, "condition number; networks")[:2]}
    assert round(math.log10(photos["raw"] / photos["whitened"])) == 6


def test_eq_22_is_within_five_per_cent_from_twice_the_rank_on():
    for width, kappa in by_width().items():
        bound = asymptotic_bound(587, width, 10, variance_v=1 / 784, variance_w=1 / width)
        assert width < 2 * 587 or kappa == pytest.approx(bound, rel=0.05)


def test_centring_takes_off_one_order_of_magnitude_at_the_largest_eigenvalue():
    found = {}
    for line in table(PAGE, "κ of the second moment"):
        name, raw, *others = line.split()
        found[name] = [float(raw) / float(other) for other in others]
        assert round(math.log10(found[name][0])) == 1
    for name, times in (("mnist", 7.5), ("cifar10", 13.6)):
        raw, centred = moment(name).eigenvalues, moment(name, kind="centred").eigenvalues
        assert [(raw[i] / centred[i]).item() for i in (0, -1)] == pytest.approx([times, 1], rel=0.01)
    assert found["CIFAR-10"][1] == found["CIFAR-10"][0] and found["MNIST"][1] < 2  # standardised


def test_raw_images_keep_their_condition_number_within_a_factor_of_two():
    data = of_data(moment("mnist"))
    assert all(1 < kappa / data < 2 for kappa in six_networks("raw MNIST"))
    assert all(0.8 < bound <= 1 for bound in six_networks("raw MNIST", 4))  # from below
