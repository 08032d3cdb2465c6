"""Symmetric operators that know their products, so that a matrix need not be formed to be measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float
from torch import Tensor

BANDS = 4


@dataclass(frozen=True)
class KroneckerSum:
    """The operator `sum_l left_l kron (basis right_l basis^T)`, of size `(k d, k d)`.

    A vector is the row-major vec of a `(k, d)` matrix X (output index outer), on which the operator acts as
    `X -> sum_l left_l X (basis right_l basis^T)`.

    Attributes
    ----------
    left
        (L, k, k) tensor of symmetric factors
    right
        (L, r, r) tensor of symmetric factors, in coordinates of the range
    basis
        (d, r) tensor with orthonormal columns that span the range of the data
    """

    left: Float[Tensor, "L k k"]
    right: Float[Tensor, "L r r"]
    basis: Float[Tensor, "d r"]

    @property
    def shape(self) -> tuple[int, int]:
        """Both dimensions, `k d`."""
        size = self.left.shape[1] * self.basis.shape[0]
        return size, size

    @property
    def dtype(self) -> torch.dtype:
        """Type of the entries."""
        return self.left.dtype

    @property
    def device(self) -> torch.device:
        """Device that holds the factors."""
        return self.left.device

    def matmul(self, v: Float[Tensor, " kd *columns"]) -> Float[Tensor, " kd *columns"]:
        """Return the product with a vector or with the columns of a matrix."""
        if v.shape[0] != self.shape[1]:
            raise ValueError(
                f"The vector has {v.shape[0]} rows; this operator of shape {self.shape} takes {self.shape[1]}."
            )
        k, (d, _) = self.left.shape[1], self.basis.shape
        x = v.reshape(k, d, -1).movedim(2, 0)
        y = apply_kronecker_sum(self.left, self.right, x @ self.basis) @ self.basis.mT
        return y.movedim(0, 2).reshape(v.shape)

    __matmul__ = matmul

    def dense(self) -> Float[Tensor, "kd kd"]:
        """Return the matrix itself: `(k d)^2` entries, for checks on small sizes."""
        size = self.shape[0]
        right = self.basis @ self.right @ self.basis.mT
        return torch.einsum("lij,lab->iajb", self.left, right).reshape(size, size)


class ChainSum(KroneckerSum):
    r"""The Kronecker sum whose factors `right_l` are the squares of the products of a chain of matrices.

    With the data first, :math:`B_1 = \operatorname{diag}(\texttt{roots})` and :math:`B_{\ell+1} = W_\ell B_\ell`,
    they are :math:`B_\ell^\top B_\ell`, formed when they are first asked for.

    Parameters
    ----------
    left
        (L, k, k) tensor of symmetric factors
    roots
        (r,) tensor, square roots of the eigenvalues of the second moment
    weights
        the matrices :math:`W_1, \dots, W_{L-1}`, in coordinates of the range
    basis
        (d, r) tensor with orthonormal columns that span the range of the data
    """

    def __init__(
        self,
        left: Float[Tensor, "L k k"],
        roots: Float[Tensor, " r"],
        weights: Sequence[Tensor],
        basis: Float[Tensor, "d r"],
    ) -> None:
        # the data class is frozen
        self.__dict__.update(left=left, roots=roots, weights=tuple(weights), basis=basis)

    @cached_property
    def right(self) -> Float[Tensor, "L r r"]:
        """The factors."""
        return self.squares(self.dtype)

    def squares(self, dtype: torch.dtype) -> Float[Tensor, "L r r"]:
        """Return the factors, computed in this precision."""
        roots, weights = self.roots.to(dtype), [w.to(dtype) for w in self.weights]
        size = len(roots)
        squares = roots.new_empty(len(weights) + 1, size, size)
        squares[0] = (roots * roots).diag()
        if weights:
            products = accumulate([weights[0] * roots, *weights[1:]], lambda product, w: w @ product)
            for square, product in zip(squares[1:], products, strict=True):
                _square(product, out=square)
        return squares

    def through_layers(self, x: Float[Tensor, "b q r"], left: Float[Tensor, "L q q"]) -> Float[Tensor, "b q r"]:
        r"""Return `sum_l left_l x right_l` for a batch of matrices x and any factors on the left, without `right`."""
        above = [x * self.roots]
        for w in self.weights:
            above.append(above[-1] @ w.mT)
        y = left[-1] @ above[-1]
        for w, c, z in zip(reversed(self.weights), left.flip(0)[1:], reversed(above[:-1]), strict=True):
            y = y @ w + c @ z
        return y * self.roots


def _square(b: Float[Tensor, "m r"], out: Float[Tensor, "r r"]) -> None:
    """Write `b.T @ b` by a few bands of rows, each from the diagonal on: little more than half of the products."""
    size = out.shape[1]
    edges = [size * i // BANDS for i in range(BANDS + 1)]
    for first, last in pairwise(edges):
        torch.matmul(b[:, first:last].mT, b[:, first:], out=out[first:last, first:])
        out[last:, first:last] = out[first:last, last:].mT


def apply_kronecker_sum(
    left: Float[Tensor, "L k k"], right: Float[Tensor, "L r r"], x: Float[Tensor, "b k r"]
) -> Float[Tensor, "b k r"]:
    """Return `sum_l left_l x right_l` for a batch of matrices x, the `right_l` multiplied all at once."""
    terms, k, _ = left.shape
    batch, _, r = x.shape
    y = left.transpose(0, 1).reshape(k * terms, k) @ x  # of each output, all terms in a row
    return (y.reshape(batch * k, terms * r) @ right.reshape(terms * r, r)).reshape(batch, k, r)
