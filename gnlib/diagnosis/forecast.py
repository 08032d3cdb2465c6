"""The loss curve that a network would have if it stayed linear where it stands, and how far that is to be trusted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from gnlib.diagnosis.model import follow, linearise, trusted
from gnlib.diagnosis.preconditioner import moved_by, name_of, optimizer_of, rule_of
from gnlib.jacobian.network import Network
from gnlib.jacobian.passes import outputs_of, replace_parameters, vjp
from gnlib.losses import Loss
from gnlib.problem import Problem
from gnlib.text import Line, as_page

GOALS = {"a half": 0.5, "a tenth": 0.1, "a hundredth": 0.01}


@dataclass(frozen=True, eq=False)
class Forecast:
    r"""The loss curve of a network that is linear in its parameters, as the given one is where it stands.

    Attributes
    ----------
    losses
        the loss before step 1, after it, and so on; of real steps first, where some were taken
    trusted
        the step up to which the network is where its linear model is, without training; beyond it all is unknown
    rate, stable_rate
        the learning rate, and the largest one at which the linear model is stable where it starts
    unreachable
        share of the squared residual (of the gradient by the outputs) that no step of the linear model changes
    after
        number of real steps taken first
    decay
        share of the weights that weight decay would take in these steps, which the linear model leaves out
    optimizer
        name of the optimiser
    """

    losses: Float[Tensor, " steps"]
    trusted: int
    rate: float
    stable_rate: float
    unreachable: float
    after: int
    decay: float
    optimizer: str

    @property
    def diverges(self) -> bool:
        """Whether the loss ends above where the linear model starts."""
        return not float(self.losses[-1]) <= float(self.losses[self.after])

    def steps_to(self, goal: float) -> int | None:
        """Return the first step at which the loss is at most `goal`, or None where that is unknown.

        It is unknown if the linear model does not get there within the trusted steps.
        """
        known = self.losses[: self.trusted + 1]
        there = (known <= goal).nonzero()
        return int(there[0]) if len(there) else None

    def lines(self) -> list[Line]:
        """Return the rate, the course of the loss and the steps to a half, a tenth and a hundredth of it."""
        start, end, steps = float(self.losses[0]), float(self.losses[-1]), len(self.losses) - 1
        goals: list[str] = []
        missed, last = "", "one" if self.trusted == steps else "that is trusted"
        for name, part in GOALS.items():
            step = self.steps_to(part * start)
            goals.append(f"{'unknown' if step is None else f'{step:,}'} to {name}{'' if goals else ' of the loss'}")
            if step is None:  # and so are those further down
                missed = f"{name} is not reached by step {self.trusted:,}, the last {last}; "
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
            Line("steps", ", ".join(goals), missed + reach),
        ]
        if self.decay:
            lines.append(Line("weight decay", f"{self.decay:.2g} of the weights", "left out of the forecast"))
        return lines

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
) -> Forecast:
    """Return the forecast for an optimiser, for gradient descent if there is none."""
    _check(rate, steps, after)
    optimizer = optimizer or "sgd"
    networks: Sequence[Network] = problem.networks
    loss, memory = problem.loss, problem.memory
    leaves = {name: p.detach().clone() for name, p in (networks[0].parameters | networks[0].frozen).items()}
    own = optimizer.param_groups[0]["lr"] if isinstance(optimizer, Optimizer) else None
    made = optimizer_of(optimizer, networks[0], leaves, float(rate or own or 1.0))
    networks = moved_by(made, networks, leaves)
    kernel = problem.gram if networks is problem.networks and not after else None
    linear = None
    if rate is None and own is None:
        linear = linearise(networks, loss, made, leaves, memory, kernel)
        if linear.stable_rate == math.inf:
            raise ValueError(
                "The loss has no curvature along any parameter (a perfect fit, with probabilities of 0 and 1?), so no "
                "rate is the largest stable one; pass rate=."
            )
        for group in made.param_groups:
            group["lr"] = linear.stable_rate / 2
    real = _train(networks, loss, made, leaves, after, memory)
    if linear is None or after:
        networks = replace_parameters(networks, {name: leaves[name] for name in networks[0].parameters})
        linear = linearise(networks, loss, made, leaves, memory, kernel)
    rule = rule_of(made)
    losses, kept = follow(linear.space, rule, steps - after)
    return Forecast(
        losses=torch.tensor([*real, *losses], dtype=torch.float64),
        trusted=after + trusted(networks, loss, linear.preconditioner, kept, memory),
        rate=rule.rate,
        stable_rate=linear.stable_rate,
        unreachable=linear.unreachable,
        after=after,
        decay=1 - (1 - rule.rate * made.param_groups[0]["weight_decay"]) ** steps,
        optimizer=name_of(optimizer),
    )


def _train(
    networks: Sequence[Network],
    loss: Loss,
    optimizer: Optimizer,
    leaves: Mapping[str, Tensor],
    steps: int,
    memory: float,
) -> list[float]:
    """Take real steps, which change the leaves in place, and return the losses before each of them."""
    losses = []
    for _ in range(steps):
        now = replace_parameters(networks, {name: leaves[name] for name in networks[0].parameters})
        outputs = outputs_of(now, memory)
        losses.append(loss.value(outputs))
        for name, gradient in vjp(now, memory)(loss.gradient(outputs)).items():
            leaves[name].grad = gradient
        optimizer.step()
    return losses


def _check(rate: float | None, steps: int, after: int) -> None:
    if rate is not None and not 0 < rate < math.inf:
        raise ValueError(f"rate is {rate}; a positive number was expected.")
    for name, number, least in (("after", after, 0), ("steps", steps, after + 1)):
        if not isinstance(number, Integral) or number < least:
            raise ValueError(f"{name} is {number}; a whole number of at least {least} was expected.")
