r"""Extreme eigenpairs of a Kronecker sum that is nearly block diagonal."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.operators import apply_kronecker_sum
from gnlib.spectrum.cholesky import cholesky_solve, inverse_of
from gnlib.spectrum.davidson import ExtremePair, Map, extreme_eigenpair, krylov_space, orthonormal
from gnlib.spectrum.errors import lower_errors, upper_errors

EPS = torch.finfo(torch.float64).eps
BLOCK = 4  # columns that the iteration improves at a time
SMOOTHED = 3  # random columns that meet every invariant subspace, for an end that lies off the guess
PROJECTED = 600  # size of the projected problem that gives the guess
NEAR = (0.02, 0.1, 0.5)  # relative distances of the shift from the guess, tried until the blocks are definite


class CoupledBlocks:
    r"""The matrix :math:`\sum_\ell C_\ell \otimes S_\ell` with its blocks :math:`N_i = \sum_\ell (C_\ell)_{ii} S_\ell`.

    Parameters
    ----------
    left
        (L, k, k) tensor of positive semi-definite factors, the first one diagonal
    right
        (L, r, r) tensor of positive semi-definite factors
    silent
        (k,) tensor, the outputs for which the first factor is zero
    kernel
        (r, b) tensor with orthonormal columns; times the silent outputs they are the null space of G
    """

    def __init__(
        self,
        left: Float[Tensor, "L k k"],
        right: Float[Tensor, "L r r"],
        silent: Float[Tensor, " k"],
        kernel: Float[Tensor, "r b"],
    ) -> None:
        self.left, self.right, self.silent, self.kernel = left, right, silent, kernel
        self.outputs, self.inputs = left.shape[1], right.shape[1]
        self.weights = left.diagonal(dim1=1, dim2=2).clamp_min(0)
        # G is at least `slack` times the block diagonal matrix. Where some factor is singular, the smallest one
        # that is not zero is a fair guess and no proof.
        scale = torch.where(self.weights > 0, self.weights, torch.inf).rsqrt()
        slack = torch.linalg.eigvalsh(scale[:, :, None] * left * scale[:, None, :])
        regular = slack > self.outputs * EPS * slack.max()
        self.slack, self.proved = slack[regular].min(), bool(regular.all())

    def largest(self, tolerance: float, max_steps: int) -> ExtremePair:
        """Return the largest eigenvalue and its vector."""
        value, start = self._guess(solve=False, raised=0.0)
        for distance in (*NEAR, *(2.0**i for i in range(60))):
            solve = self._inverse(value * (1 + distance), sign=-1)
            if solve is not None:
                break
        return extreme_eigenpair(
            self.apply,
            torch.cat([start, self._smoothed(solve)], 1),
            block=BLOCK,
            largest=True,
            precondition=solve,
            errors=upper_errors,
            tolerance=tolerance,
            max_steps=max_steps,
        )

    def smallest(self, largest: float, tolerance: float, max_steps: int) -> ExtremePair:
        """Return the smallest eigenvalue that is not zero, and its vector."""
        value, start = self._guess(solve=True, raised=largest)
        for distance in (*NEAR, 1.0) if self.proved else (1.0,):
            shift = value * (1 - distance)
            solve = self._inverse(shift, sign=1)
            if solve is not None:
                break

        def raised(x: Float[Tensor, "kr b"]) -> Float[Tensor, "kr b"]:
            return self.apply(x) + largest * (x - self.project(x))  # null vectors belong to the upper end now

        errors = partial(lower_errors, slack=self.slack, shift=shift, proved=self.proved)
        return extreme_eigenpair(
            raised,
            torch.cat([start, self._smoothed(solve)], 1),
            block=BLOCK,
            largest=False,
            precondition=solve,
            errors=errors,
            norm=largest,
            tolerance=tolerance,
            max_steps=max_steps,
        )

    def apply(self, x: Float[Tensor, "kr b"]) -> Float[Tensor, "kr b"]:
        """Return the product with the columns of a matrix."""
        y = apply_kronecker_sum(self.left, self.right, x.mT.reshape(-1, self.outputs, self.inputs))
        return y.reshape(-1, self.outputs * self.inputs).mT

    def project(self, x: Float[Tensor, "kr b"]) -> Float[Tensor, "kr b"]:
        """Return the part of the columns outside the null space."""
        if not self.kernel.shape[1]:
            return x
        y = x.reshape(self.outputs, self.inputs, -1)
        return (y - self.silent[:, None, None] * (self.kernel @ (self.kernel.mT @ y))).reshape(x.shape)

    def _block(self, i: int) -> Float[Tensor, "r r"]:
        """The block of an output, with its null vectors raised to the size of the others."""
        block = torch.einsum("l,lab->ab", self.weights[:, i], self.right)
        if self.silent[i] and self.kernel.shape[1]:
            block += block.diagonal().mean() * self.kernel @ self.kernel.mT
        return block

    def _inverse(self, shift: float, *, sign: int) -> Map | None:
        """Return the product with the inverses of `sign * (N_i - shift)`, or None if one is not definite."""
        factors = torch.empty(self.outputs, self.inputs, self.inputs, dtype=self.left.dtype, device=self.left.device)
        for i in range(self.outputs):
            block = sign * self._block(i)
            block.diagonal().sub_(sign * shift)
            factors[i], failed = torch.linalg.cholesky_ex(block)
            if failed:
                return None

        def solve(x: Float[Tensor, "kr b"]) -> Float[Tensor, "kr b"]:
            return self.project(cholesky_solve(factors, x.reshape(self.outputs, self.inputs, -1)).reshape(x.shape))

        return solve

    def _guess(self, solve: bool, raised: float) -> tuple[float, Float[Tensor, "kr b"]]:
        """An end of G on all outputs times the inputs that matter at that end of the outermost blocks."""
        spaces = []
        for i in {0, self.outputs - 1}:
            block = self._block(i)
            space = krylov_space(inverse_of(block) if solve else block.matmul, self._random(self.inputs, 8), 8)
            _, ritz = torch.linalg.eigh(space.mT @ block @ space)
            kept = max(1, PROJECTED // (2 * self.outputs))
            spaces.append(space @ (ritz[:, :kept] if solve else ritz[:, -kept:]))
        space = orthonormal(torch.cat(spaces, 1))
        projected = torch.einsum("lij,lab->iajb", self.left, space.mT @ self.right @ space)
        null = self.kernel.mT @ space
        projected += raised * torch.einsum("ij,ab->iajb", self.silent.diag().to(null), null.mT @ null)
        size = self.outputs * space.shape[1]
        values, vectors = torch.linalg.eigh(projected.reshape(size, size))
        if not solve:
            values, vectors = values.flip(0), vectors.flip(1)
        vectors = vectors[:, :BLOCK].reshape(self.outputs, -1, min(BLOCK, size))
        return values[0].item(), self.project((space @ vectors).reshape(self.outputs * self.inputs, -1))

    def _smoothed(self, solve: Map) -> Float[Tensor, "kr b"]:
        # unsmoothed, the rounding of their large components would drown a graded lower end
        x = self._random(self.outputs * self.inputs, SMOOTHED)
        for _ in range(3):
            x = solve(x)
            x = x / torch.linalg.vector_norm(x, dim=0)
        return x

    def _random(self, *shape: int) -> Tensor:
        generator = torch.Generator(self.left.device).manual_seed(0)
        return torch.randn(*shape, generator=generator, dtype=self.left.dtype, device=self.left.device)
