"""Which way each layer goes to the Gram matrix, and what fits into memory at a time."""

import math
from numbers import Real
from typing import NamedTuple

from gnlib.jacobian.contraction import COLUMNS, TILE, Layer
from gnlib.jacobian.network import Network
from gnlib.jacobian.record import Structure
from gnlib.jacobian.trial import GIB

MARGIN = 2  # of the memory that a backward pass is known to take: its temporary tensors are not known
SPARED = 3  # times the memory of gradients and features that columns take, where it is better to hold the former
WORKING = 2**27  # bytes of gradients worked on together: beyond it larger batches save nothing


class BudgetError(ValueError):
    """There is too little memory; `needed` says how many GiB there ought to be."""

    def __init__(self, message: str, needed: float) -> None:
        super().__init__(message)
        self.needed = needed


def check_memory(memory: float) -> None:
    """Refuse what is no amount of memory."""
    if not isinstance(memory, Real):
        raise TypeError(f"memory is {memory!r}; a positive number of GiB was expected, such as 4.0.")
    if not 0 < memory < math.inf:
        raise ValueError(f"memory is {memory}; a positive number of GiB was expected.")


class Group(NamedTuple):
    """What one pass through the data is for: slices of flattened parameters, and layers whose gradients are held."""

    columns: dict[str, slice]
    layers: list[Layer]


class Plan(NamedTuple):
    """Groups, and numbers of units, and of outputs of each of them, that are differentiated together."""

    groups: list[Group]
    units: int
    outputs: int


def plan_of(network: Network, structure: Structure, memory: float, *, result: int, rows: int | None = None) -> Plan:
    """Choose groups, as few as fit beside a square result of that size, and what to differentiate together.

    `rows` are those of the Jacobian, if the network has but one of the batches.
    """
    sizes = {name: p.numel() for name, p in network.parameters.items()}
    units = 1 if network.coupled else len(network.x)
    own = len(network.x) * network.outputs
    rows = own if rows is None else rows
    fixed = network.copied + 8 * (result**2 + 3 * min(result, TILE) ** 2)
    free = memory * GIB - fixed
    layers = layers_of(network, structure)
    # of a unit: gradients of one output, arranged and not, and features, by number of numbers
    gradients = [layer.positions * layer.groups * layer.outputs for layer in layers]
    elsewhere = max((2 * size for name, size in sizes.items() if name not in structure.uses), default=0)
    each = 8 * (sum(gradients) + max(gradients, default=0) + elsewhere)
    features = 16 * max((layer.positions * layer.groups * layer.features for layer in layers), default=0)
    saved = MARGIN * network.bytes_per_sample * len(network.x) / units + features
    k, apart = own // units, not (network.vmapped or network.coupled)
    outputs = 1 if apart else max(min(k, int(min(free / 8, WORKING) // each)), 1)
    batch = max(min(units, int(min(free / 4, WORKING) // (saved + outputs * each))), 1) if network.vmapped else 1
    least = min(sum(sizes.values()), COLUMNS)
    for b, c in ((batch, outputs), (1, 1)):
        width = int((free - b * (saved + c * each)) // (8 * (rows + b * (c + 1))))
        if width >= least:
            held = [layer for layer in layers if result == own and _is_held(layer, structure, width, units, rows)]
            return Plan(_groups(sizes, held, width, units, rows), b, c)
    needed = math.ceil((fixed + saved + each + 8 * (rows + 2) * least) / GIB * 1000) / 1000
    gram = f", {8 * result**2 / GIB:.3f} of them for the {result} x {result} result" if result else ""
    raise BudgetError(
        f"memory is {memory} GiB but {needed} are needed{gram}; allow more, or pass fewer samples.", needed
    )


def _is_held(layer: Layer, structure: Structure, width: int, units: int, rows: int) -> bool:
    """Say whether to hold gradients and features of a layer: for pairs, or as they take less than its columns."""
    taken = layer.width(units, rows)
    if structure.uses[layer.names[0]][0].mask or taken > width:
        return False
    indices = structure.forms[layer.calls[0]].by_feature
    return layer.pays(units, rows) or (not indices and SPARED * taken < layer.columns)


def layers_of(network: Network, structure: Structure) -> list[Layer]:
    """Return the layers of a network; a parameter that is masked has columns of its own and stands alone."""
    found: dict[tuple[int | str | None, ...], list[str]] = {}
    for name, uses in structure.uses.items():
        if uses:
            mask = name if uses[0].mask else None
            found.setdefault((mask, *(use.call for use in uses)), []).append(name)
    return [_layer(network, structure, tuple(names)) for names in found.values()]


def _layer(network: Network, structure: Structure, names: tuple[str, ...]) -> Layer:
    calls = tuple(use.call for use in structure.uses[names[0]])
    sizes = [structure.forms[call].size for call in calls]
    groups, outputs = sizes[0][1:]
    features = sum(network.parameters[name].numel() for name in names) // (groups * outputs)
    return Layer(names, calls, sum(size[0] for size in sizes), groups, features, outputs)


def _groups(sizes: dict[str, int], held: list[Layer], width: int, units: int, rows: int) -> list[Group]:
    """Divide parameters, the last ones first, into groups that take the memory of so many columns."""
    layers = {name: layer for layer in held for name in layer.names}
    whole = {layer: layer.width(units, rows) for layer in held}
    total = sum(whole.values()) + sum(size for name, size in sizes.items() if name not in layers)
    target = math.ceil(total / math.ceil(total / width))
    groups: list[Group] = []
    room = 0
    for name, size in reversed(sizes.items()):
        layer, start = layers.get(name), 0
        if layer is not None and layer in whole:
            taken = whole.pop(layer)
            if taken > room:
                groups.append(Group({}, []))
                room = max(target, taken)
            groups[-1].layers.append(layer)
            room -= taken
        while layer is None and start < size:
            if not room:
                groups.append(Group({}, []))
                room = target
            stop = min(start + room, size)
            groups[-1].columns[name] = slice(start, stop)
            start, room = stop, room - (stop - start)
    return groups
