"""Both ends of the spectrum of a network on its data: from a product of the Jacobian with itself, or from itself."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from gnlib.checks import EPS
from gnlib.eigen.dense import singular_value_ends
from gnlib.eigen.gram import Gram
from gnlib.eigen.result import ConditionNumber, Limits
from gnlib.eigen.strategy import GRAM, Method, find_ends
from gnlib.jacobian.gram import NotFiniteError, blocks_of, gram_of, matrix_of, rows_of
from gnlib.jacobian.network import networks_of
from gnlib.jacobian.plan import BudgetError, check_memory


class Batches:
    """A network with its samples, the GiB that may be used, and the rows and columns of its Jacobian."""

    def __init__(
        self,
        module: nn.Module,
        x: Tensor | Sequence[Tensor],
        output: Callable[[Any], Tensor] | None = None,
        mode: str | None = None,
        memory: float = 4.0,
    ) -> None:
        check_memory(memory)
        self.networks, self.memory = networks_of(module, x, output, mode, memory), memory
        self.rows = rows_of(self.networks)
        self.columns = sum(p.numel() for p in self.networks[0].parameters.values())


def _gram_ends(batch: Batches, limits: Limits) -> ConditionNumber | None:
    """Both ends from the smaller product of the Jacobian with itself; that it lost nothing is certain if regular."""
    networks, memory, wide = batch.networks, batch.memory, batch.columns >= batch.rows
    # an entry is a sum of so many products, whose rounding grows like that of a random walk (Higham and Mary 2019)
    rounding = max(batch.columns, batch.rows) ** 0.5 * EPS
    try:
        gram = Gram(gram_of(networks, memory), networks[0].outputs) if wide else Gram(matrix_of(networks, memory))
    except NotFiniteError:  # products overflow before what they are made of does
        return None
    except BudgetError:
        if wide:
            raise
        return None
    with suppress(ValueError):  # a matrix that is singular up to rounding may have a negative eigenvalue
        found = find_ends(gram, GRAM, limits)
        residual = found.residual + rounding * found.largest / found.smallest
        found = replace(found, residual=residual, method=f"{'Gram' if wide else 'Gauss-Newton'} matrix: {found.method}")
        if found.resolved and found.rank == min(batch.rows, batch.columns):
            return found
    return None


def _jacobian_ends(batch: Batches, limits: Limits) -> ConditionNumber:
    """Both ends from the singular values of the Jacobian."""
    # the GiB of the triangle, with a block on it, and of the decomposition of both
    triangle = 3 * 8 * batch.rows * min(batch.rows, batch.columns) / 2**30
    try:
        blocks = blocks_of(batch.networks, max((batch.memory - triangle) / 3, 1e-9))
    except BudgetError as error:
        raise ValueError(
            f"memory is {batch.memory} GiB but {triangle + 3 * error.needed:.3f} are needed for the singular values of "
            "the Jacobian (its Gram matrix loses the smallest of them); allow more, or pass fewer samples."
        ) from error
    return singular_value_ends(block / sum(len(network.x) for network in batch.networks) ** 0.5 for block in blocks)


NETWORK: tuple[Method[Batches], ...] = (
    Method("gram", _gram_ends),
    Method("jacobian", _jacobian_ends),
)
