"""The second moment of data, factored on its range, and whitened data."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS, as_float64, as_matrix, as_samples, numerical_rank, rounding_of
from gnlib.eigen.scale import all_restored, restored, scaled


def second_moment(x: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """Return the second moment `x.T @ x / n` of samples held in rows, from which no mean is subtracted.

    Examples
    --------
    >>> import torch
    >>> second_moment(torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[2., 0.],
            [0., 8.]], dtype=torch.float64)
    """
    x, exponent = scaled(as_samples(x))
    return all_restored(x.mT @ x / len(x), 2 * exponent, "entry of the second moment")


def whiten(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Return data whose second moment is the identity on its range: `sqrt(n) U V^T`, from the SVD `x = U diag(s) V^T`.

    Directions in which the data do not vary (singular values below `max(n, d) * eps` times the largest) are left at
    zero: the second moment of the result is a projector of the rank of `x`.

    Examples
    --------
    >>> import torch
    >>> x = whiten(torch.tensor([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]]))
    >>> torch.allclose(second_moment(x), torch.eye(2).double())
    True
    """
    x, _ = scaled(as_samples(x))
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    rank = _rank(s, max(x.shape), "x")
    return len(x) ** 0.5 * u[:, :rank] @ vt[:rank]


@dataclass(frozen=True, eq=False)
class SecondMoment:
    """A second moment `Q diag(s) Q^T` held by an orthonormal basis of its range and its non-zero eigenvalues.

    The columns of the `(d, r)` basis are those of Q, the eigenvalues are descending and positive, and their relative
    error is bounded by the rounding of the decomposition. It may be unpacked: `basis, eigenvalues = moment`.

    Examples
    --------
    >>> import torch
    >>> SecondMoment.from_matrix(torch.diag(torch.tensor([1.0, 4.0, 0.0]))).eigenvalues.round(decimals=6)
    tensor([4., 1.], dtype=torch.float64)
    """

    basis: Float[Tensor, "d r"]
    eigenvalues: Float[Tensor, " r"]
    error: float = 0.0

    def __iter__(self) -> Iterator[Tensor]:
        """Return the basis and the eigenvalues."""
        return iter((self.basis, self.eigenvalues))

    @classmethod
    def from_data(cls, x: Float[Tensor, "n d"]) -> "SecondMoment":
        """Factor the second moment of `x` by the SVD of `x`, never forming it.

        Its eigenvalues are then known to a relative error of `eps * sqrt(kappa)` in place of `eps * kappa`.
        """
        x, exponent = scaled(as_samples(x))
        _, s, vt = torch.linalg.svd(x, full_matrices=False)
        rank = _rank(s, max(x.shape), "x")
        eigenvalues, what = s[:rank] ** 2 / len(x), "eigenvalue of the second moment"
        restored(eigenvalues[-1].item(), 2 * exponent, what)
        eigenvalues = all_restored(eigenvalues, 2 * exponent, what)
        return cls(vt[:rank].mT.contiguous(), eigenvalues, 2 * _error(s, rank, EPS))

    @classmethod
    def from_matrix(cls, matrix: Float[Tensor, "d d"]) -> "SecondMoment":
        """Factor a given second moment by its eigendecomposition."""
        symmetric, rounding = as_matrix(matrix, "second_moment")
        s, q = torch.linalg.eigh(symmetric)
        s, q = s.flip(0), q.flip(1)
        rank = _rank(s, len(s), "second_moment")
        if s[-1] < -len(s) * max(EPS, rounding) * s[0]:
            raise ValueError(f"second_moment has the negative eigenvalue {s[-1]:.1e}; a second moment has none.")
        return cls(q[:, :rank].contiguous(), s[:rank], _error(s, rank, max(EPS, rounding)))


Moment = Float[Tensor, "d d"] | SecondMoment
"""A second moment as a matrix, or its factors, which are more accurate where the data are badly conditioned."""


def as_second_moment(second_moment: Moment) -> SecondMoment:
    """Return the factors of a second moment in double precision."""
    if not isinstance(second_moment, SecondMoment):
        return SecondMoment.from_matrix(second_moment)
    basis, eigenvalues = (as_float64(factor, "a factor of second_moment") for factor in second_moment)
    if basis.ndim != 2 or eigenvalues.shape != basis.shape[1:] or eigenvalues.min() < 0:
        shapes = f"{tuple(basis.shape)} and {tuple(eigenvalues.shape)}"
        what = f"of shapes {shapes}, the smallest {eigenvalues.min():.1e}"
        raise ValueError(f"second_moment has a basis and eigenvalues {what}; (d, r) and (r,) from 0 on were expected.")
    return SecondMoment(basis, eigenvalues, second_moment.error + rounding_of(second_moment.eigenvalues.dtype))


def _error(descending: Tensor, rank: int, rounding: float) -> float:
    """Return the relative error of the smallest value that counts: those that count as zero show the rounding."""
    zeros = descending[rank].abs().item() if rank < len(descending) else 0.0
    return max(zeros, rounding * descending[0].item()) / descending[rank - 1].item()


def _rank(descending: Tensor, size: int, name: str) -> int:
    if descending[0] <= 0:
        raise ValueError(f"{name} is zero: it spans no direction, so there is nothing to measure.")
    return numerical_rank(descending, size)
