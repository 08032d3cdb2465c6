"""Our block iteration beside the LOBPCG of scipy and of torch: one end, one start, one preconditioner."""

import warnings
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.blocks import CoupledBlocks, LinAlgError
from gnlib.eigen.davidson import Map, orthonormalise
from gnlib.eigen.gram import GramBlocks
from gnlib.eigen.kronecker_blocks import KroneckerBlocks
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.result import Limits
from gnlib.operators import KroneckerSum

MOST = 200  # steps after which each of them gives up
TOLERANCE = 1e-8


class Finish(NamedTuple):
    """Where an iteration ended."""

    value: float  # the smallest eigenvalue, as it was found
    steps: int  # how often preconditioned residuals joined the search
    # the smallest Ritz value at the start and after each step, where the iteration tells
    values: tuple[float, ...] = ()
    warned: bool = False  # whether it said that it did not get as far as it should have

    def needed(self, exact: float, accuracy: float = 1e-8) -> int | None:
        """Return the steps after which the value first was this accurate, or None if it never was."""
        return next((i for i, v in enumerate(self.values) if abs(v / exact - 1) <= accuracy), None)


class LowerEnd:
    """The lower end of the spectrum of a matrix: the start and the preconditioner that all of them are given."""

    def __init__(self, blocks: CoupledBlocks, norm: float, scale: float = 1.0) -> None:
        self.blocks, self.norm, self.scale = blocks, norm, scale
        self.inverse, self.columns = blocks.prepare(largest=False, norm=norm)
        basis = orthonormalise(self.columns)
        values, rotation = torch.linalg.eigh(basis.mT @ self.product(basis))
        self.guess, self.start = values[0].item(), basis @ rotation[:, : blocks.columns]

    @classmethod
    def of_sum(cls, operator: KroneckerSum, largest: float) -> "LowerEnd":
        """Return that of a Kronecker sum with this largest eigenvalue."""
        terms = Terms(operator)
        _, right, exponent = terms.factors
        left, scale = terms.rotated, 2.0**exponent
        blocks = KroneckerBlocks(left, right, terms.null_space, largest=False)
        return cls(blocks, largest / scale, scale)

    @classmethod
    def of_gram(cls, matrix: Float[Tensor, "nk nk"], outputs: int, largest: float) -> "LowerEnd":
        """Return that of a Gram matrix with this largest eigenvalue."""
        return cls(GramBlocks(matrix, outputs), largest)

    def product(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:
        """Return the product with the matrix, its null space raised out of the way."""
        return self.blocks.apply_deflated(x, self.norm)

    def ours(self) -> Finish:
        """Return what our iteration finds; it ends when the relative error is bounded by the tolerance."""
        inverse = copy(self.inverse)  # it moves its shift
        pair = self.blocks.iterate(inverse, self.columns, norm=self.norm, limits=Limits(TOLERANCE, MOST))
        return Finish(pair.value * self.scale, pair.steps - 1)

    def scipy(self, tolerance: float | None = TOLERANCE) -> Finish:
        """Return what scipy's LOBPCG finds; it ends when the residuals of all columns are below the tolerance.

        Here the tolerance is relative to the smallest eigenvalue: that value is then as close to some eigenvalue. None
        is for scipy's own, which is absolute.
        """
        from scipy.sparse.linalg import LinearOperator, lobpcg

        steps = 0

        def precondition(residual: np.ndarray) -> np.ndarray:
            nonlocal steps
            steps += 1
            return self.inverse(_columns(residual).to(self.start)).cpu().numpy()

        def multiply(x: np.ndarray) -> np.ndarray:
            return self.product(_columns(x).to(self.start)).cpu().numpy()

        shape = 2 * (len(self.start),)
        matrix, inverse = (LinearOperator(shape, f, matmat=f, dtype=np.float64) for f in (multiply, precondition))
        limit = None if tolerance is None else tolerance * self.guess
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            how = {"tol": limit, "maxiter": MOST, "largest": False, "retLambdaHistory": True}
            values, _, history = lobpcg(matrix, self.start.cpu().numpy(), M=inverse, **how)
        found = tuple(v.min().item() * self.scale for v in history)
        return Finish(values.min().item() * self.scale, steps, found, bool(told))

    def torch(self) -> Finish:
        """Return what torch's LOBPCG finds, which takes no products, but the matrix and the preconditioner formed.

        It ends when the residual of the smallest value is below the tolerance, relative to that value. Of
        its two methods the default leaves the preconditioner out, without a word; this is the other, whose Cholesky
        factorisation may fail: then there is no value.
        """
        found: list[float] = []
        # torch measures by the size of the image of the start, and adds the eigenvalue
        image = torch.linalg.matrix_norm(self.matrix @ self.start) / torch.linalg.matrix_norm(self.start)
        limit = TOLERANCE * self.guess / (image.item() + self.guess)
        try:
            tracker = lambda state: found.append(state.E.min().item() * self.scale)  # noqa: E731
            how: dict[str, Any] = {"tol": limit, "niter": MOST, "largest": False, "method": "basic", "tracker": tracker}
            torch.lobpcg(self.matrix, 1, X=self.start.clone(), iK=self.dense_inverse, **how)
        except LinAlgError:
            return Finish(float("nan"), len(found), tuple(found), warned=True)
        return Finish(found[-1], len(found) - 1, tuple(found))

    @cached_property
    def matrix(self) -> Float[Tensor, "p p"]:  # noqa: D102
        return self._formed(self.product)

    @cached_property
    def dense_inverse(self) -> Float[Tensor, "p p"]:  # noqa: D102
        return self._formed(self.inverse)

    def _formed(self, product: Map) -> Float[Tensor, "p p"]:
        columns = product(torch.eye(len(self.start), dtype=self.start.dtype, device=self.start.device))
        return (columns + columns.mT) / 2


def _columns(x: np.ndarray) -> Float[Tensor, "p b"]:
    return torch.from_numpy(x.reshape(len(x), -1))
