"""From features and gradients to columns of the Jacobian, or past them to the Gram matrix."""

import math
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from gnlib.jacobian.network import Network
from gnlib.jacobian.record import Rows, Structure

COLUMNS = 1024  # of the Jacobian at a time; fewer are not worth a forward and a backward pass for each sample
TILE = 1024  # rows of the Gram matrix updated at a time, from the diagonal to the right
FULL = 0.8  # share of columns that are not zero, above which it takes longer to pack them than to multiply all
UPDATE = 64  # products that take as long as to multiply an entry of the result by another and add it


class Layer(NamedTuple):
    """Parameters with the same gradients by what their calls return, and the sizes that say what they cost.

    Attributes
    ----------
    names
        a weight, a bias, or both
    calls
        the numbers of the calls that use them
    positions, groups, features, outputs
        positions of a unit in all calls, groups of channels, features and outputs of a group
    """

    names: tuple[str, ...]
    calls: tuple[int, ...]
    positions: int
    groups: int
    features: int
    outputs: int

    def products(self, units: int, rows: int) -> float:
        """Return the number of products for all pairs of positions, of half of the symmetric result."""
        if units == 1:
            each = self.positions * rows * self.outputs * (self.positions + rows / 2)
        else:
            each = self.positions**2 * (rows**2 / 2 * (self.outputs + UPDATE) + units**2 * self.features)
        return self.groups * each

    def pays(self, units: int, rows: int) -> bool:
        """Say whether these are fewer than by columns of the Jacobian."""
        return self.products(units, rows) < rows * self.columns * (self.positions + rows / 2)

    @property
    def columns(self) -> int:
        """Number of columns of the Jacobian."""
        return self.groups * self.features * self.outputs

    def width(self, units: int, rows: int) -> int:
        """Return how many columns of the Jacobian take as much memory as gradients and features."""
        return self.positions * self.groups * (self.outputs + math.ceil(self.features * units / rows))


def gradients(structure: Structure, rows: Rows, calls: tuple[int, ...]) -> Float[Tensor, "b c t h o"]:
    """Return the gradients by what calls return, at all their positions."""

    def one(call: int) -> Tensor:
        found = rows.gradients[call]
        return structure.forms[call].channels(found.flatten(0, 1)).unflatten(0, found.shape[:2])

    return one(calls[0]) if len(calls) == 1 else torch.cat([one(call) for call in calls], 2)


def features(structure: Structure, rows: Rows, calls: tuple[int, ...]) -> Shaped[Tensor, "b t h i"]:
    """Return what calls multiply their weights with, at all their positions."""
    found = [structure.forms[call].features(rows.inputs[call]) for call in calls]
    return found[0] if len(found) == 1 else torch.cat(found, 1)


