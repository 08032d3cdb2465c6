"""Symmetric operators that know their products, so that a matrix need not be formed to be measured."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


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


def apply_kronecker_sum(
    left: Float[Tensor, "L k k"], right: Float[Tensor, "L r r"], x: Float[Tensor, "b k r"]
) -> Float[Tensor, "b k r"]:
    """Return `sum_l left_l x right_l` for a batch of matrices x; symmetric `right_l` are multiplied all at once."""
    terms, k, _ = left.shape
    batch, _, r = x.shape
    y = x.reshape(batch * k, r) @ right.reshape(terms * r, r).mT  # the factors are symmetric
    return torch.einsum("lij,bjlr->bir", left, y.reshape(batch, k, terms, r))
