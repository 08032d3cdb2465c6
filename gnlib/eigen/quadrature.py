r"""Integrals against the spectral measure of a vector, between two bounds, from a few products with a matrix.

For a symmetric matrix K and a vector r, :math:`r^\top f(K)\, r` is an integral of f against the measure with the mass
:math:`(v_i^\top r)^2` at each eigenvalue. q products, those of the Lanczos process that begins at r, know the first
2q moments of this measure, and so its Gauss rule of q nodes, and Lobatto's of q - 1 nodes and of two that are
prescribed, a and b. Where the derivative of f of order 2q is nowhere negative, Gauss's rule is a lower bound, and
Lobatto's an upper one if all eigenvalues lie between a and b (Golub and Meurant, chapter 6). The errors are

.. math:: \frac{f^{(2q)}(\xi)}{(2q)!} \int \prod_i (\lambda - \theta_i)^2 \, d\mu \ge 0, \qquad
    \frac{f^{(2q)}(\xi)}{(2q)!} \int (\lambda - a)(\lambda - b) \prod_i (\lambda - \theta_i)^2 \, d\mu \le 0 .

References
----------
G. H. Golub, G. Meurant (2010), Matrices, moments and quadrature with applications, Princeton.
G. H. Golub (1973), Some modified matrix eigenvalue problems, SIAM Review 15 (nodes that are prescribed).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.result import NotConvergedError
from gnlib.refused import Refused

ASTRAY = 0.05  # of the largest entry: products of low precision are wrong by less
ROUNDING = 1e-12  # of the largest entry, below which what is left of a vector is none

Map = Callable[[Float[Tensor, " p"]], Float[Tensor, " p"]]


class Rule(NamedTuple):
    """Nodes and positive weights, which add up to the squared norm of the vector."""

    nodes: Float[np.ndarray, " q"]
    weights: Float[np.ndarray, " q"]


class Jacobi(NamedTuple):
    """The tridiagonal matrix of a measure: what its first moments are worth."""

    diagonal: Float[np.ndarray, " q"]  # of the matrix, an entry for each node
    beside: Float[np.ndarray, " _"]  # the diagonal; up to what stands next to its last entry, or one shorter
    mass: float  # of the measure
    is_whole: bool = False  # whether all of the measure is known: then the Gauss rule is the measure

    def gauss(self) -> Rule:
        """Return the Gauss rule, of one node for each entry on the diagonal: its nodes are the Ritz values."""
        return _rule(self.diagonal, self.beside[: len(self.diagonal) - 1], self.mass)

    def radau(self, node: float) -> Rule:
        """Return the rule of a node more, one of them prescribed; no such measure has a larger weight at that point."""
        diagonal = self.diagonal[: len(self.beside)]
        last = node + self.beside[-1] ** 2 * _last_entry(diagonal - node, self.beside[:-1])
        return _rule(np.append(diagonal, last), self.beside, self.mass)

    def below(self, value: float) -> tuple[float, float]:
        """Bound the mass below a value from below, and the mass up to it from above (Chebyshev, Markov, Stieltjes)."""
        nodes, weights = self.gauss() if self.is_whole else self.radau(value)
        rounding = ROUNDING * max(abs(value), float(np.abs(nodes).max()))
        up_to = float(weights[nodes <= value + rounding].sum())
        return up_to if self.is_whole else float(weights[nodes < value - rounding].sum()), up_to

    def lobatto(self, low: float, high: float) -> Rule:
        """Return the rule of a node more, two of them at ends between which the measure lies."""
        if self.is_whole:
            return self.gauss()
        beside = self.beside[: len(self.diagonal) - 1]
        below, above = (_last_entry(self.diagonal - end, beside) for end in (low, high))
        square = (high - low) / (below - above)
        return _rule(np.append(self.diagonal, low + below * square), np.append(beside, square**0.5), self.mass)

    def divided(self, mass: float) -> "Jacobi":
        r"""Return the matrix of the measure :math:`\mu` of this mass, of which this one is :math:`\lambda\, d\mu`.

        With a lower bidiagonal B, of squares :math:`q_i` on the diagonal and :math:`e_i` below it, the one is
        :math:`B B^\top` and the other :math:`B^\top B`: the steps of Golub and Kahan.
        """
        q, e, is_whole = [self.mass / mass], [0.0], self.is_whole
        for i, entry in enumerate(self.diagonal):
            below = float(entry) - q[i]
            if below <= ROUNDING * float(self.diagonal.max()):  # nothing of the measure is at zero
                is_whole = True
                break
            last = self.is_whole and i == len(self.diagonal) - 1
            e.append(below)
            q.append(0.0 if last else float(self.beside[i]) ** 2 / below)
        return Jacobi(np.add(q, e[: len(q)]), np.sqrt(np.multiply(q[:-1], e[1 : len(q)])), mass, is_whole)


class Lanczos:
    """The Lanczos process of a symmetric matrix from a vector, one product a step, in double precision.

    Each new vector is made orthogonal to all before it, twice, so that no eigenvalue is found a second time. The
    process is exhausted when the vectors span all that the matrix makes of the first: then the Gauss rule is exact.
    """

    def __init__(self, product: Map, start: Float[Tensor, " p"]) -> None:
        start = start.double()
        norm = torch.linalg.vector_norm(start)
        self._product, self._mass, self._basis = product, float(norm) ** 2, [start / norm]
        self._diagonal: list[float] = []
        self._beside: list[float] = []  # the diagonal
        self.exhausted = False

    @property
    def steps(self) -> int:
        """Number of products so far."""
        return len(self._diagonal)

    @property
    def jacobi(self) -> Jacobi:
        """The matrix as the process sees it."""
        return Jacobi(np.array(self._diagonal), np.array(self._beside), self._mass, self.exhausted)

    def step(self) -> None:
        """Take one more product, unless there is nothing left to be known."""
        if self.exhausted:
            return
        v = self._basis[-1]
        w = self._product(v).double()
        self._diagonal.append(float(v @ w))
        if self.steps > 1:
            back = float(self._basis[-2] @ w)
            if abs(back - self._beside[-1]) > ASTRAY * max(map(abs, (*self._diagonal, *self._beside))):
                what = f"for two unit vectors u^T A v is {back:.4g} and v^T A u {self._beside[-1]:.4g}"
                raise Refused("wrong-matrix", f"The products are not those of a symmetric matrix: {what}.")
        for _ in range(2):
            for known in self._basis:  # one by one: all of them together would be there twice
                w -= (known @ w) * known
        size = float(torch.linalg.vector_norm(w))
        if not math.isfinite(size):
            raise NotConvergedError("A product has NaN or infinite entries; look at the weights and the data.")
        self._beside.append(size)
        largest = max(map(abs, (*self._diagonal, *self._beside[:-1])))
        self.exhausted = size <= ROUNDING * largest or self.steps == len(w)
        if not self.exhausted:
            self._basis.append(w / size)

    def check_positive(self) -> None:
        """Refuse a matrix with a negative eigenvalue that is no rounding."""
        values, _ = self.ritz()
        if values[-1] < -ASTRAY * abs(values).max():
            found = f"a negative eigenvalue, {values[-1]:.3g} or less beside {values[0]:.3g}"
            raise Refused("wrong-matrix", f"The matrix has {found}; a positive semi-definite one was expected.")

    def ritz(self) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, "q q"]]:
        """Return the Ritz values, descending, and their vectors as columns of coefficients of the basis."""
        values, vectors = np.linalg.eigh(_matrix(np.array(self._diagonal), np.array(self._beside[:-1])))
        return values[::-1], vectors[:, ::-1]

    def combined(self, coefficients: Float[np.ndarray, " q"]) -> Float[Tensor, " p"]:
        """Return a vector by its coefficients of the basis."""
        total = torch.zeros_like(self._basis[0])
        for c, known in zip(coefficients, self._basis, strict=False):
            total.add_(known, alpha=float(c))
        return total

    def gauss(self) -> Rule:
        """Return the Gauss rule, of one node for each product: its nodes are the Ritz values."""
        return self.jacobi.gauss()

    def lobatto(self, low: float, high: float) -> Rule:
        """Return the rule of a node more, two of them at ends between which all eigenvalues lie."""
        return self.jacobi.lobatto(low, high)


def _matrix(diagonal: Float[np.ndarray, " q"], beside: Float[np.ndarray, " _"]) -> Float[np.ndarray, "q q"]:
    return np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)


def _rule(diagonal: Float[np.ndarray, " q"], beside: Float[np.ndarray, " _"], mass: float) -> Rule:
    nodes, vectors = np.linalg.eigh(_matrix(diagonal, beside))
    return Rule(nodes, mass * vectors[0] ** 2)


def _last_entry(diagonal: Float[np.ndarray, " q"], beside: Float[np.ndarray, " _"]) -> float:
    """Return the last entry on the diagonal of the inverse of a tridiagonal matrix that is definite, of either sign."""
    pivot = diagonal[0]
    for entry, side in zip(diagonal[1:], beside, strict=True):
        pivot = entry - side**2 / pivot
    return float(1 / pivot)
