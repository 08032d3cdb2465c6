"""Training of one network until its loss reaches a goal, and the learning rate at which that happens first.

:mod:`gnbook.shared.epochs` trains several networks side by side, with checkpoints; :mod:`gnbook.shared.tuning` tries
rates in powers of two side by side.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.optim import Optimizer

Loss = Callable[[Tensor, Tensor], Tensor]

DIVERGED = 1e6  # times the loss at the start


def half_squared_error(outputs: Float[Tensor, "b k"], targets: Float[Tensor, "b k"]) -> Float[Tensor, ""]:
    r"""Return :math:`\frac1{2b} \sum_i \lVert f(x_i) - y_i \rVert^2`, whose Gauss-Newton matrix is G itself."""
    return (outputs - targets).square().sum() / (2 * len(outputs))


def one_hot(labels: Tensor, classes: int, dtype: torch.dtype = torch.float64) -> Float[Tensor, "n k"]:
    """Return targets of 0 and 1 for labels from 0 to `classes - 1`."""
    return nn.functional.one_hot(labels, classes).to(dtype)


class GradientDescent(Optimizer):
    """Plain gradient descent that rounds the product of rate and gradient before it subtracts.

    `torch.optim.SGD` rounds once where the processor can. Near the edge of stability that last digit decides how many
    steps a training takes, and the book's results were computed with either.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Move all parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter -= group["lr"] * parameter.grad


@dataclass(frozen=True)
class Training:
    """A trained network and its losses."""

    module: nn.Module
    losses: list[float]  # on all samples: before the first step, and after each `every` steps
    every: int
    until: float  # loss at which the training was to end

    @property
    def steps(self) -> float:
        """Steps to the loss at which the training was to end; infinite if it did not get there."""
        return self.steps_to(self.until)

    def steps_to(self, goal: float) -> float:
        """Return the steps after which the loss was at most a goal for the first time; infinite if it never was."""
        looks = (look for look, loss in enumerate(self.losses) if loss <= goal)
        return next((look * self.every for look in looks), math.inf)


def train(
    module: nn.Module,
    x: Float[Tensor, "n ..."],
    y: Tensor,
    *,
    rate: float,
    most: int,
    until: float = 0.0,
    loss: Loss = half_squared_error,
    optimizer: Callable[..., Optimizer] = torch.optim.SGD,
    batch_size: int | None = None,
    every: int | None = None,
    seed: int = 0,
) -> Training:
    """Train a copy of a network in the precision of its samples, until its loss on all of them is low enough.

    Training ends at the goal, and also when the loss is not finite or a million times that at the start. Batches are
    drawn without replacement; without a size all samples are in each step, in their order. The loss of all samples is
    looked at after each `every` steps: those of an epoch if not given, 1 without batches. Parameters that require no
    gradient are not trained.
    """
    module = copy.deepcopy(module).to(x.dtype)
    y = y.to(x.dtype) if y.is_floating_point() else y
    mover = optimizer([p for p in module.parameters() if p.requires_grad], lr=rate)
    batches = _batches(len(x), batch_size or len(x), torch.Generator("cpu").manual_seed(seed))
    every = every or (-(-len(x) // batch_size) if batch_size else 1)
    losses: list[float] = []
    for look in range(most // every + 1):
        with torch.set_grad_enabled(batch_size is None):
            value = loss(module(x), y)
        losses.append(value.item())
        if look == most // every or not until < losses[-1] < DIVERGED * losses[0]:
            break
        for _ in range(every):
            if batch_size:
                some = next(batches)
                value = loss(module(x[some]), y[some])
            mover.zero_grad()
            value.backward()
            mover.step()
    return Training(module, losses, every, until)


def fastest(run: Callable[..., Training], rates: Iterable[float], most: int) -> tuple[float, Training] | None:
    """Return the rate at which a training reaches its goal in the fewest steps, and that training; None if none does.

    `run` is :func:`train` with all of its arguments but the rate and the limit of steps; the first rate is taken where
    several take as many steps. Later trainings end where they cannot be the fastest.
    """
    best = None
    for rate in rates:
        if most < 0:
            break
        found = run(rate=rate, most=most)
        if found.losses[-1] <= found.until:
            best, most = (rate, found), int(found.steps) - found.every
    return best


def fastest_of_adam(
    module: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], *, until: float, most: int, seed: int = 0
) -> Training | None:
    """Return the training by Adam, in batches of 32 at the best of three rates, to a cross-entropy; or None."""
    options = {"loss": nn.functional.cross_entropy, "optimizer": torch.optim.Adam, "batch_size": 32, "seed": seed}
    best = fastest(partial(train, module, x, y, until=until, **options), (1e-2, 3e-3, 1e-3), most)
    return best[1] if best else None


def _batches(n: int, size: int, order: torch.Generator) -> Iterator[Int[Tensor, " b"]]:
    while True:
        yield from torch.randperm(n, generator=order, device="cpu").split(size)
