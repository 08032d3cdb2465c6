"""The loss curve that a network would have if it stayed linear where it stands, and how far that is to be trusted."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from time import perf_counter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from gnlib.diagnosis.inputs import Inputs, networks_on
from gnlib.diagnosis.model import follow, linearise, trusted
from gnlib.diagnosis.preconditioner import optimizer_of, rule_of
from gnlib.jacobian.network import Network
from gnlib.jacobian.passes import at, only, outputs_of, pull
from gnlib.jacobian.plan import check_memory
from gnlib.losses import Loss, loss_of
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
        what it is a forecast for
    seconds
        wall-clock time of kernels and decompositions, and of all the rest
    """

    losses: Float[Tensor, " steps"]
    trusted: int
    rate: float
    stable_rate: float
    unreachable: float
    after: int
    decay: float
    optimizer: str
    seconds: tuple[float, float] = field(default=(0.0, 0.0))

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
        """Return what a user reads, each with what it means."""
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
        found = [
            Line("rate", rate, share + (f"; it diverges; take a rate below {self.stable_rate:.3g}" * self.diverges)),
            Line("forecast", f"loss {start:.4g} to {end:.4g} in {steps:,} steps", until),
            Line("steps", ", ".join(goals), missed + reach),
        ]
        if self.decay:
            found.append(Line("weight decay", f"{self.decay:.2g} of the weights", "left out of the forecast"))
        return found

    def __str__(self) -> str:
        """Return the page as text."""
        return as_page(self.lines())


