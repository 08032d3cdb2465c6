r"""The condition number that the public code of Zhao 2024 computes for Figure 8.

The spectrum of :math:`T_1 T_1^\top \otimes \Sigma + I \otimes R\, T_0^\top T_0 R` for two Toeplitz matrices. With
:math:`R = \Sigma^{1/2}` it is the matrix of Eq. 5, for weights that are not shared. The code writes `S**1/2`, which in
Python is half of S.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.convolution.networks import toeplitz
from gnlib.checks import numerical_rank


def two_layer_eigenvalues(
    filters: list[Tensor], second_moment: Float[Tensor, "d d"], factor: Float[Tensor, "d d"]
) -> Float[Tensor, " kd"]:
    r"""Return all eigenvalues of the formula, in descending order of their sizes; `factor` is :math:`R`.

    An eigenvalue :math:`\lambda` of :math:`T_1 T_1^\top` has the block :math:`\lambda \Sigma + R\, T_0^\top T_0 R` to
    itself, of the size of the data.
    """
    first, second = filters
    pixels = len(second_moment)
    inner, outer = toeplitz(first, pixels), toeplitz(second, pixels - first.shape[-1] + 1)
    middle = inner @ factor
    above = torch.linalg.eigvalsh(outer @ outer.mT)
    found = torch.linalg.eigvalsh(above[:, None, None] * second_moment + middle.mT @ middle).flatten()
    return found[found.abs().argsort(descending=True)]


def pseudo_condition(eigenvalues: Float[Tensor, " kd"]) -> float:
    """Return the largest size over the smallest that a relative threshold counts, as the public code has it."""
    sizes = eigenvalues.abs()
    return (sizes[0] / sizes[numerical_rank(sizes, len(sizes)) - 1]).item()
