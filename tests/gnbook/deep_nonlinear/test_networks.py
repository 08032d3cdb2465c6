"""The networks of the chapter, against their definitions and their limit, and the experiment of both pages."""

import pytest
import torch
from gnbook.deep_nonlinear.chain import kernel, layers_of
from gnbook.deep_nonlinear.experiment import draw, kappa, of_table, row_of, widths_of
from gnbook.deep_nonlinear.networks import ACTIVATIONS, SHAPES, limit_kernel, network
from torch import nn

from tests.oracles import normal

X = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def drawn(activation, shape, widths, seed=0):
    return network(activation, shape, widths, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_gain_keeps_the_variance(name):
    module, gain, dual = ACTIVATIONS[name]
    both, _ = dual(torch.eye(1, dtype=torch.float64))
    assert gain**2 * both.item() == pytest.approx(1, abs=1e-12)
    values = torch.randn(10**6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert gain**2 * module()(values).square().mean().item() == pytest.approx(1, abs=5e-3)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_network_does_what_its_shape_says(name, shape):
    net = drawn(name, shape, [6, 5, 5, 5, 2])
    first, second, third, last = (m.weight for m in net.modules() if isinstance(m, nn.Linear))
    act, factor = ACTIVATIONS[name].module(), SHAPES[shape]
    z = X @ first.mT
    for weight in (second, third):
        if shape == "LayerNorm":
            z = (z - z.mean(1, keepdim=True)) / (z.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
        step = act(z) @ weight.mT
        z = z + factor(4) * step if factor else step
    if shape == "LayerNorm":
        z = (z - z.mean(1, keepdim=True)) / (z.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(net(X), act(z) @ last.mT, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["ReLU", "GELU", "linear"])
def test_wide_networks_come_near_the_limit_of_their_own_shape(name):
    widths = [6, 700, 700, 1]
    limits = {shape: limit_kernel(name, shape, widths, X) for shape in SHAPES}
    for shape in SHAPES:
        mean = torch.stack([4 * kernel(layers_of(drawn(name, shape, widths, seed), X)) for seed in range(4)]).mean(0)
        apart = {other: ((mean - limit).norm() / limit.norm()).item() for other, limit in limits.items()}
        assert min(apart, key=apart.get) == shape and apart[shape] < 0.08


IMAGES = normal(5, 8, seed=1)


@pytest.mark.parametrize("shape", ["chain", "skips"])
def test_a_row_is_about_the_network_of_its_seed(shape):
    widths = widths_of(8, 3, 60, 2)
    row = row_of("tanh", shape, widths, IMAGES, seed=2)
    assert row["kappa"] == pytest.approx(kappa(kernel(layers_of(draw("tanh", widths, shape, seed=2), IMAGES))))
    assert row["from_below"] <= row["kappa"] <= row["sharper"] <= row["plain"]
    assert (row["depth"], row["n"], row["k"], row["width"], row["seed"]) == (3, 5, 2, 60, 2)
    assert of_table([{"data": "raw"} | row], "raw", "tanh", shape)[3]["kappa"] == row["kappa"]
    assert not of_table([{"data": "raw"} | row], "white", "tanh", shape)
