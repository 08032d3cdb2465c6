"""Smallest and largest eigenvalue of a symmetric operator, definite or not, by the method of Lanczos."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.quadrature import Lanczos
from gnlib.eigen.result import NotConvergedError
from gnlib.files import progress


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
) -> SpectrumEnds:
    """Return the smallest and the largest eigenvalue of a symmetric operator, by as many products as they take.

    The start has to be random: an eigenvector orthogonal to it is never found. The tolerance of residuals is relative
    to the norm. A vector is held for each product.
    """
    process = Lanczos(apply, start)
    for _ in progress(range(max_steps), "Lanczos", max_steps):
        process.step()
        values, vectors = process.ritz()  # descending
        residual = process.jacobi.beside[-1] * abs(vectors[-1, [0, -1]]).max()
        if process.exhausted or residual <= tolerance / 2 * abs(values).max():
            ends = torch.stack([process.combined(vectors[:, end]) for end in (-1, 0)])
            return SpectrumEnds(float(values[-1]), float(values[0]), ends)
    raise NotConvergedError(
        f"The ends of the spectrum did not converge: after {max_steps} products the residual is {residual:.1e}, above "
        f"the tolerance of {tolerance:.0e} of the norm; allow more steps or a larger tolerance."
    )
