"""Real steps: how many of them a network takes to a goal, at the best of a few learning rates."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import get_total_norm
from torch.optim import LBFGS, SGD, Adam, Optimizer

from gnlib.advice.candidates import called, in_precision

STEPS = 200  # at most
SETTLED = 10  # steps after which a rate counts as one that does not explode
BEHIND = 20, 40, 80  # steps at which a run ends that has fallen behind what another one had after half of them
EXPLODED = 1e6  # times the first loss
HALVINGS = 40
OF_STABLE = 1 / 2  # first learning rate of descent, in the largest stable one
OF_ADAM = 3e-3
FAR = 10.0  # times its length, by which a first step moves the vector of weights at most: saturated outputs allow any
APART = 3.0  # learning rates, one over the next
FINE = 1.5  # from one learning rate to the next, where it matters
NEARLY = 2.0  # times the goal: a run that gets there may get to the goal at a rate beside its own


class Batch(NamedTuple):
    """The arguments of a call, by place or name, and the targets."""

    held: dict[int | str, Any]
    y: Any

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(next(iter(self.held.values())))


@dataclass(frozen=True)
class Run:
    """The course of a training: the losses before step 1, after it, and so on, and the learning rate.

    Attributes
    ----------
    rate
        learning rate, of the first group of parameters
    losses
        on the samples that it is trained on
    held_out
        on others, if there are any

    Examples
    --------
    >>> run = Run(0.1, (1.0, 0.4, 0.09))
    >>> run.steps_to(0.1), run.end, run.is_sound
    (2.0, 0.09, False)
    """

    rate: float
    losses: tuple[float, ...]
    held_out: tuple[float, ...] = ()

    def steps_to(self, goal: float) -> float:
        """Return the first step from which on the loss is at most so much, or infinity."""
        above = max((t for t, loss in enumerate(self.losses) if not loss <= goal), default=-1)
        return above + 1.0 if above + 1 < len(self.losses) else math.inf

    @property
    def end(self) -> float:
        """The loss after the last step, or infinity."""
        return self.losses[-1] if math.isfinite(self.losses[-1]) else math.inf

    @property
    def least_held_out(self) -> float | None:
        """The least loss on held-out data that is finite, if there are such data."""
        return min(filter(math.isfinite, self.held_out), default=math.inf) if self.held_out else None

    @property
    def is_sound(self) -> bool:
        """Whether ten steps were taken and the loss is then no larger than at the start."""
        return len(self.losses) > SETTLED and self.losses[-1] <= self.losses[0]


def best_of(runs: Sequence[Run], goal: float) -> Run:
    """Return the run that is first at a goal, or nearest to it in the end; those that explode come last.

    Examples
    --------
    >>> fast, slow = (Run(rate, (1.0, *[0.5] * n, *[0.05] * 12)) for rate, n in ((0.3, 2), (0.1, 9)))
    >>> best_of([slow, fast, Run(1.0, (1.0, math.inf))], 0.1).rate
    0.3
    """
    return min(runs, key=lambda run: (not run.is_sound, run.steps_to(goal), run.end))


def further_rates(runs: Sequence[Run], goal: float) -> list[float]:
    """Return the rates to try next, the last one first: beyond the end where the best is, then beside it if it is near.

    Where no run arrives the lower end counts too, as long as the loss rises at the least rate, so that all of them may
    be too large to learn, or the least rate is better than the next.

    Examples
    --------
    >>> runs = [Run(rate, (1.0, *[0.5] * n, *[0.05] * 12)) for rate, n in ((0.1, 9), (0.3, 2))]
    >>> [f"{rate:.1f}" for rate in further_rates(runs, 0.1)]
    ['0.9']
    >>> runs.append(Run(0.9, (1.0, math.inf)))
    >>> [f"{rate:.2f}" for rate in further_rates(runs, 0.1)]
    ['0.17', '0.52']
    >>> runs += [Run(rate, (1.0, math.inf)) for rate in (0.17, 0.52)]
    >>> [f"{rate:.2f}" for rate in further_rates(runs, 0.1)]
    ['0.23', '0.39']
    """
    runs, best = sorted(runs, key=lambda run: run.rate), best_of(runs, goal)
    least, largest = runs[0].rate, runs[-1].rate
    if not best.is_sound or best.rate == least:
        return [least / APART]
    if best.rate == largest:
        return [largest * APART]
    rises = not all(loss <= runs[0].losses[0] for loss in runs[0].losses)
    if best.steps_to(goal) == math.inf and (rises or runs[0].end < runs[1].end):
        return [least / APART]
    apart = min(run.rate / other.rate for other, run in pairwise(runs) if best in (other, run))
    is_near = best.end <= goal + (NEARLY - 1) * abs(goal)
    return [best.rate / apart**0.5, best.rate * apart**0.5] if is_near and apart > FINE else []


@dataclass(frozen=True, eq=False)
class Trainer:
    """Full-batch training of copies of modules.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[1.0], [2.0]])
    >>> line = torch.nn.Linear(1, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(line.weight)
    >>> trainer = Trainer([Batch({0: x}, x)], loss_on("mse", None), "sgd", {})
    >>> trainer.run(line, rate=0.2, goal=0.1, seconds=10.0, steps=3).losses[:2]
    (1.25, 0.3125)
    >>> trainer.safe_rate(line, rate=1.0, seconds=10.0)  # the largest stable one is 0.8
    0.5
    """

    batches: Sequence[Batch]
    loss: Callable[[Any, Any], Tensor]  # of a result of the module and targets, a mean over samples
    optimizer: str | Optimizer | None  # without its state, which a changed network has not; None is descent
    groups: dict[str, int]  # the place of each parameter of the unchanged module in the groups
    held_out: Sequence[Batch] = ()  # that the loss is measured on too

    @property
    def name(self) -> str:
        """Name of the optimiser."""
        if isinstance(self.optimizer, Optimizer):
            return type(self.optimizer).__name__
        known = {None: "gradient descent", "sgd": "gradient descent", "adam": "Adam"}
        return known.get(self.optimizer, str(self.optimizer))

    def first_rate(self, module: nn.Module, stable: float) -> float:
        """Return the learning rate to begin with, for a module with such a largest stable rate of descent."""
        if isinstance(self.optimizer, Optimizer):
            return _rate_of(self.optimizer.param_groups)
        if self.optimizer == "adam":
            return OF_ADAM
        module = copy.deepcopy(module)
        with torch.random.fork_rng([]), torch.enable_grad():
            self._loss(module, self.batches)
        moved = [(p.detach(), p.grad) for p in module.parameters() if p.grad is not None]
        norms = [float(get_total_norm(each)) for each in zip(*moved, strict=True)]
        return min(stable * OF_STABLE, FAR * norms[0] / norms[1] if moved and all(norms) else math.inf)

    def safe_rate(self, module: nn.Module, rate: float, seconds: float) -> float | None:
        """Return the first of a rate, its half, its quarter and so on at which ten steps do not explode, if any."""
        end = perf_counter() + seconds
        for halvings in range(HALVINGS):
            run = self.run(module, rate / 2**halvings, -math.inf, end - perf_counter(), SETTLED)
            if run.is_sound:
                return run.rate
        return None

    def run(
        self, module: nn.Module, rate: float, goal: float, seconds: float, steps: int = STEPS, ahead: Run | None = None
    ) -> Run:
        """Train a copy of a module to a goal, for at least ten steps, unless it explodes or falls behind a run."""
        module = copy.deepcopy(module)
        others = {step: ahead.losses[step // 2] for step in BEHIND if step < len(ahead.losses)} if ahead else {}
        optimizer, end = self._made(module, rate), perf_counter() + seconds
        losses: list[float] = []
        held_out: list[float] = []

        def closure() -> float:
            optimizer.zero_grad(set_to_none=True)
            return self._loss(module, self.batches)

        with torch.random.fork_rng([]), torch.enable_grad():
            torch.manual_seed(0)
            for step in range(steps + 1):
                if self.held_out:
                    held_out.append(self._held_out(module))
                losses.append(closure())
                most = min(EXPLODED * abs(losses[0]), others.get(step, math.inf))
                there = step >= SETTLED and max(losses[-2:]) <= goal  # a single step may be there by chance
                if there or not losses[-1] <= most or perf_counter() > end or step == steps:
                    break
                optimizer.step(closure) if isinstance(optimizer, LBFGS) else optimizer.step()
        return Run(rate, tuple(losses), tuple(held_out))

    def _loss(self, module: nn.Module, batches: Sequence[Batch]) -> float:
        """Return the mean loss over all samples; the gradients are added to those of the parameters."""
        total, samples, dtype = 0.0, sum(map(len, batches)), next(module.parameters()).dtype
        for batch in batches:
            loss = self.loss(called(module, batch.held), in_precision(batch.y, dtype)) * (len(batch) / samples)
            if torch.is_grad_enabled():
                loss.backward()
            total += float(loss.detach())
        return total

    @torch.no_grad()
    def _held_out(self, module: nn.Module) -> float:
        """Return the loss in evaluation, with batch normalisations by the statistics of the batch, which stay."""
        modes = {m: m.training for m in module.modules()}
        module.eval()
        momenta = {m: m.momentum for m in modes if isinstance(m, _BatchNorm) and modes[m]}
        for norm in momenta:
            norm.train()
            norm.momentum = 0.0
        try:
            return self._loss(module, self.held_out)
        finally:
            for m, mode in modes.items():
                m.training = mode
            for norm, momentum in momenta.items():
                norm.momentum = momentum

    def _made(self, module: nn.Module, rate: float) -> Optimizer:
        """Return an optimiser of a module, with the settings of the given one and in its groups."""
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not isinstance(self.optimizer, Optimizer):
            if self.optimizer == "adam":
                return Adam(parameters.values(), lr=rate)
            return SGD(parameters.values(), lr=rate, momentum=0.9 if self.optimizer == "momentum" else 0.0)
        given = self.optimizer.param_groups
        groups: list[dict[str, Any]] = [{**group, "params": []} for group in given]
        for group in groups:  # a rate may be a tensor, which stays the user's
            group["lr"] = _rate_of([group]) * (rate / _rate_of(given))
        for name, p in parameters.items():  # one that is new belongs to the first group
            while name.startswith("module.") and name not in self.groups:
                name = name.removeprefix("module.")
            if (place := self.groups.get(name, 0)) >= 0:  # others are not moved
                groups[place]["params"].append(p)
        kind: Any = type(self.optimizer)
        made: Optimizer = kind([group for group in groups if group["params"]])
        return made


def _rate_of(groups: Sequence[Mapping[str, Any]]) -> float:
    """Return the first learning rate that is not zero; at the begin of a warm-up it is the initial one."""
    rates = [float(group[key]) for key in ("lr", "initial_lr") for group in groups if key in group]
    return next(filter(None, rates), 0.0)


def loss_on(loss: Any, output: Callable[..., Tensor] | None) -> Callable[[Any, Any], Tensor]:
    """Return the loss as a function of what a module returns, and of targets.

    Examples
    --------
    >>> import torch
    >>> loss_on("mse", None)(torch.ones(2, 3), torch.zeros(2, 3))
    tensor(1.5000)
    """

    def of(result: Any, y: Any) -> Tensor:
        f = result if output is None else output(result)
        if loss == "mse":
            whole = y if y.is_floating_point() else nn.functional.one_hot(y.long(), f.shape[-1]).to(f)
            return (f - whole).square().sum() / (2 * len(f))
        if loss == "cross_entropy":
            return nn.functional.cross_entropy(f.flatten(0, -2), y.flatten() if y.ndim < f.ndim else y.flatten(0, -2))
        value: Tensor = loss(f, y)
        return value

    return of
