"""Both ends of the spectrum of a matrix, by diagonalising it: the reference for everything else."""

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_symmetric
from gnlib.spectrum.result import ConditionNumber


def dense_ends(matrix: Float[Tensor, "p p"], rank: int | None = None) -> ConditionNumber:
    """Return both ends of the spectrum of a symmetric positive semi-definite matrix from all its eigenvalues.

    The rank is the number of eigenvalues above `p * eps` times the largest, unless it is given. The relative error of
    the smallest eigenvalue is what counts as zero over it: either rounding put those eigenvalues where they are, and
    moves the smallest one as much, or they are not zero and the rank is wrong.
    """
    matrix = as_symmetric(matrix, "The matrix")
    values = torch.linalg.eigvalsh(matrix).flip(0)
    p, largest, eps = len(values), values[0].item(), torch.finfo(values.dtype).eps
    threshold = p * eps * values.abs().max().item()
    if threshold == 0:
        raise ValueError("The matrix is zero: it has no eigenvalue to divide by. Check the weights and the data.")
    if values[-1] < -threshold:
        raise ValueError(f"The matrix has the negative eigenvalue {values[-1]:.1e}; a Gauss-Newton matrix has none.")
    how = "rank given" if rank is not None else "relative threshold"
    if rank is None:
        rank = int((values > threshold).sum())
    elif not isinstance(rank, int) or not 1 <= rank <= p:
        raise ValueError(f"rank is {rank}; it must be a whole number between 1 and the size of the matrix, {p}.")
    smallest = values[rank - 1].item()
    if smallest <= 0:
        raise ValueError(f"Eigenvalue number {rank} is {smallest:.1e}, not positive; the rank given is too large.")
    gap = smallest / max(values[rank:].abs().max().item() if rank < p else 0.0, eps * largest)
    return ConditionNumber(largest, smallest, rank, gap, 1 / gap, f"dense eigenvalues, {how}")
