r"""The losses of a linear model for the squared error under any rule, from what is known of the residual's measure.

After t steps the residual is :math:`p_t(K) r`, with a polynomial of degree t, and the loss
:math:`\frac1{2n} \int p_t^2 \, d\mu`. For gradient descent :math:`p_t^2 = (1 - \eta \lambda)^{2t}` has no negative
derivative of even order, and the rules of Gauss and Lobatto are bounds (:mod:`gnlib.diagnosis.course`). With momentum
the signs change. There the recursion itself gives bounds. Let :math:`\pi_0, \dots, \pi_{q-1}` be the polynomials that
are orthonormal for :math:`\mu`, T their Jacobi matrix and :math:`\beta` the entry beside its last one:

.. math:: \lambda\, (\pi_0, \dots, \pi_{q-1}) = (\pi_0, \dots, \pi_{q-1})\, T + \beta\, \pi_q e_q^\top .

The optimiser followed with T in the place of :math:`\lambda` has the coordinates :math:`y_t`. What it lacks from
:math:`p_t` follows the recursion of the optimiser too, driven at each step by :math:`\beta` times the last coordinate
of what the step adds. An impulse has become :math:`\sum_{i+j=m-1} z_1^i z_2^j` after m steps, with the roots z of the
recursion. It is largest for :math:`|z_1| = 1` and :math:`|z_2| = b`, or where a mode is not stable at the largest
eigenvalue, because it grows with both :math:`|z_1| \ge |z_2|` and :math:`|z_1 z_2|`. So the error is at most the sum of
the impulses times that, and the norm of :math:`p_t` within it of that of :math:`y_t`, but for rounding.

References
----------
G. H. Golub, G. Meurant (2010), Matrices, moments and quadrature with applications, Princeton.
B. Polyak (1964), Some methods of speeding up the convergence of iteration methods, USSR Comp. Math. and Math. Phys. 4.
"""

from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from gnlib.diagnosis.descent import Rule, descend, weight_and_rate
from gnlib.eigen.quadrature import Jacobi
from gnlib.eigen.quadrature import Rule as Quadrature

Steps = Float[np.ndarray, " steps"]


class Curve(NamedTuple):
    """Losses before step 1, after it, and so on, between two bounds."""

    losses: Steps
    lower: Steps
    upper: Steps


class Ahead(NamedTuple):
    """The losses of the linear model, the share of the residual out of its reach, and the last step to be trusted."""

    curve: Curve
    unreachable: float
    trusted: int


def curve_between(gauss: Quadrature, lobatto: Quadrature, rate: float, steps: int) -> Curve:
    """Return the bounds of gradient descent without momentum, and their geometric mean, up to a factor."""
    times = 2 * np.arange(steps + 1)[:, None]
    with np.errstate(over="ignore", under="ignore"):
        ends = [np.abs(1 - rate * nodes) ** times @ weights for nodes, weights in (gauss, lobatto)]
        lower, upper = np.minimum(*ends), np.maximum(*ends)
        return Curve(np.clip(np.sqrt(lower) * np.sqrt(upper), lower, upper), lower, upper)


def curve_of(known: Jacobi, rule: Rule, steps: int, largest: float) -> Curve:
    """Return the same of any rule without weight decay, if no eigenvalue is above the largest.

    The losses are those of the coordinates that are known.

    Examples
    --------
    >>> from gnlib.eigen.quadrature import Lanczos
    >>> matrix, r = torch.diag(torch.arange(1.0, 9.0).double()), torch.ones(8).double()
    >>> process = Lanczos(lambda v: matrix @ v, r)
    >>> for _ in range(6):
    ...     process.step()
    >>> curve = curve_of(process.jacobi, Rule(0.1, momentum=0.5), 10, 8.0)
    >>> ", ".join(f"{values[-1]:.4f}" for values in (curve.lower, curve.losses, curve.upper))
    '0.0060, 0.0081, 0.0106'
    """
    size = len(known.diagonal) if known.is_whole else len(known.beside)
    beside = known.beside[: size - 1]
    nodes, vectors = np.linalg.eigh(np.diag(known.diagonal[:size]) + np.diag(beside, 1) + np.diag(beside, -1))
    with np.errstate(over="ignore", invalid="ignore"):
        along = known.mass**0.5 * vectors[0] * _polynomials(nodes, rule, steps)
        norms = np.sqrt((along**2).sum(1))
        errors = np.zeros(steps + 1)
        if not known.is_whole:
            errors = _error_bounds(known.beside[size - 1] * (along @ vectors[-1]), rule, largest)
        ends = norms, np.maximum(norms - errors, 0.0), norms + errors
        losses, lower, upper = (np.nan_to_num(end**2, nan=np.inf) for end in ends)
    return Curve(losses, np.minimum(lower, losses), upper)


def _polynomials(nodes: Float[np.ndarray, " q"], rule: Rule, steps: int) -> Float[np.ndarray, "steps q"]:
    """Return what is left of each mode before step 1, after it, and so on."""
    values = torch.from_numpy(nodes)
    course = descend(torch.ones_like(values), lambda sums: values * sums[0, :-2], lambda now: now, [rule])
    return torch.stack([now for _, now in islice(course, steps + 1)]).numpy()


def _error_bounds(last: Steps, rule: Rule, largest: float) -> Steps:
    r"""Bound what coordinates lack, from the last ones times :math:`\beta`.

    The rate of a mean that is divided by :math:`1 - b^t` changes from step to step, which counts as a further impulse.
    """
    rate, b, steps = rule.rate, rule.momentum, len(last) - 1
    left = 1 - rate * largest
    weight = 1 - (b if rule.averaged else rule.dampening)
    total, product = ((1 + b) * left, b * left) if rule.nesterov else (1 + b - rate * weight * largest, b)
    radius = max(1.0, float(np.abs(np.roots([1, -total, product])).max()))
    product = max(b, abs(product))
    bounds, ahead = [0.0, 0.0], 0.0  # before step 0 and at it
    for step in range(1, steps + 1):
        own_weight, own_rate = weight_and_rate(rule, step)
        impulse = own_weight * last[step - 1]
        if rule.nesterov:
            impulse = (1 + b) * last[step - 1] - b * (last[step - 2] if step > 1 else 0.0)
        more = 0.0
        if rule.averaged:
            ratio = own_rate / weight_and_rate(rule, step - 1)[1] if rule.taken + step > 1 else 1.0
            more = (1 - ratio) * b * (bounds[-1] + bounds[-2]) + (own_rate - rate) * weight * largest * bounds[-1]
        ahead = radius * ahead + own_rate * abs(impulse) + more
        bounds.append(product / radius * bounds[-1] + ahead)
    return np.array(bounds[1:])
