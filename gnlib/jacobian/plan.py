"""Plan the way of each layer to the Gram matrix within some memory, and estimate operations, seconds and bytes."""

import math
from collections.abc import Sequence
from numbers import Real
from time import perf_counter
from typing import Any, NamedTuple

import torch

from gnlib.jacobian.columns import TILE
from gnlib.jacobian.network import GIB, MARGIN, Network, count_rows
from gnlib.jacobian.record import Structure, factored_rows
from gnlib.jacobian.structure import structures_of
from gnlib.refused import Refused
from gnlib.text import as_text

COLUMNS = 1024  # of the Jacobian at a time; fewer are not worth a forward and a backward pass for each sample
ADVANTAGE = 3  # times the memory of factors that columns take, from which on it is better to hold the factors
WORKING = 2**27  # bytes of gradients worked on together: beyond it larger batches save nothing
UPDATE = 64  # products that take as long as to multiply an entry of the result by another and add it
LONG = 2e11  # operations that may take ten seconds
PROBE = 512  # size of the matrices whose product is timed


class BudgetError(Refused):
    """There is too little memory; `needed` says how many GiB there ought to be."""

    def __init__(self, message: str, needed: float) -> None:
        super().__init__("too-little-memory", message)
        self.needed = needed


def check_memory(memory: float) -> None:
    """Refuse an amount of memory that is none."""
    if not isinstance(memory, Real):
        raise TypeError(f"memory is {memory!r}; a positive number of GiB was expected, such as 4.0.")
    if not 0 < memory < math.inf:
        raise Refused("bad-option", f"memory is {memory}; a positive number of GiB was expected.")


def check_both_fit(rows: int, rows_of_loss: int, memory: float) -> None:
    """Refuse memory for less than a Gram matrix and that of a loss, with three tiles of rows held meanwhile."""
    needed = 8 * (rows**2 + rows_of_loss**2 + 3 * min(TILE, rows) * rows) / GIB
    if needed > memory:
        raise BudgetError(
            f"memory is {memory} GiB but {math.ceil(1000 * needed) / 1000} are needed for the Gram matrix and that of "
            f"the loss beside it, {rows} and {rows_of_loss} rows; allow more, or pass fewer samples.",
            needed,
        )


class Layer(NamedTuple):
    """Parameters that are used by the same calls, and the sizes of their factors."""

    names: tuple[str, ...]  # a weight, a bias, or both
    calls: tuple[int, ...]
    positions: int  # of a unit, in all calls
    groups: int  # of channels
    features: int  # of a group
    outputs: int  # of a group
    units: int  # of the network
    rows: int  # of its Jacobian

    @property
    def columns(self) -> int:
        """Number of columns of the Jacobian."""
        return self.groups * self.features * self.outputs

    @property
    def width(self) -> int:
        """Number of columns of the Jacobian that take as much memory as the factors."""
        return self.positions * self.groups * (self.outputs + math.ceil(self.features * self.units / self.rows))

    @property
    def products(self) -> tuple[float, float]:
        """Numbers of products, by pairs of positions and by columns, of half of the symmetric result."""
        if self.units == 1:
            pairs = self.positions * self.rows * self.outputs * (self.positions + self.rows / 2)
        else:
            update = self.rows**2 / 2 * (self.outputs + UPDATE)
            pairs = self.positions**2 * (update + self.units**2 * self.features)
        return self.groups * pairs, self.rows * self.columns * (self.positions + self.rows / 2)

    @property
    def by_pairs(self) -> bool:
        """Whether pairs of positions take fewer products than columns."""
        pairs, columns = self.products
        return pairs < columns


class Group(NamedTuple):
    """The part of one pass through the data: slices of flattened parameters, and layers whose factors are held."""

    columns: dict[str, slice]
    layers: list[Layer]


class Plan(NamedTuple):
    """Groups, and numbers of units, and of outputs of each of them, that are differentiated together."""

    groups: list[Group]
    units: int
    outputs: int


