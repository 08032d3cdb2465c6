"""The smallest eigenvalue of a matrix that is badly scaled rather than badly conditioned."""

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.spectrum.dense import dense_ends
from gnlib.spectrum.result import ConditionNumber


def graded_smallest(matrix: Float[Tensor, "p p"]) -> tuple[float, float] | None:
    r"""Return the smallest eigenvalue and its relative error, or None if the matrix is not positive definite.

    Scaled to a unit diagonal, :math:`G = D H D`, a graded matrix is well conditioned, and then all eigenvalues of
    :math:`G^{-1} = D^{-1} H^{-1} D^{-1}` down from the largest are determined to a relative error of about
    :math:`p\, \varepsilon / \lambda_{\min}(H)`, however badly scaled D is (Demmel and Veselic 1992).
    """
    eps = len(matrix) * torch.finfo(matrix.dtype).eps
    scale = matrix.diagonal().clamp_min(0).sqrt()
    if scale.min() == 0:
        return None
    unit = matrix / scale[:, None] / scale
    least = torch.linalg.eigvalsh(unit)[0].item()
    cholesky, failed = torch.linalg.cholesky_ex(unit)
    if failed or least <= eps:
        return None
    inverse = torch.cholesky_inverse(cholesky) / scale[:, None] / scale
    return 1 / torch.linalg.eigvalsh(inverse)[-1].item(), eps / least


def graded_ends(matrix: Float[Tensor, "p p"]) -> ConditionNumber:
    """Return both ends of the spectrum of a matrix that may be graded; if it is singular, from its eigenvalues."""
    found = graded_smallest(matrix)
    if found is None:
        return dense_ends(matrix)
    smallest, error = found
    largest = torch.linalg.eigvalsh(matrix)[-1].item()
    gap = smallest / (torch.finfo(matrix.dtype).eps * largest)
    return ConditionNumber(largest, smallest, len(matrix), gap, error, "eigenvalues of the matrix and of its inverse")
