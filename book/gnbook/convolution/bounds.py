r"""Upper bounds for linear convolutional networks with shared filters, the counterparts of those for dense layers.

The filters are unfolded to :math:`A_\ell = W_L \cdots W_{\ell+1}` and :math:`B_\ell = W_{\ell-1} \cdots W_1`, where
channels are contracted and taps are kept: a row or column for each choice of taps (claim "Shared filters, sum over
paths"). T is the second moment of the paths (:func:`gnbook.convolution.gauss_newton.path_moment`).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.convolution.gauss_newton import hidden_values, joined, second_moment_of_paths, virtual_patches, windows
from gnbook.convolution.networks import Option, as_convolutions
from gnbook.shared.extremes import resolved_squares
from gnlib.checks import EPS, numerical_rank


def convolution_bound(filters: Sequence[Tensor], x: Tensor, stride: Option = 1, padding: Option = 0) -> float:
    r"""Return the counterpart of Lemma 2, first bound, for shared filters (claim "Lemma 2 for shared filters").

    It is infinite where every term of the denominator is zero.
    """
    layers, x = as_convolutions(filters, x, stride, padding)
    values = _nonzero(second_moment_of_paths(layers, virtual_patches(layers, x)))[0]
    weights = [layer.filters.flatten(2) for layer in layers]
    above, below = (
        [resolved_squares(a.mT) for a in _unfolded(some)]
        for some in (weights, [w.transpose(0, 1) for w in reversed(weights)])
    )
    largest, smallest = (sum(a[end] * b[end] for a, b in zip(above, reversed(below), strict=True)) for end in (0, 1))
    return (values[-1] / values[0] * largest / smallest).item()


def sharp_convolution(filters: Sequence[Tensor], x: Tensor, stride: Option = 1, padding: Option = 0) -> float:
    """Return the bound of claim "Sharper bound for shared filters", never above :func:`convolution_bound`.

    It keeps the data and the layers below whole; infinite where its denominator is singular on the range of T.
    """
    layers, x = as_convolutions(filters, x, stride, padding)
    patches = virtual_patches(layers, x)
    basis = _nonzero(second_moment_of_paths(layers, patches))[1]
    hidden = zip(*(hidden_values(layers, p) for p in patches), strict=True)
    top = bottom = 0
    unfolded = _unfolded([layer.filters.flatten(2) for layer in layers])
    for level, (layer, values, a) in enumerate(zip(layers, hidden, unfolded, strict=True), start=1):
        read = [windows(h, layer).flatten(2).mT for h in values]
        term = basis.mT @ joined(layers, patches, read, level) @ basis
        largest, smallest = resolved_squares(a.mT)
        top, bottom = top + largest * term, bottom + smallest * term
    largest, smallest = torch.linalg.eigvalsh(top)[-1], torch.linalg.eigvalsh(bottom)[0]
    resolved = smallest > len(basis.mT) * EPS * largest
    return (largest / smallest).item() if resolved else float("inf")


def _unfolded(weights: Sequence[Float[Tensor, "_out _in _taps"]]) -> list[Float[Tensor, "_rows _filters"]]:
    """Return the A of all layers; transposed, they are the B of transposed weights in reverse order."""
    above = [torch.eye(len(weights[-1]), dtype=weights[-1].dtype, device=weights[-1].device)]
    for w in reversed(weights[1:]):
        above.append(torch.einsum("am,mnj->ajn", above[-1], w).flatten(0, 1))
    return above[::-1]


def _nonzero(matrix: Float[Tensor, "p p"]) -> tuple[Float[Tensor, " r"], Float[Tensor, "p r"]]:
    values, vectors = torch.linalg.eigh(matrix)
    zeros = len(values) - numerical_rank(values, len(values))
    return values[zeros:], vectors[:, zeros:]
