r"""The Gram matrix of the Jacobian of networks, accumulated over layers; the Jacobian is never held whole.

A layer that multiplies features x with its weight goes to the Gram matrix as columns of the Jacobian,
:math:`\sum_t g_t x_t^\top` over positions t, or past them, by the products of features and of gradients of all pairs
of positions, whichever takes fewer operations (:mod:`gnlib.jacobian.plan`).
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from gnlib.files import progress
from gnlib.jacobian.network import Factors, Network
from gnlib.jacobian.plan import (
    COLUMNS,
    TILE,
    Group,
    Layer,
    Plan,
    count_rows,
    count_units,
    label_progress,
    plan_of,
)
from gnlib.jacobian.record import FactoredRows, Structure, factored_rows, structures_of

DENSE = 0.8  # share of columns that are not zero, above which it takes longer to pack them than to multiply all


class NotFiniteError(ValueError):
    """The Jacobian of a network, or its product with itself, has entries that are not finite."""


class LayerTrace(NamedTuple):
    r"""The part of a parameter in the Gram matrix of a loss, :math:`R^\top K R` with :math:`K = \frac1n J J^\top`.

    Attributes
    ----------
    trace
        the trace of :math:`R^\top K_\ell R`, where :math:`K_\ell` is made of the columns of J for this parameter alone
    alive
        for each row of the parameter, along its first axis, whether any of its columns of J has an entry that is not 0
    """

    trace: float
    alive: Bool[Tensor, " rows"]


def gram_of(networks: Sequence[Network], memory: float) -> Float[Tensor, "nk nk"]:
    r"""Return the Gram matrix :math:`\frac1n J J^\top` of networks, one for each batch."""
    return _accumulate(networks, memory, None)


def layered_gram(
    networks: Sequence[Network], memory: float, root: Float[Tensor, "n k r"]
) -> tuple[Float[Tensor, "nk nk"], dict[str, LayerTrace]]:
    r"""Return the Gram matrix K of networks and, by parameter, the trace of its part in :math:`R^\top K R`.

    It takes the memory of :func:`gram_of`. A weight and a bias whose factors are held together stand under the name of
    the first of them.
    """
    traces = _Traces(root, networks[0].parameters)
    return _accumulate(networks, memory, traces), traces.by_parameter


def _accumulate(networks: Sequence[Network], memory: float, traces: "_Traces | None") -> Float[Tensor, "nk nk"]:
    """Sum the Gram matrix over groups of columns and layers, and the traces of its parts if they are asked for."""
    structures, rows = structures_of(networks), count_rows(networks)
    plan = plan_of(networks, structures, memory, result=rows)
    gram = torch.zeros(rows, rows, dtype=torch.float64, device=networks[0].x.device)
    label = label_progress(networks, structures, plan)
    for group in plan.groups:
        blocks, by_parameter, layers = columns_of(networks, structures, plan, group, label, wide=COLUMNS)
        if traces is not None:
            for name, part in group.columns.items():
                traces.add_columns(name, part, by_parameter[name])
            for layer in layers:
                traces.add_layer(layer)
        by_parameter.clear()  # so that each block is freed with its turn
        while blocks:
            add_columns(gram, blocks.pop())
        while layers:
            layers.pop().add_to(gram)
        check_finite(gram.diagonal(), group)
    return mirror(gram).div_(sum(len(network.x) for network in networks))


@torch.inference_mode(False)
@torch.no_grad()
def gauss_newton_of(networks: Sequence[Network], memory: float) -> Float[Tensor, "p p"]:
    r"""Return the Gauss-Newton matrix :math:`\frac1n J^\top J` of networks with few parameters."""
    sizes = {name: p.numel() for name, p in networks[0].parameters.items()}
    p = sum(sizes.values())
    everything = Group({name: slice(0, size) for name, size in sizes.items()}, [])
    matrix = torch.zeros(p, p, dtype=torch.float64, device=networks[0].x.device)
    for network, structure in zip(networks, structures_of(networks), strict=True):
        plan = plan_of([network], [structure], memory, result=p)
        with network.as_template():
            for some in factored_rows(network, structure, [*sizes], plan.units, plan.outputs):
                block = matrix.new_empty(some.units.stop - some.units.start, some.outputs.stop - some.outputs.start, p)
                places = block.split([*sizes.values()], 2)
                for (name, part), place in zip(everything.columns.items(), places, strict=True):
                    _write_columns(place, network, structure, some, name, part)
                add_columns(matrix, block.flatten(0, 1).mT)
    check_finite(matrix.diagonal(), everything)
    return mirror(matrix).div_(sum(len(network.x) for network in networks))


def blocks_of(networks: Sequence[Network], memory: float) -> Iterator[Float[Tensor, "nk g"]]:
    """Return the Jacobian of networks block by block, the columns of the last parameters first."""
    structures = structures_of(networks)
    plan = plan_of(networks, structures, memory, result=0)

    def block_of(group: Group) -> Float[Tensor, "nk g"]:
        (block,), _, _ = columns_of(networks, structures, plan, group)
        check_finite(torch.linalg.vector_norm(block, math.inf), group)
        return block

    return map(block_of, plan.groups)


@torch.inference_mode(False)
@torch.no_grad()
def columns_of(
    networks: Sequence[Network],
    structures: Sequence[Structure],
    plan: Plan,
    group: Group,
    label: str = "Jacobian",
    *,
    wide: float = math.inf,
) -> tuple[list[Float[Tensor, "nk g"]], dict[str, Float[Tensor, "nk g"]], list["FactoredLayer"]]:
    """Return the columns of a group in blocks, the same columns by parameter, and the factors of its layers.

    Each parameter that is wide has a block of its own; the last block holds all others.
    """
    new = partial(torch.empty, count_rows(networks), dtype=torch.float64, device=networks[0].x.device)
    widths = {name: part.stop - part.start for name, part in group.columns.items()}
    columns = {name: new(width) for name, width in widths.items() if width >= wide}
    narrow = {name: width for name, width in widths.items() if width < wide}
    blocks = [*columns.values(), new(sum(narrow.values()))]
    columns |= zip(narrow, blocks[-1].split([*narrow.values()], 1), strict=True)
    layers = [FactoredLayer(networks[0], structures[0], layer) for layer in group.layers]  # of one network only
    names = [*group.columns, *(name for layer in group.layers for name in layer.names)]
    first = 0
    for network, structure in zip(networks, structures, strict=True):
        rows, units = count_rows([network]), count_units(network)
        steps = math.ceil(units / plan.units) * math.ceil(rows // units / plan.outputs)
        own = {name: c[first : first + rows].unflatten(0, (units, -1)) for name, c in columns.items()}
        with network.as_template():
            parts = factored_rows(network, structure, names, plan.units, plan.outputs)
            for some in progress(parts, label, steps):
                for name, part in group.columns.items():
                    _write_columns(own[name][some.units, some.outputs], network, structure, some, name, part)
                for layer in layers:
                    layer.take(some)
        first += rows
    return blocks, columns, layers


def check_finite(values: Tensor, group: Group) -> None:
    """Refuse a Jacobian of which some measure is not finite."""
    if not torch.isfinite(values).all():
        names = ", ".join([*group.columns, *(name for layer in group.layers for name in layer.names)])
        raise NotFiniteError(
            f"The Jacobian with respect to {names} has NaN or infinite entries; the network has no derivative at these "
            "weights and data (a square root of 0 has none), or overflows."
        )


class _Traces:
    """The traces of the parts of parameters, summed while columns of the Jacobian are made."""

    def __init__(self, root: Float[Tensor, "n k r"], parameters: Factors) -> None:
        self._root, self._parameters = root, parameters
        self.by_parameter: dict[str, LayerTrace] = {}

    def add_columns(self, name: str, part: slice, columns: Float[Tensor, "nk g"]) -> None:
        """Add columns of the Jacobian: those of a slice of a flattened parameter."""
        n, k, _ = self._root.shape
        parameter = self._parameters[name]
        some = columns.view(n, k, -1).split(max(TILE**2 // len(columns), 1), 2)
        squares = sum((self._root.mT @ c).square().sum().item() for c in some)
        alive = torch.zeros(parameter.numel(), dtype=torch.bool, device=columns.device)
        alive[part] = columns.any(0)
        self._add(name, squares, alive.view(parameter.shape[:1].numel(), -1).any(1))

    def add_layer(self, factored: "FactoredLayer") -> None:
        """Add a layer, by its factors."""
        name = factored.layer.names[0]
        self._add(name, factored.squares(self._root), factored.alive(self._parameters[name]))

    def _add(self, name: str, squares: float, alive: Bool[Tensor, " rows"]) -> None:
        before = self.by_parameter.get(name, LayerTrace(0.0, torch.zeros_like(alive)))
        self.by_parameter[name] = LayerTrace(before.trace + squares / len(self._root), before.alive | alive)


# From features and gradients to columns of the Jacobian


def _gradients(structure: Structure, rows: FactoredRows, calls: Sequence[int]) -> Float[Tensor, "b c t h o"]:
    """Return the gradients by results of calls, at all their positions."""
    by_call = []
    for call in calls:
        g = rows.gradients[call]
        by_call.append(structure.forms[call].channels(g.flatten(0, 1)).unflatten(0, g.shape[:2]))
    return by_call[0] if len(by_call) == 1 else torch.cat(by_call, 2)


def _features(structure: Structure, rows: FactoredRows, calls: Sequence[int]) -> Shaped[Tensor, "b t h i"]:
    """Return the features of calls, at all their positions."""
    by_call = [structure.forms[call].features(rows.inputs[call]) for call in calls]
    return by_call[0] if len(by_call) == 1 else torch.cat(by_call, 1)


def _write_columns(
    out: Float[Tensor, "b c columns"],
    network: Network,
    structure: Structure,
    rows: FactoredRows,
    name: str,
    part: slice,
) -> None:
    """Write columns of the Jacobian, gradients by a slice of a flattened parameter, into their place."""
    uses = structure.uses.get(name)
    if uses is None:
        g = rows.gradients[name]
        out.copy_(g.reshape(*g.shape[:2], -1)[..., part])
    elif not uses:
        out.zero_()
    else:
        calls = [use.call for use in uses]
        g = _gradients(structure, rows, calls)
        if uses[0].as_weight:
            size = network.parameters[name].numel()
            _write_weight_columns(out, _features(structure, rows, calls), g, size, part)
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


# From columns, or from features and gradients, to the Gram matrix


def add_columns(gram: Float[Tensor, "r r"], block: Float[Tensor, "r q"]) -> None:
    """Add `block @ block.mT` to the blocks of a matrix on the diagonal and above it; overwrites `block`."""
    if block[:: max(len(block) // 8, 1)].any(0).sum() < DENSE * block.shape[1]:
        nonzero = block.any(0).nonzero()[:, 0]  # masks and dead units: pack the other columns, in place
        for some in block.split(64):
            some[:, : len(nonzero)] = some[:, nonzero]
        block = block[:, : len(nonzero)]
    tile = min(TILE, -(-len(gram) // 4))
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


class FactoredLayer:
    """Features and gradients of a layer for all units and outputs, where that takes less than columns would."""

    def __init__(self, network: Network, structure: Structure, layer: Layer) -> None:
        self._structure, self.layer, self._features = structure, layer, list[Shaped[Tensor, "h b t i"]]()
        units, rows = count_units(network), count_rows([network])
        sizes = units, rows // units, layer.outputs
        new = partial(torch.empty, dtype=torch.float64, device=network.x.device)
        self._by_pairs = layer.goes_by_pairs(units, rows)
        self._gradients: Float[Tensor, "h n k o t"]
        if self._by_pairs:  # position by position in memory
            self._gradients = new(layer.groups, layer.positions, *sizes).movedim(1, -1)
        else:
            self._gradients = new(layer.groups, *sizes, layer.positions)

    def take(self, rows: FactoredRows) -> None:
        """Keep the factors of some units and outputs."""
        g = _gradients(self._structure, rows, self.layer.calls)
        self._gradients[:, rows.units, rows.outputs] = g.permute(3, 0, 1, 4, 2)
        if rows.outputs.start == 0:
            used = [self._structure.uses[name][0].as_weight for name in self.layer.names]
            ones = g.new_ones(1, 1, 1, 1).expand(len(g), *g.shape[2:4], 1)  # the features of a bias
            kinds = [_features(self._structure, rows, self.layer.calls) if weight else ones for weight in used]
            self._features.append((kinds[0] if len(kinds) == 1 else torch.cat(kinds, 3)).permute(2, 0, 1, 3))

    def _by_group(self) -> Iterator[tuple[Shaped[Tensor, "n t i"], Float[Tensor, "n k o t"]]]:
        self._features = [torch.cat(self._features, 1)] if len(self._features) > 1 else self._features
        yield from zip(self._features[0], self._gradients, strict=True)

    def add_to(self, gram: Float[Tensor, "r r"]) -> None:
        """Add the layer's part to the blocks of a matrix on the diagonal and above it."""
        for f, g in self._by_group():
            if self._by_pairs:
                _add_pairs(gram, f, g)
            else:
                for part in g.split(math.ceil(COLUMNS / f.shape[2]), 2):
                    add_columns(gram, torch.bmm(part.flatten(1, 2), f).view(len(gram), -1))

    def squares(self, root: Float[Tensor, "n k r"]) -> float:
        r"""Return the sum of the squares of :math:`R^\top J` over the columns of the layer, few samples at a time."""
        n, k, _ = root.shape
        total = 0.0
        for f, g in self._by_group():
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
        for f, g in self._by_group():
            reached = g.any(1)  # by any output of a unit, `(n, o, t)`
            if not f.is_floating_point():
                tokens = f[..., 0][reached.any(1)].long()
                return torch.zeros(rows, dtype=torch.bool, device=g.device).index_fill_(0, tokens[tokens >= 0], True)
            alive.append((reached & f.any(2)[:, None]).any(2).any(0))
        entries = torch.cat(alive).repeat_interleave(parameter.numel() // self.layer.groups // self.layer.outputs)
        return entries.view(rows, -1).any(1)


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
