"""Both ends of the spectrum of a matrix that is formed: from its eigenvalues, its inverse, or its singular values."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS, as_float64, as_symmetric, numerical_rank
from gnlib.eigen.result import ConditionNumber, of_ends
from gnlib.eigen.scale import exponent_of, restored, scaled, size_of, times_power
from gnlib.refused import Refused

BY_FACTOR = "singular values of the Jacobian, by QR"


def dense_ends(matrix: Float[Tensor, "p p"], rank: int | None = None, rounding: float = 0.0) -> ConditionNumber:
    """Return both ends of the spectrum of a symmetric positive semi-definite matrix from all its eigenvalues.

    The rank is the number of eigenvalues above `p * eps` times the largest, unless it is given. A negative eigenvalue
    may be due to the rounding of the matrix.
    """
    matrix, exponent = scaled(as_symmetric(matrix, "The matrix"))
    values = torch.linalg.eigvalsh(matrix).flip(0)
    p = len(values)
    threshold = p * max(EPS, rounding) * values.abs().max().item()
    if threshold == 0:
        raise Refused("zero-matrix", "The matrix is zero: it has no eigenvalue to divide by. Check weights and data.")
    if values[-1] < -threshold:
        what = f"the negative eigenvalue {restored(values[-1].item(), exponent):.1e}; a Gauss-Newton matrix has none."
        raise Refused("wrong-matrix", f"The matrix has {what}")
    source = "rank given" if rank is not None else "relative threshold"
    rank = numerical_rank(values, p) if rank is None else rank
    if not isinstance(rank, int) or not 1 <= rank <= p:
        raise Refused("bad-option", f"rank is {rank}; it must be a whole number from 1 to the size of the matrix, {p}.")
    smallest = values[rank - 1].item()
    if smallest <= 0:
        what = f"Eigenvalue number {rank} is {restored(smallest, exponent):.1e}, not positive"
        raise Refused("wrong-matrix", f"{what}; the rank given is too large.")
    return ends_of(values.flip(0), rank, method=f"dense eigenvalues, {source}").rescale(exponent)


def ends_of(
    ascending: Float[Tensor, " p"], rank: int | None = None, *, rounding: float = 0.0, method: str
) -> ConditionNumber:
    """Return both ends of all eigenvalues of a matrix, of which each has this rounding relative to the largest.

    Where a rank is given, what rounding left of an eigenvalue that it counts is taken for rounding.
    """
    p, largest = len(ascending), ascending[-1].item()
    rank = numerical_rank(ascending, p) if rank is None else rank
    smallest, zeros = max(ascending[-rank].item(), EPS * largest), ascending[: p - rank]
    # The eigenvalues that count as zero measure the error of the smallest one that does not: either rounding put them
    # where they are, and moves that one as much, or they are not zero and the rank is wrong.
    zero = max(zeros.abs().max().item() if len(zeros) else 0.0, EPS * largest)
    return of_ends(largest, smallest, rank, zero / smallest + rounding * largest / smallest, method, zero=zero)


def graded_smallest(matrix: Float[Tensor, "p p"]) -> tuple[float, float] | None:
    r"""Return the smallest eigenvalue and its relative error, or None if the matrix is not positive definite.

    Scaled to a unit diagonal, :math:`G = D H D`, a graded matrix is well conditioned, and then all eigenvalues of
    :math:`G^{-1} = D^{-1} H^{-1} D^{-1}` down from the largest are determined to a relative error of about
    :math:`p\, \varepsilon / \lambda_{\min}(H)`, however badly scaled D is (Demmel and Veselic 1992).
    """
    rounding = len(matrix) * EPS
    scale = matrix.diagonal().clamp_min(0).sqrt()
    if scale.min() == 0:
        return None
    unit = matrix / scale[:, None] / scale
    least = torch.linalg.eigvalsh(unit)[0].item()
    cholesky, failed = torch.linalg.cholesky_ex(unit)
    if failed or least <= rounding:
        return None
    inverse = torch.cholesky_inverse(cholesky) / scale[:, None] / scale
    return 1 / torch.linalg.eigvalsh(inverse)[-1].item(), rounding / least


def graded_ends(matrix: Float[Tensor, "p p"]) -> ConditionNumber:
    """Return both ends of the spectrum of a matrix that may be graded; if it is singular, from its eigenvalues."""
    lower = graded_smallest(matrix)
    if lower is None:
        return dense_ends(matrix)
    smallest, error = lower
    largest = torch.linalg.eigvalsh(matrix)[-1].item()
    return of_ends(largest, smallest, len(matrix), error, "eigenvalues of the matrix and of its inverse")


def singular_value_ends(blocks: Iterable[Float[Tensor, "q _columns"]]) -> ConditionNumber:
    """Return both ends of the spectrum of `J J^T` for `J = [block, block, ...]`, which need not exist whole.

    Singular values up to `max(q, p) * eps` times the largest count as zero, where p is the number of columns.
    """
    # Rounding moves eigenvalues of the product by eps times the largest of them, and singular values by eps times the
    # largest of those: of condition numbers up to 1e16 the product keeps no digit, the factor half of them. The
    # triangular factor R of J^T has its singular values, and merges one block at a time.
    triangle, columns, exponent = None, 0, 0
    for block in blocks:
        block = as_float64(block, "The Jacobian")
        columns += block.shape[1]
        if triangle is None or not triangle.any():  # the first block that is not zero tells the size of all
            exponent = exponent_of(size_of(block))
        block = times_power(block, -exponent)
        rows = block.mT if triangle is None else torch.cat([triangle, block.mT])
        del block  # before the decomposition copies the rows
        triangle = torch.linalg.qr(rows, mode="r").R
        del rows
    if triangle is None:
        raise Refused("empty", "There is no block of the Jacobian; at least one was expected.")
    values = torch.linalg.svdvals(triangle)
    largest = values[0].item()
    if largest == 0:
        raise Refused("zero-matrix", "The Jacobian is zero: no eigenvalue to divide by. Check weights and data.")
    rank = numerical_rank(values, max(columns, triangle.shape[1]))
    smallest = max(values[rank - 1].item(), EPS * largest)
    gap = smallest / max(values[rank].item() if rank < len(values) else 0.0, EPS * largest)
    return ConditionNumber(largest**2, smallest**2, rank, gap**2, 2 / gap, BY_FACTOR).rescale(2 * exponent)
