"""The networks of the chapter, against their definitions and their limit."""

import pytest
import torch
from gnbook.deep_nonlinear.chain import kernel, layers_of
from gnbook.deep_nonlinear.networks import ACTIVATIONS, SHAPES, limit_kernel, network
from torch import nn

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
