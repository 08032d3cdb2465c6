r"""Networks with a non-linear output, :math:`\tilde f = \phi(f)`: Liu 2020, sections 4 and 5."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS, as_float64, as_symmetric


class Rate(NamedTuple):
    r"""Radius of the ball that Theorem 5.1 asks for, and the rate of convergence that it gives."""

    radius: float  # of a ball around the initial weights that descent does not leave
    rate: float  # mu rho^2: the loss falls by a factor of 1 - eta mu rho^2 a step

    def steps(self, step_size: float, factor: float) -> float:
        """Return the number of steps in which the loss is sure to fall by a factor."""
        return math.log(factor) / -math.log1p(-step_size * self.rate)


def liu_theorem_5_1(kernel: Float[Tensor, "n n"], residual: Float[Tensor, " n"], slope: float) -> Rate:
    r"""Return rate and radius of descent on :math:`\frac12 \sum_i (\phi(f_i) - y_i)^2` (Liu 2020, Theorem 5.1).

    If :math:`\lambda_{\min}(K) \ge \mu` in the ball of this radius, :math:`2 \|r_0\| / (\rho \sqrt\mu)` with the first
    residuals :math:`r_0`, and the step size is at most the inverse of the largest curvature of the loss in it, then
    descent stays in the ball and converges at this rate (see the claims). Half the smallest eigenvalue of the kernel
    given serves as :math:`\mu`; whether it bounds K in the ball is for the width to see to. The slope is :math:`\rho`,
    a lower bound on :math:`|\phi'|`.
    """
    kernel, residual = as_symmetric(kernel, "kernel"), as_float64(residual, "residual")
    if not slope > 0:
        raise ValueError(f"slope is {slope}; Theorem 5.1 needs a positive lower bound on the derivative of the output.")
    values = torch.linalg.eigvalsh(kernel)
    if values[0] <= len(kernel) * EPS * values[-1]:
        raise ValueError(
            f"The kernel is singular in double precision (eigenvalues {values[0]:.1e} to {values[-1]:.1e}); "
            "Theorem 5.1 needs a positive smallest eigenvalue, which equal samples, for one, do not have."
        )
    mu = values[0].item() / 2
    return Rate(2 * torch.linalg.vector_norm(residual).item() / (slope * math.sqrt(mu)), mu * slope**2)
