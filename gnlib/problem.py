"""A module on its data, for a loss: outputs, Gram matrices and their spectrum, each computed once."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from time import perf_counter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.checks import EPS, check_versions, numerical_rank, versions_of
from gnlib.eigen.dense import ends_of, singular_value_ends
from gnlib.eigen.gram import Gram
from gnlib.eigen.result import ConditionNumber, Limits, NotConvergedError
from gnlib.eigen.strategy import GRAM, find_ends
from gnlib.jacobian.columns import TILE, mirror
from gnlib.jacobian.gram import NotFiniteError, blocks_of, gauss_newton_of, layered_gram
from gnlib.jacobian.inputs import Inputs, Packed, read_batches
from gnlib.jacobian.network import Mode, count_rows
from gnlib.jacobian.passes import GramOperator
from gnlib.jacobian.plan import BudgetError, Cost, check_both_fit, check_memory, cost_of
from gnlib.jacobian.trial import networks_of
from gnlib.losses import Loss, SquaredError, loss_of
from gnlib.origin import Origin, origin_of
from gnlib.refused import Refused

LEAST = 1e-290  # entries of a Gram matrix below it have lost digits: its products leave the range before its factors do
LITTLE = 1e-9  # GiB, in place of none and less, for which there is a sentence where they are not enough


class TooSmallError(Refused):
    """The products of a Jacobian with itself are below the range of double precision."""

    def __init__(self, sentence: str) -> None:
        super().__init__("out-of-range", sentence)


class Problem:
    r"""A module on its data, for a loss, at the parameters that it has.

    With the Jacobian J of the outputs and the root R of the loss's second derivative by them, the matrix of the loss
    is :math:`\frac1n J^\top R R^\top J`, of which all of this class sees the smaller form
    :math:`\frac1n R^\top J J^\top R`. Its memory is in GiB.
    """

    def __init__(
        self,
        module: nn.Module,
        x: Inputs,
        y: Any = None,
        loss: str | Callable[[Tensor, Any], Tensor] = "mse",
        *,
        output: Callable[..., Tensor] | None = None,
        mode: Mode | None = None,
        memory: float = 4.0,
    ) -> None:
        check_memory(memory)
        self.batches, targets = read_batches(x, y)
        self.networks, self.memory = networks_of(module, self.batches, output, mode, memory), memory
        self.outputs = torch.cat([network.known for network in self.networks])
        self.loss: Loss = loss_of(loss, targets, self.outputs)
        self.has_targets = targets is not None
        self._targets = targets
        self._versions = self._read_versions()

    def check_unchanged(self) -> None:
        """Refuse a module whose parameters, or whose buffers in evaluation, were changed since this was made."""
        check_versions(self._versions, self._read_versions())

    @cached_property
    def root(self) -> Float[Tensor, "n k r"]:
        """Roots R of the second derivative of the loss by the outputs of each sample."""
        return self.loss.root(self.outputs)

    @cached_property
    def layered(self) -> tuple[Float[Tensor, "nk nk"], dict[str, float]]:
        r"""The Gram matrix :math:`\frac1n J J^\top`, and the share of each parameter in the trace with the loss."""
        gram, traces = layered_gram(self.networks, self.free, self.root)
        if gram.diagonal().amax() < LEAST and any(block.any() for block in blocks_of(self.networks, self.free)):
            raise TooSmallError(
                "The squares of the Jacobian are below 1e-290, where double precision loses digits; multiply the "
                "outputs by a power of two."
            )
        return gram, traces

    @property
    def gram(self) -> Float[Tensor, "nk nk"]:
        r"""The Gram matrix :math:`\frac1n J J^\top`."""
        return self.layered[0]

    @cached_property
    def loss_gram(self) -> Float[Tensor, "nr nr"]:
        r"""The matrix of the loss, :math:`\frac1n R^\top J J^\top R`."""
        if not self.is_plain:  # before either matrix is made
            check_both_fit(count_rows(self.networks), self.loss_rows, self.memory)
        matrix = self.gram if self.is_plain else with_root(self.root, self.gram)
        if matrix.diagonal().amax() <= 0:
            if not self.gram.any():
                raise Refused(
                    "zero-matrix", "The Jacobian is zero: no eigenvalue to divide by. Check the weights and the data."
                )
            raise Refused(
                "no-curvature",
                "The Gauss-Newton matrix of the loss is zero: the loss has no curvature at these outputs (a perfect "
                "fit, with probabilities of 0 and 1?). Measure at other weights.",
            )
        return matrix

    @cached_property
    def eigenvalues(self) -> Float[Tensor, " nr"]:
        """All eigenvalues of the matrix of the loss, ascending."""
        return torch.linalg.eigvalsh(self.loss_gram)

    @cached_property
    def spectrum(self) -> tuple[Float[Tensor, " nr"], Float[Tensor, "nr nr"]]:
        """All eigenvalues of the matrix of the loss, ascending, and its eigenvectors in columns."""
        values, vectors = torch.linalg.eigh(self.loss_gram)
        return values, vectors

    @cached_property
    def rank(self) -> int:
        """Number of eigenvalues that are not zero."""
        values, _ = self.spectrum
        return numerical_rank(values, len(values))

    @cached_property
    def condition(self) -> ConditionNumber:
        """Both ends of the spectrum of the matrix of the loss."""
        return self.ends_by(None, Limits())

    def ends_by(self, method: str | None, limits: Limits) -> ConditionNumber:
        """Return both ends of the spectrum from the Gram matrix, or from singular values where that loses digits."""
        if method not in (None, "gram", "jacobian"):
            raise Refused("bad-option", f"method is {method!r}; for a network it can be 'gram', 'jacobian', or None.")
        start = perf_counter()
        ends = (None if method == "jacobian" else self._gram_ends(limits)) or self._jacobian_ends()
        return replace(ends, seconds=perf_counter() - start)

    def _gram_ends(self, limits: Limits) -> ConditionNumber | None:
        """Both ends from the smaller product of the Jacobian with itself; None where that may have lost some."""
        wide = self.parameters >= count_rows(self.networks) or not self.is_plain
        try:
            small = None if wide else Gram(gauss_newton_of(self.networks, self.memory))
            if small and small.matrix.diagonal().amax() < LEAST:
                return None
            gram = small or Gram(self.loss_gram, self.root.shape[2])
            own = gram.matrix.nbytes if small else 0
            gram = gram._replace(lent=True, spare=self.free * 2**30 - own)
        except (NotFiniteError, TooSmallError):  # products leave the range before what they are made of does
            return None
        except BudgetError:
            if wide:
                raise
            return None
        # A matrix that is singular up to rounding may have a negative eigenvalue, or no room for all of them.
        with suppress(ValueError, NotConvergedError):
            ends = find_ends(gram, GRAM, limits)
            residual = ends.residual + self._rounding * ends.largest / ends.smallest
            kind = "Gram" if wide else "Gauss-Newton"
            ends = replace(ends, residual=residual, method=f"{kind} matrix: {ends.method}")
            if ends.resolved and ends.rank == min(self.loss_rows, self.parameters):
                return ends
        return None

    def _jacobian_ends(self) -> ConditionNumber:
        """Both ends from the singular values of the Jacobian, times the root of the loss."""
        rows, n = count_rows(self.networks), len(self.outputs)
        # the GiB of the triangle, as it was, under a block, in the decomposition of both and as it comes out of that
        triangle = 4 * 8 * rows * min(rows, self.parameters) / 2**30 + self.held

        def weighted(block: Float[Tensor, "nk g"]) -> Float[Tensor, "nr g"]:
            return self.rooted(block).mul_(n**-0.5)

        try:  # of a loop, the block before would be there until the next one is made
            blocks = map(weighted, blocks_of(self.networks, max((self.memory - triangle) / 3, LITTLE)))
            return singular_value_ends(blocks)
        except BudgetError as error:
            raise Refused(
                "too-little-memory",
                f"memory is {self.memory} GiB but {triangle + 3 * error.needed:.3f} are needed for the singular values "
                "of the Jacobian (its Gram matrix loses the smallest of them); allow more, or pass fewer samples.",
            ) from error

    def ends_of(self, ascending: Float[Tensor, " q"]) -> ConditionNumber:
        """Return both ends of the spectrum of a matrix of this network, with the rounding that went into it."""
        return ends_of(ascending, rounding=self._rounding, method="eigenvalues of the Gram matrix")

    def rooted(self, block: Float[Tensor, "nk g"]) -> Float[Tensor, "nr g"]:
        """Return `R^T J` for columns of the Jacobian."""
        n, k = self.outputs.shape
        return block if self.is_plain else (self.root.mT @ block.view(n, k, -1)).flatten(0, 1)

    def operator(self) -> GramOperator:
        """Return the matrix of the loss by its products with vectors."""
        return GramOperator(self.networks, self.memory, None if self.is_plain else self.root)

    def cost(self, *, probe: bool = False) -> Cost:
        """Return the cost of the Gram matrix, with seconds if something may be tried."""
        return cost_of(self.networks, self.memory, probe=probe)

    @property
    def is_plain(self) -> bool:
        """Whether the loss is the squared error, whose root is the identity."""
        return isinstance(self.loss, SquaredError)

    @property
    def loss_rows(self) -> int:
        """Number of rows n r of the matrix of the loss."""
        return len(self.root) * self.root.shape[2]

    @cached_property
    def parameters(self) -> int:
        """Number p of parameters that require a gradient."""
        return sum(p.numel() for p in self.networks[0].parameters.values())

    @property
    def module(self) -> nn.Module:
        """The module as it was passed, without the wrapper that unpacks its arguments."""
        module = self.networks[0].module
        return module.module if isinstance(module, Packed) else module

    def layer_of(self, parameter: str) -> str:
        """Return the name of the module that holds a parameter, as the user knows it."""
        known = parameter.removeprefix("module.") if isinstance(self.networks[0].module, Packed) else parameter
        return known.rpartition(".")[0]

    @property
    def origin(self) -> Origin:
        """Digests of the data and of the parameters."""
        buffers = self.networks[0].mode != "train"
        return origin_of(self.module, self.batches, [self._targets], torch.float64, buffers=buffers)

    @property
    def held(self) -> float:
        """GiB of the matrices that were computed so far."""
        kept = [vars(self).get(name, ()) for name in ("layered", "loss_gram", "spectrum")]
        matrices = [m for found in kept for m in (found if isinstance(found, tuple) else (found,))]
        return sum({id(m): m.nbytes for m in matrices if isinstance(m, Tensor)}.values()) / 2**30

    @property
    def free(self) -> float:
        """GiB that are left of the memory beside what is held."""
        return max(self.memory - self.held, LITTLE)

    @property
    def _rounding(self) -> float:
        """Relative rounding of an entry, a sum of so many products: that of a random walk (Higham and Mary 2019)."""
        return max(self.parameters, count_rows(self.networks)) ** 0.5 * EPS

    def _read_versions(self) -> dict[str, int]:
        # in training a forward pass updates statistics that it does not use
        return versions_of(self.module, buffers=self.networks[0].mode != "train")


def with_root(root: Float[Tensor, "n k r"], gram: Float[Tensor, "nk nk"]) -> Float[Tensor, "nr nr"]:
    """Return `R^T K R` for a symmetric K and a block-diagonal R, one block for each sample."""
    n, k, r = root.shape
    result = gram.new_empty(n * r, n * r)
    some = max(TILE // k, 1)
    for start in range(0, n, some):  # above the diagonal, few samples at a time, as three whole copies may not fit
        stop = min(start + some, n)
        left = root[start:stop].mT @ gram[start * k : stop * k, start * k :].unflatten(0, (-1, k))
        both = left.flatten(0, 1).unflatten(1, (-1, k)).transpose(0, 1) @ root[start:]
        result[start * r : stop * r, start * r :].unflatten(1, (-1, r)).copy_(both.transpose(0, 1))
    return mirror(result)
