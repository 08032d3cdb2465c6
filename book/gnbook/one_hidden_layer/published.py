r"""The matrix that the public code of Zhao 2024 computes for linear networks, data in one place instead of two.

The second moment stands whole to the right of each term, in place of its root on either side. That changes no
eigenvalue. But a routine for symmetric matrices reads one triangle, and the matrix is symmetric for white data only.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_symmetric
from gnlib.linear.gauss_newton import partial_products


def one_sided(weights: Sequence[Tensor], second_moment: Float[Tensor, "d d"]) -> Float[Tensor, "kd kd"]:
    r"""Return :math:`\sum_\ell A_\ell A_\ell^\top \otimes B_\ell^\top B_\ell \Sigma`, of the eigenvalues of Eq. 5."""
    second_moment = as_symmetric(second_moment, "second_moment")
    return sum(torch.kron(a @ a.mT, b.mT @ b @ second_moment) for a, b in partial_products(weights))


def two_layers_by_one_triangle(weights: Sequence[Tensor], second_moment: Float[Tensor, "d d"]) -> Float[Tensor, " kd"]:
    r"""Return :func:`read_by_one_triangle` of :func:`one_sided` for one hidden layer, block by block.

    :math:`W W^\top \otimes \Sigma` is symmetric, and the other term has the same block for each output, so that the
    eigenvectors of :math:`W W^\top` split what is read into k matrices of d rows.
    """
    second_moment = as_symmetric(second_moment, "second_moment")
    (above, _), (_, below) = partial_products(weights)
    block = below.mT @ below @ second_moment
    outputs = torch.linalg.eigvalsh(above @ above.mT)
    read = torch.cat([read_by_one_triangle(block + value * second_moment) for value in outputs])
    return read.sort(descending=True).values


def read_by_one_triangle(matrix: Float[Tensor, "kd kd"]) -> Float[Tensor, " kd"]:
    """Return the sizes, descending, of the eigenvalues that the lower triangle and its mirror image have."""
    return torch.linalg.eigvalsh(matrix, UPLO="L").abs().sort(descending=True).values
