r"""The Gram matrix of the Jacobian of networks, accumulated over layers; the Jacobian is never held whole.

A layer goes to the Gram matrix as columns of the Jacobian (:mod:`gnlib.jacobian.columns`), or past them, by pairs of
positions (:mod:`gnlib.jacobian.factored_layer`), whichever takes fewer operations (:mod:`gnlib.jacobian.plan`).
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.files import progress
from gnlib.jacobian.columns import TILE, add_columns, mirror, write_columns
from gnlib.jacobian.factored_layer import FactoredLayer
from gnlib.jacobian.network import Network, count_rows
from gnlib.jacobian.plan import COLUMNS, Group, Plan, plan_of
from gnlib.jacobian.record import Structure, factored_rows
from gnlib.jacobian.structure import structures_of
from gnlib.refused import Refused


class NotFiniteError(Refused):
    """The Jacobian of a network, or its product with itself, has entries that are not finite."""

    def __init__(self, sentence: str) -> None:
        super().__init__("not-finite", sentence)


def gram_of(networks: Sequence[Network], memory: float) -> Float[Tensor, "nk nk"]:
    r"""Return the Gram matrix :math:`\frac1n J J^\top` of networks, one for each batch."""
    return layered_gram(networks, memory)[0]


def layered_gram(
    networks: Sequence[Network], memory: float, root: Float[Tensor, "n k r"] | None = None
) -> tuple[Float[Tensor, "nk nk"], dict[str, float]]:
    r"""Return the Gram matrix K of networks and, for a root R, the traces by parameter of :math:`R^\top K R`.

    The traces take no memory of the size of K. A weight and a bias whose factors are held together stand under the name
    of the first of them.
    """
    traces: dict[str, float] = {}
    structures, rows = structures_of(networks), count_rows(networks)
    plan = plan_of(networks, structures, memory, result=rows)
    gram = torch.zeros(rows, rows, dtype=torch.float64, device=networks[0].x.device)
    for group in plan.groups:
        blocks, columns, layers = _columns_of(networks, structures, plan, group, wide=COLUMNS)
        if root is not None:
            for name in group.columns:
                traces[name] = traces.get(name, 0.0) + _trace_of_columns(columns[name], root)
            traces |= {layer.name: layer.trace(root) for layer in layers}
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
                    write_columns(columns, network.held, structure, some, name, part)
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
    networks: Sequence[Network], structures: Sequence[Structure], plan: Plan, group: Group, *, wide: float = math.inf
) -> tuple[list[Float[Tensor, "nk _"]], dict[str, Float[Tensor, "nk _"]], list[FactoredLayer]]:
    """Return the columns of a group in blocks, the same columns by parameter, and the factors of its layers.

    Each parameter that is wide has a block of its own; the last block holds all others.
    """
    device = networks[0].x.device
    new = partial(torch.empty, count_rows(networks), dtype=torch.float64, device=device)
    widths = {name: part.stop - part.start for name, part in group.columns.items()}
    columns = {name: new(width) for name, width in widths.items() if width >= wide}
    narrow = {name: width for name, width in widths.items() if width < wide}
    blocks = [*columns.values(), new(sum(narrow.values()))]
    columns |= zip(narrow, blocks[-1].split([*narrow.values()], 1), strict=True)
    layers = [FactoredLayer(structures[0], layer, device) for layer in group.layers]  # of one network only
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
                    write_columns(own[name][some.units, some.outputs], network.held, structure, some, name, part)
                for layer in layers:
                    layer.take(some)
        first = stop
    return blocks, columns, layers


def _check_finite(values: Tensor, group: Group) -> None:
    """Refuse a Jacobian of which some measure is not finite."""
    if not torch.isfinite(values).all():
        names = ", ".join([*group.columns, *(name for layer in group.layers for name in layer.names)])
        raise NotFiniteError(
            f"The Jacobian with respect to {names}, or its square, has NaN or infinite entries; the network has no "
            "derivative at these weights and data (a square root of 0 has none), or overflows."
        )


def _trace_of_columns(columns: Float[Tensor, "nk g"], root: Float[Tensor, "n k r"]) -> float:
    """Return the trace of the part of some columns of the Jacobian, few of them at a time."""
    n, k, _ = root.shape
    pieces = columns.view(n, k, -1).split(max(TILE**2 // len(columns), 1), 2)
    return sum((root.mT @ piece).square().sum().item() for piece in pieces) / n
