r"""The Gram matrix of a layer past its columns of the Jacobian, by pairs of positions.

The columns of a layer that multiplies features x with its weight are :math:`\sum_t g_t x_t^\top` over positions t, and
their products those of features and of gradients of all pairs of positions.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import product

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gnlib.jacobian.columns import TILE, add_columns, features_of, gradients_of
from gnlib.jacobian.plan import COLUMNS, Layer
from gnlib.jacobian.record import FactoredRows, Structure


class FactoredLayer:
    """The features and the gradients of a layer, for all units and outputs: its columns of the Jacobian, factored."""

    def __init__(self, structure: Structure, layer: Layer, device: torch.device) -> None:
        self._structure, self._layer, self._features = structure, layer, list[Shaped[Tensor, "h b t i"]]()
        self.name = layer.names[0]
        sizes = layer.units, layer.rows // layer.units, layer.outputs
        new = partial(torch.empty, layer.groups, dtype=torch.float64, device=device)
        self._gradients: Float[Tensor, "h n k o t"] = (  # pairs take them position by position in memory
            new(layer.positions, *sizes).movedim(1, -1) if layer.by_pairs else new(*sizes, layer.positions)
        )

    def take(self, rows: FactoredRows) -> None:
        """Keep the factors of some units and outputs."""
        g = gradients_of(self._structure, rows, self._layer.calls)
        self._gradients[:, rows.units, rows.outputs] = g.permute(3, 0, 1, 4, 2)
        if rows.outputs.start == 0:
            used = [self._structure.uses[name][0].as_weight for name in self._layer.names]
            ones = g.new_ones(1, 1, 1, 1).expand(len(g), *g.shape[2:4], 1)  # the features of a bias
            kinds = [features_of(self._structure, rows, self._layer.calls) if weight else ones for weight in used]
            self._features.append((kinds[0] if len(kinds) == 1 else torch.cat(kinds, 3)).permute(2, 0, 1, 3))

    def _by_group(self) -> Iterator[tuple[Shaped[Tensor, "n t i"], Float[Tensor, "n k o t"]]]:
        self._features = [torch.cat(self._features, 1)] if len(self._features) > 1 else self._features
        yield from zip(self._features[0], self._gradients, strict=True)

    def add_to(self, gram: Float[Tensor, "r r"]) -> None:
        """Add the layer's part to the blocks of a matrix on the diagonal and above it."""
        for f, g in self._by_group():
            if self._layer.by_pairs:
                _add_pairs(gram, f, g)
            else:
                for part in g.split(math.ceil(COLUMNS / f.shape[2]), 2):
                    add_columns(gram, torch.bmm(part.flatten(1, 2), f).view(len(gram), -1))

    def trace(self, root: Float[Tensor, "n k r"]) -> float:
        """Return the trace of the layer's part of the matrix of a loss, by few samples at a time."""
        n, k, _ = root.shape
        squares = 0.0
        for f, g in self._by_group():
            coupled = len(g) < n
            g = g.flatten(0, 1).unflatten(0, (n, k))
            size = max(TILE**2 // g[0].numel(), 1)
            for start in range(0, n, size):
                some = slice(start, start + size)
                h = root[some].mT @ g[some].flatten(2)
                h = h.view(1 if coupled else len(h), -1, g.shape[3])
                squares += _sum_of_squares(h, f if coupled else f[some])
        return squares / n


def _add_pairs(gram: Float[Tensor, "r r"], f: Shaped[Tensor, "n t i"], g: Float[Tensor, "n k o t"]) -> None:
    r"""Add the products of two Gram matrices for each pair of positions, without any gradient by a weight.

    The entry of samples i, j and outputs a, b is a sum over positions t, s of
    :math:`(x_{it} \cdot x_{js}) (g_{iat} \cdot g_{jbs})`.
    """
    x, y = f.transpose(0, 1), g.movedim(3, 0).flatten(1, 2)
    n, k = g.shape[:2]
    if n == 1:  # mix gradients by position, as the features say, in place of taking pair after pair
        mixed = torch.einsum("ts,sro->rto", _inner_products(x[:, 0], x[:, 0], y.dtype), y).flatten(1)
        plain = y.transpose(0, 1).flatten(1)
        for start in range(0, k, TILE):
            gram[start : start + TILE, start:].addmm_(mixed[start : start + TILE], plain[start:].mT)
        return
    tile = max(TILE**2 // len(gram) // k, 1)
    for t, s in product(range(len(x)), repeat=2):
        of_features = _inner_products(x[t], x[s], y.dtype)
        for start in range(0, n, tile):
            rows, rest = slice(start * k, (start + tile) * k), slice(start * k, None)
            of_gradients = (y[t, rows] @ y[s, rest].mT).view(-1, k, n - start, k)
            part = gram[rows, rest].unflatten(1, (-1, k)).unflatten(0, (-1, k))
            part.addcmul_(of_gradients, of_features[start : start + tile, None, start:, None])


def _sum_of_squares(g: Float[Tensor, "b q t"], f: Shaped[Tensor, "b t i"]) -> float:
    """Return the squared norm of `g @ f`, by pairs of positions where these are fewer."""
    (q, t), i = g.shape[1:], f.shape[2]
    if f.is_floating_point() and q * i <= t * (q + i):
        return (g @ f).square().sum().item()
    return torch.sum((g.mT @ g) * _inner_products(f, f, g.dtype)).item()


def _inner_products(
    x: Shaped[Tensor, "*b n i"], y: Shaped[Tensor, "*b m i"], dtype: torch.dtype
) -> Float[Tensor, "*b n m"]:
    """Return the inner products of features; of integers, which stand for unit vectors, whether they are equal."""
    return x @ y.mT if x.is_floating_point() else ((x == y.mT) & (x >= 0)).to(dtype)