def write_columns(
    out: Float[Tensor, "b c columns"], network: Network, structure: Structure, rows: Rows, name: str, part: slice
) -> None:
    """Write columns of the Jacobian, gradients by a slice of a flattened parameter, into their place."""
    uses = structure.uses.get(name)
    if uses is None:
        found = rows.gradients[name]
        out.copy_(found.reshape(*found.shape[:2], -1)[..., part])
    elif not uses:
        out.zero_()
    else:
        calls = tuple(use.call for use in uses)
        g = gradients(structure, rows, calls)
        if uses[0].as_weight:
            size = network.parameters[name].numel()
            _write_weight_columns(out, features(structure, rows, calls), g, size, part)
        else:
            out.copy_(g.sum(2).flatten(2)[..., part])
        if (mask := uses[0].mask) is not None:
            out.mul_({**network.frozen, **network.buffers}[mask].flatten()[part])


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
    if not f.is_floating_point():  # rows of an embedding
        row = outputs
    elif groups == 1:
        row = inputs
    else:
        row = outputs * inputs
    some = slice(part.start // row, -(-part.stop // row))
    if not f.is_floating_point():
        chosen = f == torch.arange(some.start, some.stop, device=f.device)
        found = torch.einsum("bthi,bctho->bchio", chosen.to(g.dtype), g)
    elif groups == 1:
        weights, values = g[:, :, :, 0, some].mT.flatten(1, 2), f[:, :, 0]
        if out.is_contiguous() and out.shape[2] == weights.shape[1] // g.shape[1] * inputs:
            torch.bmm(weights, values, out=out.view(len(g), -1, inputs))
            return
        found = torch.bmm(weights, values).unflatten(1, (*g.shape[1:2], -1))
    elif row == 1:  # a scale
        found = (g[:, :, :, some] * f[:, None, :, some]).sum(2)
    else:
        found = torch.einsum("bthi,bctho->bchoi", f[:, :, some], g[:, :, :, some])
    out.copy_(found.flatten(2)[..., part.start - some.start * row : part.stop - some.start * row])


def add_columns(gram: Float[Tensor, "r r"], block: Float[Tensor, "r q"]) -> None:
    """Add `block @ block.mT` to the blocks of a matrix on the diagonal and above it; overwrites `block`."""
    if block[:: max(len(block) // 8, 1)].any(0).sum() < FULL * block.shape[1]:
        nonzero = block.any(0).nonzero()[:, 0]  # masks and dead units: pack the other columns, in place
        for some in block.split(64):
            some[:, : len(nonzero)] = some[:, nonzero]
        block = block[:, : len(nonzero)]
    tile = min(TILE, -(-len(gram) // 4))
    for start in range(0, len(gram), tile):
        gram[start : start + tile, start:].addmm_(block[start : start + tile], block[start:].mT)


class Held:
    """Features and gradients of a layer for all units and outputs, where that takes less than columns would.

    Attributes
    ----------
    layer
        which it is
    gradients
        by what the layer returns, `(h, n, k, o, t)`
    """

    def __init__(self, structure: Structure, layer: Layer, units: int, outputs: int, device: torch.device) -> None:
        self._structure, self.layer, self._features = structure, layer, list[Shaped[Tensor, "h b t i"]]()
        sizes = units, outputs, layer.outputs
        new = partial(torch.empty, dtype=torch.float64, device=device)
        if layer.pays(units, units * outputs):  # position by position
            self._add, self.gradients = add_pairs, new(layer.groups, layer.positions, *sizes).movedim(1, -1)
        else:
            self._add, self.gradients = add_held_columns, new(layer.groups, *sizes, layer.positions)

    def take(self, rows: Rows) -> None:
        """Keep what belongs to some units and outputs."""
        found = gradients(self._structure, rows, self.layer.calls)
        self.gradients[:, rows.units, rows.outputs] = found.permute(3, 0, 1, 4, 2)
        if rows.outputs.start == 0:
            used = [self._structure.uses[name][0].as_weight for name in self.layer.names]
            ones = found.new_ones(1, 1, 1, 1).expand(len(found), *found.shape[2:4], 1)
            kinds = [features(self._structure, rows, self.layer.calls) if weight else ones for weight in used]
            self._features.append((kinds[0] if len(kinds) == 1 else torch.cat(kinds, 3)).permute(2, 0, 1, 3))

    @property
    def features(self) -> Shaped[Tensor, "h n t i"]:
        """Inputs of the layer for all units, as :func:`features` gives them."""
        self._features = [torch.cat(self._features, 1)] if len(self._features) > 1 else self._features
        return self._features[0]

    def add_to(self, gram: Float[Tensor, "r r"]) -> None:
        """Add the layer's part to the blocks of a matrix on the diagonal and above it."""
        for f, g in zip(self.features, self.gradients, strict=True):
            self._add(gram, f, g)

    def squares(self, root: Float[Tensor, "n k r"]) -> float:
        r"""Return the sum of the squares of :math:`R^\top J` over the columns of the layer, few samples at a time."""
        n, k, _ = root.shape
        total = 0.0
        for f, g in zip(self.features, self.gradients, strict=True):
            coupled = len(g) < n
            g = g.flatten(0, 1).unflatten(0, (n, k))
            size = max(TILE**2 // g[0].numel(), 1)
            for start in range(0, n, size):
                some = slice(start, start + size)
                h = root[some].mT @ g[some].flatten(2)
                h = h.view(1 if coupled else len(h), -1, g.shape[3])
                total += _sum_of_squares(h, f if coupled else f[some])
        return total

    def alive(self, parameter: Tensor) -> Bool[Tensor, " rows"]:
        """Say for each row of a parameter whether a gradient that reaches it meets a feature; neither of them is 0."""
        rows = parameter.shape[:1].numel()
        alive = []
        for f, g in zip(self.features, self.gradients, strict=True):
            reached = g.any(1)  # by any output of a unit, `(n, o, t)`
            if not f.is_floating_point():
                found = torch.zeros(rows, dtype=torch.bool, device=g.device)
                tokens = f[..., 0][reached.any(1)]
                found[tokens[tokens >= 0]] = True
                return found
            alive.append((reached & f.any(2)[:, None]).any(2).any(0))
        entries = torch.cat(alive).repeat_interleave(parameter.numel() // self.layer.groups // self.layer.outputs)
        return entries.view(rows, -1).any(1)


def add_held_columns(gram: Float[Tensor, "r r"], f: Float[Tensor, "n t i"], g: Float[Tensor, "n k o t"]) -> None:
    """Add columns of the Jacobian, made some at a time."""
    for part in g.split(math.ceil(COLUMNS / f.shape[2]), 2):
        add_columns(gram, torch.bmm(part.flatten(1, 2), f).view(len(gram), -1))


def add_pairs(gram: Float[Tensor, "r r"], f: Shaped[Tensor, "n t i"], g: Float[Tensor, "n k o t"]) -> None:
    r"""Add the products of two Gram matrices for each pair of positions, without any gradient by a weight.

    The entry of samples i, j and outputs a, b is a sum over positions t, s of
    :math:`(x_{it} \cdot x_{js}) (g_{iat} \cdot g_{jbs})`.
    """
    x, y = f.transpose(0, 1), g.movedim(3, 0).flatten(1, 2)
    n, k = g.shape[:2]
    if n == 1:  # mix gradients by position, as the features say, in place of taking pair after pair
        mixed = torch.einsum("ts,sro->rto", _products(x[:, 0], x[:, 0], y.dtype), y).flatten(1)
        plain = y.transpose(0, 1).flatten(1)
        for start in range(0, k, TILE):
            gram[start : start + TILE, start:].addmm_(mixed[start : start + TILE], plain[start:].mT)
        return
    tile = max(TILE**2 // len(gram) // k, 1)
    for t, s in product(range(len(x)), repeat=2):
        products = _products(x[t], x[s], y.dtype)
        for start in range(0, n, tile):
            rows, rest = slice(start * k, (start + tile) * k), slice(start * k, None)
            found = (y[t, rows] @ y[s, rest].mT).view(-1, k, n - start, k)
            part = gram[rows, rest].unflatten(1, (-1, k)).unflatten(0, (-1, k))
            part.addcmul_(found, products[start : start + tile, None, start:, None])


def _sum_of_squares(g: Float[Tensor, "b q t"], f: Shaped[Tensor, "b t i"]) -> float:
    """Return the squared norm of `g @ f`, by pairs of positions where these are fewer."""
    (q, t), i = g.shape[1:], f.shape[2]
    if f.is_floating_point() and q * i <= t * (q + i):
        return (g @ f).square().sum().item()
    return torch.sum((g.mT @ g) * _products(f, f, g.dtype)).item()


def _products(x: Shaped[Tensor, "*b n i"], y: Shaped[Tensor, "*b m i"], dtype: torch.dtype) -> Float[Tensor, "*b n m"]:
    return x @ y.mT if x.is_floating_point() else ((x == y.mT) & (x >= 0)).to(dtype)
