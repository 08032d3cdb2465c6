r"""Both ends of the spectrum of the Gauss-Newton matrix of a wide and deep linear network on well conditioned data.

The factors :math:`S_\ell = B_\ell^\top B_\ell` cost more than the iteration that they precondition. In single
precision they take half the time, and so do the factors of the shifted blocks; the products with G, on which alone the
accuracy of the eigenvalues rests, go through the layers of the network in double precision.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.operators import ChainSum
from gnlib.spectrum.coupled_blocks import FEW
from gnlib.spectrum.kronecker_blocks import KroneckerBlocks, in_eigenbasis
from gnlib.spectrum.result import ConditionNumber, NotConvergedError

EPS = torch.finfo(torch.float64).eps
SINGLE = torch.finfo(torch.float32).eps
COARSE = 1e-2  # largest relative rounding of the lower end by single precision
WIDE = 1500  # size of the data from which the factors cost more than the products through the layers
POWERS = 4  # steps that reach nine tenths of the norm of a random matrix, all of that of one of low rank
USUAL = 1e15  # entries of the factors whose products stay far from the ends of single precision
EVEN = 0.1  # smallest over largest root of an eigenvalue of the second moment


def suits(op: ChainSum) -> bool:
    """Say whether forming the factors in double precision is likely to be a waste."""
    wide = len(op.roots) >= WIDE and len(op.weights) >= 2
    return wide and max(map(len, op.weights)) <= 2 * len(op.roots) and bool(op.roots.min() >= EVEN * op.roots.max())


def chain_ends(op: ChainSum, *, tolerance: float, max_steps: int) -> ConditionNumber | None:
    """Return both ends, or None where single precision is too coarse for the lower one."""
    mu, left = in_eigenbasis(op.left)
    k, r = len(mu), len(op.roots)
    if mu[0] <= k * EPS * mu[-1]:
        return None
    right = op.squares(torch.float32)
    extremes = right.diagonal(dim1=1, dim2=2).amax(1)
    if not (extremes.min() > 1 / USUAL and extremes.max() < USUAL):
        return None
    limits = {"tolerance": tolerance, "max_steps": max_steps}
    try:
        top = ChainBlocks(op, left, right, largest=True).end(largest=True, **limits)
        lower = ChainBlocks(op, left, right, largest=False)
        lower.rounding = lower.rounding_of_blocks() + r**0.5 * SINGLE * top.value  # the second for their factors
        bottom = lower.end(largest=False, norm=top.value, **limits)
    except (torch.linalg.LinAlgError, NotConvergedError):
        return None
    if lower.rounding > COARSE * bottom.value:
        return None
    gap = bottom.value / (EPS * top.value)
    return ConditionNumber(
        largest=top.value,
        smallest=bottom.value,
        rank=k * r,
        gap=gap,
        residual=max(top.error, bottom.error + len(op.left) / gap),
        method=f"block iteration through the layers, {top.steps} and {bottom.steps} steps",
    )


class ChainBlocks(KroneckerBlocks):
    """A Kronecker sum with blocks in single precision and products through the layers in double precision.

    Parameters
    ----------
    op
        the sum
    left
        (L, k, k) tensor, its factors on the left in the eigenbasis of the first one
    right
        (L, r, r) tensor, its factors on the right in single precision
    largest
        the end of the spectrum that is looked for

    Attributes
    ----------
    rounding
        norm of what single precision has added to the blocks and their factors
    """

    rounding: float = 0.0

    def __init__(
        self,
        op: ChainSum,
        left: Float[Tensor, "L k k"],
        right: Float[Tensor, "L r r"],
        *,
        largest: bool,
    ) -> None:
        silent = torch.zeros(left.shape[1], dtype=torch.bool, device=left.device)
        super().__init__(left, right, silent, left.new_empty(right.shape[1], 0), largest=largest)
        self.op = op

    def product(self, x: Float[Tensor, "b k r"]) -> Float[Tensor, "b k r"]:  # noqa: D102
        return self.op.through_layers(x, self.left)

    def between(self, space: Float[Tensor, "r q"]) -> Float[Tensor, "L q q"]:  # noqa: D102
        return self.op.between(space)

    def rounding_of_blocks(self) -> float:
        """Return twice the norm of the difference between the blocks and the exact ones, by power iteration."""
        exact = torch.diag_embed(self.shares)
        x = self.random(FEW, len(self.shared), self.inputs)
        for _ in range(POWERS):
            x = x / torch.linalg.vector_norm(x, dim=2, keepdim=True)
            rounded = x.transpose(0, 1).to(self.shared) @ self.shared
            x = self.op.through_layers(x, exact) - rounded.transpose(0, 1)
        return 2 * torch.linalg.vector_norm(x, dim=2).max().item()

    def lower_errors(  # noqa: D102
        self, values: Float[Tensor, " b"], residual: Float[Tensor, "p b"], solved: Float[Tensor, "p b"], shift: float
    ) -> Float[Tensor, " b"]:
        # as if the exact blocks had been shifted less
        return super().lower_errors(values, residual, solved, shift - self.rounding)