def forecast(
    module: nn.Module,
    x: Inputs,
    y: Any,
    loss: str | Callable[[Tensor, Any], Tensor] = "mse",
    *,
    optimizer: str | Optimizer = "sgd",
    rate: float | None = None,
    steps: int = 1000,
    after: int = 0,
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> Forecast:
    r"""Return the loss curve of full-batch training, as the network linearised where it stands would have it.

    The outputs of a linear model follow :math:`f_{t+1} = f_t - \eta K g(f_t)`, with its kernel
    :math:`K = \frac1n J J^\top` and the gradient g of the loss by the outputs: for the squared error each eigenvector
    of K by itself, for others with the loss as it is. Of an optimiser that multiplies each parameter by a factor of
    its own, :math:`P^{-1}`, the kernel is :math:`\frac1n J P^{-1} J^\top`, with P as it is now.

    How far it is to be trusted costs no training: the linear model says where the parameters will be,
    :math:`\theta_t = \theta_0 - \frac1n P^{-1} J^\top c_t`, and the network itself is evaluated there, at steps a fifth
    apart. The forecast is trusted until the first of them at which the residuals differ by a quarter.

    Parameters
    ----------
    module, x, output, mode, memory
        as for :func:`gnlib.diagnosis.report`
    y, loss
        targets and loss, as for :func:`gnlib.diagnosis.loss_of`
    optimizer
        `"sgd"`, `"momentum"` (of 0.9), `"adam"`, or SGD, Adam, AdamW or RMSprop of torch.optim, with its settings and
        its state, which are left as they are. Adam and RMSprop without a state have the root of the diagonal of the
        Gauss-Newton matrix, of the size of the gradient, in the place of P
    rate
        learning rate; that of an optimiser of torch, or half the largest stable one, if it is not given
    steps
        number of steps, those of `after` included
    after
        real steps to take first, on a copy: the kernel is often settled after a few

    Raises
    ------
    TypeError
        An optimiser of another kind; what :func:`gnlib.diagnosis.loss_of` and
        :func:`gnlib.jacobian.gauss_newton_gram` raise.
    ValueError
        A rate that is not positive, steps that are no whole number above `after`, an optimiser of other parameters or
        with settings that a forecast leaves out; what the two functions above raise.

    References
    ----------
    J. Lee et al. (2019), Wide neural networks of any depth evolve as linear models under gradient descent, NeurIPS 32.
    J. Cohen et al. (2022), Adaptive gradient methods at the edge of stability, arXiv:2207.14484 (largest stable rates:
    2 for descent, 2 (1 + beta) with momentum, and 2 (1 + beta) / (1 - beta) = 38 for Adam, over the largest
    eigenvalue of the preconditioned matrix).

    Examples
    --------
    >>> import torch
    >>> line = torch.nn.Linear(1, 1, bias=False).double()
    >>> with torch.no_grad():
    ...     _ = line.weight.fill_(0.0)
    >>> x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    >>> found = forecast(line, x, x, rate=0.2, steps=4)
    >>> found.losses
    tensor([1.2500, 0.3125, 0.0781, 0.0195, 0.0049], dtype=torch.float64)
    >>> found.trusted, found.steps_to(0.1), found.steps_to(1e-3)
    (4, 2, None)
    >>> round(found.stable_rate, 6)
    0.8
    """
    check_memory(memory)
    networks = networks_on(module, x, output, mode, memory)
    target = loss_of(loss, y, outputs_of(networks, memory))
    return forecast_of(networks, target, optimizer=optimizer, rate=rate, steps=steps, after=after, memory=memory)


def forecast_of(
    networks: Sequence[Network],
    loss: Loss,
    *,
    optimizer: str | Optimizer,
    rate: float | None,
    steps: int,
    after: int,
    memory: float,
    kernel: Float[Tensor, "nk nk"] | None = None,
) -> Forecast:
    """Return the forecast for networks, one for each batch, that have been tried, and whose Gram matrix may be known.

    Parameters
    ----------
    networks, loss, kernel
        the function of the module on each batch, a loss with its targets, and the Gram matrix by all parameters
    optimizer, rate, steps, after, memory
        as for :func:`gnlib.diagnosis.forecast`
    """
    _check(rate, steps, after)
    begun = perf_counter()
    leaves = {name: p.detach().clone() for name, p in (networks[0].parameters | networks[0].frozen).items()}
    own = optimizer.param_groups[0]["lr"] if isinstance(optimizer, Optimizer) else None
    made = optimizer_of(optimizer, networks[0], leaves, float(rate or own or 1.0))
    held = {id(leaf) for group in made.param_groups for leaf in group["params"]}
    moving = {name for name in networks[0].parameters if id(leaves[name]) in held}
    if moving != {*networks[0].parameters}:
        networks, kernel = only(networks, moving), None
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
        networks = at(networks, {name: leaves[name] for name in networks[0].parameters})
        linear = linearise(networks, loss, made, leaves, memory, None if after else kernel)
    rule, decomposed = rule_of(made), perf_counter()
    losses, kept = follow(linear.space, rule, steps - after)
    return Forecast(
        losses=torch.tensor([*real, *losses], dtype=torch.float64),
        trusted=after + trusted(networks, loss, linear.preconditioner, kept, memory),
        rate=rule.rate,
        stable_rate=linear.stable_rate,
        unreachable=linear.unreachable,
        after=after,
        decay=1 - (1 - rule.rate * made.param_groups[0]["weight_decay"]) ** steps,
        optimizer=optimizer if isinstance(optimizer, str) else type(optimizer).__name__,
        seconds=(decomposed - begun, perf_counter() - decomposed),
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
        now = at(networks, {name: leaves[name] for name in networks[0].parameters})
        outputs = outputs_of(now, memory)
        losses.append(loss.value(outputs))
        for name, gradient in pull(now, loss.gradient(outputs), memory).items():
            leaves[name].grad = gradient
        optimizer.step()
    return losses


def _check(rate: float | None, steps: int, after: int) -> None:
    if rate is not None and not 0 < rate < math.inf:
        raise ValueError(f"rate is {rate}; a positive number was expected.")
    for name, number, least in (("after", after, 0), ("steps", steps, after + 1)):
        if not isinstance(number, Integral) or number < least:
            raise ValueError(f"{name} is {number}; a whole number of at least {least} was expected.")
