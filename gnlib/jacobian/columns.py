"""Columns of the Jacobian: made of the features and gradients of calls, and added to a Gram matrix."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gnlib.jacobian.network import Factors
from gnlib.jacobian.record import FactoredRows, Structure

TILE = 1024  # rows of the Gram matrix updated at a time, from the diagonal to the right
DENSE = 0.8  # share of columns that are not zero, above which it takes longer to pack them than to multiply all


def gradients_of(structure: Structure, rows: FactoredRows, calls: Sequence[int]) -> Float[Tensor, "b c t h o"]:
    """Return the gradients by results of calls, at all their positions."""
    own = [(structure.forms[call], rows.gradients[call]) for call in calls]
    by_call = [form.channels(g.flatten(0, 1)).unflatten(0, g.shape[:2]) for form, g in own]
    return by_call[0] if len(by_call) == 1 else torch.cat(by_call, 2)


def features_of(structure: Structure, rows: FactoredRows, calls: Sequence[int]) -> Shaped[Tensor, "b t h i"]:
    """Return the features of calls, at all their positions."""
    by_call = [structure.forms[call].features(rows.inputs[call]) for call in calls]
    return by_call[0] if len(by_call) == 1 else torch.cat(by_call, 1)


def write_columns(
    out: Float[Tensor, "b c columns"],
    tensors: Factors,
    structure: Structure,
    rows: FactoredRows,
    name: str,
    part: slice,
) -> None:
    """Write columns of the Jacobian, gradients by a slice of a flattened parameter, into their place.

    The tensors are all that the network holds: parameters, and masks on them.
    """
    uses = structure.uses.get(name)
    if uses is None:
        g = rows.gradients[name]
        out.copy_(g.reshape(*g.shape[:2], -1)[..., part])
    elif not uses:
        out.zero_()
    else:
        calls = [use.call for use in uses]
        g = gradients_of(structure, rows, calls)
        if uses[0].as_weight:
            size = tensors[name].numel()
            _write_weight_columns(out, features_of(structure, rows, calls), g, size, part)
        else:
            out.copy_(g.sum(2).flatten(2)[..., part])
        if (mask := uses[0].mask) is not None:
            out.mul_(tensors[mask].flatten()[part])


def _write_weight_columns(
    out: Float[Tensor, "b c columns"],
    f: Shaped[Tensor, "b t h i"],
    g: Float[Tensor, "b c t h o"],
    size: int,
    part: slice,
) -> None:
    """Write gradients by a slice of a flattened weight, from the least number of its rows that has all of it."""
    groups, outputs = g.shape[3:]
    inputs = size // (groups * outputs)
    indices = not f.is_floating_point()
    row = outputs if indices else inputs if groups == 1 else outputs * inputs  # entries of a token, a unit, or a group
    some = slice(part.start // row, -(-part.stop // row))
    if indices:
        chosen = f == torch.arange(some.start, some.stop, device=f.device)
        columns = torch.einsum("bthi,bctho->bchio", chosen.to(g.dtype), g)
    elif groups == 1:
        weights, values = g[:, :, :, 0, some].mT.flatten(1, 2), f[:, :, 0]
        if out.is_contiguous() and out.shape[2] == weights.shape[1] // g.shape[1] * inputs:
            torch.bmm(weights, values, out=out.view(len(g), -1, inputs))
            return
        columns = torch.bmm(weights, values).unflatten(1, (*g.shape[1:2], -1))
    elif row == 1:  # a scale
        columns = (g[:, :, :, some] * f[:, None, :, some]).sum(2)
    else:
        columns = torch.einsum("bthi,bctho->bchoi", f[:, :, some], g[:, :, :, some])
    out.copy_(columns.flatten(2)[..., part.start - some.start * row : part.stop - some.start * row])


def add_columns(gram: Float[Tensor, "r r"], block: Float[Tensor, "r q"]) -> None:
    """Add `block @ block.mT` to the blocks of a matrix on the diagonal and above it; overwrites `block`."""
    if block[:: max(len(block) // 8, 1)].any(0).sum() < DENSE * block.shape[1]:
        nonzero = block.any(0).nonzero()[:, 0]  # masks and dead units: pack the other columns, in place
        for some in block.split(64):
            some[:, : len(nonzero)] = some[:, nonzero]
        block = block[:, : len(nonzero)]
    tile = min(TILE, -(-len(gram) // 8))
    for start in range(0, len(gram), tile):
        gram[start : start + tile, start:].addmm_(block[start : start + tile], block[start:].mT)


def mirror(matrix: Float[Tensor, "r r"]) -> Float[Tensor, "r r"]:
    """Copy the entries of a matrix above its diagonal to their places below, tile by tile."""
    for start in range(0, len(matrix), TILE):
        stop = start + TILE
        diagonal = matrix[start:stop, start:stop]
        diagonal.copy_(diagonal.triu() + diagonal.triu(1).mT)
        matrix[stop:, start:stop] = matrix[start:stop, stop:].mT
    return matrix
