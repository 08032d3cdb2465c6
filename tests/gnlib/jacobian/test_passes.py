"""Products with the Jacobian, against the Jacobian itself."""

import copy

import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from gnlib.jacobian.passes import freeze_all_but, jvp, outputs_of, replace_parameters, vjp
from gnlib.jacobian.trial import networks_of

MEMORY = 4.0


def batch(n=6):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(n, 1, 6, 6, generator=generator, dtype=torch.float64)


def make(kind):
    torch.manual_seed(1)
    norm = nn.BatchNorm2d(3) if kind == "coupled" else nn.Identity()
    return nn.Sequential(nn.Conv2d(1, 3, 3), norm, nn.Tanh(), nn.Flatten(), nn.Linear(48, 4)).double()


def dense(module, x, mode):
    """The Jacobian, its columns in the order of the parameters."""
    found = torch.cat([*GaussNewton(module, x, mode=mode).jacobian()], 1)
    parts = found.split([p.numel() for p in reversed([*module.parameters()])], 1)
    return torch.cat(parts[::-1], 1)


@pytest.mark.parametrize("memory", [MEMORY, 1e-5], ids=["one batch", "many"])
@pytest.mark.parametrize("kind", ["plain", "coupled"])
def test_products_are_those_of_the_jacobian(kind, memory):
    module, x, mode = make(kind), batch(), "train" if kind == "coupled" else None
    networks, jacobian = networks_of(module, x, mode=mode), dense(module, x, mode)
    generator = torch.Generator().manual_seed(5)
    w = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    pulled = torch.cat([g.flatten() for g in vjp(networks, memory)(w).values()])
    torch.testing.assert_close(pulled, jacobian.mT @ w.flatten() / 6, rtol=1e-10, atol=1e-12)
    v = {name: torch.randn(p.shape, generator=generator).double() for name, p in networks[0].parameters.items()}
    pushed = jvp(networks, v, memory)
    flat = torch.cat([d.flatten() for d in v.values()])
    torch.testing.assert_close(pushed.flatten(), jacobian @ flat, rtol=1e-10, atol=1e-12)


def test_several_batches_are_taken_one_after_the_other():
    module, x = make("coupled"), batch()
    networks = networks_of(module, [x[:2], x[2:]], mode="train")
    module.train()
    expected = torch.cat([module(x[:2]), module(x[2:])])
    torch.testing.assert_close(outputs_of(networks, MEMORY), expected.detach())
    w = torch.ones_like(expected)
    gradients = torch.autograd.grad((w * expected).sum() / 6, [*module.parameters()])
    for found, gradient in zip(vjp(networks, MEMORY)(w).values(), gradients, strict=True):
        torch.testing.assert_close(found, gradient, rtol=1e-10, atol=1e-12)


def test_networks_elsewhere_leave_the_first_where_they_are():
    module, x = make("plain"), batch()
    networks = networks_of(copy.deepcopy(module), x)
    before = outputs_of(networks, MEMORY)
    moved = replace_parameters(networks, {name: 2 * p for name, p in networks[0].parameters.items()})
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(2)
    torch.testing.assert_close(outputs_of(moved, MEMORY), module(x).detach())
    torch.testing.assert_close(outputs_of(networks, MEMORY), before)


def test_some_parameters_alone_can_move():
    module, x = make("plain"), batch()
    some = freeze_all_but(networks_of(module, x), {"4.weight"})
    assert [*vjp(some, MEMORY)(torch.ones(6, 4).double())] == ["4.weight"]
    torch.testing.assert_close(outputs_of(some, MEMORY), module(x).detach())
