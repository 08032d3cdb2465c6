r"""Bounds on the conditioning of deep networks with any activation, from small matrices.

Let A (n x n) and B (n x n blocks of k x k) be positive semi-definite, and let :math:`A \circ B` have the blocks
:math:`A_{ij} B_{ij}`. By Schur's product theorem a smaller A, or a smaller B, makes a smaller product. The kernel is a
sum of such products, one a layer, with :math:`A = F_l F_l^\top` and :math:`B_{ij} = G_{li} G_{lj}^\top`, and block
diagonal matrices below and above A and B make block diagonal ones below and above the product.
"""

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.deep_nonlinear.chain import Layer
from gnbook.shared.extremes import Interval, SpectrumBounds, resolved_squares
from gnlib.checks import EPS, as_outputs, numerical_rank

Blocks = Float[Tensor, "n k k"]


class ChainBound(NamedTuple):
    """Bounds of the extreme eigenvalues of a chain's kernel, and the layers that alone would leave it singular.

    `silent` says, by the number of a layer from 1 on, why it alone would not keep the smallest eigenvalue from zero.
    """

    ends: SpectrumBounds
    silent: dict[int, str]

    def __str__(self) -> str:
        """Return one sentence."""
        lower, upper = self.ends.condition
        if self.ends.smallest.lower > 0:
            return f"The condition number is between {lower:.4g} and {upper:.4g}."
        reasons = "; ".join(f"layer {number} {reason}" for number, reason in self.silent.items())
        return f"The bound is infinite, as no layer holds the smallest eigenvalue up: {reasons}."


def schur_ends(layers: Sequence[Layer]) -> SpectrumBounds:
    """Return the plain bounds, one pair of scalars a layer (claim "Bound for any depth")."""
    largest, smallest = zip(*(resolved_squares(features.mT) for features, _ in layers), strict=True)
    top, bottom = (
        _spectra(sum(end * layer.blocks for end, layer in zip(ends, layers, strict=True)))
        for ends in (largest, smallest)
    )
    return _ends(bottom[:, 0].min(), top[:, -1].max(), layers)


def chain_bound(layers: Sequence[Layer]) -> ChainBound:
    """Return sharper lower and upper bounds of the smallest and the largest of all `nk` eigenvalues, zeros among them.

    Block diagonal matrices below and above the product of each layer come from the ends of both factors, as they are
    and scaled to norm one; the best choices count, and the last layer is kept whole (claim "Sharper bound for any
    depth"). From the other side both are bounded by the ends of the mean of the kernel over outputs, and of its blocks.
    """
    *hidden, last = layers
    choices = [(_plain(layer), _scaled(layer)) for layer in hidden]
    below, above = ([[matrix for kind in both for matrix in kind[side]] for both in choices] for side in (0, 1))
    least = [max(matrices, key=lambda m: _spectra(m)[:, 0].min()) for matrices in below]
    most = [min(matrices, key=lambda m: _spectra(m)[:, -1].max()) for matrices in above]
    bottom = max(_with_last(last, blocks)[1] for blocks in (least, *zip(*below, strict=True)))
    top = min(_with_last(last, blocks)[0] for blocks in (most, *zip(*above, strict=True)))
    alone = [*(_spectra(matrix)[:, 0].min() for matrix in least), _with_last(last, [])[1]]
    silent = {number: _reason(layers[number - 1]) for number, end in enumerate(alone, start=1) if not end}
    return ChainBound(_ends(bottom, top, layers), silent)


def head_floor(network: nn.Module, x: Tensor, head: nn.Linear) -> float:
    r"""Return a lower bound of the smallest eigenvalue of the Gauss-Newton matrix of any network with a linear head.

    It is that of :math:`\frac1n (\Phi \Phi^\top + \mathbf 1 \mathbf 1^\top)`, where :math:`\Phi` holds the inputs of
    the head, one row a sample, and the ones are for its bias (claim "Linear head").

    Samples lie along the first axis; the weights of the head train, and no other weights may be those of the head.
    """
    network, head = copy.deepcopy((network, head))
    seen: list[tuple[Tensor, Tensor]] = []
    head.register_forward_hook(lambda _, inputs, product: seen.append((inputs[0], product)))
    with torch.no_grad():
        outputs = as_outputs(network.double()(x.double() if x.is_floating_point() else x), len(x))
    if len(seen) != 1 or seen[0][0].ndim != 2 or not torch.equal(seen[0][1], outputs):
        raise ValueError("The outputs of the network are not those of the head, applied once to one row a sample.")
    ones = [outputs.new_ones(len(x), 1)] * (head.bias is not None)
    return resolved_squares(torch.cat([seen[0][0], *ones], 1).mT)[1].item() / len(x)


