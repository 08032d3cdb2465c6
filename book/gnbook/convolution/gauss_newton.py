r"""The Gauss-Newton matrix of a linear convolutional network whose filters are shared between positions.

What the network puts out at a position is a linear function of the patch of the input that it sees from there, the same
function at all positions: correlation with an effective filter h. So with the second moment S of all patches

.. math:: G = H^\top (I_{c_L} \otimes S) H, \qquad H = \partial h / \partial \theta,

and any other patches with that second moment would do: r of them, if r is its rank. We put them through the network,
and their Gram matrix of size `c_L r` has the non-zero eigenvalues of G.

Zeros that a hidden layer is padded with are not what the layer below computes there. Output positions that see such
zeros at the same places share an effective filter, S and patches: these are few kinds of position.
"""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from gnbook.convolution.networks import Convolution, Option, as_convolutions, convolve
from gnlib.checks import EPS


class Patches(NamedTuple):
    """Patches that stand for all that are seen from output positions of one kind; their outer products add up to S."""

    images: Float[Tensor, "r channels ..."]
    inside: list[Bool[Tensor, "..."]]  # for each layer, what it reads that is no padding; of the first layer, all


def convolution_gauss_newton(
    filters: Sequence[Tensor], x: Tensor, stride: Option = 1, padding: Option = 0
) -> Float[Tensor, "p p"]:
    r"""Return the reduced Gauss-Newton matrix of a linear convolutional network with shared filters.

    It has the non-zero eigenvalues of :math:`\frac1n \sum_i J_i^\top J_i`, where J_i is the derivative of all outputs
    of sample i by the filters, and the size `c_L r` (see the module) or the number of parameters, if that is smaller.
    Samples have the shape `(n, c_0, length)` or `(n, c_0, height, width)`, filters `(out, in, *size)`; stride and
    padding are one for all layers, or one for each. Eigenvalues of S count as zero below `size * eps` of the largest.
    """
    layers, x = as_convolutions(filters, x, stride, padding)
    return gauss_newton_of(layers, virtual_patches(layers, x))


def gauss_newton_of(layers: Sequence[Convolution], patches: Sequence[Patches]) -> Float[Tensor, "p p"]:
    """Return the same of virtual patches, which all networks of these sizes share."""
    factors = [_factors(layers, some) for some in patches]
    *below, last = (torch.cat(parts, 1) for parts in zip(*factors, strict=True))
    c, r = len(layers[-1].filters), last.shape[1]
    below, last = [f.flatten(0, 1) for f in below], last[0]
    if c * r > sum(layer.filters.numel() for layer in layers):
        eye = torch.eye(c, dtype=last.dtype, device=last.device)
        jacobian = torch.cat([*below, torch.einsum("cb,rj->crbj", eye, last).reshape(c * r, -1)], 1)
        return jacobian.mT @ jacobian
    gram = sum((f @ f.mT for f in below), last.new_zeros(c * r, c * r))
    gram.view(c, r, c, r).diagonal(dim1=0, dim2=2).add_((last @ last.mT)[..., None])
    return gram


def virtual_patches(layers: Sequence[Convolution], x: Float[Tensor, "n channels *size"]) -> list[Patches]:
    """Return few patches with the second moment of all, for each kind of output position."""
    moment = torch.zeros(2 * [x[0].numel() + 1], dtype=x.dtype, device=x.device)  # the last input is always zero
    moment[:-1, :-1] = x.flatten(1).mT @ x.flatten(1) / len(x)
    kinds, totals = _kinds(layers, x.device), []
    for inside, reads in kinds:
        total = sum(moment[places][:, places] for places in _flat(reads, x.shape[1:]))
        reached = (path_counts(layers, inside)[0] > 0).expand(x.shape[1], *inside[0].shape).flatten()
        totals.append(total * (reached[:, None] & reached).to(x))  # strides leave places out
    spectra = [torch.linalg.eigh(total) for total in totals]
    least = len(totals[0]) * EPS * max(s[-1].item() for s, _ in spectra)
    window = x.shape[1], *kinds[0][0][0].shape
    return [
        Patches((q * s.clamp_min(0).sqrt())[:, s > least].mT.reshape(-1, *window), inside)
        for (s, q), (inside, _) in zip(spectra, kinds, strict=True)
    ]


def path_counts(layers: Sequence[Convolution], inside: Sequence[Tensor]) -> list[Float[Tensor, "..."]]:
    """Return in how many ways, one tap of each layer, an output depends on each place of the window.

    One tensor for what each layer reads, and one (a single 1) for the output itself.
    """
    counts = [torch.ones(1, 1, *len(layers[0].inputs) * [1], dtype=torch.float64, device=layers[0].filters.device)]
    for layer, mask in zip(reversed(layers), reversed(inside), strict=True):
        taps = torch.ones(1, 1, *layer.filter_size, dtype=torch.float64, device=mask.device)
        counts.append(_spread(counts[-1], taps, layer.stride) * mask)
    return [count[0, 0] for count in reversed(counts)]


def path_moment(filters: Sequence[Tensor], x: Tensor, stride: Option = 1, padding: Option = 0) -> Float[Tensor, "r r"]:
    r"""Return a matrix with the non-zero eigenvalues of the second moment of the paths through a network.

    A path takes one tap of each layer and leads from a place of the input to an output position; where it passes
    through padding it carries zero. An output is a sum over paths, so that this second moment is to a convolutional
    network what that of the data is to a fully connected one: with more and more filters the condition number at
    initialisation tends to the one of this matrix. Of the filters only the sizes matter.
    """
    layers, x = as_convolutions(filters, x, stride, padding)
    return second_moment_of_paths(layers, virtual_patches(layers, x))


