"""The loss curve that a network would have if it stayed linear where it stands, and how far that is to be trusted."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.diagnosis.model import ROUNDING
from gnlib.plain import as_dict
from gnlib.text import Line, as_page

GOALS = {"a half": 0.5, "a tenth": 0.1, "a hundredth": 0.01}
CLOSE = 1.05  # factor between two bounds from which on it is said
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
        return max(ratios_of(self.followed[:end], self.losses[self.after :]), default=1.0)

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
            off = ratios_of(self.followed, self.losses[self.after :])[last]
            within += f" until step {self.trusted:,}, " if last else ""
            within = f"{within if last else ''}off by {off:.3g} at step {self.trusted + 1:,}"
        if taken > ahead:
            within += f"; beyond it to a loss of {float(self.followed[-1]):.4g}"
        return Line("followed", f"{taken} real step{'s' * (taken != 1)}", within)

    def __str__(self) -> str:
        """Return the page as text."""
        return as_page(self.lines())


def ratios_of(real: Losses, losses: Losses) -> list[float]:
    """Return by which factor real losses, after step 1 and so on, and those of a forecast differ."""
    start, *forecast = map(float, losses)
    ratios, rounding = [], ROUNDING * abs(start)
    for a, b in zip(map(float, real), forecast, strict=False):
        ratio = 1.0 if a == b else (a + rounding) / (b + rounding) if b + rounding else math.inf
        ratios.append(max(ratio, 1 / ratio) if 0 < ratio < math.inf else math.inf)
    return ratios
