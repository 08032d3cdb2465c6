"""The drift of the kernel, against its derivative along the gradient flow by automatic differentiation."""

import pytest
import torch
from gnbook.what_predicts_training.drift import drift
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
