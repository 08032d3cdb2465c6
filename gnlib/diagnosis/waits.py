r"""Which eigenvalue gradient descent of a network waits for, and within what its steps to a goal lie.

Let g be the gradient of the loss of each sample by its outputs, and :math:`R R^\top` the second derivative, with g in
the range of R: :math:`g = R u`, :math:`u = R^+ g`. The quadratic model of the loss round the outputs is

.. math:: L + \tfrac1n g^\top \delta + \tfrac1{2n} \delta^\top R R^\top \delta
    = L - \tfrac1{2n} \lVert u \rVert^2 + \tfrac1{2n} \lVert u + R^\top \delta \rVert^2 ,

so :math:`\lVert u \rVert^2 / 2n` is what the loss is above its minimum. Gradient descent of a network that is linear in
its weights moves the outputs by :math:`\delta \leftarrow \delta - \eta K (g + R R^\top \delta)` with
:math:`K = \frac1n J J^\top`, and :math:`v = u + R^\top \delta` by :math:`v \leftarrow v - \eta R^\top K R \, v`: each
eigenvector of the matrix of the loss by itself. So what :mod:`gnlib.laws.waiting` says of the squared error, for which
R is the identity and the model exact, holds for every convex loss, of the part that its quadratic model can remove.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.laws.waiting import Waiting, waiting
from gnlib.problem import Problem
from gnlib.refused import Refused

STRAIGHT = 1e-6  # share of a gradient that may lie where the loss has no curvature: rounding


class Spread(NamedTuple):
    """How the loss above its minimum is spread over the eigenvalues of the Gauss-Newton matrix."""

    eigenvalues: Float[Tensor, " nr"]  # ascending, those that double precision does not tell from zero set to zero
    shares: Float[Tensor, " nr"]  # of the squared residual on each
    above: float  # the loss less the least value of its quadratic model


def spread_of(problem: Problem) -> Spread:
    """Return how the loss of a network is spread over the eigenvalues."""
    values, vectors = problem.spectrum
    values = values.clone()
    values[: len(values) - problem.rank] = 0
    squares = (vectors.mT @ residual_of(problem)).square()
    total = float(squares.sum())
    return Spread(values, squares / total if total else squares, total / (2 * len(problem.outputs)))


def waiting_of(problem: Problem, goal: float = 0.1, rate: float | None = None) -> Waiting:
    """Bound the steps to a share of the loss, at the inverse of the largest eigenvalue if no rate is given."""
    values, shares, _ = spread_of(problem)
    return waiting(values, shares, float(1 / values[-1] if rate is None else rate), goal)


def residual_of(problem: Problem) -> Float[Tensor, " nr"]:
    """Return the shortest u for which R u is the gradient of the loss by the outputs."""
    g = problem.loss.gradient(problem.outputs)
    if problem.is_plain:
        return g.flatten()
    residual = torch.linalg.pinv(problem.root) @ g[..., None]
    if not torch.isfinite(residual.square().sum()):
        raise Refused(
            "out-of-range",
            "The loss has hardly any curvature where it is steep (probabilities of 0 for the targets?), and its "
            "quadratic model leaves the range of double precision; scale the inputs or the weights down.",
        )
    straight = (g - (problem.root @ residual)[..., 0]).norm()
    if straight > STRAIGHT * g.norm():
        raise Refused(
            "no-curvature",
            "The loss falls along outputs in which it has no curvature, so its quadratic model has no minimum and no "
            "share of it can be a goal; pass a loss that is strictly convex there, such as 'mse'.",
        )
    return residual.flatten()
