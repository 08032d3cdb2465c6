"""Symmetric operators: matrices that are multiplied by vectors and need not be formed."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.refused import Refused

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse.linalg import LinearOperator

ROW_BANDS = 4  # in which the square of a matrix is formed: more of them save little and cost calls


class SymmetricOperator(ABC):
    """A symmetric matrix, of a shape, dtype and device, that is known by its products with vectors."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype, self.device = (size, size), dtype, device

    @abstractmethod
    def matmul(self, v: Float[Tensor, " p *columns"]) -> Float[Tensor, " p *columns"]:
        """Return the product with a vector or with the columns of a matrix."""

    def __matmul__(self, v: Float[Tensor, " p *columns"]) -> Float[Tensor, " p *columns"]:
        """Return the product with a vector or with the columns of a matrix."""
        return self.matmul(v)

    def __repr__(self) -> str:
        """Return the kind, shape, type and device, without computing anything."""
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype}, device={self.device})"

    def dense(self) -> Float[Tensor, "p p"]:
        """Return the matrix itself, by one product for each of its columns: for checks on small sizes."""
        return self.matmul(torch.eye(self.shape[1], dtype=self.dtype, device=self.device))

    def to_scipy(self) -> "LinearOperator":
        """Return the operator for SciPy: NumPy arrays in, NumPy arrays out, the products on the device of this one."""
        from scipy.sparse.linalg import LinearOperator

        def product(v: "np.ndarray") -> "np.ndarray":
            return self.matmul(torch.as_tensor(v, dtype=self.dtype, device=self.device)).cpu().numpy()

        dtype = torch.empty(0, dtype=self.dtype, device="cpu").numpy().dtype
        return LinearOperator(self.shape, matvec=product, rmatvec=product, matmat=product, dtype=dtype)


class KroneckerSum(SymmetricOperator):
    """The operator `sum_l left_l kron (basis right_l basis^T)`, of size `(k d, k d)`.

    A vector is the row-major vec of a `(k, d)` matrix X (output index outer), on which the operator acts as
    `X -> sum_l left_l X (basis right_l basis^T)`.

    Parameters
    ----------
    left
        (L, k, k) tensor of symmetric factors
    right
        (L, r, r) tensor of symmetric factors, in coordinates of the range
    basis
        (d, r) tensor with orthonormal columns that span the range of the data

    Examples
    --------
    >>> import torch
    >>> left, right = torch.eye(2).double()[None], torch.diag(torch.tensor([1.0, 3.0]).double())[None]
    >>> KroneckerSum(left, right, torch.eye(2).double()).dense().diagonal()
    tensor([1., 3., 1., 3.], dtype=torch.float64)
    """

    error: float = 0.0  # of what the factors are made of, relative to each eigenvalue

    def __init__(
        self, left: Float[Tensor, "L k k"], right: Float[Tensor, "L r r"], basis: Float[Tensor, "d r"]
    ) -> None:
        super().__init__(left.shape[1] * basis.shape[0], left.dtype, left.device)
        self.left, self._right, self.basis = left, right, basis

    @property
    def right(self) -> Float[Tensor, "L r r"]:
        """The factors on the right."""
        return self._right

    def matmul(self, v: Float[Tensor, " kd *columns"]) -> Float[Tensor, " kd *columns"]:
        """Return the product with a vector or with the columns of a matrix."""
        if v.shape[0] != self.shape[1]:
            raise Refused(
                "wrong-shape",
                f"The vector has {v.shape[0]} rows; this operator of shape {self.shape} takes {self.shape[1]}.",
            )
        k, (d, _) = self.left.shape[1], self.basis.shape
        x = v.reshape(k, d, -1).movedim(2, 0)
        y = apply_kronecker_sum(self.left, self.right, x @ self.basis) @ self.basis.mT
        return y.movedim(0, 2).reshape(v.shape)

    def dense(self) -> Float[Tensor, "kd kd"]:
        """Return the matrix itself: `(k d)^2` entries, for checks on small sizes."""
        size = self.shape[0]
        right = self.basis @ self.right @ self.basis.mT
        return torch.einsum("lij,lab->iajb", self.left, right).reshape(size, size)


class LayeredSum(KroneckerSum):
    r"""The Kronecker sum whose factors `right_l` are the squares of the products of the layers of a linear network.

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
    error
        of the roots, squared: eigenvalues of the sum have the same relative error (Ostrowski)

    Examples
    --------
    >>> import torch
    >>> one, roots = torch.eye(2).double(), torch.tensor([1.0, 2.0]).double()
    >>> operator = LayeredSum(left=torch.ones(2, 1, 1).double(), roots=roots, weights=[3 * one], basis=one)
    >>> operator.right.diagonal(dim1=1, dim2=2)
    tensor([[ 1.,  4.],
            [ 9., 36.]], dtype=torch.float64)
    """

    def __init__(
        self,
        left: Float[Tensor, "L k k"],
        roots: Float[Tensor, " r"],
        weights: Sequence[Tensor],
        basis: Float[Tensor, "d r"],
        error: float = 0.0,
    ) -> None:
        SymmetricOperator.__init__(self, left.shape[1] * basis.shape[0], left.dtype, left.device)
        self.error = error
        self.left, self.roots, self.weights, self.basis = left, roots, tuple(weights), basis

    @cached_property
    def right(self) -> Float[Tensor, "L r r"]:
        """The factors on the right."""
        return self.form_right(self.dtype)

    def form_right(self, dtype: torch.dtype) -> Float[Tensor, "L r r"]:
        """Return the factors on the right, computed in this precision."""
        roots, weights = self.roots.to(dtype), [w.to(dtype) for w in self.weights]
        size = len(roots)
        squares = roots.new_empty(len(weights) + 1, size, size)
        squares[0] = (roots * roots).diag()
        if weights:
            products = accumulate([weights[0] * roots, *weights[1:]], lambda product, w: w @ product)
            for square, product in zip(squares[1:], products, strict=True):
                _square(product, out=square)
        return squares

    def apply_layers(self, x: Float[Tensor, "b q r"], left: Float[Tensor, "L q q"]) -> Float[Tensor, "b q r"]:
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
    edges = [size * i // ROW_BANDS for i in range(ROW_BANDS + 1)]
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
