"""Trainings of a network of one's own: Adam on mini-batches, and gradient descent beside the linear model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn

import gnlib
from gnbook.shared.foretold import paces
from gnbook.shared.training import GradientDescent, fastest_of_adam, train
from gnbook.your_own_network.changes import changes_of
from gnbook.your_own_network.networks import INITIALISATIONS, initialisations_of, initialised

MOST = 1000  # steps of Adam
WORTH = 1.25  # the least factor that is worth a change


def steps_of_adam(network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], goal: float) -> int:
    """Return the fewest steps of Adam to a loss at three rates; 1000 if it is not reached."""
    best = fastest_of_adam(network, x, y, until=goal, most=MOST)
    return MOST if best is None else int(best.steps)


@dataclass(frozen=True)
class Remedy:
    """The steps of Adam before and after a change, and the factors that the linear model forecasts."""

    what: str  # the change, or "nothing"
    before: int  # steps of Adam to the goal
    after: int
    of_adam: float | None  # how many times fewer steps the linear model takes, by Adam, if a quarter is saved
    of_descent: float | None  # and by gradient descent


def remedies(
    network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], goal: float, few: int = 20
) -> list[Remedy]:
    """Train each change with Adam, and let the linear model, on the first few samples, forecast its factor."""
    before, changes = steps_of_adam(network, x, y, goal), [*changes_of(network, x)]
    shown = [*changes_of(network, x[:few])]
    made = [(network, x[:few]), *((change.module, change.x) for change in shown)]
    foretold = [
        {change.what: pace.factor for change, pace in zip(shown, found, strict=True) if pace.factor >= WORTH}
        for found in (paces(made, y[:few], adam=True), paces(made, y[:few]))
    ]
    tried = [(c.what, steps_of_adam(c.module, c.x.float(), y, goal)) for c in changes]
    return [
        Remedy(what, before, after, *(of.get(what) for of in foretold))
        for what, after in tried or [("nothing", before)]
    ]


@dataclass(frozen=True)
class Comparison:
    """The losses of gradient descent on the squared error, and those of the linear model of the start."""

    kappa: float  # at the start
    kappa_at_end: float  # after the last step
    # loss before each step and after the last, over the first: of the linear model
    modelled: Float64[np.ndarray, " steps"]
    measured: Float64[np.ndarray, " steps"]  # and of the network
    first: float  # the loss at the start
    early: float  # largest eigenvalue after a tenth of the steps, over that at the start
    end: float  # and after the last

    @property
    def guaranteed(self) -> Float64[np.ndarray, " steps"]:
        """The bound on the modelled loss by the condition number."""
        bound: np.ndarray = (1 - 1 / (2 * self.kappa)) ** (2 * np.arange(len(self.modelled)))
        return bound

    @property
    def off(self) -> float:
        """The ratio of the last losses of network and linear model, the larger over the smaller."""
        return float(np.exp(abs(np.log(self.modelled[-1] / self.measured[-1]))))


def compare(network: nn.Module, x: Float[Tensor, "n ..."], targets: Float[Tensor, "n k"], steps: int) -> Comparison:
    """Train a copy of a network at a quarter of its largest stable rate, beside its linear model."""
    network = network.double().eval()
    values, vectors = torch.linalg.eigh(gnlib.GaussNewton(network, x).gram())
    start = (vectors.T @ (network(x.double()) - targets).detach().flatten()).square() / (2 * len(x))
    left = (1 - values / (2 * values[-1]))[:, None] ** (2 * torch.arange(steps + 1, device=values.device))
    modelled = (start @ left).cpu().numpy()
    largest, soon = values[-1].item(), steps // 10
    how = {"rate": 1 / (2 * largest), "optimizer": GradientDescent}
    first = train(network, x.float(), targets, most=soon, **how)
    last = train(first.module, x.float(), targets, most=steps + 1 - soon, **how)
    losses = np.array([*first.losses[:-1], *last.losses[:-1]])
    end = gnlib.condition_number(last.module, x)
    return Comparison(
        kappa=(values[-1] / values[0]).item(),
        kappa_at_end=end.value,
        modelled=modelled / modelled[0],
        measured=losses / losses[0],
        first=float(losses[0]),
        early=gnlib.condition_number(first.module, x).largest / largest,
        end=end.largest / largest,
    )


def trainings(
    networks: dict[str, Callable[[], nn.Module]], x: Float[Tensor, "n ..."], targets: Float[Tensor, "n k"], steps: int
) -> Iterator[tuple[tuple[str, str], Comparison]]:
    """Train eleven networks, drawn with seed 0: three kinds, each with three or four initialisations."""
    for name in ("CNN", "CNN, GroupNorm", "transformer, pre-norm"):
        for initialisation in initialisations_of(name):
            network = initialised(networks[name], INITIALISATIONS[initialisation], 0).to(x.device)
            yield (name, initialisation), compare(network, x, targets, steps)
