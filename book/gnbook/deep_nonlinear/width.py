r"""Widths at which the tangent kernel of one hidden layer of ReLUs is as regular as that of infinite width.

For the network :math:`f(x) = \sum_u a_u \max(w_u \cdot x, 0)` of m units with normal :math:`w_u` and derivatives by
these, the kernel is a sum over units,

.. math:: K = \sum_u a_u^2 Z_u, \qquad Z_u = D_u x x^\top D_u, \qquad A = E Z_u = x x^\top \circ P, \qquad
    P_{ij} = \frac{\pi - \theta_{ij}}{2\pi},

where the diagonal :math:`D_u` says on which samples a unit is active, and :math:`\theta` is the angle between samples.
Both bounds ask for units with output weights of one size; the claims have others.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.deep_nonlinear.duals import leaky_relu
from gnlib.checks import as_samples, numerical_rank


def hidden_layer_kernel(x: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    r"""Return :math:`A = x x^\top \circ P`, the mean share of one unit of output weight one in the kernel."""
    x = as_samples(x)
    gram = x @ x.mT
    return gram * leaky_relu(0.0)(gram)[1]


def chernoff_width(x: Float[Tensor, "n d"], *, shortfall: float, failure: float) -> float:
    r"""Return how many units suffice for :math:`\lambda_{\min}(K) \ge (1 - \delta) \lambda_{\min}(E K)`.

    It is the claim "Width by Chernoff" (Tropp 2012), with :math:`\delta` the `shortfall`, but for a probability of
    `failure`, and infinite where A is singular in double precision.
    """
    values = torch.linalg.eigvalsh(hidden_layer_kernel(x)).flip(0)
    if numerical_rank(values, len(values)) < len(values):
        return math.inf
    most = torch.linalg.matrix_norm(as_samples(x), 2).item() ** 2
    exponent = shortfall + (1 - shortfall) * math.log1p(-shortfall)
    return math.ceil(most / values[-1].item() * math.log(len(values) / failure) / exponent)


def bernstein_width(n: int, spread: float, *, shortfall: float, failure: float) -> int:
    r"""Return how many units suffice for :math:`K \succeq (1 - \delta) E K`, from their spread v.

    Then every eigenvalue of K has at least :math:`1 - \delta` times its mean's (claim "Width by Bernstein").
    """
    return math.ceil(2 * spread / shortfall**2 * math.log(n / failure))


def unit_spread(x: Float[Tensor, "n d"], draws: int = 2000, *, generator: torch.Generator) -> float:
    r"""Estimate :math:`v = \lVert E (A^{-1/2} Z_u A^{-1/2})^2 \rVert` from a sample of units.

    The norm of a mean is convex in the terms, so that the estimate is in the mean no smaller than v. It is 2 for
    orthogonal samples. A is to be regular in double precision.
    """
    x = as_samples(x)
    root = _inverse_root(x)
    total = x.new_zeros(len(x), len(x))
    for active in _active(x, draws, generator):
        factor = root[:, active] @ x[active]
        summand = factor @ factor.mT
        total.addmm_(summand, summand)
    return torch.linalg.eigvalsh(total)[-1].item() / draws


def smallest_shares(
    x: Float[Tensor, "n d"], units: int, draws: int, *, generator: torch.Generator
) -> tuple[Float[Tensor, " draws"], Float[Tensor, " draws"]]:
    r"""Draw networks with output weights of one size; return their smallest shares of the kernel of infinite width.

    The first are :math:`\lambda_{\min}(K) / \lambda_{\min}(E K)`, the Chernoff bound's, the others
    :math:`\lambda_{\min}\bigl((E K)^{-1/2} K (E K)^{-1/2}\bigr)`, Bernstein's, no larger.
    """
    x = as_samples(x)
    root, gram = _inverse_root(x), x @ x.mT
    least = torch.linalg.eigvalsh(hidden_layer_kernel(x))[0]
    shares = []
    for _ in range(draws):
        active = _active(x, units, generator).to(x.dtype)
        kernel = gram * (active.mT @ active) / units
        relative = root @ kernel @ root
        shares.append(torch.stack([torch.linalg.eigvalsh(kernel)[0] / least, torch.linalg.eigvalsh(relative)[0]]))
    first, second = torch.stack(shares).mT
    return first, second


def _active(x: Float[Tensor, "n d"], units: int, generator: torch.Generator) -> Tensor:
    """Return which units, in rows, are active on which samples."""
    weights = torch.randn(units, x.shape[1], generator=generator, device=x.device, dtype=x.dtype)
    return weights @ x.mT > 0


def _inverse_root(x: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    values, vectors = torch.linalg.eigh(hidden_layer_kernel(x))
    return vectors * values.rsqrt() @ vectors.mT
