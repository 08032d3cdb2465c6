r"""Moments of activations of Gaussian pairs: :math:`E\, \varphi(u) \varphi(v)`, and the same of slopes.

A *dual* takes the covariance matrix of centred Gaussian values, one for each sample, and returns the two matrices of
:math:`E\, \varphi(u_i) \varphi(u_j)` and :math:`E\, \varphi'(u_i) \varphi'(u_j)`. No variance is zero.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_symmetric

Dual = Callable[[Float[Tensor, "n n"]], tuple[Float[Tensor, "n n"], Float[Tensor, "n n"]]]

DEGREES = 800  # terms of a Hermite series, and nodes of the quadrature that finds them
TAIL = 1e-8  # share of the last quarter of a series, weighted as for slopes, above which an activation is not resolved


def leaky_relu(slope: float) -> Dual:
    """Return the dual of the leaky ReLU, exactly (Cho and Saul 2009; claim "Expectations on a Gaussian pair")."""
    bend = (1 - slope) ** 2 / (2 * math.pi)

    def dual(covariance: Float[Tensor, "n n"]) -> tuple[Tensor, Tensor]:
        scale, cosine = _polar(covariance)
        rest = math.pi - cosine.acos()
        both = slope * cosine + bend * ((1 - cosine.square()).sqrt() + rest * cosine)
        return torch.outer(scale, scale) * both, slope + bend * rest

    return dual


def smooth(activation: Callable[[Tensor], Tensor]) -> Dual:
    """Return the dual of a smooth activation, such as tanh or GELU, by its series in normalised Hermite polynomials.

    Terms below rounding are left out.
    """

    def dual(covariance: Float[Tensor, "n n"]) -> tuple[Tensor, Tensor]:
        scale, cosine = _polar(covariance)
        series = hermite_coefficients(activation, scale)
        value = slope = torch.zeros_like(cosine)
        for degree in range(_last(series), -1, -1):  # Horner's rule for the series and its derivative
            slope = torch.addcmul(value, cosine, slope)
            value = (cosine * value).addr_(series[:, degree], series[:, degree])
        return value, slope / torch.outer(scale, scale)

    return dual


def hermite_coefficients(
    activation: Callable[[Tensor], Tensor], scale: Float[Tensor, " n"]
) -> Float[Tensor, "n degrees"]:
    r"""Return the coefficients :math:`a_k(\sigma) = E\, \varphi(\sigma z) h_k(z)`, by Gauss-Hermite quadrature.

    The nodes are the eigenvalues of the tridiagonal matrix with the entries :math:`\sqrt k`; its eigenvectors hold the
    polynomials at the nodes, times the square roots of the weights (Golub and Welsch 1969, Math. Comp. 23).
    """
    nodes, vectors = (t.to(scale) for t in _quadrature())
    values = activation(scale[:, None] * nodes)
    series = (values * vectors[0]) @ vectors.mT
    energy = _energy(series)
    if (energy[:, -(DEGREES // 4) :].sum(1) > TAIL * energy.sum(1)).any():
        raise ValueError(f"The activation has a kink or is steep: {DEGREES} Hermite polynomials do not resolve it.")
    return series


def centred(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the activation less its mean, over its deviation, both on a standard normal value."""
    series = hermite_coefficients(activation, torch.ones(1, dtype=torch.float64, device="cpu"))[0]
    mean, deviation = series[0].item(), series[1:].norm().item()
    return lambda z: (activation(z) - mean) / deviation


@lru_cache
def _quadrature() -> tuple[Tensor, Tensor]:
    """Return the nodes, and row k with the polynomial of degree k there, times the square roots of the weights."""
    roots = torch.arange(1, DEGREES, dtype=torch.float64, device="cpu").sqrt()
    return torch.linalg.eigh(roots.diag(1) + roots.diag(-1))


def _energy(series: Float[Tensor, "n degrees"]) -> Float[Tensor, "n degrees"]:
    """Return the squares, weighted for the slopes, which take more terms than the values."""
    return series.square() * torch.arange(1, DEGREES + 1, device=series.device)


def _last(series: Float[Tensor, "n degrees"]) -> int:
    """Return the last degree that is seen in double precision, in the slopes too."""
    energy = _energy(series)
    tail = energy.flip(1).cumsum(1).flip(1) / energy.sum(1, keepdim=True).clamp_min(torch.finfo(energy.dtype).tiny)
    return int((tail > 1e-15).any(0).nonzero().max())


def _polar(covariance: Float[Tensor, "n n"]) -> tuple[Tensor, Tensor]:
    """Return the standard deviations and the correlations, which are one on the diagonal exactly."""
    covariance = as_symmetric(covariance, "covariance")
    scale = covariance.diagonal().sqrt()
    cosine = (covariance / torch.outer(scale, scale)).clamp(-1, 1)
    return scale, cosine.fill_diagonal_(1.0)
