r"""How small the Hessian of a bottleneck network can be: Liu 2020, Theorem 4.1, as it holds.

The network of Eq. 31 is :math:`f = c\, h^2 / 2`, with :math:`c = \frac1{\sqrt m} \sum_j w^{(4)}_j (w^{(3)}_j)^2` and
:math:`h = \frac{x^2}{2 \sqrt m} \sum_i w^{(2)}_i (w^{(1)}_i)^2`: two cubics in weights of their own, each of which is
nearly linear when m is large. Their product bends f.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

LIMIT = 7 * math.sqrt(7) / 4
r"""Norm of the gradient of c, times the squared norm of that of h at x = 1, as :math:`m \to \infty`."""

SPREAD = 3 / 7
r"""Variance, in the limit, of :math:`c / \|\nabla c\|` and of :math:`h / \|\nabla h\|`."""


class Cubic(NamedTuple):
    r"""A function :math:`q = \frac{s}{\sqrt m} \sum_i u_i v_i^2` at a point, and how it bends around it."""

    value: float  # q
    gradient: float  # |grad q|
    largest: float  # max |u_i| + |v_i|
    scale: float  # s / sqrt(m)

    def hessian(self, radius: float) -> float:
        r"""Return a bound on the norm of the Hessian within a radius: its blocks have norms of :math:`|u| + |v|`."""
        return 2 * abs(self.scale) * (self.largest + math.sqrt(2) * radius)

    def least(self, radius: float) -> tuple[float, float]:
        """Return bounds from below on the size of the value and of the gradient within a radius."""
        bend = self.hessian(radius)
        value = abs(self.value) - self.gradient * radius - bend * radius**2 / 2
        return max(value, 0.0), max(self.gradient - bend * radius, 0.0)


def cubics(weights: list[Tensor], x: float) -> tuple[Cubic, Cubic]:
    """Return h and c of the network of Eq. 31, from its four weight vectors, the input layer first."""
    w1, w2, w3, w4 = (w.flatten() for w in weights)
    root = len(w1) ** 0.5
    return _cubic(w2, w1, x**2 / (2 * root)), _cubic(w4, w3, 1 / root)


def _cubic(u: Float[Tensor, " m"], v: Float[Tensor, " m"], scale: float) -> Cubic:
    gradient = torch.hypot((v * v).norm(), (2 * u * v).norm())
    value, largest = (u @ (v * v)).item() * scale, (u.abs() + v.abs()).max().item()
    return Cubic(value=value, gradient=gradient.item() * abs(scale), largest=largest, scale=scale)


def ball_floor(h: Cubic, c: Cubic, radius: float) -> float:
    r"""Return a lower bound on :math:`\|H\|` for all weights in a ball around a point.

    The Hessian, compressed to the two gradients, has the entries :math:`h \|\nabla c\| \|\nabla h\|` and
    :math:`c\, (\|\nabla h\|^2 + h\, \hat g^\top \nabla^2 h\, \hat g)`, and no less than the larger of them as its norm.
    A step of length r is one of :math:`r_1` in the weights of h and one of :math:`r_2` in those of c, with
    :math:`r_1^2 + r_2^2 = r^2`.
    """
    reach = h.least(radius)[1], c.least(radius)[1]  # of gradients, anywhere in the ball
    highest = abs(h.value) + h.gradient * radius + h.hessian(radius) * radius**2 / 2
    inside = max(reach[0] ** 2 - highest * h.hessian(radius), 0.0)

    def entries(angle: float) -> tuple[float, float]:  # one falls with the angle, the other rises
        first, second = h.least(radius * math.sin(angle))[0], c.least(radius * math.cos(angle))[0]
        return first * reach[0] * reach[1], second * inside

    low, high = 0.0, math.pi / 2
    for _ in range(60):  # the larger is least where they meet
        angle = (low + high) / 2
        first, second = entries(angle)
        low, high = (angle, high) if first > second else (low, angle)
    return max(entries(high))


def limit_norm(h: float, c: float) -> float:
    r"""Return the limit of :math:`\|H\|` for x = 1, given :math:`h / \|\nabla h\|` and :math:`c / \|\nabla c\|`.

    It is the norm of :math:`\frac{7 \sqrt 7}{4} \begin{pmatrix} 0 & h \\ h & c \end{pmatrix}`.
    """
    return LIMIT * (abs(c) / 2 + math.hypot(c / 2, h))


def vanishing_probability(radius: float) -> float:
    r"""Return the limit, as :math:`m \to \infty`, of the probability that the ball has a point with :math:`H = 0`.

    It is :math:`1 - e^{-7 R^2 / 6}`, whatever the input.
    """
    return -math.expm1(-(radius**2) / (2 * SPREAD))
