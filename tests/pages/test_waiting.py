"""The numbers in the text of "The eigenvalue you wait for", and its findings."""

import itertools
from functools import cache

import pytest
import torch
from torch import nn

import gnlib
from gnlib.laws import waiting
from tests.pages.pages import descend, parameters, rows

GIVEN = parameters("waiting")
NETWORKS = "2 layers, raw", "2, standardised", "4 layers, raw", "4, standardised", "2, tanh", "2, weights x 2"


def six():
    """By network: κ, effective condition number, T*, steps of the model, upper bound, steps of the network."""
    return {name: rows("waiting", rf"{name} +(?=\d)")[0] for name in NETWORKS}


def values():
    return {"early": six()["4 layers, raw"][2] / six()["4 layers, raw"][5]}


def data():
    x, labels = gnlib.load("cifar10", GIVEN["n"], stride=4)
    y = nn.functional.one_hot(labels, 10).double()
    return x, y - y.mean(0)


@cache
def first():
    """Eigenvalues, shares and goal of the first network, from singular values of its Jacobian."""
    x, y = data()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(192, 256), nn.ReLU(), nn.Linear(256, 10)).double()
    weights = dict(net.named_parameters())
    parts = torch.func.jacrev(lambda w: torch.func.functional_call(net, w, (x,)))(weights).values()
    jacobian = torch.cat([part.flatten(2) for part in parts], dim=2).flatten(0, 1).detach()
    left, values, _ = torch.linalg.svd(jacobian / len(x) ** 0.5, full_matrices=False)
    squares = (left.mT @ (net(x).detach() - y).flatten()).square()
    share = GIVEN["goal"] * y.square().sum() / squares.sum()
    return values.square().numpy(), (squares / squares.sum()).numpy(), share.item()


def test_the_first_network_waits_as_printed():
    eigenvalues, shares, share = first()
    found = waiting(eigenvalues, shares, 1 / eigenvalues[0], share)
    assert rows("waiting", "the longest wait is") == [[round(found.lower)]]
    assert six()["2 layers, raw"][1] == pytest.approx(found.effective_condition_number, rel=1e-2)
    assert six()["2 layers, raw"][0] == pytest.approx(eigenvalues[0] / eigenvalues[-1], rel=1e-3)


def test_the_model_arrives_between_the_bounds_and_two_networks_sooner():
    for kappa, effective, lower, model, upper, _ in six().values():
        assert lower <= model <= upper and effective < kappa
        assert model < kappa / 2  # "long before kappa steps"
    assert [name for name, row in six().items() if row[5] < row[2]] == ["4 layers, raw", "4, standardised"]


def test_eigenvalues_of_deep_networks_grow_the_most():
    """By what factor they grow, in the median."""
    grown = {name: rows("waiting", f"{name} +eigenvalues")[0][0] for name in NETWORKS}
    deep = grown.pop("4 layers, raw"), grown.pop("4, standardised")
    assert min(deep) > max(grown.values())


def test_what_shortens_the_waits():
    waits = {name: row[2] for name, row in six().items()}
    for layers in "24":
        assert waits[f"{layers}, standardised"] < waits[f"{layers} layers, raw"] / 10
    assert waits["4 layers, raw"] > 2 * waits["2 layers, raw"]
    assert waits["2, weights x 2"] > 1.3 * waits["2, standardised"]


def test_solution_of_exercise_1():
    eigenvalues, shares, share = first()
    slow, fast = (waiting(eigenvalues, shares, c / eigenvalues[0], share).lower for c in (1, 1.9))
    assert 1.8 < slow / fast <= 2
    assert waiting([1.0, 0.5], [0.9, 0.1], rate=1.99, goal=0.1).eigenvalue == 1


@pytest.mark.nightly
@pytest.mark.parametrize(("images", "early", "late"), [("raw", 60, 80), ("standardised", 10, 20)])
def test_solution_of_exercise_3(images, early, late):
    """Steps of four layers from then on, at the rate of then: below the law at first, within it from half on."""
    x, y = data()
    z = x if images == "raw" else (x - x.mean()) / x.std()
    goal, whole = GIVEN["goal"] * y.square().sum(), six()["4 layers, raw" if images == "raw" else "4, standardised"][5]
    assert late == pytest.approx(whole / 2, rel=0.05)
    for first in (early, late):
        torch.manual_seed(0)
        sizes = itertools.pairwise((192, 128, 128, 128, 10))
        net = nn.Sequential(*[layer for pair in sizes for layer in (nn.Linear(*pair), nn.ReLU())][:-1]).double()
        descend(net, z, y, goal, 1 / gnlib.GaussNewton(net, z).eigenvalues()[0], first)
        matrix = gnlib.GaussNewton(net, z, y)
        law = matrix.waiting((goal / (net(z) - y).square().sum()).item())
        rest = descend(net, z, y, goal, 1 / matrix.eigenvalues()[0], 5000)
        assert rest < law.lower if first == early else law.lower <= rest <= law.upper
