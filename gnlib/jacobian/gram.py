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
from gnlib.jacobian.network import Network, count_rows
from gnlib.jacobian.plan import COLUMNS, TILE, Group, Layer, Plan, plan_of
from gnlib.jacobian.record import FactoredRows, Structure, factored_rows, structures_of

DENSE = 0.8  # share of columns that are not zero, above which it takes longer to pack them than to multiply all


class NotFiniteError(ValueError):
    """The Jacobian of a network, or its product with itself, has entries that are not finite."""


class LayerTrace(NamedTuple):
    r"""The part of a parameter in the Gram matrix of a loss, :math:`R^\top K R` with :math:`K = \frac1n J J^\top`."""

    trace: float  # with the columns of J for this parameter alone
    alive: Bool[Tensor, " rows"]  # whether a column for a row of it, along its first axis, has an entry that is not 0


def gram_of(networks: Sequence[Network], memory: float) -> Float[Tensor, "nk nk"]:
    r"""Return the Gram matrix :math:`\frac1n J J^\top` of networks, one for each batch."""
    return layered_gram(networks, memory)[0]


def layered_gram(
    networks: Sequence[Network], memory: float, root: Float[Tensor, "n k r"] | None = None
) -> tuple[Float[Tensor, "nk nk"], dict[str, LayerTrace]]:
    r"""Return the Gram matrix K of networks and, for a root R, the part of each parameter in :math:`R^\top K R`.

    The parts take no memory of the size of K. A weight and a bias whose factors are held together stand under the name
    of the first of them.
    """
    traces: dict[str, LayerTrace] = {}
    parameters = networks[0].parameters
    structures, rows = structures_of(networks), count_rows(networks)
    plan = plan_of(networks, structures, memory, result=rows)
    gram = torch.zeros(rows, rows, dtype=torch.float64, device=networks[0].x.device)
    for group in plan.groups:
        blocks, columns, layers = _columns_of(networks, structures, plan, group, wide=COLUMNS)
        if root is not None:
            for name, part in group.columns.items():
                own = _trace_of_columns(columns[name], part, parameters[name], root)
                before = traces.get(name, LayerTrace(0.0, torch.zeros_like(own.alive)))
                traces[name] = LayerTrace(before.trace + own.trace, before.alive | own.alive)
            traces |= {layer.name: layer.trace(parameters[layer.name], root) for layer in layers}
        columns.clear()  # so that each block is freed with its turn
        while blocks:
            add_columns(gram, blocks.pop())
        while layers:
            layers.pop().add_to(gram)
        _check_finite(gram.diagonal(), group)
    mirror(gram).div_(sum(len(network.x) for network in networks))
    return gram, traces


@torch.inference_mode(False)
@torch.no_grad()
def gauss_newton_of(networks: Sequence[Network], memory: float) -> Float[Tensor, "p p"]:
    r"""Return the Gauss-Newton matrix :math:`\frac1n J^\top J` of networks with few parameters."""
    parts = {name: slice(0, p.numel()) for name, p in networks[0].parameters.items()}
    sizes = [part.stop for part in parts.values()]
    p = sum(sizes)
    matrix = torch.zeros(p, p, dtype=torch.float64, device=networks[0].x.device)
    for network, structure in zip(networks, structures_of(networks), strict=True):
        plan = plan_of([network], [structure], memory, result=p)
        with network.as_template():
            for some in factored_rows(network, structure, [*parts], plan.units, plan.outputs):
                block = matrix.new_empty(some.units.stop - some.units.start, some.outputs.stop - some.outputs.start, p)
                for (name, part), columns in zip(parts.items(), block.split(sizes, 2), strict=True):
                    _write_columns(columns, network, structure, some, name, part)
                add_columns(matrix, block.flatten(0, 1).mT)
    _check_finite(matrix.diagonal(), Group(parts, []))
    return mirror(matrix).div_(sum(len(network.x) for network in networks))


def blocks_of(networks: Sequence[Network], memory: float) -> Iterator[Float[Tensor, "nk g"]]:
    """Return the Jacobian of networks block by block, the columns of the last parameters first."""
    structures = structures_of(networks)
    plan = plan_of(networks, structures, memory, result=0)

    def block_of(group: Group) -> Float[Tensor, "nk g"]:
        (block,), _, _ = _columns_of(networks, structures, plan, group)
        _check_finite(torch.linalg.vector_norm(block, math.inf), group)
        return block

    return map(block_of, plan.groups)


