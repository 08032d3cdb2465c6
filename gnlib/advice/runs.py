"""Real steps: how many of them a network takes to a goal, at the best of a few learning rates."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from gnlib.advice.candidates import in_precision

STEPS = 200  # at most
SETTLED = 10  # steps after which a rate counts as one that does not explode
EXPLODED = 1e6  # times the first loss
OF_STABLE = 1 / 2, 1 / 6, 1 / 20  # learning rates of descent, in the largest stable one
OF_OWN = 1 / 3, 1.0, 3.0  # those of an optimiser, in its own
OF_ADAM = 1e-3, 3e-3, 1e-2

Make = Callable[[nn.Module, float], Optimizer]
"""An optimiser of a module, of a learning rate."""


@dataclass(frozen=True)
class Run:
    """The course of a training: the losses before step 1, after it, and so on, and the learning rate."""

    rate: float
    losses: tuple[float, ...]

    def steps_to(self, goal: float) -> float:
        """Return the first step at which the loss is at most so much, or infinity."""
        return next((float(t) for t, loss in enumerate(self.losses) if loss <= goal), math.inf)

    @property
    def least(self) -> float:
        """The least loss that is finite."""
        return min(filter(math.isfinite, self.losses), default=math.inf)

    @property
    def is_sound(self) -> bool:
        """Whether ten steps were taken and the loss is then no larger than at the start."""
        return len(self.losses) > SETTLED and self.losses[-1] <= self.losses[0]


def best_of(runs: Sequence[Run], goal: float) -> Run:
    """Return the run that is first at a goal, or nearest to it in the end; those that explode come last."""
    return min(runs, key=lambda run: (not run.is_sound, run.steps_to(goal), run.least))


@dataclass(frozen=True, eq=False)
class Trainer:
    """Full-batch training of copies of modules.

    Attributes
    ----------
    batches
        arguments by place or name, and targets, of each
    loss
        of a result of the module and targets, a mean over samples
    optimizer
        `"sgd"`, `"momentum"`, `"adam"`, one of torch with its settings, or None for gradient descent
    groups
        the place of each parameter of the unchanged module among the groups of the optimiser
    """

    batches: Sequence[tuple[dict[int | str, Any], Any]]
    loss: Callable[[Any, Any], Tensor]
    optimizer: str | Optimizer | None
    groups: dict[str, int]

    @property
    def name(self) -> str:
        """Name of the optimiser."""
        if isinstance(self.optimizer, Optimizer):
            return type(self.optimizer).__name__
        return {None: "gradient descent", "sgd": "gradient descent"}.get(self.optimizer, str(self.optimizer))

    def rates(self, stable: float) -> list[float]:
        """Return the learning rates to try, for a network with such a largest stable rate of descent."""
        if isinstance(self.optimizer, Optimizer):
            return [self.optimizer.param_groups[0]["lr"] * factor for factor in OF_OWN]
        return [*OF_ADAM] if self.optimizer == "adam" else [stable * factor for factor in OF_STABLE]

    def run(self, module: nn.Module, rate: float, goal: float, seconds: float) -> Run:
        """Train a copy of a module to a goal, for at least ten steps, as long as it does not explode."""
        module = copy.deepcopy(module)
        optimizer, end, losses = self._made(module, rate), perf_counter() + seconds, []
        samples = sum(_length(held) for held, _ in self.batches)
        dtype = next(module.parameters()).dtype
        with torch.random.fork_rng([]), torch.enable_grad():
            torch.manual_seed(0)
            for _ in range(STEPS + 1):
                optimizer.zero_grad(set_to_none=True)
                losses.append(0.0)
                for held, y in self.batches:
                    own = {key: in_precision(value, dtype) for key, value in held.items()}
                    places = [value for key, value in own.items() if isinstance(key, int)]
                    result = module(*places, **{key: v for key, v in own.items() if isinstance(key, str)})
                    loss = self.loss(result, in_precision(y, dtype)) * (_length(held) / samples)
                    loss.backward()
                    losses[-1] += float(loss.detach())
                there = losses[-1] <= goal and len(losses) > SETTLED
                if there or not losses[-1] <= EXPLODED * losses[0] or perf_counter() > end:
                    break
                optimizer.step()
        return Run(rate, tuple(losses))

    def _made(self, module: nn.Module, rate: float) -> Optimizer:
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not isinstance(self.optimizer, Optimizer):
            if self.optimizer == "adam":
                return Adam(parameters.values(), lr=rate)
            return SGD(parameters.values(), lr=rate, momentum=0.9 if self.optimizer == "momentum" else 0.0)
        given = self.optimizer.param_groups
        groups: list[dict[str, Any]] = [{**group, "params": []} for group in given]
        for group in groups:
            group["lr"] *= rate / given[0]["lr"]
        for name, p in parameters.items():  # one that is new belongs to the first group
            while name.startswith("module.") and name not in self.groups:
                name = name.removeprefix("module.")
            groups[self.groups.get(name, 0)]["params"].append(p)
        kind: Any = type(self.optimizer)
        made: Optimizer = kind([group for group in groups if group["params"]])
        return made


def loss_on(loss: Any, output: Callable[..., Tensor] | None) -> Callable[[Any, Any], Tensor]:
    """Return the loss as a function of what a module returns, and of targets."""

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


def _length(held: dict[int | str, Any]) -> int:
    return len(next(iter(held.values())))
