"""The loss curve that a network would have if it stayed linear where it stands, and how far that is to be trusted."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from time import perf_counter

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.first_step import longest_step
from gnlib.diagnosis.model import ROUNDING, follow, linearise, trusted
from gnlib.diagnosis.preconditioner import left_out, moved_by, name_of, optimizer_of, rate_of
from gnlib.jacobian.network import Network
from gnlib.jacobian.passes import outputs_of, replace_parameters, vjp
from gnlib.losses import Loss
from gnlib.plain import as_dict
from gnlib.problem import Problem
from gnlib.refused import Refused
from gnlib.text import Line, as_page

GOALS = {"a half": 0.5, "a tenth": 0.1, "a hundredth": 0.01}
FOLLOWED = 30  # real steps that are taken to compare, unless they take longer than all that is before them
PATIENCE = 10.0  # seconds that they may take in any case, so that small networks get the same number each time
FACTOR = 1.5  # by which the loss of a real step may differ from a forecast that is trusted


@dataclass(frozen=True, eq=False)
class Forecast:
    r"""The loss curve of a network that is linear in its parameters, as the given one is where it stands.

    Attributes
    ----------
    losses
        the loss before step 1, after it, and so on; of real steps first, where some were taken
    trusted
        the step up to which the forecast is within a factor of 1.5 of real training, as far as that was followed, and
        beyond it the network like its linear model; after it all is unknown
    followed
        the loss after each of the real steps that were taken to compare, from `after` on
    rate, stable_rate
        the learning rate, and the largest one at which the linear model is stable where it starts, and the first step
        of an adaptive optimiser short enough
    unreachable
        share of the squared residual (of the gradient by the outputs) that no step of the linear model changes
    after
        number of real steps taken first
    decay
        share of the weights that weight decay takes in these steps where no gradient holds them, the largest of them
    optimizer
        name of the optimiser
    left_out
        settings of the optimiser that the linear model leaves out
    """

    losses: Float[Tensor, " steps"]
    trusted: int
    followed: Float[Tensor, " f"]
    rate: float
    stable_rate: float
    unreachable: float
    after: int
    decay: float
    optimizer: str
    left_out: tuple[str, ...] = ()

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
        return max(_ratios(self.followed[:end], self.losses[self.after :]), default=1.0)

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
        if self.unreachable:
            reach = f"{self.unreachable:.2g} of the squared residual is out of the linear model's reach"
        lines = [
            Line("rate", rate, share + (f"; it diverges; take a rate below {self.stable_rate:.3g}" * self.diverges)),
            Line("forecast", f"loss {start:.4g} to {end:.4g} in {steps:,} steps", until),
            self._followed(),
            Line("steps", ", ".join(goals), missed + reach),
        ]
        if self.decay:
            lines.append(Line("weight decay", f"{self.decay:.2g} of the weights", "counted in the forecast"))
        lines += [Line("left out", what, "no part of the forecast") for what in self.left_out]
        return lines

    def _followed(self) -> Line:
        """Return how far real steps went, and how well they were forecast."""
        taken, last = len(self.followed), self.trusted - self.after
        within = f"within {self.within:.3g} of the forecast"
        if last < taken:
            off = _ratios(self.followed, self.losses[self.after :])[last]
            within += f" until step {self.trusted:,}, " if last else ""
            within = f"{within if last else ''}off by {off:.3g} at step {self.trusted + 1:,}"
        return Line("followed", f"{taken} real step{'s' * (taken != 1)}", within)

    def __str__(self) -> str:
        """Return the page as text."""
        return as_page(self.lines())


def forecast_of(
    problem: Problem,
    optimizer: str | Optimizer | None = None,
    *,
    rate: float | None = None,
    steps: int = 1000,
    after: int = 0,
    budget: float | None = None,
) -> Forecast:
    """Return the forecast for an optimiser, for gradient descent if there is none."""
    begun = perf_counter()
    _check(rate, steps, after, budget)
    optimizer = optimizer or "sgd"
    networks: Sequence[Network] = problem.networks
    loss, memory = problem.loss, problem.memory
    leaves = {name: p.detach().clone() for name, p in (networks[0].parameters | networks[0].frozen).items()}
    own = rate_of(optimizer) if isinstance(optimizer, Optimizer) else None
    if own == 0 and rate is None:
        raise Refused(
            "wrong-optimizer",
            "optimizer has a learning rate of 0, with which nothing moves; pass rate=, or one with a rate.",
        )
    made = optimizer_of(optimizer, networks[0], leaves, float(rate or own or 1.0))
    networks = moved_by(made, networks, leaves)
    kernel = problem.gram if networks is problem.networks and not after else None
    linear = None
    if rate is None and own is None:
        linear = linearise(networks, loss, made, leaves, memory, kernel)
        if linear.stable_rate == math.inf:
            raise Refused(
                "no-curvature",
                "The loss has no curvature along any parameter (a perfect fit, with probabilities of 0 and 1?), so no "
                "rate is the largest stable one; pass rate=.",
            )
        for group in made.param_groups:
            group["lr"] *= min(linear.stable_rate, longest_step(networks, loss, made, leaves, memory)) / 2
    training = _train(networks, loss, made, leaves, memory)
    real = [*islice(training, after + 1)][:after]
    if linear is None or after:
        networks = replace_parameters(networks, {name: leaves[name] for name in networks[0].parameters})
        linear = linearise(networks, loss, made, leaves, memory, kernel)
    taken, stable = rate_of(made), min(linear.stable_rate, longest_step(networks, loss, made, leaves, memory))
    rules, missing = linear.rules(taken), left_out(made)
    losses, kept = follow(linear.space, rules, steps - after)
    last = trusted(networks, loss, linear, kept, memory)
    seconds = max(perf_counter() - begun, PATIENCE) if budget is None else budget
    most = min(FOLLOWED, steps - after) if budget is None else steps - after
    followed = _until(perf_counter() + seconds, islice(training, most))  # the last, for it moves what is above
    if not isinstance(made, SGD) or missing:  # of which the linear model holds, or lacks, what real steps have
        last = min(last, len(followed))
    last = next((t for t, ratio in enumerate(_ratios(followed, losses)) if ratio > FACTOR), max(last, len(followed)))
    return Forecast(
        losses=torch.tensor([*real, *losses], dtype=torch.float64),
        trusted=after + last,
        followed=torch.tensor(followed, dtype=torch.float64),
        rate=taken,
        stable_rate=stable,
        unreachable=linear.unreachable,
        after=after,
        decay=max(1 - max(1 - rule.rate * rule.decay, 0.0) ** steps for rule in rules),
        optimizer=name_of(optimizer),
        left_out=tuple(missing),
    )


def _train(
    networks: Sequence[Network], loss: Loss, optimizer: Optimizer, leaves: Mapping[str, Tensor], memory: float
) -> Iterator[float]:
    """Take real steps, which change the leaves in place, and yield the losses before each of them."""
    while True:
        now = replace_parameters(networks, {name: leaves[name] for name in networks[0].parameters})
        outputs = outputs_of(now, memory)
        yield loss.value(outputs)
        for name, gradient in vjp(now, memory)(loss.gradient(outputs)).items():
            leaves[name].grad = gradient
        optimizer.step()


def _until(end: float, losses: Iterator[float]) -> list[float]:
    """Return losses until a time, or the first that is not finite: then there are no further."""
    taken: list[float] = []
    for loss in losses:
        taken.append(loss)
        if not math.isfinite(loss) or perf_counter() > end:
            break
    return taken


def _ratios(real: Iterable[float], losses: Iterable[float]) -> list[float]:
    """Return by which factor real losses, after step 1 and so on, and those of a forecast differ."""
    start, *forecast = map(float, losses)
    ratios, rounding = [], ROUNDING * abs(start)
    for a, b in zip(map(float, real), forecast, strict=False):
        ratio = 1.0 if a == b else (a + rounding) / (b + rounding) if b + rounding else math.inf
        ratios.append(max(ratio, 1 / ratio) if 0 < ratio < math.inf else math.inf)
    return ratios


def _check(rate: float | None, steps: int, after: int, budget: float | None) -> None:
    for name, value in (("rate", rate), ("budget", budget)):
        if value is not None and not 0 < value < math.inf:
            raise Refused("bad-option", f"{name} is {value}; a positive number was expected.")
    for name, number, least in (("after", after, 0), ("steps", steps, after + 1)):
        if not isinstance(number, Integral) or number < least:
            raise Refused("bad-option", f"{name} is {number}; a whole number of at least {least} was expected.")