def _plain(layer: Layer) -> tuple[list[Blocks], list[Blocks]]:
    """Return block diagonal matrices below and above the product, from the ends of both its factors."""
    (a_top, a), (b_top, b) = (_squares(factor.flatten(0, -2)) for factor in layer)
    diagonal, blocks = layer.features.square().sum(1)[:, None, None], layer.blocks
    identity = torch.eye(blocks.shape[1], dtype=blocks.dtype, device=blocks.device)
    below, *above = (p * blocks + q * (diagonal - p) * identity for p, q in ((a, b), (a_top, b), (a, b_top)))
    return [below], above


def _scaled(layer: Layer) -> tuple[list[Blocks], list[Blocks]]:
    """Return multiples of the diagonal blocks below and above the product."""
    (a_top, a), (b_top, b) = (_squares(_directions(factor)) for factor in (layer.features[:, None], layer.derivatives))
    own = layer.features.square().sum(1)[:, None, None] * layer.blocks
    low = a + b * (1 - a)  # 1 - (1 - a) (1 - b), which would round small a away
    rounding = len(own) * EPS * a_top * b_top  # of the difference to come
    below = torch.maximum(low, 1 - (a_top - 1) * (b_top - 1) - rounding)
    above = 1 + torch.minimum((a_top - 1) * (1 - b), (1 - a) * (b_top - 1))
    return [below * own], [above * own]


def _squares(rows: Float[Tensor, "r m"]) -> tuple[Tensor, Tensor]:
    """Return extreme eigenvalues of `rows @ rows.T`."""
    if len(rows) > rows.shape[1]:  # it is singular, and the other end is had from the smaller matrix
        return torch.linalg.eigvalsh(rows.mT @ rows)[-1], rows.new_zeros(())
    return resolved_squares(rows.mT)


def _directions(factors: Float[Tensor, "n k m"]) -> Float[Tensor, "r m"]:
    """Return orthonormal bases of the rows of each factor, on top of each other; a row of zeros if there are none."""
    _, s, vt = torch.linalg.svd(factors, full_matrices=False)
    live = s > max(factors.shape[1:]) * EPS * s[:, :1]
    return vt[live] if live.any() else factors.new_zeros(1, factors.shape[2])


def _with_last(last: Layer, blocks: Sequence[Blocks]) -> tuple[Tensor, Tensor]:
    """Return the extreme eigenvalues of the last layer's product, kept whole, plus a sum of block diagonal matrices."""
    factor = torch.linalg.qr(last.features.mT, mode="r").R.mT  # as many columns as rows at most
    if not blocks:
        return resolved_squares(factor.mT)
    values = _spectra(sum(blocks))
    top, bottom = (torch.cat([factor, values[:, end].sqrt().diag()], 1) for end in (-1, 0))
    return resolved_squares(top.mT)[0], resolved_squares(bottom.mT)[1]


def _spectra(blocks: Blocks) -> Float[Tensor, "n k"]:
    """Return the eigenvalues of each block, ascending, with zeros in place of mere rounding."""
    values = torch.linalg.eigvalsh(blocks)
    return values.where(values > values.shape[1] * EPS * values[:, -1:], 0)


def _ends(bottom: Tensor, top: Tensor, layers: Sequence[Layer]) -> SpectrumBounds:
    """Return the outer bounds, over n, and the inner ones, of the mean over outputs and of the diagonal blocks."""
    n, k, _ = layers[0].derivatives.shape
    mean = sum((f @ f.mT) * (g.flatten(1) @ g.flatten(1).mT) for f, g in layers) / k
    blocks = sum(layer.features.square().sum(1)[:, None, None] * layer.blocks for layer in layers)
    spectra = [torch.linalg.eigvalsh(matrix).clamp_min(0) for matrix in (mean, blocks)]
    return SpectrumBounds(
        Interval(bottom.item() / n, min(values.min().item() for values in spectra) / n),
        Interval(max(values.max().item() for values in spectra) / n, top.item() / n),
    )


def _reason(layer: Layer) -> str:
    """Return the reason why a layer alone would leave the smallest eigenvalue at zero."""
    n, k, _ = layer.derivatives.shape
    if not layer.features.any():
        return "has no input other than zero"
    if not layer.derivatives.any():
        return "is one that no output depends on"
    ranks = (_spectra(layer.blocks) > 0).sum(1)
    if ranks.min() < k:
        return f"reaches {ranks.min()} of {k} outputs on sample {ranks.argmin()}"
    rank = numerical_rank(torch.linalg.svdvals(layer.features), max(layer.features.shape))
    return f"has features of rank {rank} on {n} samples"
