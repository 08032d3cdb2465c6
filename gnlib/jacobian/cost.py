"""What the Gram matrix of a network will take: operations counted, seconds from a short probe."""

import math
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gnlib.jacobian.network import Network
from gnlib.jacobian.plan import Plan, check_memory, layers_of, plan_of
from gnlib.jacobian.record import Structure, rows, structure_of
from gnlib.jacobian.trial import GIB
from gnlib.text import as_text

LONG = 2e11  # operations that may take ten seconds
PROBE = 512  # size of the matrices whose product tells how fast products are


class Step(NamedTuple):
    """The part of a layer: its parameters, the way they go, operations, and bytes that are held for them."""

    parameters: tuple[str, ...]
    way: str
    flops: float
    bytes: int


class Cost(NamedTuple):
    """What :func:`gnlib.jacobian.gauss_newton_gram` will do.

    Attributes
    ----------
    steps
        the parts of the layers, the last ones first
    forward, backward
        numbers of passes through the network, each for one sample, or for the batch if its samples are coupled
    flops
        operations in those passes, by the layers whose structure is known
    seconds
        estimate, from the time of few passes and of one product of matrices
    gib
        memory for the result and for what is held at the same time, in GiB
    """

    steps: list[Step]
    forward: int
    backward: int
    flops: float
    seconds: float
    gib: float

    @property
    def operations(self) -> float:
        """Of the passes and of the products of matrices together."""
        return self.flops + sum(step.flops for step in self.steps)

    def __str__(self) -> str:
        """Return a table, and the sums below it."""
        rows = [
            (", ".join(step.parameters), step.way, f"{step.flops:.1e}", f"{step.bytes / GIB:.3f}")
            for step in self.steps
        ]
        return "\n".join(
            [
                as_text([("parameters", "way", "operations", "GiB"), *rows]),
                f"{self.forward} forward and {self.backward} backward passes, {self.flops:.1e} operations",
                f"about {self.seconds:.2g} s, {self.gib:.2g} GiB",
            ]
        )


def cost(
    module: nn.Module,
    x: Tensor,
    *,
    output: Callable[[Any], Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> Cost:
    """Return which way each layer of a network goes to its Gram matrix, and what that takes.

    A layer goes by `"pairs"`: products of features and products of gradients, for all pairs of positions; by
    `"columns"`: its part of the Jacobian and a product of matrices; or by `"gradients"`, as columns that automatic
    differentiation gives, where nothing is known of its structure.

    Parameters
    ----------
    module, x, output, mode, memory
        as for :func:`gnlib.jacobian.gauss_newton_gram`

    Raises
    ------
    TypeError, ValueError
        As :func:`gnlib.jacobian.gauss_newton_gram`.

    Examples
    --------
    >>> import torch
    >>> layers = torch.nn.Conv1d(1, 4, 5), torch.nn.Flatten(), torch.nn.Linear(184, 3)
    >>> plan = cost(torch.nn.Sequential(*layers), torch.ones(6, 1, 50))
    >>> [(step.parameters, step.way) for step in plan.steps]
    [(('2.weight', '2.bias'), 'pairs'), (('0.bias',), 'columns'), (('0.weight',), 'columns')]
    >>> plan.forward, plan.backward
    (6, 18)
    """
    check_memory(memory)
    network = Network(module, x, output, mode, memory)
    structure = structure_of(network)
    return cost_of(network, structure, plan_of(network, structure, memory, result=len(network.x) * network.outputs))


def announced(network: Network, structure: Structure, plan: Plan) -> str:
    """Return what a bar says: with an estimate, if it is seen and may stand there for more than ten seconds."""
    counted = cost_of(network, structure, plan, probe=False)
    if not sys.stderr.isatty() or counted.operations < LONG:
        return "Jacobian"
    expected = cost_of(network, structure, plan)
    return f"Jacobian, about {expected.seconds:.2g} s and {expected.gib:.2g} GiB"


def cost_of(network: Network, structure: Structure, plan: Plan, *, probe: bool = True) -> Cost:
    """Return what a plan for a Gram matrix takes, without seconds if nothing may be tried."""
    n, size = len(network.x), len(network.x) * network.outputs
    units = 1 if network.coupled else n
    layers = layers_of(network, structure)
    known = {name: layer for layer in layers for name in layer.names}
    found: dict[tuple[str, ...], Step] = {}
    for group in plan.groups:
        for layer in group.layers:
            held = 8 * size * layer.width(units, size)
            columns = size * layer.columns * (layer.positions + size / 2)
            way, each = ("pairs", layer.products(units, size)) if layer.pays(units, size) else ("columns", columns)
            found[layer.names] = Step(layer.names, way, 2 * each, held)
        for name, part in group.columns.items():
            way = "columns" if name in structure.uses else "gradients"
            width = part.stop - part.start
            flops = 2 * size * width * ((known[name].positions if name in known else 0) + size / 2)
            before = found.get((name,), Step((name,), way, 0.0, 0))
            found[(name,)] = Step((name,), way, before.flops + flops, before.bytes + 8 * size * width)
    steps = [*found.values()]
    outputs = size // units
    backward = len(plan.groups) * units * outputs
    forward = len(plan.groups) * units * (math.ceil(outputs / plan.outputs) if network.vmapped else 1)
    once = 2.0 * sum(layer.positions * layer.groups * layer.features * layer.outputs for layer in layers)
    seconds = math.nan
    if probe:
        seconds = _passes(network, structure, plan, forward, backward) + sum(step.flops for step in steps) * second_of()
    together = sum(step.bytes for step in steps) / len(plan.groups)
    gib = (together + 8 * size**2 + network.copied) / GIB
    return Cost(steps, forward, backward, once * (forward + backward), seconds, gib)


def _passes(network: Network, structure: Structure, plan: Plan, forward: int, backward: int) -> float:
    """Return seconds for so many passes, from one batch with one output and with two."""
    taken = []
    for outputs in (1, min(2, network.outputs)):
        start = perf_counter()
        with network.as_template():
            next(rows(network, structure, [*network.parameters], plan.units, outputs))
        taken.append((perf_counter() - start) / (1 if network.coupled else min(plan.units, len(network.x))))
    pulled = max(taken[1] - taken[0], 0.0) if network.outputs > 1 else taken[0] / 2
    return forward * max(taken[0] - pulled, 0.0) + backward * pulled


def second_of() -> float:
    """Return the seconds of an operation in a product of matrices."""
    matrix = torch.ones(PROBE, PROBE, dtype=torch.float64)
    taken = []
    for _ in range(2):  # the first one warms up
        start = perf_counter()
        matrix @ matrix
        taken.append(perf_counter() - start)
    return min(taken) / (2 * PROBE**3)
