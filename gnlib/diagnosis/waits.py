r"""Which eigenvalue gradient descent of a network waits for, and within what its steps to a goal lie.

The quadratic model of a loss with the gradient g by the outputs, and the second derivative :math:`R R^\top`, is

.. math:: \frac1{2n} \lVert R^\top \delta + R^+ g \rVert^2 + \text{a constant}

for a change :math:`\delta` of the outputs. So its residual :math:`R^+ g` falls by
:math:`1 - \eta \lambda` along each eigenvector of the matrix of the loss, :math:`\frac1n R^\top J J^\top R`: what
:mod:`gnlib.laws.waiting` says of the squared error holds for every convex loss, of the part that its quadratic model
can remove.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.laws.waiting import Waiting, waiting
from gnlib.problem import Problem

STRAIGHT = 1e-6  # share of a gradient that may lie where the loss has no curvature: rounding


def waiting_of(problem: Problem, goal: float = 0.1, rate: float | None = None) -> Waiting:
    """Bound the steps to a share of the loss, at the inverse of the largest eigenvalue if no rate is given."""
    values, vectors = problem.spectrum
    values = values.clone()
    values[: len(values) - problem.rank] = 0
    shares = (vectors.mT @ residual_of(problem)).square()
    return waiting(values, shares, float(rate or 1 / values[-1]), goal)


def residual_of(problem: Problem) -> Float[Tensor, " nr"]:
    """Return the residual :math:`R^+ g` of the quadratic model of the loss, f - y for the squared error."""
    g = problem.loss.gradient(problem.outputs)
    if problem.is_plain:
        return g.flatten()
    residual = torch.linalg.pinv(problem.root) @ g[..., None]
    straight = (g - (problem.root @ residual)[..., 0]).norm()
    if straight > STRAIGHT * g.norm():
        raise ValueError(
            "The loss falls along outputs in which it has no curvature, so its quadratic model has no minimum and no "
            "share of it can be a goal; pass a loss that is strictly convex there, such as 'mse'."
        )
    return residual.flatten()