@torch.inference_mode(False)
@torch.no_grad()
def _columns_of(
    networks: Sequence[Network],
    structures: Sequence[Structure],
    plan: Plan,
    group: Group,
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
        stop = first + network.rows
        steps = math.ceil(network.units / plan.units) * math.ceil(network.rows // network.units / plan.outputs)
        own = {name: c[first:stop].unflatten(0, (network.units, -1)) for name, c in columns.items()}
        with network.as_template():
            parts = factored_rows(network, structure, names, plan.units, plan.outputs)
            for some in progress(parts, "Jacobian", steps):
                for name, part in group.columns.items():
                    _write_columns(own[name][some.units, some.outputs], network, structure, some, name, part)
                for layer in layers:
                    layer.take(some)
        first = stop
    return blocks, columns, layers


def _check_finite(values: Tensor, group: Group) -> None:
    """Refuse a Jacobian of which some measure is not finite."""
    if not torch.isfinite(values).all():
        names = ", ".join([*group.columns, *(name for layer in group.layers for name in layer.names)])
        raise NotFiniteError(
            f"The Jacobian with respect to {names} has NaN or infinite entries; the network has no derivative at these "
            "weights and data (a square root of 0 has none), or overflows."
        )


def _trace_of_columns(
    columns: Float[Tensor, "nk g"], part: slice, parameter: Tensor, root: Float[Tensor, "n k r"]
) -> LayerTrace:
    """Return the part of a slice of a flattened parameter, few columns of the Jacobian at a time."""
    n, k, _ = root.shape
    pieces = columns.view(n, k, -1).split(max(TILE**2 // len(columns), 1), 2)
    alive = torch.zeros(parameter.numel(), dtype=torch.bool, device=columns.device)
    alive[part] = columns.any(0)
    squares = sum((root.mT @ piece).square().sum().item() for piece in pieces)
    return LayerTrace(squares / n, alive.view(parameter.shape[:1].numel(), -1).any(1))


# From features and gradients to columns of the Jacobian


def _gradients(structure: Structure, rows: FactoredRows, calls: Sequence[int]) -> Float[Tensor, "b c t h o"]:
    """Return the gradients by results of calls, at all their positions."""
    own = [(structure.forms[call], rows.gradients[call]) for call in calls]
    by_call = [form.channels(g.flatten(0, 1)).unflatten(0, g.shape[:2]) for form, g in own]
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
    """The features and the gradients of a layer, for all units and outputs: its columns of the Jacobian, factored."""

    def __init__(self, network: Network, structure: Structure, layer: Layer) -> None:
        self._structure, self._layer, self._features = structure, layer, list[Shaped[Tensor, "h b t i"]]()
        self.name = layer.names[0]
        sizes = network.units, network.rows // network.units, layer.outputs
        new = partial(torch.empty, layer.groups, dtype=torch.float64, device=network.x.device)
        self._gradients: Float[Tensor, "h n k o t"] = (  # pairs take them position by position in memory
            new(layer.positions, *sizes).movedim(1, -1) if layer.by_pairs else new(*sizes, layer.positions)
        )

    def take(self, rows: FactoredRows) -> None:
        """Keep the factors of some units and outputs."""
        g = _gradients(self._structure, rows, self._layer.calls)
        self._gradients[:, rows.units, rows.outputs] = g.permute(3, 0, 1, 4, 2)
        if rows.outputs.start == 0:
            used = [self._structure.uses[name][0].as_weight for name in self._layer.names]
            ones = g.new_ones(1, 1, 1, 1).expand(len(g), *g.shape[2:4], 1)  # the features of a bias
            kinds = [_features(self._structure, rows, self._layer.calls) if weight else ones for weight in used]
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

    def trace(self, parameter: Tensor, root: Float[Tensor, "n k r"]) -> LayerTrace:
        """Return the part of the layer, few samples at a time; its rows are alive where a gradient meets a feature."""
        n, k, _ = root.shape
        squares, alive, rows = 0.0, [], parameter.shape[:1].numel()
        for f, g in self._by_group():
            coupled, reached = len(g) < n, g.any(1)
            if f.is_floating_point():
                alive.append((reached & f.any(2)[:, None]).any(2).any(0))
            else:
                tokens = f[..., 0][reached.any(1)].long()
                alive.append(torch.zeros(rows, dtype=torch.bool, device=g.device))
                alive[0][tokens[tokens >= 0]] = True
            g = g.flatten(0, 1).unflatten(0, (n, k))
            size = max(TILE**2 // g[0].numel(), 1)
            for start in range(0, n, size):
                some = slice(start, start + size)
                h = root[some].mT @ g[some].flatten(2)
                h = h.view(1 if coupled else len(h), -1, g.shape[3])
                squares += _sum_of_squares(h, f if coupled else f[some])
        outputs = torch.cat(alive)
        entries = outputs.repeat_interleave(parameter.numel() // len(outputs))
        return LayerTrace(squares / n, entries.view(rows, -1).any(1))


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
