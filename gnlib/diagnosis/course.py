r"""The loss curve of gradient descent between two bounds, by products with vectors: for networks of any size.

With the residual r of n samples and :math:`K = \frac1n J J^\top`, the linear model has after t steps the loss

.. math:: L_t = \frac1{2n} r^\top (1 - \eta K)^{2t} r ,

an integral of :math:`(1 - \eta \lambda)^{2t}`, whose derivatives of even order are nowhere negative. So Gauss's rule
bounds it from below and Lobatto's from above (:mod:`gnlib.eigen.quadrature`), at any rate and at each t, with the same
products for all of them. Some :math:`\sqrt t` of them are enough, that being the degree of a polynomial that follows
:math:`(1 - \eta \lambda)^{2t}`.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.largest import largest_eigenvalue
from gnlib.eigen.quadrature import Lanczos, Rule
from gnlib.jacobian.network import GIB
from gnlib.laws.waiting import Waiting, waiting
from gnlib.operators import SymmetricOperator
from gnlib.problem import Problem

CLOSE = 1e-2  # relative error to which the largest eigenvalue is asked for
ROUNDING = 1e-12  # of the largest eigenvalue, below zero, by which rounding moves one that is zero
CHECKED = 5  # products after which the bounds are looked at again
BESIDE = 8  # vectors that products work with
LITTLE = 0.02  # of the first loss: there bounds may be so much farther apart than asked for


class Counted(SymmetricOperator):
    """An operator that counts its products with vectors."""

    def __init__(self, operator: SymmetricOperator) -> None:
        super().__init__(operator.shape[0], operator.dtype, operator.device)
        self._operator, self.products = operator, 0

    def matmul(self, v: Float[Tensor, " p *columns"]) -> Float[Tensor, " p *columns"]:  # noqa: D102
        self.products += v[0].numel()
        return self._operator.matmul(v)


@dataclass(frozen=True, eq=False)
class LossBounds:
    """Two curves between which the loss of the linear model falls.

    Attributes
    ----------
    lower, upper
        before step 1, after it, and so on
    rate
        the learning rate
    largest
        what the largest eigenvalue is at most, if the products have found it
    products
        with vectors that it took
    """

    lower: Float[Tensor, " steps"]
    upper: Float[Tensor, " steps"]
    rate: float
    largest: float
    products: int
    _rule: Rule = field(repr=False)

    @property
    def within(self) -> float:
        """The upper over the lower bound at the last step."""
        lower, upper = float(self.lower[-1]), float(self.upper[-1])
        return upper / lower if lower > 0 else math.inf

    def steps_to(self, goal: float) -> tuple[int | None, int | None]:
        """Return the first step at which the loss may be at most `goal`, and the first at which it is.

        None where that is not by the last step.
        """
        there = ((curve <= goal).nonzero() for curve in (self.lower, self.upper))
        first, last = (int(steps[0]) if len(steps) else None for steps in there)
        return first, last

    def waiting(self, goal: float = 0.1) -> Waiting:
        """Estimate the eigenvalue that the steps to a share of the loss wait for, from the Ritz values."""
        return waiting(self._rule.nodes.clip(0), self._rule.weights, self.rate, goal)

    def __str__(self) -> str:
        """Return one line for the loss at the end, and one for the steps to a tenth."""
        steps, start = len(self.lower) - 1, float(self.lower[0])
        first, last = self.steps_to(start / 10)
        end = f"{float(self.lower[-1]):.4g} to {float(self.upper[-1]):.4g}"
        tenth = f"more than {steps:,}" if first is None else f"{first:,} to {'more' if last is None else f'{last:,}'}"
        return (
            f"loss {start:.4g}, after {steps:,} steps at the rate {self.rate:.3g} {end}\n"
            f"a tenth of the loss after {tenth} steps; {self.products} products"
        )


def loss_bounds_of(
    problem: Problem, rate: float | None = None, *, steps: int = 1000, products: int = 120, within: float = 1.05
) -> LossBounds:
    """Bound the losses of gradient descent, at the inverse of the largest eigenvalue if no rate is given."""
    if not problem.is_plain:
        raise ValueError(
            f"The bounds are of the squared error, and the loss is {problem.loss.name}; pass loss='mse', or ask for a "
            "forecast, which follows other losses too."
        )
    residual = problem.loss.gradient(problem.outputs).flatten()
    if not residual.any():
        raise ValueError("The outputs are the targets: there is no loss to fall.")
    operator = Counted(problem.operator())
    pair = largest_eigenvalue(operator, tolerance=CLOSE)
    largest = pair.value * (1 + pair.error)
    rate = float(rate or 1 / largest)
    if not 0 < rate * pair.value <= 2:
        raise ValueError(f"rate is {rate}; above {2 / pair.value:.4g}, 2 over the largest eigenvalue, the loss grows.")
    scale, times = 1 / (2 * len(problem.outputs)), np.arange(steps + 1)

    def curve(rule: Rule) -> Float[np.ndarray, " steps"]:
        with np.errstate(divide="ignore"):
            logs = 2 * np.log(np.abs(1 - rate * rule.nodes))
        return scale * (np.exp(times[:, None] * np.maximum(logs, -1e300)) @ rule.weights)

    room = int(problem.memory * GIB / residual.nbytes) - BESIDE  # vectors that the process may keep
    process = Lanczos(operator.matmul, residual)
    while True:
        process.step()
        enough = process.exhausted or operator.products >= products or process.steps >= room
        if enough or process.steps % CHECKED == 0:
            lower, upper = curve(process.gauss()), curve(process.lobatto(-ROUNDING * largest, largest))
            if enough or upper[-1] <= within * lower[-1] or upper[-1] - lower[-1] <= LITTLE * (within - 1) * lower[0]:
                break
    return LossBounds(
        lower=torch.from_numpy(lower),
        upper=torch.from_numpy(upper),
        rate=rate,
        largest=largest,
        products=operator.products,
        _rule=process.gauss(),
    )
