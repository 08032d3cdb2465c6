"""The loss curve that a network would have if it stayed linear where it stands, and how far that is to be trusted."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from time import perf_counter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.linear_by_products import SIGNS
from gnlib.diagnosis.model import ROUNDING
from gnlib.diagnosis.preconditioner import left_out, moving, name_of, optimizer_of, rate_of, rules_at
from gnlib.diagnosis.standing import Large, Standing, Whole, longest_step
from gnlib.jacobian.network import Factors
from gnlib.plain import as_dict
from gnlib.problem import Problem
from gnlib.products.side import Side, number_over_all
from gnlib.refused import Refused
from gnlib.text import Line, as_page

GOALS = {"a half": 0.5, "a tenth": 0.1, "a hundredth": 0.01}
FOLLOWED = 30  # real steps that are taken to compare, unless they take longer than all that is before them
PATIENCE = 10.0  # seconds that they may take in any case, so that small networks get the same number each time
CLOSE = 1.05  # factor between two bounds from which on it is said
FACTOR = 1.5  # by which the loss of a real step may differ from a forecast that is trusted
PRECISIONS = torch.float64, torch.float32  # by products
Losses = Iterable[float] | Float[Tensor, " _"]


@dataclass(frozen=True, eq=False)
class Forecast:
    r"""The loss curve of a network that is linear in its parameters, as the given one is where it stands.

    Attributes
    ----------
    losses
        the loss before step 1, after it, and so on; of real steps first, where some were taken. Between bounds it is
        their geometric mean for gradient descent, and with momentum what the products with vectors have found
    lower, upper
        bounds of these losses of the linear model: the losses themselves if they come from a matrix, or step by step.
        By products with vectors they are proven for the squared error, for largest eigenvalues that the products have
        found, up to the rounding of the products
    products
        with vectors that it took; 0 from a matrix
    trusted
        the step up to which the forecast is within a factor of 1.5 of real training, as far as that was followed, and
        beyond it the network like its linear model (from a matrix); after it all is unknown
    followed
        the loss after each of the real steps that were taken to compare, from `after` on; where the losses end before
        the steps asked for, these may go on
    rate, stable_rate
        the learning rate, and the largest one at which the linear model is stable where it starts, and the first step
        of an adaptive optimiser short enough
    unreachable
        share of the squared residual (of the gradient by the outputs) that no step of the linear model changes; NaN
        where products with vectors have not found it
    after
        number of real steps taken first
    decay
        share of the weights that weight decay takes in these steps where no gradient holds them, the largest of them
    optimizer
        name of the optimiser
    left_out
        settings of the optimiser that the linear model leaves out
    asked
        number of steps asked for, where the losses end before them
    relative_cost
        time of a step of the linear model over that of a real one, where it goes step by step by products; 0 elsewhere
    """

    losses: Float[Tensor, " steps"]
    lower: Float[Tensor, " steps"]
    upper: Float[Tensor, " steps"]
    products: int
    trusted: int
    followed: Float[Tensor, " f"]
    rate: float
    stable_rate: float
    unreachable: float
    after: int
    decay: float
    optimizer: str
    left_out: tuple[str, ...] = ()
    asked: int = 0
    relative_cost: float = 0.0

    to_dict = as_dict

    @property
    def diverges(self) -> bool:
        """Whether the loss ends above where the linear model starts."""
        return not float(self.losses[-1]) <= float(self.losses[self.after])

    def steps_to(self, goal: float) -> int | None:
        """Return the first step at which the loss is at most `goal`, or None where that is unknown.

        Real steps count as they are; after them it is unknown if the linear model does not get there within the
        trusted steps.
        """
        real = torch.cat([self.losses[: self.after + 1], self.followed])
        known = torch.cat([real, self.losses[len(real) : self.trusted + 1]])
        there = (known <= goal).nonzero()
        return int(there[0]) if len(there) else None

    @property
    def within(self) -> float:
        """The worst ratio of the losses of real steps to those that were forecast, within the trusted steps."""
        end = min(self.trusted - self.after, len(self.followed))
        return max(_ratios_of(self.followed[:end], self.losses[self.after :]), default=1.0)

    def lines(self) -> list[Line]:
        """Return the rate, the course of the loss and the steps to a half, a tenth and a hundredth of it."""
        start, end, steps = float(self.losses[0]), float(self.losses[-1]), len(self.losses) - 1
        goals: list[str] = []
        known = max(self.trusted, self.after + len(self.followed))
        missed, last = "", "one" if known == steps else "that is known"
        for name, part in GOALS.items():
            step = self.steps_to(part * start)
            goals.append(f"{'unknown' if step is None else f'{step:,}'} to {name}{'' if goals else ' of the loss'}")
            if step is None:  # and so are those further down
                missed = f"{name} is not reached by step {known:,}, the last {last}; "
                break
        until = f"trusted until step {self.trusted:,}" + ("" if self.trusted == steps else "; beyond it, unknown")
        if self.after:
            until += f"; the first {self.after:,} steps are real"
        rate = f"{self.rate:.3g} of {self.optimizer}"
        share = f"{self.rate / self.stable_rate:.3g} of the largest stable one, {self.stable_rate:.3g}"
        reach = "the linear model can fit these targets"
        if math.isnan(self.unreachable):
            reach = "what is out of the linear model's reach is not known"
        elif self.unreachable:
            reach = f"{self.unreachable:.2g} of the squared residual is out of the linear model's reach"
        lines = [
            Line("rate", rate, share + (f"; it diverges; take a rate below {self.stable_rate:.3g}" * self.diverges)),
            Line("forecast", f"loss {start:.4g} to {end:.4g} in {steps:,} steps", until),
            self._followed(),
            Line("steps", ", ".join(goals), missed + reach),
            *self._bounds(),
        ]
        if self.decay:
            lines.append(Line("weight decay", f"{self.decay:.2g} of the weights", "counted in the forecast"))
        lines += [Line("left out", what, "no part of the forecast") for what in self.left_out]
        return lines

    def steps_between(self, goal: float) -> tuple[int | None, int | None]:
        """Return the first step at which the loss of the linear model may be at most `goal`, and the first where it is.

        None where there is no such step.
        """
        first, last = ((curve <= goal).nonzero() for curve in (self.lower, self.upper))
        return (int(first[0]) if len(first) else None, int(last[0]) if len(last) else None)

    def _bounds(self) -> Iterator[Line]:
        """Yield the steps to the goals between the bounds, and what was not had of the steps asked for."""
        steps = len(self.losses) - 1
        if not torch.equal(self.lower, self.upper):
            bands = []
            for name, part in GOALS.items():
                first, last = self.steps_between(part * float(self.losses[0]))
                if first is not None:
                    band = f"{first:,}" if first == last else f"{first:,} to {'more' if last is None else f'{last:,}'}"
                    bands.append(f"{name} after {band} steps")
            ends = f"loss {float(self.lower[-1]):.4g} to {float(self.upper[-1]):.4g} after {steps:,} steps"
            apart = float(self.upper[-1]) / max(float(self.lower[-1]), 1e-300)
            wide = f"; a factor of {apart:.3g} apart after {steps:,} steps" if apart > CLOSE else ""
            yield Line("bounds", ", ".join(bands) or ends, f"of the linear model; {self.products:,} products{wide}")
        if steps < self.asked:
            cost = f"one takes {self.relative_cost:.2g} times as long as a real step"
            taken = f"{self.after + len(self.followed):,} real ones were taken"
            yield Line(
                "had", f"{steps:,} of {self.asked:,} steps", f"{cost}, and {taken}; a larger budget= goes further"
            )

    def _followed(self) -> Line:
        """Return how far real steps went, and how well they were forecast."""
        taken, last, ahead = len(self.followed), self.trusted - self.after, len(self.losses) - 1 - self.after
        within = f"within {self.within:.3g} of the forecast"
        if last < min(taken, ahead):
            off = _ratios_of(self.followed, self.losses[self.after :])[last]
            within += f" until step {self.trusted:,}, " if last else ""
            within = f"{within if last else ''}off by {off:.3g} at step {self.trusted + 1:,}"
        if taken > ahead:
            within += f"; beyond it to a loss of {float(self.followed[-1]):.4g}"
        return Line("followed", f"{taken} real step{'s' * (taken != 1)}", within)

    def __str__(self) -> str:
        """Return the page as text."""
        return as_page(self.lines())


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


def _ratios_of(real: Losses, losses: Losses) -> list[float]:
    """Return by which factor real losses, after step 1 and so on, and those of a forecast differ."""
    start, *forecast = map(float, losses)
    ratios, rounding = [], ROUNDING * abs(start)
    for a, b in zip(map(float, real), forecast, strict=False):
        ratio = 1.0 if a == b else (a + rounding) / (b + rounding) if b + rounding else math.inf
        ratios.append(max(ratio, 1 / ratio) if 0 < ratio < math.inf else math.inf)
    return ratios


def _last_within(real: Losses, losses: Losses, last: int) -> int:
    """Return the last step before the first at which real losses differ too much; the one given, if none does."""
    return next((t for t, ratio in enumerate(_ratios_of(real, losses)) if ratio > FACTOR), last)


def _check(rate: float | None, steps: int, after: int, budget: float | None) -> None:
    """Refuse numbers that are none."""
    for name, value in (("rate", rate), ("budget", budget)):
        if value is not None and not 0 < value < math.inf:
            raise Refused("bad-option", f"{name} is {value}; a positive number was expected.")
    for name, number, least in (("after", after, 0), ("steps", steps, after + 1)):
        if not isinstance(number, Integral) or number < least:
            raise Refused("bad-option", f"{name} is {number}; a whole number of at least {least} was expected.")
