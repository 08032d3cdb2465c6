"""Smallest and largest eigenvalue of a symmetric operator, definite or not, by the method of Lanczos."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.checks import EPS
from gnlib.eigen.result import NotConvergedError
from gnlib.files import progress

ROUNDING = 16 * EPS  # relative to the norm: a remainder of a vector that small is nothing but rounding


class SpectrumEnds(NamedTuple):
    """Smallest and largest eigenvalue of a symmetric operator."""

    smallest: float
    largest: float
    vectors: Float[Tensor, "2 p"]  # the unit eigenvectors of both

    @property
    def norm(self) -> float:
        """The spectral norm: the larger of the two in absolute value."""
        return max(-self.smallest, self.largest)


def symmetric_ends(
    apply: Callable[[Float[Tensor, " p"]], Float[Tensor, " p"]],
    start: Float[Tensor, " p"],
    *,
    tolerance: float = 1e-6,
    max_steps: int = 500,
    held: int = 500,
) -> SpectrumEnds:
    r"""Return the smallest and the largest eigenvalue of a symmetric operator, by Lanczos with thick restarts.

    New vectors are orthogonalised against all that are held, so that no eigenvalue appears twice. The residuals are not
    those of the recurrence but computed anew from the eigenvectors at the end. The start has to be random: an
    eigenvector orthogonal to it is never found. The tolerance of residuals is relative to the norm; `held` is the
    number of vectors at which the iteration is restarted from the ends of its spectrum.
    """
    basis, projected = (start / torch.linalg.vector_norm(start))[None], start.new_zeros(0, 0)
    for step in progress(range(1, max_steps + 1), "Lanczos", max_steps):
        new = apply(basis[-1])
        coefficients = basis @ new
        new = new - coefficients @ basis
        new = new - (basis @ new) @ basis  # rounding left by the first pass
        projected = nn.functional.pad(projected, (0, 1, 0, 1))
        projected[-1], projected[:, -1] = coefficients, coefficients
        if not torch.isfinite(projected).all():
            raise NotConvergedError("A product has NaN or infinite entries; the operator overflows.")
        values, vectors = torch.linalg.eigh(projected)
        left, norm = torch.linalg.vector_norm(new), values.abs().max()
        estimates = left * vectors[-1, [0, -1]].abs()
        done = estimates.max() <= tolerance / 2 * norm or left <= ROUNDING * norm or len(basis) == len(start)
        if done or step == max_steps:
            break
        if len(basis) >= held - 1:
            ends = torch.arange(len(values), device=values.device).roll(held // 4)[: held // 2]  # a quarter from each
            basis, projected = vectors[:, ends].mT @ basis, values[ends].diag()
        basis = torch.cat([basis, new[None] / left])
    ritz = vectors[:, [0, -1]].mT @ basis
    errors = [torch.linalg.vector_norm(apply(v) - value * v) for v, value in zip(ritz, values[[0, -1]], strict=True)]
    residual = (max(errors) / norm).item() if norm > 0 else 0.0
    if residual > tolerance:
        raise NotConvergedError(
            f"The ends of the spectrum did not converge: after {step} products the residual is {residual:.1e} of "
            f"the norm, above the tolerance of {tolerance:.0e}; allow more steps or a larger tolerance."
        )
    return SpectrumEnds(values[0].item(), values[-1].item(), ritz)
