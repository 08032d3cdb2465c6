r"""The Gauss-Newton matrix of a network with one hidden layer that is not linear, as its Gram matrix.

Let :math:`f(x) = W \varphi(V x)`. With the values h_u of hidden unit u on the n samples, and their derivative
:math:`J_u = \partial h_u / \partial V_u` (n x d), the Gram matrix is a sum over units (Zhao 2024, Eq. 10, over n):

.. math:: \frac1n \sum_{u=1}^{m} J_u J_u^\top \otimes W_u W_u^\top + h_u h_u^\top \otimes I_k.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_samples, as_weights


def leaky_relu_gram(weights: Sequence[Tensor], x: Float[Tensor, "n d"], slope: float) -> Float[Tensor, "nk nk"]:
    r"""Return the Gram form of the Gauss-Newton matrix of `f(x) = W leaky_relu(V x)`.

    Here :math:`J_u = \operatorname{diag}(\varphi'_u) X`, which makes :math:`J_u J_u^\top` the entrywise product of
    :math:`\varphi'_u \varphi_u'^\top` and :math:`X X^\top`. Row `i k + a` of :math:`\frac1n J J^\top` belongs to output
    a of sample i. The derivative at zero is the slope, as in torch.

    An entry is the same with its two outputs swapped, and with its two samples swapped, so that a quarter of the
    matrix has to be computed. This is done for all samples that follow a few (512 / k: a large product, but a small
    array), while their part of the matrix is still in the cache.

    J. Zhao, S. P. Singh, A. Lucchi (2024), NeurIPS 37, section 5, Eq. 10.
    """
    v, w, x = as_hidden_layer(weights, x)
    n, k, data_gram = len(x), len(w), x @ x.mT
    hidden = x @ v.mT
    derivative = torch.ones_like(hidden).where(hidden > 0, slope)
    hidden = derivative * hidden
    gram = hidden.new_empty(n, k, n, k)
    step = max(1, 512 // k)
    for start in range(0, n, step):
        rows, rest, later = slice(start, start + step), slice(start, None), slice(start + step, None)
        outer = hidden[rows] @ hidden[rest].mT / n
        for a in range(k):
            pairs = (w[a] * w[a:] / n)[:, None]
            block = ((pairs * derivative[rows]) @ derivative[rest].mT).mul_(data_gram[rows, rest])
            block[0] += outer
            square = block[:, :, : block.shape[1]]  # in which a product is symmetric up to its rounding only
            square.copy_((square + square.mT) / 2)
            gram[rows, a, rest, a:] = block.permute(1, 2, 0)
            gram[rows, a:, rest, a] = block.transpose(0, 1)
        gram[later, :, rows] = gram[rows, :, later].permute(2, 1, 0, 3)
    return gram.view(n * k, n * k)


def as_hidden_layer(weights: Sequence[Tensor], x: Float[Tensor, "n d"]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the two weight matrices V (m, d) and W (k, m) of a network with one hidden layer, and its samples."""
    matrices, x = as_weights(weights), as_samples(x)
    v, w = matrices
    return v, w, x
