"""Steps of a network to a loss at the best of all learning rates that are powers of two.

Rates are tried side by side, as one network whose parameters have a further axis, in single precision.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from gnbook.shared.training import Loss, half_squared_error

LOSSES: dict[str, Loss] = {"mse": half_squared_error, "cross_entropy": nn.functional.cross_entropy}
FACTORS = (0.5, 1.0, 2.0, 4.0)  # the rates tried first, over the one that was guessed
MOST_DOUBLINGS = 40  # of the smallest rate tried
LOOK = 10  # epochs between two looks at which runs are worth going on with
HOPELESS = 1e6  # a run whose loss is so many times the one at the start is given up


@dataclass(frozen=True)
class Setting:
    """Data, loss, optimiser and goals of a training: all but the learning rate."""

    x: Float[Tensor, "n ..."]
    y: Tensor  # targets (squared error) or class indices (cross-entropy)
    loss: str  # "mse", half the squared distance, or "cross_entropy"; the mean over the samples
    optimizer: str  # "descent", "momentum" (of 0.9) or "adam" (0.9, 0.999, 1e-8)
    goals: Mapping[str, float]  # losses to get below
    horizon: int  # steps after which a run ends
    batch_size: int | None = None  # drawn without replacement; all samples if not given
    seed: int = 0  # of the order of the samples, the same at each rate

    @property
    def every(self) -> int:
        """The steps of an epoch, after which the loss of all samples is looked at."""
        return 1 if self.batch_size is None else -(-len(self.x) // self.batch_size)


@dataclass(frozen=True)
class Outcome:
    """The losses at each rate, and which rate was first."""

    setting: Setting
    # the loss of all samples before the first step and after each epoch; inf from where it diverged
    curves: dict[float, list[float]] = field(default_factory=dict)

    def steps(self, goal: str) -> dict[float, float]:
        """Return by rate the first step after which the loss was below a goal, inf where that did not happen."""
        below = {rate: first_below(curve, self.setting.goals[goal]) for rate, curve in sorted(self.curves.items())}
        return {rate: epochs * self.setting.every for rate, epochs in below.items()}

    def best(self, goal: str) -> tuple[float, float]:
        """Return the fewest steps to a goal, inf if no run got there, and the rate: of several, the middle one."""
        steps = self.steps(goal)
        fewest = min(steps.values())
        rates = [rate for rate, found in steps.items() if found == fewest]
        return fewest, rates[len(rates) // 2]

    @property
    def edges(self) -> tuple[bool, bool]:
        """Whether the smallest, and whether the largest rate is the best for one of the goals that were reached.

        Where none was reached, the best rate is that of the lowest loss.
        """
        best = [rate for steps, rate in map(self.best, self.setting.goals) if steps < np.inf]
        best = best or [min(sorted(self.curves), key=lambda rate: min(self.curves[rate]))]
        return min(self.curves) in best, max(self.curves) in best


def first_below(losses: Sequence[float], goal: float) -> float:
    """Return the place of the first loss below a goal, inf if there is none."""
    return next((t for t, loss in enumerate(losses) if loss < goal), np.inf)


def constant_loss(y: Tensor, loss: str) -> float:
    """Return the least loss of outputs that are the same for all inputs."""
    if loss == "mse":
        return half_squared_error(y.mean(0).expand_as(y), y).item()
    return torch.special.entr(y.bincount().double() / len(y)).sum().item()


def tune(network: nn.Module, setting: Setting, guess: float) -> Outcome:
    """Train copies of a network at rates in factors of two, until no best rate is the smallest or largest tried."""
    middle = 2.0 ** round(np.log2(guess))
    found, rates = Outcome(setting), [middle * factor for factor in FACTORS]
    while rates:
        found.curves.update(zip(rates, race(network, setting, rates), strict=True))
        least, most = min(found.curves), max(found.curves)
        if most / least > 2.0**MOST_DOUBLINGS:
            raise ArithmeticError(f"No best learning rate was found between {least:.2g} and {most:.2g}.")
        smaller, larger = found.edges
        rates = [least / 4, least / 2] * smaller + [most * 2, most * 4] * larger
    return found


def race(network: nn.Module, setting: Setting, rates: Sequence[float]) -> list[list[float]]:
    """Train copies of a network side by side, one at each rate, until the first has reached the last goal."""
    x, y = (part.float() if part.is_floating_point() else part for part in (setting.x, setting.y))
    loss, direction, whole = LOSSES[setting.loss], DIRECTIONS[setting.optimizer], setting.batch_size is None
    template = copy.deepcopy(network).float()
    runs = nn.utils.parameters_to_vector(template.parameters()).detach().expand(len(rates), -1).clone()
    state = [torch.tensor(rates, device=x.device)[:, None], torch.zeros_like(runs), torch.zeros_like(runs)]
    leaves, alive = _leaves(template, runs), torch.arange(len(rates), device="cpu")
    order = torch.Generator("cpu").manual_seed(setting.seed)
    curves = torch.full((len(rates), setting.horizon // setting.every + 1), np.inf, device="cpu")

    def losses(x: Float[Tensor, "b ..."], y: Tensor) -> Float[Tensor, " runs"]:
        return torch.vmap(lambda run: loss(functional_call(template, run, (x,)), y))(leaves)

    for epoch in range(curves.shape[1]):
        if epoch % LOOK == 1:
            going = curves[alive, epoch - 1] < HOPELESS * curves[0, 0]
            alive, runs, *state = (part[going] for part in (alive, runs, *state))
            leaves = _leaves(template, runs)
        if not len(alive):
            break
        with torch.set_grad_enabled(whole):
            now = losses(x, y)
        curves[alive, epoch] = now.detach().cpu().nan_to_num(np.inf)
        if curves[:, epoch].min() < min(setting.goals.values()) or epoch == curves.shape[1] - 1:
            break
        batches = [None] if whole else torch.randperm(len(x), generator=order, device="cpu").split(setting.batch_size)
        for step, some in enumerate(batches, epoch * setting.every + 1):
            of_batch = now if some is None else losses(x[some], y[some])
            parts = torch.autograd.grad(of_batch.sum(), list(leaves.values()))
            gradient = torch.cat([part.reshape(len(runs), -1) for part in parts], 1)
            rate, first, second = state
            runs -= rate * direction(gradient, first, second, step)
    return curves[:, : epoch + 1].tolist()


def _leaves(network: nn.Module, runs: Float[Tensor, "runs p"]) -> dict[str, Tensor]:
    """Return the parameters of all runs by name, as views."""
    shapes = {name: parameter.shape for name, parameter in network.named_parameters()}
    parts = runs.split([shape.numel() for shape in shapes.values()], 1)
    return {
        name: part.view(len(runs), *shape).detach().requires_grad_()
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


Runs = Float[Tensor, "runs *p"]


def _descent(gradient: Runs, _first: Runs, _second: Runs, _step: int) -> Runs:
    return gradient


def _momentum(gradient: Runs, first: Runs, _second: Runs, _step: int) -> Runs:
    return first.mul_(0.9).add_(gradient)


def _adam(gradient: Runs, first: Runs, second: Runs, step: int) -> Runs:
    first.lerp_(gradient, 0.1)
    second.lerp_(gradient.square(), 0.001)
    return first / (1 - 0.9**step) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)


# From the gradients and two tensors of their shape, zero at first, for the state of a rule.
DIRECTIONS: dict[str, Callable[[Runs, Runs, Runs, int], Runs]] = {
    "descent": _descent,
    "momentum": _momentum,
    "adam": _adam,
}
