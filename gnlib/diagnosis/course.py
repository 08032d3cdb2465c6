r"""The loss curve of gradient descent between two bounds, by products with vectors: for networks of any size.

With the residual r of n samples and :math:`K = \frac1n J J^\top`, the linear model has after t steps the loss

.. math:: L_t = \frac1{2n} r^\top (1 - \eta K)^{2t} r ,

an integral of :math:`(1 - \eta \lambda)^{2t}`, whose derivatives of even order are nowhere negative. So Gauss's rule
bounds it from below and Lobatto's from above (:mod:`gnlib.eigen.quadrature`), at any rate and at each t, with the same
products for all of them. Some :math:`\sqrt t` of them are enough, that being the degree of a polynomial that follows
:math:`(1 - \eta \lambda)^{2t}`.

The gradient :math:`\frac1n J^\top r` knows as much, on the side of the parameters: its measure is :math:`\lambda / n`
times that of r.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS
from gnlib.diagnosis.by_layer import by_layer
from gnlib.diagnosis.curves import curve_between
from gnlib.diagnosis.waits import residual_of
from gnlib.eigen.quadrature import Jacobi, Lanczos, Rule
from gnlib.eigen.top import Eigenpairs, largest_eigenpairs
from gnlib.jacobian.network import GIB
from gnlib.jacobian.passes import vjp
from gnlib.laws.waiting import Waiting, waiting
from gnlib.operators import SymmetricOperator
from gnlib.plain import as_dict
from gnlib.problem import Problem
from gnlib.products.side import Side
from gnlib.refused import Refused
from gnlib.text import listed

CLOSE = 1e-2  # by which the largest eigenvalue is taken for larger than it is found, to a tenth of that
ROUNDING = 1e-12  # of the largest eigenvalue, below zero, by which rounding moves one that is zero
CHECKED = 5  # products after which the bounds are looked at again
BESIDE = 8  # vectors that products work with
LITTLE = 0.02  # of the first loss: there bounds may be so much farther apart than asked for
CLOSE_ENOUGH = 1.25  # ratio of the bounds on T* at which no more products are taken
GRID = 300  # values at which the measure is bounded
RESOLVED = 10  # errors of a product, relative to the largest eigenvalue, below which nothing is resolved
NAMED = 3  # layers that are named


@dataclass(frozen=True, eq=False)
class View:
    """A Gauss-Newton matrix by its products with vectors, and what is left of the loss."""

    operator: SymmetricOperator  # from the side of the outputs or from that of the parameters
    start: Float[Tensor, " s"]  # the residual u on the side of the outputs, or the gradient on that of the parameters
    square: float  # the squared norm of u
    weight: float  # N, by which sums over samples are divided
    on_outputs: bool  # which side it is
    error: float  # relative, of a product
    memory: float  # GiB that vectors may take
    shares: Callable[[Float[Tensor, " s"]], dict[str, float]]  # of the layers in the eigenvalue of an eigenvector

    def jacobi(self, process: Lanczos) -> Jacobi:
        """Return what a process from the start knows of the measure of u."""
        own = process.jacobi
        if self.on_outputs:
            return own
        return own._replace(mass=self.weight * own.mass).divided(self.square)


def view_of_problem(problem: Problem) -> View:
    """Return the view of a network from its outputs, in double precision."""
    u = residual_of(problem)

    def shares(v: Float[Tensor, " s"]) -> dict[str, float]:
        n, k, r = problem.root.shape
        gradients = vjp(problem.networks, problem.memory)((problem.root @ v.view(n, r, 1)).view(n, k))
        return by_layer(problem, {name: float(g.square().sum()) for name, g in gradients.items()})

    square = float(u @ u)
    return View(problem.operator(), u, square, len(problem.outputs), True, EPS, problem.memory, shares)


def view_of_side(side: Side, memory: float) -> View:
    """Return the view of a module from its smaller side."""
    start, square = side.residual

    on_outputs = side.name == "outputs"
    return View(side.operator, start, square, side.weight, on_outputs, side.error, memory, side.by_layer)


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
    error
        relative, of a product, by which the bounds may be off as well
    layers
        share of each layer in the eigenvalue that the steps to a tenth of the loss wait for
    """

    lower: Float[Tensor, " steps"]
    upper: Float[Tensor, " steps"]
    rate: float
    largest: float
    products: int
    error: float
    layers: Mapping[str, float]
    _known: Jacobi = field(repr=False)

    to_dict = as_dict

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
        """Bound the steps to a share of the loss, and estimate the eigenvalue that they wait for."""
        return _waiting(self._known, self.rate, self.largest, self.error, goal)

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


