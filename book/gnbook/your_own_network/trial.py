"""Trial of a rule of the guide: the check of thirty steps."""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import gnlib
from gnbook.results import Cell
from gnbook.shared.training import one_hot, train
from gnbook.shared.tuning import LOSSES
from gnbook.your_own_network.networks import (
    INITIALISATIONS,
    OUTPUTS,
    Transformer,
    cnn,
    group_norm,
    initialisations_of,
    initialised,
)

SIDE = 16
FEW = 20  # images
STEPS, EARLY = 300, 30
ADAMS_RATE = 1e-3
OPTIMIZERS = {"descent": torch.optim.SGD, "adam": torch.optim.Adam}


def rows_of_checks(
    raw: Float[Tensor, "n 3 side side"], labels: Int[Tensor, " n"], seeds: Sequence[int]
) -> Iterator[dict[str, Cell]]:
    """Yield a row for each seed, loss, optimiser and network: the check of thirty steps, and where the training ended.

    The networks are those of the eleven trainings of the guide. Gradient descent has a quarter of the largest stable
    rate, Adam 0.001. `early` is the largest eigenvalue after thirty steps over that at the start.
    """
    mean, deviation = (f((0, 2, 3), keepdim=True) for f in (raw.mean, raw.std))
    x, y = ((raw - mean) / deviation)[:FEW].double(), labels[:FEW]
    kinds = {"CNN": cnn, "CNN, GroupNorm": partial(cnn, group_norm), "transformer": partial(Transformer, side=SIDE)}
    for seed in seeds:
        for loss in ("mse", "cross_entropy"):
            for optimizer in ("descent", "adam"):
                for name, make in kinds.items():
                    for weights in initialisations_of(name):
                        network = initialised(make, INITIALISATIONS[weights], seed).eval()
                        row = {"seed": seed, "network": name, "weights": weights, "loss": loss, "optimizer": optimizer}
                        yield {"trial": "thirty steps"} | row | checked(network, x, y, loss, optimizer)


def checked(
    network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], loss: str, optimizer: str, steps: int = STEPS
) -> dict[str, Cell]:
    """Return what the check of thirty steps says of a training, and its last loss beside that of the linear model."""
    network.double()
    start = gnlib.condition_number(network, x).largest
    targets = one_hot(y, OUTPUTS) if loss == "mse" else y
    stable = gnlib.GaussNewton(network, x, targets, loss).stable_rate().rate
    rate = stable / 4 if optimizer == "descent" else ADAMS_RATE
    modelled = linear_losses(network, x, targets, loss, optimizer, rate, steps)
    how = {"loss": LOSSES[loss], "optimizer": OPTIMIZERS[optimizer], "rate": rate}
    soon, last = (train(network, x.float(), targets, most=most, **how) for most in (EARLY, steps))
    there = len(soon.losses) > EARLY and math.isfinite(soon.losses[-1])
    ratio = last.losses[-1] / modelled[-1] if modelled[-1] else math.inf  # where rounding alone is left
    arrives = math.isfinite(ratio) and len(last.losses) > steps
    return {
        "rate": rate,
        "early": gnlib.condition_number(soon.module, x).largest / start if there else None,
        "off": ratio if arrives else None,
        "left": last.losses[-1] / last.losses[0] if arrives else None,
        "off_early": soon.losses[-1] / modelled[EARLY] if there else None,
    }


class LinearModel(nn.Module):
    """The outputs of a network on fixed samples, linear in the displacement of its parameters."""

    def __init__(self, outputs: Float[Tensor, "n k"], jacobian: Float[Tensor, "nk p"]) -> None:
        super().__init__()
        self.outputs, self.jacobian = outputs, jacobian
        self.displacement = nn.Parameter(jacobian.new_zeros(jacobian.shape[1]))

    def forward(self, _x: Tensor) -> Float[Tensor, "n k"]:
        """Return the outputs, whatever the samples."""
        return self.outputs + (self.jacobian @ self.displacement).view_as(self.outputs)


def linear_losses(
    network: nn.Module, x: Float[Tensor, "n ..."], targets: Tensor, loss: str, optimizer: str, rate: float, steps: int
) -> list[float]:
    """Return the losses of the linear model, trained as the network is: before each step and after the last."""
    jacobian = torch.cat([*gnlib.GaussNewton(network, x).jacobian()], 1)
    model = LinearModel(network(x).detach(), jacobian)
    how = {"loss": LOSSES[loss], "optimizer": OPTIMIZERS[optimizer], "rate": rate}
    return train(model, x, targets, most=steps, **how).losses
