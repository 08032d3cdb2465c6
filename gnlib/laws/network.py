r"""The layers of a deep linear network, and what several outputs do to the ends of its spectrum.

A layer multiplies z with, at entries of variance :math:`s^2`, for m rows that act on a space of n dimensions,

- :math:`s^2 (\max(m, n) + \Omega)`, the Marchenko-Pastur law;
- with :math:`\beta` times the identity added, :math:`s^2 \Omega + \tfrac12 \rho + \sqrt{\tfrac14 \rho^2 + s^2 \beta^2
  \Omega}` with :math:`\rho = s^2 m + \beta^2`, the law of information plus noise (Dozier and Silverstein 2007);
- for orthonormal columns 1, and for m orthonormal rows of N entries :math:`(\max(m, n) + \Omega) / (N + \Omega)`.

**Several outputs.** For a direction u of the k outputs the weights of the terms are
:math:`a_\ell = |A_\ell^\top u|^2`, a product over the layers above of factors near
:math:`\rho_j (1 + s_j\, u^\top X_j u)`. The :math:`X_j` are independent matrices of the Gaussian orthogonal ensemble,
of variance one off the diagonal, and :math:`s_j` is of the order of :math:`m^{-1/2}`. The vectors
:math:`(u^\top X_j u)_j` of all u reach as far in each direction as the largest eigenvalue of one such matrix, whose
mean :math:`e_k` is about :math:`2 \sqrt k`: their hull is a ball. The ends of the spectrum belong to the best and to
the worst direction, and so are the extrema of the ends over this ball, to first order in :math:`s_j`.

**One network.** An end E moves with the edge of a finite matrix, by :math:`\delta` times a variable of Tracy and
Widom's real law, and with the norms of rows, by :math:`E \|p\|` times the largest eigenvalue of a :math:`X_j`, where
:math:`p_j` is :math:`s_j` times the share of the end that lies below layer j; both moves are independent. The k outputs
share their :math:`B_\ell`, hence the first move, so it counts once. For one output the same rows move both ends, and
kappa by the difference of both p alone. For more, both ends of the :math:`X_j` count as independent, which makes the
deviation of kappa too large, by a factor of 1.3 at most for two outputs and of 1.05 for ten.

R. B. Dozier, J. W. Silverstein (2007), J. Multivariate Analysis 98.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from gnlib.laws.recursion import Curve, Layer, data_curve, edge_scatter, last, layers_curve, sensitivity, turn

ROUNDS = 4  # after which the best direction stays
TRACY_WIDOM = -1.2065335745820  # mean of the law for the orthogonal ensemble
DEVIATION = 1.6077810345810**0.5  # its standard deviation


class Scatter(NamedTuple):
    """Mean and standard deviation of the logarithm of what one random network has, over the law's value."""

    lower: tuple[float, float]
    upper: tuple[float, float]
    kappa: tuple[float, float]


