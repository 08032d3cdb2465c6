"""The second moment of data, factored on its range, and whitened data."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS, as_samples, as_symmetric, numerical_rank


def second_moment(x: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """Return the second moment `x.T @ x / n` of samples held in rows.

    The papers call it the covariance of the data (Zhao 2024, section 4.1); neither they nor this library subtract the
    mean.

    Examples
    --------
    >>> import torch
    >>> second_moment(torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[2., 0.],
            [0., 8.]], dtype=torch.float64)
    """
    x = as_samples(x)
    return x.mT @ x / len(x)


def whiten(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Return data whose second moment is the identity on its range: `sqrt(n) U V^T`, from the SVD `x = U diag(s) V^T`.

    Directions in which the data do not vary (singular values below `max(n, d) * eps` times the largest) are left at
    zero: whitening cannot invent them. The second moment of the result is therefore a projector of the rank of `x`.

    Examples
    --------
    >>> import torch
    >>> x = whiten(torch.tensor([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]]))
    >>> torch.allclose(second_moment(x), torch.eye(2).double())
    True
    """
    x = as_samples(x)
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    rank = _rank(s, max(x.shape), "x")
    return len(x) ** 0.5 * u[:, :rank] @ vt[:rank]


class SecondMoment(NamedTuple):
    """A second moment `Q diag(s) Q^T` held by an orthonormal basis of its range and its non-zero eigenvalues.

    Attributes
    ----------
    basis
        (d, r) tensor, the orthonormal columns of Q
    eigenvalues
        (r,) tensor, descending and positive

    Examples
    --------
    >>> import torch
    >>> SecondMoment.from_matrix(torch.diag(torch.tensor([1.0, 4.0, 0.0]))).eigenvalues.round(decimals=6)
    tensor([4., 1.], dtype=torch.float64)
    """

    basis: Float[Tensor, "d r"]
    eigenvalues: Float[Tensor, " r"]

    @classmethod
    def from_data(cls, x: Float[Tensor, "n d"]) -> "SecondMoment":
        """Factor the second moment of `x` by the SVD of `x`, never forming it.

        Its eigenvalues are then known to a relative error of `eps * sqrt(kappa)` in place of `eps * kappa`: pixels
        that hardly ever light up are told apart from pixels that never do.
        """
        x = as_samples(x)
        _, s, vt = torch.linalg.svd(x, full_matrices=False)
        rank = _rank(s, max(x.shape), "x")
        return cls(vt[:rank].mT.contiguous(), s[:rank] ** 2 / len(x))

    @classmethod
    def from_matrix(cls, matrix: Float[Tensor, "d d"]) -> "SecondMoment":
        """Factor a given second moment by its eigendecomposition."""
        s, q = torch.linalg.eigh(as_symmetric(matrix, "second_moment"))
        s, q = s.flip(0), q.flip(1)
        rank = _rank(s, len(s), "second_moment")
        if s[-1] < -len(s) * EPS * s[0]:
            raise ValueError(f"second_moment has the negative eigenvalue {s[-1]:.1e}; a second moment has none.")
        return cls(q[:, :rank].contiguous(), s[:rank])


Moment = Float[Tensor, "d d"] | SecondMoment
"""A second moment as a matrix, or its factors, which are more accurate where the data are badly conditioned."""


def as_second_moment(second_moment: Moment) -> SecondMoment:
    """Return the factors of a second moment."""
    return second_moment if isinstance(second_moment, SecondMoment) else SecondMoment.from_matrix(second_moment)


def _rank(descending: Tensor, size: int, name: str) -> int:
    if descending[0] <= 0:
        raise ValueError(f"{name} is zero: it spans no direction, so there is nothing to measure.")
    return numerical_rank(descending, size)
