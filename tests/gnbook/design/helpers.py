"""Networks under gains, and their kernels layer by layer from automatic differentiation alone."""

from itertools import pairwise

import torch
from torch import nn

from tests.gnlib.derivatives import by_name as jacobians
from tests.strategies import gaussian, orthogonal


def chain(widths, activation=nn.ReLU, *, bias=False, seed=0):
    """Linear layers with an activation between any two, in double precision, with biases of zero."""
    modules = []
    for index, (fan_in, out) in enumerate(pairwise(widths)):
        layer = nn.Linear(fan_in, out, bias=bias, device="meta")
        layer.weight = nn.Parameter(gaussian(seed + 10 * index, out, fan_in) / fan_in**0.5)
        if bias:
            layer.bias = nn.Parameter(torch.zeros(out, dtype=torch.float64))
        modules += [layer, activation()]
    return nn.Sequential(*modules[:-1])


def kernels(network, x):
    """The part of each parameter in the tangent kernel, by name."""
    return {name: jacobian @ jacobian.mT / len(x) for name, jacobian in jacobians(network, x).items()}


def kernel(network, x):
    return sum(kernels(network, x).values())


@torch.no_grad()
def scaled(network, gains):
    """Multiply the weights of the layers by gains, in place; biases stay."""
    weights = [p for name, p in network.named_parameters() if name.endswith("weight")]
    for weight, gain in zip(weights, gains, strict=True):
        weight.mul_(gain)
    return network


def semidefinite(seed, size, ranks):
    """Positive semi-definite matrices of these ranks."""
    roots = [gaussian(seed + i, size, rank) for i, rank in enumerate(ranks)]
    return [root @ root.mT for root in roots]


def with_spectra(seed, *spectra):
    """Matrices with these eigenvalues and one basis."""
    basis = orthogonal(seed, len(spectra[0]))
    return [basis * torch.as_tensor(values, dtype=torch.float64) @ basis.mT for values in spectra]


def condition(matrix):
    values = torch.linalg.eigvalsh(matrix)
    return torch.where(values[0] > 1e-14 * values[-1], values[-1] / values[0], torch.inf).item()


def weighted(matrices, weights):
    return sum(w * m for w, m in zip(weights, matrices, strict=True))
