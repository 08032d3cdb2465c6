r"""Both ends of the spectrum of :math:`J J^\top` from the singular values of J, never squaring it.

Rounding moves the eigenvalues of a product by `eps` times the largest, and singular values by `eps` times the largest
of those: of condition numbers up to 1e16 the product keeps no digit, the factor half of them.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS, as_float64, numerical_rank
from gnlib.spectrum.result import ConditionNumber


def singular_value_ends(blocks: Iterable[Float[Tensor, "q _columns"]]) -> ConditionNumber:
    """Return both ends of the spectrum of `J J^T` for `J = [block, block, ...]`, which need not exist whole.

    Each block is merged into the triangular factor R of a QR decomposition of `J^T`, which has its singular values.
    Those up to `max(q, p) * eps` times the largest count as zero, where p is the number of columns.
    """
    triangle, columns = None, 0
    for block in blocks:
        block = as_float64(block, "The Jacobian")
        columns += block.shape[1]
        rows = block.mT if triangle is None else torch.cat([triangle, block.mT])
        triangle = torch.linalg.qr(rows, mode="r").R
    if triangle is None:
        raise ValueError("There is no block of the Jacobian; at least one was expected.")
    values = torch.linalg.svdvals(triangle)
    largest = values[0].item()
    if largest == 0:
        raise ValueError("The Jacobian is zero: no eigenvalue to divide by. Check the weights and the data.")
    rank = numerical_rank(values, max(columns, triangle.shape[1]))
    smallest = values[rank - 1].item()
    gap = smallest / max(values[rank].item() if rank < len(values) else 0.0, EPS * largest)
    return ConditionNumber(largest**2, smallest**2, rank, gap**2, 2 / gap, "singular values of the Jacobian, by QR")
