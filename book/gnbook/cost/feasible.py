"""How long a condition number takes for batches of several sizes, from a probe and counted operations."""

from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter

import torch
from torch import Tensor, nn

from gnlib.jacobian.plan import BudgetError, cost_of, seconds_per_flop
from gnlib.jacobian.trial import network_of

TRIED = 1000  # rows of the matrix whose eigenvalues are timed


def eigenvalue_seconds() -> float:
    """Return the seconds that all eigenvalues of a matrix take, over the cube of its size."""
    matrix = torch.randn(TRIED, TRIED, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gram, start = matrix @ matrix.mT, perf_counter()
    torch.linalg.eigvalsh(gram)
    return (perf_counter() - start) / TRIED**3


def foretold(module: nn.Module, x: Tensor, sizes: Iterable[int], memory: float = 4.0) -> dict[int, float]:
    """Return the seconds of both ends of the spectrum for each of several numbers of samples that fit into memory.

    The matrix takes the operations that :meth:`gnlib.GaussNewton.cost` counts, at the speed of the faster of two
    probes on some samples; the eigenvalues take the cube of its size.
    """
    network = network_of(module, x, mode="eval", memory=memory)
    first, second = (cost_of([network], memory) for _ in range(2))  # the first one warms up
    probe = min(first, second, key=lambda cost: cost.seconds)
    product, cube = seconds_per_flop(), eigenvalue_seconds()
    one_pass = max(probe.seconds - product * (probe.operations - probe.flops), 0.0) / probe.backward
    found: dict[int, float] = {}
    for size in sizes:
        rows = size * network.outputs
        some = replace(network, x=network.x[:1].expand(size, *x.shape[1:]), y=None)  # only their number counts
        try:
            counted = cost_of([some], memory, probe=False)
        except BudgetError:
            break
        found[size] = one_pass * counted.backward + product * (counted.operations - counted.flops) + cube * rows**3
    return found
