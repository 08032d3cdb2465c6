"""Layers that are drawn, and the curve of their spectra written anew, in g = (n + Omega) / z."""

from dataclasses import dataclass
from itertools import pairwise

import mpmath
import numpy as np


@dataclass
class Layer:
    """A layer of m rows and N columns, Gaussian of deviation s / sqrt(N) plus b times the identity, or orthonormal."""

    m: int
    columns: int
    s: float = 1.0
    b: float = 0.0
    orthogonal: bool = False

    def draw(self, rng):
        if self.orthogonal:
            return self.s * haar(rng, self.m, self.columns)
        return self.s * rng.standard_normal((self.m, self.columns)) / self.columns**0.5 + self.b * np.eye(
            self.m, self.columns
        )

    @property
    def rho(self):
        """By how much it multiplies the squared norm of a row to its left."""
        return (self.s**2 + self.b**2) * (min(1, self.columns / self.m) if self.orthogonal else 1)

    def factor(self, omega, n):
        """What it multiplies z with, on a space of n dimensions."""
        rows = max(self.m, n)
        if self.orthogonal:
            return self.s**2 * ((rows + omega) / (self.columns + omega) if self.m < self.columns else 1)
        v = self.s**2 / self.columns
        half = (v * rows + self.b**2) / 2
        root = mpmath.sqrt if isinstance(omega, mpmath.mpf | mpmath.mpc) else np.emath.sqrt
        return v * omega + half + root(half**2 + v * self.b**2 * omega)


def haar(rng, rows, columns):
    q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))
    return q if rows >= columns else q.T


def curve(v, rank, layers, top=1.0):
    """The point (z, Omega) of 1 + W_1' (1 + W_2' (...) W_2 / rho_3) W_1 / rho_2, up to rho_L, which is `top`."""
    ranks = np.minimum.accumulate([rank, *(layer.m for layer in layers)]).tolist()
    above = [layer.rho for layer in layers[1:]] + [top]
    omega = g = v
    size = ranks[-1]
    for layer, rho, n in reversed(list(zip(layers, above, ranks[:-1], strict=True))):
        f = layer.factor(omega, n) / rho
        lone = (n - size) / ((size + omega) / g * f) if n > size else 0  # eigenvalues zero
        g = g / f + lone
        omega, size = omega + g, n
    return (size + omega) / g, omega


def turn(of, side, start=1e-3, step=1.02):
    """The v at which the first of the values `of` returns ceases to fall, in the digits of mpmath."""
    last, v = of(mpmath.mpf(side * start)), mpmath.mpf(side * start)
    while True:
        v *= step
        now = of(v)
        if side * (now - last) > 0:
            break
        last = now
    low, high = v / step**2, v
    slope = lambda u: mpmath.diff(of, u)  # noqa: E731
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2


def deep(widths, rng, beta=0.0):
    """Weights of a linear network of entries of variance 1 / columns, and a skip."""
    return [rng.standard_normal((m, n)) / n**0.5 + beta * np.eye(m, n) for n, m in pairwise(widths)]


def terms(weights):
    """A_l A_l' and B_l' B_l, from the first layer on."""
    above, below = [np.eye(len(weights[-1]))], [np.eye(weights[0].shape[1])]
    for w in weights[:0:-1]:
        above.append(above[-1] @ w)
    for w in weights[:-1]:
        below.append(w @ below[-1])
    return [a @ a.T for a in above[::-1]], [b.T @ b for b in below]