@dataclass(frozen=True)
class Network:
    """Layers of a deep linear network at random weights, and the eigenvalues of its data in ascending order."""

    inputs: int
    widths: list[int]
    scales: list[float]
    skips: list[float]
    rates: list[float]
    orthogonal: bool
    data: Float[np.ndarray, " r"]

    @property
    def white(self) -> bool:
        """Whether all eigenvalues of the data are the same."""
        return bool(self.data[0] == self.data[-1])

    @cached_property
    def columns(self) -> Float[np.ndarray, " L"]:
        """The columns of each layer."""
        return np.array([self.inputs, *self.widths], dtype=float)

    @cached_property
    def ranks(self) -> list[int]:
        """The rank of what reaches each layer."""
        return np.minimum.accumulate([len(self.data), *self.widths]).tolist()

    @cached_property
    def rows(self) -> Float[np.ndarray, " L"]:
        """By how much a layer multiplies the squared norms of rows to its left."""
        rows = np.array([s * s + b * b for s, b in zip(self.scales, self.skips, strict=True)])
        if self.orthogonal:
            rows[:-1] *= np.minimum(1, self.columns[:-1] / self.columns[1:])
        return rows

    @cached_property
    def top(self) -> int:
        """The index of the last layer that is trained."""
        return max(j for j, rate in enumerate(self.rates) if rate)

    @property
    def unit(self) -> float:
        """The first layer's term at the rate of the last one, and the data's eigenvalue if there is only one."""
        return math.prod(self.rows[1:].tolist()) * self.rates[self.top] * (float(self.data[-1]) if self.white else 1.0)

    @property
    def step(self) -> float:
        """What each of many equal layers adds to t; zero where they differ."""
        each = self.widths, self.scales, self.skips, self.rates
        if self.orthogonal or not self.white or any(len(set(x)) != 1 for x in each):
            return 0.0
        return float(len(self.data) / self.widths[0] * (1 - (self.skips[0] ** 2 / self.rows[0]) ** 2))

    def layers(self, rows: Float[np.ndarray, " L"]) -> list[Layer]:
        """Return the layers from the innermost one, each over the squared norm `rows` of the layer above."""
        return [self._layer(j, float(rows[j + 1])) for j in reversed(range(self.top))]

    def curve(self, rows: Float[np.ndarray, " L"]) -> Curve:
        """Return the curve of the sum over `unit`."""
        return layers_curve(self.ranks[self.top], self.layers(rows))

    def end(self, side: int, outputs: int = 1) -> float:
        """Return the upper end of the spectrum (`side` 1) or the lower one (-1)."""
        rows = self.rows
        for _ in range(ROUNDS if outputs > 1 and self.widths else 0):
            pull = self._pull(rows, side, outputs)
            if not pull.any():
                break
            most = side * largest_of_ensemble(outputs) * np.sqrt(self._spread(outputs)) * pull / np.linalg.norm(pull)
            rows = self.rows * np.square(1 + np.array([0, *most]) / 2)
        unit = self.unit * (rows / self.rows).prod()
        if self._bare(side):
            return float(unit * self.rates[0] / self.rates[self.top])
        return float(unit * last(self._seen(self.curve(rows), side), self._turn(rows, side)).z)

    def scatter(self, outputs: int) -> Scatter:
        """Return how far single networks on white data are off."""
        low, high = (
            0.0 if self._bare(side) else edge_scatter(self.curve(self.rows), self._turn(self.rows, side))
            for side in (-1, 1)
        )
        down, up = (self._pull(self.rows, side, outputs) for side in (-1, 1))
        outer = DEVIATION * (outputs - 0.5) ** (-1 / 6)  # of the ensemble's largest eigenvalue, within 2 %
        apart = np.linalg.norm(up - down if outputs == 1 else [*up, *down])
        return Scatter(
            (-TRACY_WIDOM * low, math.hypot(DEVIATION * low, outer * float(np.linalg.norm(down)))),
            (TRACY_WIDOM * high, math.hypot(DEVIATION * high, outer * float(np.linalg.norm(up)))),
            (TRACY_WIDOM * (low + high), math.hypot(DEVIATION * low, DEVIATION * high, outer * float(apart))),
        )

    def _turn(self, rows: Float[np.ndarray, " L"], side: int) -> float:
        return turn(self._seen(self.curve(rows), side), side, 0.7 * self.ranks[self.top])

    def _pull(self, rows: Float[np.ndarray, " L"], side: int, outputs: int) -> Float[np.ndarray, " l"]:
        """Return s_j times the share of the end that lies below each layer but the first."""
        share = np.ones(len(self.widths))
        if not self._bare(side):
            layers = self.layers(rows)
            share[: self.top] -= sensitivity(self.ranks[self.top], layers, self._turn(rows, side))[::-1]
        return np.sqrt(self._spread(outputs)) * share

    def _bare(self, side: int) -> bool:
        """Return whether eigenvalues at this end are the first term alone, as the first layer is narrower than d."""
        return side < 0 and self.white and bool(self.widths) and self.widths[0] < len(self.data)

    def _seen(self, curve: Curve, side: int) -> Curve:
        """Return the curve on the data, of which the eigenvalue at this end counts as a single one."""
        if self.white:
            return curve
        end = -1 if side > 0 else 0
        return data_curve(curve, len(self.data), np.delete(self.data, end), self.data[end])

    def _spread(self, outputs: int) -> Float[np.ndarray, " l"]:
        """Return the squares of s_j, for the layers but the first."""
        columns = self.columns[1:]
        if self.orthogonal:
            return np.maximum(0, 1 / columns - 1 / np.array([*self.widths[1:], outputs], dtype=float))
        return (1 - np.square(np.square(self.skips[1:]) / self.rows[1:])) / columns

    def _layer(self, j: int, above: float) -> Layer:
        n, m, columns = self.ranks[j], self.widths[j], float(self.columns[j])
        rows, gain, term = max(m, n), self.scales[j] ** 2 / above, self.rates[j] / self.rates[self.top]
        if self.orthogonal:
            narrow = m < columns
            a, b, q = (gain * rows / columns, gain / columns, columns) if narrow else (gain, 0.0, math.inf)
            return Layer(n, a, b, q=q, term=term)
        variance, beta = gain / columns, self.skips[j] ** 2 / above
        half = (variance * rows + beta) / 2
        e, h = (half * half, variance * beta) if beta else (0.0, 0.0)
        return Layer(n, half if beta else 2 * half, variance, e, h, term=term)


def largest_of_ensemble(k: int) -> float:
    """Return the mean of the largest eigenvalue of a k x k matrix of the Gaussian orthogonal ensemble, within 6 %.

    Examples
    --------
    >>> round(largest_of_ensemble(10), 2)
    5.34
    """
    return 2 * math.sqrt(k - 0.5) + TRACY_WIDOM * (k - 0.5) ** (-1 / 6) if k > 1 else 0.0