def second_moment_of_paths(layers: Sequence[Convolution], patches: Sequence[Patches]) -> Float[Tensor, "r r"]:
    """Return the same of virtual patches, in whose size it is."""
    return joined(layers, patches, [p.images.flatten(2) for p in patches], 0)


def joined(
    layers: Sequence[Convolution], patches: Sequence[Patches], hidden: Sequence[Tensor], level: int
) -> Float[Tensor, "r r"]:
    """Return the products of hidden values of all patches, weighted by the number of paths above that both share.

    The values are `(r, values, places)` for each kind of position: places of the input at level 0, of the output of
    layer l at level l.
    """

    def shared(one: Patches, left: Tensor, other: Patches, right: Tensor) -> Tensor:
        both = [a & b for a, b in zip(one.inside, other.inside, strict=True)]
        weighted = left * path_counts(layers, both)[level].flatten()
        return weighted.flatten(1) @ right.flatten(1).mT

    pairs = list(zip(patches, hidden, strict=True))
    return torch.cat([torch.cat([shared(*some, *others) for others in pairs], 1) for some in pairs])


def hidden_values(layers: Sequence[Convolution], patches: Patches) -> list[Float[Tensor, "r _channels ..."]]:
    """Return what each layer reads when virtual patches are put through the network."""
    hidden = [patches.images]
    for layer, mask in zip(layers[:-1], patches.inside[1:], strict=True):
        hidden.append(convolve(hidden[-1], layer.filters, layer.stride) * mask)
    return hidden


def _factors(layers: Sequence[Convolution], patches: Patches) -> list[Float[Tensor, "_out r _parameters"]]:
    """Return the Jacobian of the outputs for each patch by the filters of each layer (the last: of one output)."""
    hidden = hidden_values(layers, patches)
    c = len(layers[-1].filters)
    above = torch.eye(c, dtype=torch.float64, device=patches.images.device).reshape(c, c, *len(layers[0].inputs) * [1])
    factors = [windows(hidden[-1], layers[-1])[:, 0].flatten(1)[None]]
    for i in range(len(layers) - 1, 0, -1):
        above = _spread(above, layers[i].filters, layers[i].stride) * patches.inside[i]
        factor = torch.einsum("cmi,rinj->crmnj", above.flatten(2), windows(hidden[i - 1], layers[i - 1]))
        factors.append(factor.flatten(2))
    return factors[::-1]


def windows(hidden: Tensor, layer: Convolution) -> Float[Tensor, "r places channels taps"]:
    """Return what the filters of a layer read at each place."""
    axes = len(layer.filter_size)
    for axis, size in enumerate(layer.filter_size, start=2):
        hidden = hidden.unfold(axis, size, layer.stride)
    return hidden.movedim(1, 1 + axes).flatten(1, axes).flatten(3)


def _spread(above: Tensor, filters: Tensor, stride: int) -> Tensor:
    """Return the transpose of a convolution: what each place of its input contributes."""
    transpose = {3: functional.conv_transpose1d, 4: functional.conv_transpose2d}[above.ndim]
    return transpose(above, filters, stride=stride)


def _kinds(layers: Sequence[Convolution], device: torch.device) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Return, for each kind of output position, its masks and what the positions of this kind read along each axis."""
    found = []
    for along in product(*(_axis(layers, axis, device) for axis in range(len(layers[0].inputs)))):
        masks = zip(*(masks for masks, _ in along), strict=True)
        found.append(([_outer(mask) for mask in masks], [reads for _, reads in along]))
    return found


def _axis(
    layers: Sequence[Convolution], axis: int, device: torch.device
) -> list[tuple[list[Bool[Tensor, " _window"]], Int[Tensor, "_outputs _window"]]]:
    """Follow the windows down to the input: for each kind, masks and the positions that are seen (-1 for padding)."""
    start, width, masks = torch.arange(layers[-1].outputs[axis], device=device), 1, []
    for layer in reversed(layers):
        start, width = start * layer.stride - layer.padding, (width - 1) * layer.stride + layer.filter_size[axis]
        places = start[:, None] + torch.arange(width, device=device)
        masks.append((places >= 0) & (places < layer.inputs[axis]))
    reads = places.where(masks.pop(), -1)
    masks.append(torch.ones_like(reads, dtype=torch.bool))
    kinds, kind = torch.cat(masks, 1).unique(dim=0, return_inverse=True)
    widths = [mask.shape[1] for mask in masks]
    return [(list(row.split(widths))[::-1], reads[kind == i]) for i, row in enumerate(kinds)]


def _outer(masks: Sequence[Tensor]) -> Tensor:
    return masks[0] if len(masks) == 1 else masks[0][:, None] & masks[1]


def _flat(windows: Sequence[Int[Tensor, "_ _"]], shape: torch.Size) -> list[Int[Tensor, " inputs"]]:
    """Return the numbers of the inputs in the window of each output position, channels included; -1 for padding."""
    size, found = prod(shape[1:]), []
    for reads in product(*windows):
        places = reads[0]
        if len(reads) == 2:
            places = (reads[0][:, None] * shape[2] + reads[1]).where((reads[0][:, None] >= 0) & (reads[1] >= 0), -1)
        channels = torch.arange(shape[0], device=places.device)[:, None] * size
        found.append((channels + places.flatten()).where(places.flatten() >= 0, -1).flatten())
    return found
