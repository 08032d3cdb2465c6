r"""The loss curve of a network of any size, if it stayed linear where it stands: by products with vectors.

Of the squared error, with one rule for all parameters and no weight decay, some tens of products bound all steps
(:mod:`gnlib.diagnosis.curves`). Any other loss, or rule, is followed step by step: the gradient at the outputs of the
linear model is pulled back to the parameters where the network stands, and the step pushed forward to the outputs. This
is exact, and a step takes longer than a real one.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from time import perf_counter

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.curves import Curve
from gnlib.diagnosis.first_step import longest_of
from gnlib.diagnosis.forecast import (
    FOLLOWED,
    PATIENCE,
    Forecast,
    check_numbers,
    decay_of,
    last_within,
    losses_until,
    own_rate,
)
from gnlib.diagnosis.linear_by_products import SIGNS, LinearByProducts, by_name, loss_and_gradient
from gnlib.diagnosis.preconditioner import left_out, moving, name_of, optimizer_of, rate_of
from gnlib.jacobian.network import Factors
from gnlib.products.passes import Passes
from gnlib.products.side import Side, number_over_all
from gnlib.refused import Refused

PRECISIONS = torch.float64, torch.float32


def forecast_of_side(
    side: Side,
    memory: float,
    optimizer: str | Optimizer | None = None,
    *,
    rate: float | None = None,
    steps: int = 1000,
    after: int = 0,
    budget: float | None = None,
) -> Forecast:
    """Return the forecast of a module on its data for an optimiser, for gradient descent if there is none."""
    begun = perf_counter()
    check_numbers(rate, steps, after, budget)
    _check(side)
    optimizer = optimizer or "sgd"
    leaves = {name: p.clone() for name, p in (side.passes.parameters | side.passes.frozen).items()}
    own = own_rate(optimizer, rate)
    made = optimizer_of(optimizer, side.passes, leaves, float(rate or own or 1.0))
    side = replace(side, passes=_moved_alone(side.passes, moving(made, side.passes.parameters, leaves)))
    linear, products = None, 0
    if rate is None and own is None:
        linear = LinearByProducts(side, made, leaves, memory)
        stable = _stable_rate(linear, made, leaves)
        if stable == math.inf:
            raise Refused(
                "no-curvature",
                "The loss has no curvature along any parameter (a perfect fit, with probabilities of 0 and 1?), so no "
                "rate is the largest stable one; pass rate=.",
            )
        for group in made.param_groups:
            group["lr"] *= stable / 2
    training = _train(side, made, leaves)
    real = [*islice(training, after + 1)][:after]
    if linear is None or after:
        products = 0 if linear is None else linear.products
        linear = LinearByProducts(_at(side, leaves), made, leaves, memory)
        stable = _stable_rate(linear, made, leaves)
    taken, missing, device = rate_of(made), left_out(made), linear.gradient.device
    seconds, started = PATIENCE if budget is None else budget, perf_counter()
    curve, unreachable = _curve(linear, taken, steps - after, _timer(seconds, device))
    ahead, per_step = len(curve.losses) - 1, (perf_counter() - started) / len(curve.losses)
    most = ahead if budget is not None else min(FOLLOWED, ahead)
    if budget is None:
        seconds = max(perf_counter() - begun, PATIENCE)
    started = perf_counter()
    followed = losses_until(_timer(seconds, device), islice(training, most))  # the last: it moves the leaves
    relative = per_step / ((perf_counter() - started) / len(followed))
    if linear.estimated:
        missing.append(f"the error of P, which {SIGNS} random sums of gradients estimate within about 13 %")
    losses, lower, upper = (torch.tensor([*real, *values.tolist()], dtype=torch.float64) for values in curve)
    return Forecast(
        losses=losses,
        lower=lower,
        upper=upper,
        products=products + linear.products,
        trusted=after + last_within(followed, curve.losses.tolist(), len(followed)),
        followed=torch.tensor(followed, dtype=torch.float64),
        rate=taken,
        stable_rate=min(stable, linear.stable_rate),
        unreachable=unreachable,
        after=after,
        decay=decay_of(linear.rules(taken), len(losses) - 1),
        optimizer=name_of(optimizer),
        left_out=tuple(missing),
        asked=steps,
        relative_cost=0.0 if linear.is_measured else relative,
    )


def _curve(linear: LinearByProducts, rate: float, steps: int, is_over: Callable[[], bool]) -> tuple[Curve, float]:
    """Return the losses, and the share of the squared residual that is out of reach."""
    if linear.is_measured:
        return linear.measured(rate, steps, is_over)
    losses = torch.tensor(linear.stepped(rate, steps, is_over), dtype=torch.float64).numpy()
    return Curve(losses, losses, losses), math.nan


def _timer(seconds: float, device: torch.device) -> Callable[[], bool]:
    """Return a function that returns whether time is over, which all processes see alike."""
    end = perf_counter() + seconds
    return lambda: number_over_all(perf_counter() - end, device) > 0


def _check(side: Side) -> None:
    if side.passes.dtype not in PRECISIONS:
        raise Refused(
            "low-precision",
            f"dtype is {side.passes.dtype}, in which weights lose what a step adds to them; a forecast takes "
            "torch.float32 or torch.float64.",
        )
    if side.passes.parts[0].y is None:
        raise Refused("no-targets", "y is missing; a forecast needs targets.")


def _moved_alone(passes: Passes, names: set[str]) -> Passes:
    """Return the same module, differentiated by these parameters alone."""
    held = {name: p for name, p in passes.parameters.items() if name not in names}
    own = {name: p for name, p in passes.parameters.items() if name in names}
    return replace(passes, parameters=own, frozen=passes.frozen | held)


def _at(side: Side, leaves: Factors) -> Side:
    """Return the same with copies of leaves in the place of the parameters."""
    parameters = {name: leaves[name].clone() for name in side.passes.parameters}
    return replace(side, passes=replace(side.passes, parameters=parameters))


def _train(side: Side, optimizer: Optimizer, leaves: Factors) -> Iterator[float]:
    """Take real steps, which change the leaves in place, and yield the losses before each of them."""
    while True:
        now = replace(side.passes, parameters={name: leaves[name] for name in side.passes.parameters})
        loss, gradient = loss_and_gradient(replace(side, passes=now))
        yield loss
        for name, entries in by_name(now, gradient).items():
            leaves[name].grad = entries.to(leaves[name].dtype)
        optimizer.step()


def _stable_rate(linear: LinearByProducts, optimizer: Optimizer, leaves: Factors) -> float:
    """Return the largest rate at which the linear model and the first step of an adaptive optimiser are stable."""
    if isinstance(optimizer, SGD):
        return linear.stable_rate
    passes = linear.side.passes

    def value(moved: dict[str, Tensor]) -> float:
        there = replace(passes, parameters={name: p.to(passes.dtype) for name, p in moved.items()})
        curvature = linear.side.curvature
        total = sum(curvature.value(there.outputs(part), part.y) for part in there.parts)
        return number_over_all(total, linear.gradient.device) / linear.side.weight

    gradient = {name: g.to(passes.dtype) for name, g in by_name(passes, linear.gradient).items()}
    longest = longest_of(optimizer, passes.parameters, leaves, gradient, linear.loss, value)
    return min(linear.stable_rate, longest)
