"""Trainings of a network of one's own: Adam on mini-batches, and gradient descent beside the linear model."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import gnlib
from gnbook.your_own_network.networks import INITIALISATIONS, initialised
from gnlib.diagnosis.changes import changes_of

MOST = 1000
ADAMS_RATES = (1e-2, 3e-3, 1e-3)


def steps_of_adam(
    network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], goal: float, *, rate: float, most: int
) -> int | None:
    """Train a copy on mini-batches of 32; return the steps to the goal, seen after each epoch, or None."""
    trained, order, taken = copy.deepcopy(network), torch.Generator().manual_seed(0), 0
    adam = torch.optim.Adam(trained.parameters(), rate)
    while taken < most:
        for batch in torch.randperm(len(x), generator=order).split(32):
            adam.zero_grad()
            cross_entropy(trained(x[batch]), y[batch]).backward()
            adam.step()
            taken += 1
        if cross_entropy(trained(x), y).item() <= goal:
            return taken
    return None


def best_of_adam(network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], goal: float) -> int:
    """Return the fewest steps to the goal, of three rates; 1000 if it is not reached."""
    best = MOST
    for rate in ADAMS_RATES:
        best = steps_of_adam(network, x, y, goal, rate=rate, most=best - 1) or best
    return best


@dataclass(frozen=True)
class Remedy:
    """What a change does to Adam, and what reports foretell of it.

    Attributes
    ----------
    what
        the change, or `"nothing"`
    before, after
        steps of Adam to the goal
    of_adam, of_descent
        how many times fewer steps a report foretells, by Adam and by gradient descent, if it suggests the change
    """

    what: str
    before: int
    after: int
    of_adam: float | None
    of_descent: float | None

    @property
    def sooner(self) -> float:
        """How many times fewer steps it takes."""
        return self.before / self.after


def remedies(
    network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], goal: float, few: int = 20
) -> list[Remedy]:
    """Try with Adam each change that a report tries; the report is shown the first few samples."""
    before = best_of_adam(network, x, y, goal)
    gains = []
    for optimizer in (torch.optim.Adam(network.parameters()), None):
        found = gnlib.report(network, x[:few], y[:few], loss="cross_entropy", optimizer=optimizer)
        paces = {s.what: s.pace for s in found.suggestions}
        gains.append({what: pace.before / max(pace.steps, 1) for what, pace in paces.items() if pace})
    tried = [(c.what, best_of_adam(c.module, c.x.float(), y, goal)) for c in changes_of(network, x, None)]
    return [
        Remedy(what, before, after, *(of.get(what) for of in gains)) for what, after in tried or [("nothing", before)]
    ]


@dataclass(frozen=True)
class Training:
    """A network under gradient descent on the squared error, beside its linear model.

    Attributes
    ----------
    kappa, kappa_at_end
        condition number at the start, and after the last step
    modelled, measured
        loss before each step and after the last, over that at the start: as the linear model has it, and as it is
    first
        the loss at the start
    early, end
        largest eigenvalue after a tenth of the steps and after the last, over that at the start
    """

    kappa: float
    kappa_at_end: float
    modelled: Float64[np.ndarray, " steps"]
    measured: Float64[np.ndarray, " steps"]
    first: float
    early: float
    end: float

    @property
    def guaranteed(self) -> Float64[np.ndarray, " steps"]:
        """The bound on the modelled loss by the condition number."""
        bound: np.ndarray = (1 - 1 / (2 * self.kappa)) ** (2 * np.arange(len(self.modelled)))
        return bound

    @property
    def off(self) -> float:
        """How many times the last loss is above that of the linear model, or below it."""
        return float(np.exp(abs(np.log(self.modelled[-1] / self.measured[-1]))))


def train(network: nn.Module, x: Float[Tensor, "n ..."], targets: Float[Tensor, "n k"], steps: int) -> Training:
    """Train a network in place, at a quarter of its largest stable rate."""
    network.double().eval()
    values, vectors = torch.linalg.eigh(gnlib.GaussNewton(network, x).gram())
    start = (vectors.T @ (network(x.double()) - targets).detach().flatten()).square() / (2 * len(x))
    left = (1 - values / (2 * values[-1]))[:, None] ** (2 * torch.arange(steps + 1, device=values.device))
    modelled = (start @ left).cpu().numpy()
    largest, soon = values[-1].item(), steps // 10
    losses = descend(network, x, targets, 1 / (2 * largest), soon)
    early = gnlib.condition_number(network, x).largest / largest
    losses = np.concatenate([losses, descend(network, x, targets, 1 / (2 * largest), steps + 1 - soon)])
    end = gnlib.condition_number(network, x)
    return Training(
        kappa=(values[-1] / values[0]).item(),
        kappa_at_end=end.value,
        modelled=modelled / modelled[0],
        measured=losses / losses[0],
        first=float(losses[0]),
        early=early,
        end=end.largest / largest,
    )


def descend(
    network: nn.Module, x: Float[Tensor, "n ..."], targets: Float[Tensor, "n k"], rate: float, count: int
) -> Float64[np.ndarray, " count"]:
    """Train in place, in single precision; return the loss before each of so many steps of gradient descent."""
    losses, inputs, aims = [], x.float(), targets.float()
    network.float()
    for _ in range(count):
        loss = (network(inputs) - aims).square().sum() / (2 * len(x))
        losses.append(loss.item())
        network.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.grad is not None:
                    parameter -= rate * parameter.grad
    return np.array(losses)


def trainings(
    networks: dict[str, Callable[[], nn.Module]],
    x: Float[Tensor, "n ..."],
    targets: Float[Tensor, "n k"],
    steps: int,
) -> Iterator[tuple[tuple[str, str], Training]]:
    """Train eleven networks, drawn with seed 0: three kinds, each drawn in three or four ways."""
    ways = ["torch default", "Kaiming normal", "orthogonal", "Kaiming / 4"]
    names = [("CNN", ways), ("CNN, GroupNorm", ways), ("transformer, pre-norm", ways[:3])]
    for name, drawn in names:
        for way in drawn:
            net = initialised(networks[name], INITIALISATIONS[way], 0).to(x.device)
            yield (name, way), train(net, x, targets, steps)
