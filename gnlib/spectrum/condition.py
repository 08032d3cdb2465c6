"""The condition number of an operator or a matrix, by the method that suits it."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.operators import KroneckerSum
from gnlib.spectrum.dense import dense_ends
from gnlib.spectrum.kronecker_sum import kronecker_sum_ends
from gnlib.spectrum.result import ConditionNumber


def condition_number(
    operator: KroneckerSum | Float[Tensor, "p p"] | np.ndarray,
    *,
    rank: int | None = None,
    tolerance: float = 1e-8,
    max_steps: int = 200,
) -> ConditionNumber:
    """Return the pseudo-condition number: the largest eigenvalue over the smallest one that is not zero.

    A matrix is diagonalised. A Kronecker sum is never formed: one or two terms are reduced exactly to blocks of the
    size of the data, more are treated by a preconditioned block iteration on both ends.

    Parameters
    ----------
    operator
        a Kronecker sum, or a symmetric positive semi-definite matrix
    rank
        number of non-zero eigenvalues of a matrix where theory gives it; otherwise eigenvalues up to `p * eps` times
        the largest count as zero. The rank of a Kronecker sum is found from its factors.
    tolerance
        relative error at which an iteration may stop
    max_steps
        steps after which it gives up

    Raises
    ------
    ValueError
        A matrix that is empty, not square, not symmetric, not positive semi-definite, not finite, or zero.
    NotConvergedError
        An iteration that did not reach the tolerance.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps is {max_steps}; at least one step is needed.")
    if isinstance(operator, KroneckerSum):
        if rank is not None:
            raise ValueError("rank is for matrices; the rank of a Kronecker sum is found from its factors.")
        return kronecker_sum_ends(operator, tolerance=tolerance, max_steps=max_steps)
    matrix = torch.as_tensor(operator) if isinstance(operator, np.ndarray) else operator
    return dense_ends(matrix, rank=rank)