def room_for(memory: float, size: int, needed: int) -> int:
    """Return how many vectors of so many numbers a process may keep within GiB of memory; refuse fewer than needed."""
    room = int(memory * GIB / (8 * size)) - BESIDE
    if room < needed:
        raise Refused(
            "too-little-memory",
            f"memory is {memory} GiB but {(needed + BESIDE) * 8 * size / GIB:.3g} are needed for {needed} vectors of "
            f"{size:,} numbers; allow more, or ask for fewer products.",
        )
    return room


class Course:
    """The Lanczos process from the residual, a few products at a time, with a bound on the largest eigenvalue.

    The largest eigenvalue is what a process from a random vector finds, and one from the residual, the larger of both,
    and a margin on top.
    """

    def __init__(self, view: View, products: int, pairs: Eigenpairs | None = None) -> None:
        pairs = pairs or largest_eigenpairs(view.operator, tolerance=CLOSE / 10)
        self._view, self._found = view, float(pairs.values[0]) * (1 + CLOSE)
        self._before, self._most = pairs.products, products
        self._room = room_for(view.memory, len(view.start), CHECKED)
        self.process = Lanczos(view.operator.matmul, view.start)

    @property
    def products(self) -> int:
        """Number of products so far, the gradient by the parameters included."""
        return self._before + self.process.steps + (not self._view.on_outputs)

    @property
    def largest(self) -> float:
        """What the largest eigenvalue is at most."""
        values, coefficients = self.process.ritz()
        found = self._found
        if values[0] > found:
            found = float(values[0] + self.process.jacobi.beside[-1] * abs(coefficients[-1, 0]))
        return found * (1 + self._view.error)

    @property
    def is_at_end(self) -> bool:
        """Whether no more products may be taken, or there is nothing left to be known."""
        return self.process.exhausted or self.products >= self._most or self.process.steps >= self._room

    def looks(self) -> Iterator[Jacobi]:
        """Take products, and yield what is known of the measure after each few, as long as there may be more."""
        while True:
            self.process.step()
            if self.is_at_end or self.process.steps % CHECKED == 0:
                yield self._view.jacobi(self.process)
            if self.is_at_end:
                return

    def rules(self, jacobi: Jacobi, largest: float) -> tuple[Rule, Rule]:
        """Return the rules of the lower and of the upper bound."""
        gauss = jacobi.gauss()
        below = max(ROUNDING, self._view.error if self._view.error > EPS else 0.0)
        return gauss, gauss if self.process.exhausted else jacobi.lobatto(-below * largest, largest)

    def layers(self, eigenvalue: float) -> dict[str, float]:
        """Return the shares of the layers in the eigenvalue that the process knows next to this one."""
        values, coefficients = self.process.ritz()
        nearest = int(np.abs(values - eigenvalue).argmin())
        return self._view.shares(self.process.combined(coefficients[:, nearest]))


def loss_bounds_of(
    view: View, rate: float | None = None, *, steps: int = 1000, products: int = 120, within: float = 1.05
) -> LossBounds:
    """Bound the losses of gradient descent, at the inverse of the largest eigenvalue if no rate is given."""
    _check(rate, steps, products, within)
    if not view.square:
        raise Refused("no-residual", "The outputs are the targets: there is no loss to fall.")
    course = Course(view, products)
    for jacobi in course.looks():
        largest = course.largest
        taken = float(rate or 1 / largest)
        if taken * largest > 2 * (1 + CLOSE):
            raise Refused(
                "rate-too-large",
                f"rate is {rate}; above {2 / largest:.4g}, 2 over the largest eigenvalue, the loss grows.",
            )
        _, lower, upper = (
            losses / (2 * view.weight) for losses in curve_between(*course.rules(jacobi, largest), taken, steps)
        )
        if upper[-1] <= within * lower[-1] or upper[-1] - lower[-1] <= LITTLE * (within - 1) * lower[0]:
            break
    return LossBounds(
        lower=torch.from_numpy(lower),
        upper=torch.from_numpy(upper),
        rate=taken,
        largest=largest,
        products=course.products,
        error=view.error,
        layers=course.layers(_ritz_waiting(jacobi.gauss(), taken, 0.1, view.error).eigenvalue),
        _known=jacobi,
    )


