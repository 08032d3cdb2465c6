"""Forecast the training of a network where it stands: by its linear model, and by real steps beside it."""

import math
from collections.abc import Callable, Iterator
from itertools import islice
from numbers import Integral
from time import perf_counter
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.forecast import Forecast, Losses, ratios_of
from gnlib.diagnosis.linear_by_products import SIGNS
from gnlib.diagnosis.preconditioner import left_out, moving, name_of, optimizer_of, rate_of, rules_at
from gnlib.diagnosis.standing import Large, Standing, Whole, longest_step
from gnlib.jacobian.network import Factors
from gnlib.problem import Problem
from gnlib.products.side import Side, number_over_all
from gnlib.refused import Refused

FOLLOWED = 30  # real steps that are taken to compare, unless they take longer than all that is before them
PATIENCE = 10.0  # seconds that they may take in any case, so that small networks get the same number each time
FACTOR = 1.5  # by which the loss of a real step may differ from a forecast that is trusted
PRECISIONS = torch.float64, torch.float32  # by products


def forecast_of(
    problem: Problem, optimizer: str | Optimizer | None = None, *, after: int = 0, **options: Any
) -> Forecast:
    """Return the forecast for an optimiser, for gradient descent if there is none."""
    kernel = None if after else lambda: problem.gram
    return _forecast(Whole(problem.networks, problem.loss, problem.memory, kernel), optimizer, after=after, **options)


def forecast_of_side(side: Side, memory: float, optimizer: str | Optimizer | None = None, **options: Any) -> Forecast:
    """Return the same of a network of any size."""
    if side.passes.dtype not in PRECISIONS:
        raise Refused(
            "low-precision",
            f"dtype is {side.passes.dtype}, in which weights lose what a step adds to them; a forecast takes "
            "torch.float32 or torch.float64.",
        )
    if side.passes.parts[0].y is None:
        raise Refused("no-targets", "y is missing; a forecast needs targets.")
    return _forecast(Large(side, memory), optimizer, **options)


def _forecast(
    standing: Standing,
    optimizer: str | Optimizer | None,
    *,
    rate: float | None = None,
    steps: int = 1000,
    after: int = 0,
    budget: float | None = None,
) -> Forecast:
    begun = perf_counter()
    _check(rate, steps, after, budget)
    optimizer, network = optimizer or "sgd", standing.network
    leaves = {name: p.detach().clone() for name, p in (network.parameters | network.frozen).items()}
    own = _own_rate(optimizer, rate)
    made = optimizer_of(optimizer, network, leaves, float(rate or own or 1.0))
    moved = moving(made, network.parameters, leaves)
    standing = standing if len(moved) == len(network.parameters) else standing.only(moved)
    linear, stable, products = None, math.inf, 0
    if rate is None and own is None:
        linear = standing.linear(made, leaves)
        if linear.stable_rate == math.inf:
            raise Refused(
                "no-curvature",
                "The loss has no curvature along any parameter (a perfect fit, with probabilities of 0 and 1?), so no "
                "rate is the largest stable one; pass rate=.",
            )
        stable, products = min(linear.stable_rate, longest_step(standing, made, leaves)), linear.products
        for group in made.param_groups:
            group["lr"] *= stable / 2
    training = _train(standing, made, leaves)
    real = [*islice(training, after + 1)][:after]
    if linear is None or after:
        standing = standing.at({name: leaves[name].clone() for name in standing.network.parameters})
        linear = standing.linear(made, leaves)
        stable, products = min(linear.stable_rate, longest_step(standing, made, leaves)), products + linear.products
    taken, missing, known = rate_of(made), left_out(made), linear.products
    seconds, started = PATIENCE if budget is None else budget, perf_counter()
    curve, unreachable, last = linear.ahead(taken, steps - after, _timer(seconds, standing.device))
    ahead, per_step = len(curve.losses) - 1, (perf_counter() - started) / len(curve.losses)
    most = steps - after if linear.is_stepped else ahead  # where real steps are cheaper, they go further
    if budget is None:
        most, seconds = min(FOLLOWED, most), max(perf_counter() - begun, PATIENCE)
    started = perf_counter()
    # the last that is done: it moves the leaves
    followed = _losses_until(_timer(seconds, standing.device), islice(training, most))
    relative = per_step / ((perf_counter() - started) / len(followed))
    if not isinstance(made, SGD) or missing:  # of which the linear model holds, or lacks, what real steps have
        last = min(last, len(followed))
    last = _last_within(followed, curve.losses.tolist(), max(last, min(len(followed), ahead)))
    if linear.estimated:
        missing.append(f"the error of P, which {SIGNS} random sums of gradients estimate within about 13 %")
    losses, lower, upper = (torch.tensor([*real, *values.tolist()], dtype=torch.float64) for values in curve)
    return Forecast(
        losses=losses,
        lower=lower,
        upper=upper,
        products=products + linear.products - known,
        trusted=after + last,
        followed=torch.tensor(followed, dtype=torch.float64),
        rate=taken,
        stable_rate=min(stable, linear.stable_rate),
        unreachable=unreachable,
        after=after,
        decay=max(1 - max(1 - r.rate * r.decay, 0.0) ** (len(losses) - 1) for r in rules_at(linear.parts, taken)),
        optimizer=name_of(optimizer),
        left_out=tuple(missing),
        asked=steps,
        relative_cost=relative if linear.is_stepped else 0.0,
    )


def _timer(seconds: float, device: torch.device | None) -> Callable[[], bool]:
    """Return a function that returns whether time is over, which all processes see alike."""
    end = perf_counter() + seconds
    if device is None:
        return lambda: perf_counter() > end
    return lambda: number_over_all(perf_counter() - end, device) > 0


def _train(standing: Standing, optimizer: Optimizer, leaves: Factors) -> Iterator[float]:
    """Take real steps, which change the leaves in place, and yield the losses before each of them."""
    while True:
        loss, gradient = standing.at({name: leaves[name] for name in standing.network.parameters}).loss_and_gradient()
        yield loss
        for name, entries in gradient.items():
            leaves[name].grad = entries
        optimizer.step()


def _own_rate(optimizer: str | Optimizer, rate: float | None) -> float | None:
    """Return the rate that an optimiser has; refuse one of 0 if no other is given."""
    own = rate_of(optimizer) if isinstance(optimizer, Optimizer) else None
    if own == 0 and rate is None:
        raise Refused(
            "wrong-optimizer",
            "optimizer has a learning rate of 0, with which nothing moves; pass rate=, or one with a rate.",
        )
    return own


def _losses_until(is_over: Callable[[], bool], losses: Iterator[float]) -> list[float]:
    """Return losses until the time is over, or the first that is not finite: then there are no further."""
    taken: list[float] = []
    for loss in losses:
        taken.append(loss)
        if not math.isfinite(loss) or is_over():
            break
    return taken


def _last_within(real: Losses, losses: Losses, last: int) -> int:
    """Return the last step before the first at which real losses differ too much; the one given, if none does."""
    return next((t for t, ratio in enumerate(ratios_of(real, losses)) if ratio > FACTOR), last)


def _check(rate: float | None, steps: int, after: int, budget: float | None) -> None:
    """Refuse numbers that are none."""
    for name, value in (("rate", rate), ("budget", budget)):
        if value is not None and not 0 < value < math.inf:
            raise Refused("bad-option", f"{name} is {value}; a positive number was expected.")
    for name, number, least in (("after", after, 0), ("steps", steps, after + 1)):
        if not isinstance(number, Integral) or number < least:
            raise Refused("bad-option", f"{name} is {number}; a whole number of at least {least} was expected.")
