"""Small networks, data and losses, and all the derivatives of a loss."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.strategies import gaussian

N, K = 6, 3
LABELS = torch.tensor([0, 1, 2, 0, 1, 1])
TARGETS = gaussian(7, N * K).view(N, K)


def inputs(width, seed=1):
    return gaussian(seed, N * width).view(N, width)


def line(width):
    torch.manual_seed(0)
    return nn.Linear(width, K, bias=False).double()


def small(norm=nn.Identity):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), norm(), nn.Tanh(), nn.Linear(12, K)).double()


def half_square(outputs, y):
    return (outputs - y).square().sum() / (2 * len(outputs))


LOSSES = {"mse": (half_square, TARGETS), "cross_entropy": (functional.cross_entropy, LABELS)}
both = pytest.mark.parametrize("loss", [*LOSSES])


def whole(net, x, loss):
    """Return gradient, Gauss-Newton matrix and Hessian of a loss by all parameters, from dense derivatives."""
    function, y = LOSSES[loss]
    theta = nn.utils.parameters_to_vector(net.parameters()).detach()
    shapes = {name: p.shape for name, p in net.named_parameters()}

    def outputs(theta):
        parts = theta.split([shape.numel() for shape in shapes.values()])
        tensors = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        tensors |= {name: buffer.clone() for name, buffer in net.named_buffers()}
        return torch.func.functional_call(net, tensors, (x,)).flatten()

    jacobian = torch.func.jacrev(outputs)(theta)
    second = torch.autograd.functional.hessian  # that of torch.func is off for the weights of BatchNorm
    curvature = second(lambda f: function(f.view(N, K), y), outputs(theta))
    gauss_newton = jacobian.mT @ curvature @ jacobian

    def of_theta(theta):
        return function(outputs(theta).view(N, K), y)

    return torch.func.grad(of_theta)(theta), jacobian, gauss_newton, second(of_theta, theta)
