"""Trainings of networks of one's own by gradient descent, beside the linear model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

import gnlib
from gnbook.shared.training import GradientDescent, train
from gnbook.your_own_network.networks import INITIALISATIONS, initialisations_of, initialised


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
