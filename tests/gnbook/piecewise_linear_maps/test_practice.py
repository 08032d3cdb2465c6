"""A small convolutional network as one trains them."""

import pytest
import torch
from gnbook.piecewise_linear_maps import practice
from gnbook.piecewise_linear_maps.networks import condition


@pytest.fixture(scope="module")
def images():
    return practice.inputs(10, 4)


@pytest.mark.parametrize("norm", [False, True])
def test_kappa_of_the_last_layer_is_that_of_its_inputs(images, norm):
    x, net = images[0]["as they are"], practice.network(0, norm, 8)
    with torch.no_grad():
        z = net.double()[:-1](x.double())
    kappa = condition(torch.cat([z, torch.ones(len(z), 1)], 1)) ** 2  # the bias is one more input, always 1
    assert practice.layer_kappas(net, x)[2] == pytest.approx(kappa, rel=1e-6)


def test_a_step_of_gradient_descent(images, monkeypatch):
    kinds, labels = images
    x, seen = kinds["as they are"], []
    net, expected = practice.network(0, False, 8), practice.network(0, False, 8)
    monkeypatch.setattr(practice, "BATCH", 4)
    net.register_forward_hook(lambda module, given, out: seen.append(given[0]))
    practice.steps_to(net, x, labels, "all", "gradient descent", 0.1, 2, torch.Generator().manual_seed(0))
    drawn = seen[1:]  # the first is the look at all images
    assert [len(some) for some in seen] == [10, 4, 4, 2]
    assert sorted(row.sum().item() for some in drawn for row in some) == sorted(row.sum().item() for row in x)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    stepper = torch.optim.SGD(expected.parameters(), lr=0.1)
    for some in order.split(4):
        stepper.zero_grad()
        torch.nn.functional.cross_entropy(expected(x[some]), labels[some]).backward()
        stepper.step()
    for p, q in zip(net.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_the_fewest_steps_of_each_seed():
    def row(seed, rate, half, layer="all"):
        of = {"batches": False, "norm": True, "optimizer": "Adam", "layer": layer, "images": "as they are"}
        return of | {"seed": seed, "rate": rate, "half": half}

    rows = [row(1, 0.1, 30), row(1, 0.3, 20), row(0, 0.1, None), row(0, 0.3, 50), row(0, 0.1, None, 1)]
    way = (False, True, "Adam")
    assert practice.fewest(rows, "half") == {
        (*way, "all", "as they are"): [50, 20],
        (*way, "1", "as they are"): [float("inf")],  # a table makes a number of the layer
    }
    assert practice.fewest(rows, "half", [0.1])[*way, "all", "as they are"] == [float("inf"), 30]
