r"""Bounds on the conditioning of deep networks with any activation, from small matrices.

Schur's product theorem, for blocks: let A (n x n) and B (n x n blocks of k x k) be positive semi-definite, and let
:math:`A \circ B` have the blocks :math:`A_{ij} B_{ij}`. A smaller A, or a smaller B, makes a smaller product. So

.. math::
    \lambda_{\min}(A) \operatorname{diag}_i(B_{ii}) \preceq A \circ B \preceq \lambda_{\max}(A)
    \operatorname{diag}_i(B_{ii}), \qquad
    \lambda_{\min}(B) \operatorname{diag}_i(A_{ii} I_k) \preceq A \circ B \preceq \lambda_{\max}(B)
    \operatorname{diag}_i(A_{ii} I_k) ,

and with :math:`A = S C S`, C of unit diagonal, also :math:`\lambda_{\min}(C) \operatorname{diag}_i(A_{ii} B_{ii})
\preceq A \circ B \preceq \lambda_{\max}(C) \operatorname{diag}_i(A_{ii} B_{ii})`. All six are block diagonal. The
kernel is a sum of such products, one a layer, with :math:`A = F_l F_l^\top` and :math:`B_{ij} = G_{li} G_{lj}^\top`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.chapters.deep_nonlinear.chain import Layer
from gnlib.chapters.shared.extremes import Ends, Interval, resolved_squares
from gnlib.checks import EPS, numerical_rank

Blocks = Float[Tensor, "n k k"]


class ChainBound(NamedTuple):
    """Bounds of both ends of the spectrum of a chain's kernel, and which layers do not help the smallest.

    Attributes
    ----------
    ends
        bounds of the extreme eigenvalues; `ends.condition` are those of the condition number
    silent
        by the number of a layer, from 1 on, why it adds nothing to the lower bound of the smallest eigenvalue
    """

    ends: Ends
    silent: dict[int, str]

    def __str__(self) -> str:
        """Return one sentence."""
        lower, upper = self.ends.condition
        if self.ends.smallest.lower > 0:
            return f"The condition number is between {lower:.4g} and {upper:.4g}."
        reasons = "; ".join(f"layer {number} {reason}" for number, reason in self.silent.items())
        return f"The bound is infinite, since no layer holds the smallest eigenvalue up: {reasons}."


def schur_ends(layers: Sequence[Layer]) -> Ends:
    r"""Return the plain bounds, one pair of scalars a layer.

    .. math::
        \frac1n \min_i \lambda_{\min} \Bigl( \sum_l \lambda_{\min}(F_l F_l^\top)\, G_{li} G_{li}^\top \Bigr)
        \le \lambda(\widehat G) \le
        \frac1n \max_i \lambda_{\max} \Bigl( \sum_l \lambda_{\max}(F_l F_l^\top)\, G_{li} G_{li}^\top \Bigr)

    The other sides are as for :func:`chain_bound`.

    Parameters
    ----------
    layers
        as :func:`gnlib.chapters.deep_nonlinear.chain.layers_of` returns them

    Examples
    --------
    >>> import torch
    >>> one = Layer(torch.diag(torch.tensor([1.0, 2.0])).double(), torch.ones(2, 1, 1).double())
    >>> schur_ends([one]).condition
    Interval(lower=4.0, upper=4.0)
    """
    n = len(layers[0].features)
    largest, smallest = zip(*(resolved_squares(features.mT) for features, _ in layers), strict=True)
    top, bottom = (
        _spectra(sum(end * layer.blocks for end, layer in zip(ends, layers, strict=True)))
        for ends in (largest, smallest)
    )
    return _ends(bottom[:, 0].min() / n, top[:, -1].max() / n, layers)


def chain_bound(layers: Sequence[Layer]) -> ChainBound:
    r"""Return the sharper bounds of both ends of the spectrum, from either side.

    Of the three block diagonal matrices below each product (see the module) the one of the largest smallest eigenvalue
    is taken, M; of the three above, the one of the smallest largest, N. They are summed whole, and the last layer,
    whose product is :math:`F_L F_L^\top \otimes I_k`, is kept as it is:

    .. math::
        \lambda_{\min}(n \widehat G) \ge \lambda_{\min}\Bigl(F_L F_L^\top
        + \operatorname{diag}_i \lambda_{\min} \bigl(\textstyle\sum_{l < L} M_{li}\bigr)\Bigr), \qquad
        \lambda_{\max}(n \widehat G) \le \lambda_{\max}\Bigl(F_L F_L^\top
        + \operatorname{diag}_i \lambda_{\max} \bigl(\textstyle\sum_{l < L} N_{li}\bigr)\Bigr) .

    The same with the first kind of matrix in all layers is no worse than :func:`schur_ends`; the better of the two
    counts. From the other side both ends are bounded by those of the mean of the kernel over outputs, `n x n`, and of
    its diagonal blocks, `k x k`.

    Parameters
    ----------
    layers
        as :func:`gnlib.chapters.deep_nonlinear.chain.layers_of` returns them

    Returns
    -------
    The bounds, for all `nk` eigenvalues, zeros among them. They take singular values of each :math:`F_l`, `n x m`, and
    of the derivatives, `nk x m`, and eigenvalues of `n x n` and `k x k` matrices.

    References
    ----------
    R. A. Horn, C. R. Johnson (1991), Topics in matrix analysis, chapter 5.

    Examples
    --------
    >>> import torch
    >>> from gnlib.chapters.deep_nonlinear.chain import layers_of
    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1, bias=False))
    >>> for layer in network[::2]:
    ...     _ = torch.nn.init.constant_(layer.weight, 1.0)
    >>> _ = torch.nn.init.zeros_(network[0].bias)
    >>> print(chain_bound(layers_of(network, torch.eye(2))))
    The condition number is between 5 and 5.
    """
    *hidden, last = layers
    below, above = zip(*(_block_diagonals(layer) for layer in hidden), strict=True) if hidden else ((), ())
    least = [max(choices, key=lambda m: _spectra(m)[:, 0].min()) for choices in below]
    most = [min(choices, key=lambda m: _spectra(m)[:, -1].max()) for choices in above]
    plain_least, plain_most = ([choices[0] for choices in side] for side in (below, above))
    bottom = max(_with_last(last, blocks)[1] for blocks in (least, plain_least))
    top = min(_with_last(last, blocks)[0] for blocks in (most, plain_most))
    silent = {
        number: _reason(layer) for number, layer in enumerate(hidden, 1) if not _spectra(least[number - 1])[:, 0].min()
    }
    if not _with_last(last, [])[1]:
        silent[len(layers)] = _reason(last)
    n = len(last.features)
    return ChainBound(_ends(bottom / n, top / n, layers), silent)


def _block_diagonals(layer: Layer) -> tuple[list[Blocks], list[Blocks]]:
    """Return block diagonal matrices below the product of a layer, two, and above it, four."""
    diagonal, blocks = layer.features.square().sum(1)[:, None, None], layer.blocks
    identity = torch.eye(blocks.shape[1], dtype=blocks.dtype, device=blocks.device)
    below, above = [], []
    for balanced, (own, theirs) in enumerate([(identity, torch.ones_like(diagonal)), (blocks, diagonal)]):
        features, derivatives = (_balanced(factor) if balanced else factor for factor in (layer.features[:, None], layer.derivatives))
        (a_top, a), (b_top, b) = (resolved_squares(factor.flatten(0, 1).mT) for factor in (features, derivatives))
        below.append(a * theirs * blocks + b * (diagonal - a * theirs) * own)
        above.append(a_top * theirs * blocks + b * (diagonal - a_top * theirs) * own)
        above.append(b_top * diagonal * own + a * theirs * (blocks - b_top * own))
    return below, above


def _balanced(factor: Float[Tensor, "n k m"]) -> Float[Tensor, "n k m"]:
    """Return factors with orthonormal rows, each a symmetric matrix away from one of the old."""
    u, _, vt = torch.linalg.svd(factor, full_matrices=False)
    return u @ vt


def _with_last(last: Layer, blocks: Sequence[Blocks]) -> tuple[Tensor, Tensor]:
    """Return both ends of the sum of the last layer's product, kept whole, and block diagonal matrices, over outputs."""
    factor = torch.linalg.qr(last.features.mT, mode="r").R.mT  # as many columns as rows at most
    if not blocks:
        return resolved_squares(factor.mT)
    values = _spectra(sum(blocks))
    top, bottom = (torch.cat([factor, values[:, end].sqrt().diag()], 1) for end in (-1, 0))
    return resolved_squares(top.mT)[0], resolved_squares(bottom.mT)[1]