def waiting_by_products(
    view: View, goal: float = 0.1, rate: float | None = None, *, products: int = 120
) -> tuple[Waiting, dict[str, float], int]:
    """Bound the steps to a share of the loss; return the layers of what they wait for, and the products, as well.

    The eigenvalue is an estimate, from the Ritz values, and what it is at most where products do not resolve it. It
    ends when both bounds on T* are within a quarter of each other.
    """
    if not view.square:
        raise Refused("no-residual", "The outputs are the targets: there is no loss to fall.")
    _check(rate, 1, products, 1.0)
    course = Course(view, products)
    for jacobi in course.looks():
        largest = course.largest
        taken = float(rate or 1 / largest)
        low, high = _bounds_of_supremum(jacobi, taken, largest, view.error, goal)
        if high <= CLOSE_ENOUGH * low:
            break
    found = _waiting(jacobi, taken, largest, view.error, goal)
    return found, course.layers(found.eigenvalue), course.products


def _waiting(known: Jacobi, rate: float, largest: float, error: float, goal: float) -> Waiting:
    """Return the bounds of the theorem of waiting, each with what the measure can be at most."""
    ritz = _ritz_waiting(known.gauss(), rate, goal, error)
    if known.is_whole and error <= EPS:
        return ritz
    lower, _ = _bounds_of_supremum(known, rate, largest, error, goal)
    _, above = _bounds_of_supremum(known, rate, largest, error, goal / 2)
    upper = max(1, math.ceil(2 * above)) if above < math.inf else math.inf
    return replace(ritz, lower=lower, upper=upper)


def _bounds_of_supremum(known: Jacobi, rate: float, largest: float, error: float, goal: float) -> tuple[float, float]:
    r"""Bound :math:`T^*(e) = \sup_s \log (F(s) / e) / 2 s` on both sides, by bounds on the measure F up to a value.

    On a grid of values the lower bound holds at each of them, and the upper one between two of them with the mass of
    the one and the speed of the other. Below what the products resolve nothing is known of the measure but its mass.
    """
    if rate * largest > 1 + CLOSE:
        raise Refused(
            "rate-too-large",
            f"rate is {rate:.4g}; by products the steps are known up to {1 / largest:.4g}, 1 over the largest "
            "eigenvalue; leave dtype= out for larger ones.",
        )
    least = max(RESOLVED * error, ROUNDING)
    values = largest * np.geomspace(least, 1.0, GRID)
    low, high = (np.array(ends) / known.mass for ends in zip(*map(known.below, values), strict=True))
    speed = -np.log1p(-np.minimum(rate * values, 1 - 1e-15))
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.where(low[1:] > goal, np.log(low[1:] / goal) / (2 * speed[1:]), 0.0)
        above = np.where(high[1:] > goal, np.log(high[1:] / goal) / (2 * speed[:-1]), 0.0)
    return float(below.max()), math.inf if high[0] > goal else float(above.max())


def named(layers: Mapping[str, float]) -> str:
    """Return the layers with the largest shares, in words."""
    first = sorted(layers.items(), key=lambda item: -item[1])[:NAMED]
    return listed([f"{name or '(module)'} {share:.0%}" for name, share in first])


def _ritz_waiting(rule: Rule, rate: float, goal: float, error: float) -> Waiting:
    """Take the Ritz values for the spectrum, those that are not resolved for as large as they may be."""
    nodes = rule.nodes.clip(RESOLVED * error * rule.nodes.max() if error > EPS else 0)
    nodes[nodes < ROUNDING * nodes.max()] = 0  # what double precision does not tell from zero never falls
    return waiting(nodes, rule.weights, min(rate, 2 / nodes.max()), goal)


def _check(rate: float | None, steps: int, products: int, within: float) -> None:
    if rate is not None and not 0 < rate < math.inf:
        raise Refused("bad-option", f"rate is {rate}; a positive number was expected.")
    for name, number in (("steps", steps), ("products", products)):
        if not isinstance(number, Integral) or number < 1:
            raise Refused("bad-option", f"{name} is {number}; a whole number of at least 1 was expected.")
    if not within >= 1:
        raise Refused("bad-option", f"within is {within}; a factor of at least 1 was expected.")