def plan_of(networks: Sequence[Network], structures: Sequence[Structure], memory: float, *, result: int) -> Plan:
    """Choose groups of columns, as few as fit beside a square result of that size, and numbers of units and outputs.

    The networks differ in their samples alone; there has to be room for the one that takes most.
    """
    rows, units = count_rows(networks), max(network.units for network in networks)
    sizes = {name: p.numel() for name, p in networks[0].parameters.items()}
    fixed = max(network.copied for network in networks) + 8 * (result**2 + 3 * min(result, TILE) ** 2)
    free = memory * GIB - fixed
    needs = [_bytes_of_a_unit(network, structure) for network, structure in zip(networks, structures, strict=True)]
    saved, each = (max(need) for need in zip(*needs, strict=True))
    k = max(network.rows // network.units for network in networks)
    apart = not all(network.vmapped or network.coupled for network in networks)
    outputs = 1 if apart else max(min(k, int(min(free / 8, WORKING) // each)), 1)
    vmapped = all(network.vmapped for network in networks)
    batch = max(min(units, int(min(free / 4, WORKING) // (saved + outputs * each))), 1) if vmapped else 1
    least = min(sum(sizes.values()), COLUMNS)
    for b, c in ((batch, outputs), (1, 1)):
        width = int((free - b * (saved + c * each)) // (8 * (rows + b * (c + 1))))
        if width >= least:
            alone = layers_of(networks[0], structures[0]) if len(networks) == 1 and result == rows else []
            held = [layer for layer in alone if _is_held(layer, structures[0], width)]
            return Plan(_groups(sizes, held, width), b, c)
    needed = math.ceil((fixed + saved + each + 8 * (rows + 2) * least) / GIB * 1000) / 1000
    gram = f", {8 * result**2 / GIB:.3f} of them for the {result} x {result} result" if result else ""
    raise BudgetError(
        f"memory is {memory} GiB but {needed} are needed{gram}; allow more, or pass fewer samples; "
        "dtype=torch.float32 asks for what products with vectors tell, which need no such matrix.",
        needed,
    )


def _bytes_of_a_unit(network: Network, structure: Structure) -> tuple[float, float]:
    """Return the bytes of a unit for a backward pass and its features, and for gradients of one output."""
    layers = layers_of(network, structure)
    gradients = [layer.positions * layer.groups * layer.outputs for layer in layers]  # arranged and not
    elsewhere = max((2 * p.numel() for name, p in network.parameters.items() if name not in structure.uses), default=0)
    features = 16 * max((layer.positions * layer.groups * layer.features for layer in layers), default=0)
    saved = MARGIN * network.bytes_per_sample * len(network.x) / network.units
    return saved + features, 8 * (sum(gradients) + max(gradients, default=0) + elsewhere)


def _is_held(layer: Layer, structure: Structure, width: int) -> bool:
    """Say whether to hold the factors of a layer: for pairs, or as they take less than its columns."""
    if structure.uses[layer.names[0]][0].mask or layer.width > width:
        return False
    indices = structure.forms[layer.calls[0]].by_feature
    return layer.by_pairs or (not indices and ADVANTAGE * layer.width < layer.columns)


def layers_of(network: Network, structure: Structure) -> list[Layer]:
    """Return the layers of a network; a parameter that is masked has columns of its own and stands alone."""
    names: dict[tuple[Any, ...], list[str]] = {}
    for name, uses in structure.uses.items():
        if uses:
            mask = name if uses[0].mask else None
            names.setdefault((mask, *(use.call for use in uses)), []).append(name)
    layers = []
    for (_, *calls), together in names.items():
        sizes = [structure.forms[call].size for call in calls]
        groups, outputs = sizes[0][1:]
        features = sum(network.parameters[name].numel() for name in together) // (groups * outputs)
        factors = sum(t for t, *_ in sizes), groups, features, outputs
        layers.append(Layer(tuple(together), tuple(calls), *factors, network.units, network.rows))
    return layers


def _groups(sizes: dict[str, int], held: list[Layer], width: int) -> list[Group]:
    """Divide parameters, the last ones first, into groups that take the memory of so many columns.

    A backward pass reaches the last parameters first, so that it can end early for the first groups.
    """
    layers = {name: layer for layer in held for name in layer.names}
    waiting = set(held)
    total = sum(layer.width for layer in held) + sum(size for name, size in sizes.items() if name not in layers)
    target = math.ceil(total / math.ceil(total / width))
    groups: list[Group] = []
    room = 0
    for name, size in reversed(sizes.items()):
        layer, start = layers.get(name), 0
        if layer in waiting:
            waiting.remove(layer)
            if layer.width > room:
                groups.append(Group({}, []))
                room = max(target, layer.width)
            groups[-1].layers.append(layer)
            room -= layer.width
        while layer is None and start < size:
            if not room:
                groups.append(Group({}, []))
                room = target
            stop = min(start + room, size)
            groups[-1].columns[name] = slice(start, stop)
            start, room = stop, room - (stop - start)
    return groups


# Cost


class Step(NamedTuple):
    """The part of a layer in a plan."""

    parameters: tuple[str, ...]
    way: str  # "pairs" of positions, "columns" of the Jacobian, or "gradients", columns without a known structure
    flops: float
    bytes: int  # held for it


class Cost(NamedTuple):
    """The cost of a Gram matrix."""

    steps: list[Step]  # the parts of the layers, the last ones first
    forward: int  # passes through the network, each for one sample, or for the batch if its samples are coupled
    backward: int
    flops: float  # operations in those passes, by the layers whose structure is known
    seconds: float  # estimate, from the time of few passes and of one product of matrices; nan if nothing was timed
    gib: float  # memory for the result and for the columns and factors that are held at the same time

    @property
    def operations(self) -> float:
        """Of the passes and of the products of matrices together."""
        return self.flops + sum(step.flops for step in self.steps)

    def __str__(self) -> str:
        """Return a table, and the sums below it."""
        rows = [("parameters", "way", "operations", "GiB")]
        for names, way, flops, held in self.steps:
            rows.append((", ".join(names), way, f"{flops:.1e}", f"{held / GIB:.3f}"))
        passes = f"{self.forward} forward and {self.backward} backward passes, {self.flops:.1e} operations"
        return f"{as_text(rows)}\n{passes}\nabout {self.seconds:.2g} s, {self.gib:.2g} GiB"


def cost_of(networks: Sequence[Network], memory: float, *, probe: bool = True) -> Cost:
    """Return the cost of the Gram matrix of networks, with seconds if a few passes may be timed."""
    structures = structures_of(networks)
    plan = plan_of(networks, structures, memory, result=count_rows(networks))
    network, structure, rows = networks[0], structures[0], count_rows(networks)
    layers = layers_of(network, structure)
    known = {name: layer for layer in layers for name in layer.names}
    steps: dict[tuple[str, ...], Step] = {}
    for group in plan.groups:
        for layer in group.layers:
            way = "pairs" if layer.by_pairs else "columns"
            steps[layer.names] = Step(layer.names, way, 2 * min(layer.products), 8 * rows * layer.width)
        for name, part in group.columns.items():
            way = "columns" if name in structure.uses else "gradients"
            width = part.stop - part.start
            flops = 2 * rows * width * ((known[name].positions if name in known else 0) + rows / 2)
            before = steps.get((name,), Step((name,), way, 0.0, 0))
            steps[(name,)] = Step((name,), way, before.flops + flops, before.bytes + 8 * rows * width)
    calls = sum(n.units * (math.ceil(n.rows // n.units / plan.outputs) if n.vmapped else 1) for n in networks)
    forward, backward = len(plan.groups) * calls, len(plan.groups) * rows
    once = 2.0 * sum(layer.positions * layer.groups * layer.features * layer.outputs for layer in layers)
    seconds = math.nan
    if probe:
        products = sum(step.flops for step in steps.values())
        seconds = _time_passes(network, structure, plan, forward, backward) + products * seconds_per_flop()
    together = sum(step.bytes for step in steps.values()) / len(plan.groups)
    gib = (together + 8 * rows**2 + network.copied) / GIB
    return Cost([*steps.values()], forward, backward, once * (forward + backward), seconds, gib)


def _time_passes(network: Network, structure: Structure, plan: Plan, forward: int, backward: int) -> float:
    """Return seconds for so many passes, from one batch with one output and with two."""
    seconds = []
    for outputs in (1, min(2, network.outputs)):
        start = perf_counter()
        with network.as_template():
            next(factored_rows(network, structure, [*network.parameters], plan.units, outputs))
        seconds.append((perf_counter() - start) / min(plan.units, network.units))
    one, two = seconds
    one_backward = max(two - one, 0.0) if network.outputs > 1 else one / 2
    return forward * max(one - one_backward, 0.0) + backward * one_backward


def seconds_per_flop() -> float:
    """Return the seconds of an operation in a product of matrices."""
    matrix = torch.ones(PROBE, PROBE, dtype=torch.float64)
    seconds = []
    for _ in range(2):  # the first one warms up
        start = perf_counter()
        matrix @ matrix
        seconds.append(perf_counter() - start)
    return min(seconds) / (2 * PROBE**3)