def _spectra(blocks: Blocks) -> Float[Tensor, "n k"]:
    """Return the eigenvalues of each block, ascending; what is nothing but rounding is zero."""
    values = torch.linalg.eigvalsh(blocks)
    return values.where(values > values.shape[1] * EPS * values[:, -1:], 0)


def _ends(bottom: Tensor, top: Tensor, layers: Sequence[Layer]) -> Ends:
    """Return outer bounds with the inner ones, of the mean of the kernel over outputs and of its diagonal blocks."""
    n, k, _ = layers[0].derivatives.shape
    mean = sum((f @ f.mT) * (g.flatten(1) @ g.flatten(1).mT) for f, g in layers) / k
    blocks = sum(layer.features.square().sum(1)[:, None, None] * layer.blocks for layer in layers)
    spectra = [torch.linalg.eigvalsh(matrix).clamp_min(0) / n for matrix in (mean, blocks)]
    return Ends(
        Interval(bottom.item(), min(values.min().item() for values in spectra)),
        Interval(max(values.max().item() for values in spectra), top.item()),
    )


def _reason(layer: Layer) -> str:
    """Say why a layer adds nothing to the smallest eigenvalue."""
    features, derivatives = layer
    n, k, _ = derivatives.shape
    if not features.any():
        return "has no input that is not zero"
    if not derivatives.any():
        return "is one that no output depends on"
    rank = numerical_rank(torch.linalg.svdvals(features), max(features.shape))
    if rank < n:
        return f"has features of rank {rank} on {n} samples"
    ranks = (_spectra(layer.blocks) > 0).sum(1)
    return f"reaches {ranks.min()} of {k} outputs on sample {ranks.argmin()}"
