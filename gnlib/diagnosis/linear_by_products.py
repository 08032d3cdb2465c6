"""The linear model of a network of any size, by products with vectors: its stable rate, and its course."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from gnlib.diagnosis.course import CLOSE, Course, View
from gnlib.diagnosis.curves import Ahead, Curve, curve_between, curve_of
from gnlib.diagnosis.descent import Rule, descend
from gnlib.diagnosis.model import edge_of_stability
from gnlib.diagnosis.preconditioner import displacement, parts_of, preconditioner_from, rules_at, usual_factors
from gnlib.eigen.quadrature import Jacobi
from gnlib.eigen.top import Eigenpairs, largest_eigenpairs
from gnlib.jacobian.network import Factors
from gnlib.jacobian.refusals import check_mode
from gnlib.operators import SymmetricOperator
from gnlib.products.curvature import Own, Rooted, SquaredError
from gnlib.products.parts import Part, narrowed
from gnlib.products.passes import Passes
from gnlib.products.side import ByOutputs, ByParameters, Side, is_shared, number_over_all, over_all, summed
from gnlib.refused import Refused

MOST, ENOUGH = 400, 120  # products with vectors, at most: in time, and after it
TIGHT, WIDE = 1e-6, 0.05  # relative distance of the bounds at which there are no more, in time and after it
LITTLE = 1e-3  # of the first loss, by which they may differ after it
NOTHING = 1e-13  # of the first loss, which rounding moves
MORE = 1.2  # factor in the number of products after which a curve is made again
FEWEST = 10  # steps of the linear model that are taken in any case
WHOLE = 2000  # outputs up to which all rows of the Jacobian are formed, one by one, for the diagonal of a fresh Adam
SIGNS = 30  # random sums of rows in their place
ZERO = 1e-12  # of the largest eigenvalue, below which one is zero

Vector: TypeAlias = Float[Tensor, " p"]


class _ByParameters(SymmetricOperator):
    r"""The matrix :math:`P^{-1/2} G P^{-1/2}`, by its products with vectors."""

    def __init__(self, inner: ByParameters, factors: Vector) -> None:
        super().__init__(inner.shape[0], torch.float64, inner.device)
        self._inner, self._root = inner, factors.sqrt()

    def matmul(self, v: Float[Tensor, " p *columns"]) -> Float[Tensor, " p *columns"]:
        root = self._root.view(-1, *[1] * (v.ndim - 1))
        return root * self._inner.matmul(root * v)


class _ByOutputs(ByOutputs):
    r"""The matrix :math:`\frac1N R^\top J P^{-1} J^\top R`, by its products with vectors."""

    factors: Vector

    def pulled(self, v: Float[Tensor, " r"]) -> Vector:
        return super().pulled(v) * self.factors


def loss_and_gradient(side: Side) -> tuple[float, Vector]:
    """Return the loss, and its gradient by the parameters, of one part of the data in its own precision."""
    value = 0.0

    def of(part: Part) -> Vector:
        nonlocal value
        f, gradient = side.passes.pull(part, lambda f: side.curvature.gradient(f, part.y))
        value += side.curvature.value(f, part.y)
        return gradient

    total = summed(map(of, side.passes.parts))
    return number_over_all(value, total.device) / side.weight, total.div_(side.weight)


def by_name(passes: Passes, vector: Vector) -> Factors:
    """Return a vector as tensors of the shapes of the parameters."""
    pieces = vector.split([p.numel() for p in passes.parameters.values()])
    return {name: piece.view_as(p) for (name, p), piece in zip(passes.parameters.items(), pieces, strict=True)}


class LinearByProducts:
    """The linear model of a network where it stands, for an optimiser that has leaves in the place of its parameters.

    Its stable rate is the largest one at which it is stable where it starts, to a thousandth.
    """

    def __init__(self, side: Side, optimizer: Optimizer, leaves: Factors, memory: float) -> None:
        self.side, self.products = side, 0
        self.estimated = False  # whether the factors of a fresh optimiser come from random sums
        self._memory = memory
        self.loss, self.gradient = loss_and_gradient(side)
        if not math.isfinite(self.loss) or not self.gradient.isfinite().all():
            raise Refused(
                "not-finite",
                "The loss or its gradient is not finite where the linear model begins; pass a lower rate, or after=0.",
            )
        self.parts = parts_of(optimizer, [side.passes], leaves)
        parameters = side.passes.parameters
        self.preconditioner = preconditioner_from(optimizer, parameters, leaves, self._fresh)
        self._known: tuple[View, Eigenpairs] | None = None
        self.stable_rate = edge_of_stability([part.rule for part in self.parts], self._largest, tolerance=CLOSE / 10)

    @property
    def is_stepped(self) -> bool:
        """Whether the losses are followed step by step: else they are integrals against the measure of the residual."""
        alone = len(self.parts) == 1 and not self.parts[0].rule.decay and self.preconditioner.momentum is None
        return not (alone and isinstance(self.side.curvature, SquaredError))

    def ahead(self, rate: float, steps: int, is_over: Callable[[], bool]) -> Ahead:
        """Return the losses, and the share of the squared residual that does not change: NaN where it is not known.

        Between proven bounds it ends where these have met; after the time where they are 5 % or a thousandth of the
        first loss apart, or after 120 products.
        """
        if self.is_stepped:
            return Ahead(Curve(*[np.array(self._stepped(rate, steps, is_over))] * 3), math.nan, 0)
        start, (rule,) = self.loss, rules_at(self.parts, rate)
        if self._known is None or not self.gradient.any():
            flat = np.full(steps + 1, start)
            return Ahead(Curve(flat, flat, flat), 1.0 if start else 0.0, 0)
        view, pairs = self._known
        course, last = Course(view, MOST, pairs), 0
        for known in course.looks():
            if course.process.steps < MORE * last and not course.is_at_end:
                continue
            last = course.process.steps
            curve = self._curve(course, known, rule, steps)
            apart = curve.upper - curve.lower
            if (apart <= TIGHT * curve.lower + NOTHING * start).all():
                break
            near = (apart <= WIDE * curve.lower + LITTLE * start).all() or course.products >= ENOUGH
            if is_over() and near:
                break
        self.products += course.products - pairs.products
        self.stable_rate = min(self.stable_rate, rule.limit / float(course.process.ritz()[0][0]))
        return Ahead(curve, self._unreachable(known), 0)

    def _curve(self, course: Course, known: Jacobi, rule: Rule, steps: int) -> Curve:
        scale, largest = 1 / (2 * self.side.weight), course.largest
        if rule.momentum:
            curve = curve_of(known, rule, steps, largest)
        else:
            curve = curve_between(*course.rules(known, largest), rule.rate, steps)
        return Curve(*(scale * values for values in curve))

    def _unreachable(self, known: Jacobi) -> float:
        """Return the share of the measure at zero, where all of it is known."""
        if not known.is_whole:
            return math.nan
        nodes, weights = known.gauss()
        return float(weights[nodes <= ZERO * nodes.max()].sum() / known.mass)

    def _stepped(self, rate: float, steps: int, is_over: Callable[[], bool]) -> list[float]:
        """Return the losses of any loss, step by step, one product each, until the time is over."""
        losses: list[float] = []
        start = torch.cat([self.side.passes.outputs(part).flatten().double() for part in self.side.passes.parts])
        course = descend(start, self._change, self._gradient, rules_at(self.parts, rate))
        for step, (_, outputs) in enumerate(islice(course, steps + 1)):
            losses.append(self._value(outputs))
            if not math.isfinite(losses[-1]):
                return losses[:-1] + [math.inf] * (steps + 1 - step)
            if step >= FEWEST and is_over():
                break
        return losses

    def _pieces(self, flat: Float[Tensor, " r"]) -> list[tuple[Part, Tensor]]:
        """Return all outputs, or what belongs to them, part by part, in a precision that the loss takes."""
        dtype = self.side.passes.dtype if isinstance(self.side.curvature, Own) else torch.float64
        pieces = flat.split([*map(math.prod, self.side.shapes)])
        shaped = (piece.view(shape).to(dtype) for piece, shape in zip(pieces, self.side.shapes, strict=True))
        return [*zip(self.side.passes.parts, shaped, strict=True)]

    def _value(self, outputs: Float[Tensor, " r"]) -> float:
        total = sum(self.side.curvature.value(f, part.y) for part, f in self._pieces(outputs))
        return number_over_all(total, outputs.device) / self.side.weight

    def _gradient(self, outputs: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        of = self.side.curvature.gradient
        return torch.cat([of(f, part.y).flatten().double() for part, f in self._pieces(outputs)])

    def _change(self, sums: Float[Tensor, "m c"]) -> Float[Tensor, " r"]:
        """Return how far weighted sums of gradients, of parameters and of their momentum take the outputs."""
        passes = self.side.passes
        if not sums.any():
            return sums.new_zeros(sums.shape[1] - 2)
        self.products += 1
        moved = displacement(self.parts, self.preconditioner, passes.parameters, sums, self._pull)
        direction = torch.cat([moved[name].flatten() for name in passes.parameters])
        return torch.cat([passes.push(part, direction)[1].flatten().double() for part in passes.parts])

    def _pull(self, flat: Float[Tensor, " r"]) -> Factors:
        passes = self.side.passes

        def of(part: Part, piece: Tensor, shape: torch.Size) -> Vector:
            return passes.pull(part, lambda f: piece.view(shape).to(f.dtype))[1]

        pieces = flat.split([*map(math.prod, self.side.shapes)])
        total = summed(map(of, passes.parts, pieces, self.side.shapes))
        return by_name(passes, total.div_(self.side.weight))

    def _largest(self, weights: Sequence[float]) -> float:
        """Return the largest eigenvalue of the matrix of the loss, with the parts weighted like this."""
        if not any(weights):
            return 0.0
        view = self._view(self._factors(weights))
        try:  # from a random vector alone: the residual may stand on one next to the largest, and hide that
            pairs = largest_eigenpairs(view.operator, tolerance=CLOSE / 10)
        except ValueError:  # the matrix is zero
            return 0.0
        self.products += pairs.products
        if weights == [1.0]:
            self._known = view, pairs
        return float(pairs.values[0])

    def _factors(self, weights: Sequence[float]) -> Vector | None:
        """Return the factors of the parameters; None where all are one."""
        factors, parameters = self.preconditioner.factors, self.side.passes.parameters
        scales = {n: w * s for part, w in zip(self.parts, weights, strict=True) for n, s in part.scales.items()}
        if factors is None and {*scales.values()} == {1.0}:
            return None
        ones = {name: torch.ones_like(p) for name, p in parameters.items()} if factors is None else factors
        return torch.cat([scales[name] * ones[name].flatten().double() for name in parameters])

    def _view(self, factors: Vector | None) -> View:
        """Return the matrix with these factors, and the residual, from the smaller side."""
        side, on_outputs = self.side, self.side.name == "outputs"
        operator: SymmetricOperator = side.operator
        start = side.residual[0] if on_outputs else self.gradient.double()
        if on_outputs:
            if factors is not None:
                assert isinstance(side.curvature, Rooted)
                operator = _ByOutputs(side.passes, side.curvature, side.weight, side.shapes)
                operator.factors = factors
        elif factors is not None:
            assert isinstance(operator, ByParameters)
            operator, start = _ByParameters(operator, factors), factors.sqrt() * start
        square = 2 * side.weight * self.loss  # of the squared error
        return View(operator, start, square, side.weight, on_outputs, side.error, self._memory, side.by_layer)

    def _fresh(self) -> Factors:
        squares, self.estimated = squares_of(self.side)
        size = torch.linalg.vector_norm(self.gradient, dtype=torch.float64)
        return by_name(self.side.passes, usual_factors(squares, size))


def squares_of(side: Side) -> tuple[Vector, bool]:
    """Return the squared columns of the Jacobian, up to a factor, and whether they are an estimate.

    Of many outputs they are the mean squares of sums of all rows with random signs, in which what is not squared
    cancels.
    """
    passes, shapes = side.passes, side.shapes
    device = side.operator.device
    total = torch.zeros(passes.size, dtype=torch.float64, device=device)
    if number_over_all(sum(map(math.prod, shapes)), device) <= WHOLE:
        with passes.as_meant():
            together = check_mode(passes)
        for part, shape in zip(passes.parts, shapes, strict=True):
            alone = [part] if together else [narrowed(part, i, i + 1) for i in range(part.samples)]
            for own in alone:
                for i in range(math.prod(shape[1:]) * own.samples):
                    total += passes.pull(own, partial(_unit, i))[1].double().square_()
        return over_all(total), False
    seed = torch.distributed.get_rank() if is_shared() else 0
    generator = torch.Generator().manual_seed(seed)

    def signs(f: Tensor) -> Tensor:
        return (2 * torch.randint(2, f.shape, generator=generator) - 1).to(f)

    for _ in range(SIGNS):
        total += summed(passes.pull(part, signs)[1] for part in passes.parts).double().square_()
    return total, True


def _unit(i: int, f: Tensor) -> Tensor:
    return (torch.arange(f.numel(), device=f.device) == i).to(f).view(f.shape)
