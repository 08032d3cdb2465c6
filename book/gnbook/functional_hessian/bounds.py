"""Bounds on the functional Hessian and on the whole Hessian of a linear network (Zhao 2024, appendix F)."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.functional_hessian.hessian import layer_pairs
from gnbook.shared.extremes import Interval
from gnlib.checks import EPS, as_float64, as_weights
from gnlib.linear.moment import SecondMoment, as_second_moment


def zhao_eq_18(error: Float[Tensor, "k d"], second_moment: Float[Tensor, "d d"] | SecondMoment) -> float:
    r"""Return the bound of Zhao 2024, Eq. 18, on the pseudo-condition number of :math:`H_F` for one hidden layer.

    It is :math:`\kappa(E)\, \kappa(\Sigma)` with the error :math:`E = W V - Z` of the product of the weights against
    the teacher. If the second moment is singular, that is no bound; :math:`E` is therefore restricted to its range
    first, which changes nothing where it is regular (see the claims). For any targets Z is the solution of least
    squares. The error must not vanish on the range of the data, where :math:`H_F = 0`.
    """
    error, moment = as_float64(error, "error"), as_second_moment(second_moment)
    values = torch.linalg.svdvals(error @ moment.basis)
    threshold = max(error.shape) * EPS * torch.linalg.matrix_norm(error, 2)
    values = values[values > threshold]
    return (values[0] / values[-1] * moment.eigenvalues[0] / moment.eigenvalues[-1]).item()


def functional_hessian_norm(weights: Sequence[Tensor], residual_moment: Float[Tensor, "k d"]) -> float:
    r"""Return an upper bound on the spectral norm of :math:`H_F` of a deep linear network.

    It is the largest eigenvalue of the L x L matrix of the norms of its blocks,
    :math:`\|A_{\ell'}^\top \Omega B_\ell^\top\|\, \|W_{\ell'-1} \cdots W_{\ell+1}\|`; exact for one hidden layer, where
    it is :math:`s_{\max}(\Omega)`.
    """
    weights, omega = as_weights(weights), as_float64(residual_moment, "residual_moment")
    norms = omega.new_zeros(len(weights), len(weights))
    for first, second, between, outer in layer_pairs(weights, omega):
        norms[second, first] = torch.linalg.matrix_norm(outer, 2) * torch.linalg.matrix_norm(between, 2)
    return torch.linalg.eigvalsh(norms)[-1].item()


def hessian_condition(largest: float, smallest: float, norm: float) -> Interval:
    r"""Return bounds on how the Hessian :math:`H = G + H_F` is conditioned, leaving out the null space of G.

    By Weyl's inequalities, the q = rank(G) largest eigenvalues of H are those of G, moved by at most
    :math:`\|H_F\|`, and all others are of modulus at most :math:`\|H_F\|`. The bounds are those of
    :math:`\lambda_1(H) / \lambda_q(H)`; the upper one is infinite unless :math:`\|H_F\| < \lambda_q(G)`. For the
    smallest eigenvalue of H Weyl's inequalities give nothing positive: with a hidden layer G is always singular.
    """
    upper = (largest + norm) / (smallest - norm) if norm < smallest else math.inf
    return Interval(max(1.0, (largest - norm) / (smallest + norm)), upper)
