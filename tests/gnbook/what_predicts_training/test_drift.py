"""The drift of the kernel, against its derivative along the gradient flow by automatic differentiation."""

import pytest
import torch
from gnbook.what_predicts_training.drift import STEP, drift
from torch import nn

from gnlib.jacobian.gram import gram_of
from gnlib.jacobian.passes import vjp
from gnlib.jacobian.trial import networks_of


def measured(scale):
    """V of a small smooth network, and what it is made of."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    x, y = torch.randn(5, 3).double(), scale * torch.randn(5, 2).double()
    networks = networks_of(module, x)
    residual = module(x).detach() - y
    gradient = vjp(networks, 4.0)(residual)
    loss = float(residual.square().sum() / 10)
    return drift(networks, gram_of(networks, 4.0), loss, gradient, 4.0), module, x, loss, gradient


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_the_drift_is_the_derivative_of_the_kernel(scale):
    found, module, x, loss, gradient = measured(scale)
    parameters = dict(module.named_parameters())

    def kernel(parameters):
        jacobian = torch.func.jacrev(lambda p: torch.func.functional_call(module, p, x).flatten())(parameters)
        flat = torch.cat([j.flatten(1) for j in jacobian.values()], 1)
        return flat @ flat.mT / len(x)

    back = {name: -g for name, g in gradient.items()}
    value, velocity = torch.func.jvp(kernel, ({n: p.detach() for n, p in parameters.items()},), (back,))
    time = loss / sum(float(g.square().sum()) for g in gradient.values())
    assert found == pytest.approx(float(time * velocity.norm() / value.norm()), rel=0.05)


def test_the_kernel_is_followed_down_the_gradient():
    class Square(nn.Module):  # of its one parameter; up the gradient the kernel would move a little more
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))

        def forward(self, x):
            return x * self.w**2

    module, x = Square(), torch.tensor([[2.0]]).double()
    networks, residual = networks_of(module, x), module(x).detach() - 1.0
    loss, gradient = float(residual.square() / 2), vjp(networks, 4.0)(residual)
    there = 1.5 - STEP * loss / float(gradient["w"])
    expected = abs(there**2 - 1.5**2) / 1.5**2 / STEP
    assert drift(networks, gram_of(networks, 4.0), loss, gradient, 4.0) == pytest.approx(expected, rel=1e-10)


def test_at_a_perfect_fit_nothing_moves():
    assert measured(0.0)[0] > 0  # outputs are not zero
    torch.manual_seed(0)
    module, x = nn.Linear(3, 2).double(), torch.randn(5, 3).double()
    networks = networks_of(module, x)
    gradient = vjp(networks, 4.0)(torch.zeros(5, 2).double())
    assert drift(networks, gram_of(networks, 4.0), 0.0, gradient, 4.0) == 0.0
