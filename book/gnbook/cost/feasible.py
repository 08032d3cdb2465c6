"""How long a condition number takes for batches of several sizes, from a probe and counted operations."""

from collections.abc import Iterable
from time import perf_counter

import torch
from torch import Tensor, nn

from gnlib.jacobian.cost import cost_of, second_of
from gnlib.jacobian.network import Network
from gnlib.jacobian.plan import BudgetError, plan_of
from gnlib.jacobian.record import structure_of

TRIED = 1000  # rows of the matrix whose eigenvalues are timed


def eigenvalue_seconds() -> float:
    """Return the seconds that all eigenvalues of a matrix take, over the cube of its size."""
    matrix = torch.randn(TRIED, TRIED, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gram, start = matrix @ matrix.mT, perf_counter()
    torch.linalg.eigvalsh(gram)
    return (perf_counter() - start) / TRIED**3


def foretold(module: nn.Module, x: Tensor, sizes: Iterable[int], memory: float = 4.0) -> dict[int, float]:
    """Return the seconds of both ends of the spectrum for each of several numbers of samples that fit into memory.

    The matrix takes what :meth:`gnlib.GaussNewton.cost` counts, at the speed of the faster of two probes; the eigenvalues take the
    cube.

    Parameters
    ----------
    module, memory
        as for :meth:`gnlib.GaussNewton.cost`, which takes the module in evaluation mode
    x
        some samples, more than one where one is over in no time; the others are to be of the same shape
    sizes
        numbers of samples
    """
    network = Network(module, x, mode="eval", memory=memory)
    structure = structure_of(network)
    plan = plan_of(network, structure, memory, result=len(x) * network.outputs)
    first, second = (cost_of(network, structure, plan) for _ in range(2))  # the first one warms up
    probe = min(first, second, key=lambda cost: cost.seconds)
    product, cube = second_of(), eigenvalue_seconds()
    one_pass = max(probe.seconds - product * (probe.operations - probe.flops), 0.0) / probe.backward
    found: dict[int, float] = {}
    for size in sizes:
        rows = size * network.outputs
        network.x = x[:1].expand(size, *x.shape[1:])  # no more is asked of them than how many they are
        try:
            counted = cost_of(network, structure, plan_of(network, structure, memory, result=rows), probe=False)
        except BudgetError:
            break
        found[size] = one_pass * counted.backward + product * (counted.operations - counted.flops) + cube * rows**3
    return found
