"""Trial of two rules of the guide: forecasts for Adam, and the check of thirty steps."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import gnlib
from gnbook.results import Cell, Row
from gnbook.shared.networks import Fill
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
    perceptron,
)
from gnbook.your_own_network.trainings import MOST, remedies

SIDE = 16
GOAL, FEW, MANY = 0.3, 20, 256
STEPS, EARLY = 300, 30
ADAMS_RATE = 1e-3
OPTIMIZERS = {"descent": torch.optim.SGD, "adam": torch.optim.Adam}


def tiny(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Fill a weight tensor with normal numbers of deviation 0.02."""
    return nn.init.normal_(weight, std=0.02, generator=generator)


FAULTS: dict[str, tuple[str, Fill | None]] = {
    "none": ("standardised", None),
    "images from 0 to 1": ("raw", None),
    "images from 0 to 255": ("pixels", None),
    "weights of 0.02": ("standardised", tiny),
}
"""Inputs and initialisation of a network, by the name of its fault."""


def makers(seed: int) -> dict[str, Callable[[], nn.Module]]:
    """Return the constructors of the five networks."""
    return {
        "perceptron": partial(perceptron, 2, 128, SIDE, seed),
        "perceptron, six hidden layers": partial(perceptron, 6, 64, SIDE, seed),
        "CNN": cnn,
        "CNN, GroupNorm": partial(cnn, group_norm),
        "transformer": partial(Transformer, side=SIDE),
    }


def prepared(raw: Float[Tensor, "n 3 side side"]) -> dict[str, Float[Tensor, "n 3 side side"]]:
    """Return images as they are, standardised channel by channel, and as numbers from 0 to 255."""
    mean, deviation = (f((0, 2, 3), keepdim=True) for f in (raw.mean, raw.std))
    return {"raw": raw, "standardised": (raw - mean) / deviation, "pixels": 255 * raw}


def rows_of_remedies(
    raw: Float[Tensor, "n 3 side side"], labels: Int[Tensor, " n"], seeds: Sequence[int]
) -> Iterator[dict[str, Cell]]:
    """Yield a row for each seed, network, fault and change: Adam's steps, and their forecast."""
    inputs = {name: x[:MANY].float() for name, x in prepared(raw).items()}
    for seed in seeds:
        for name, make in makers(seed).items():
            for fault, (seen, draw) in FAULTS.items():
                network = initialised(make, draw, seed).eval()
                for one in remedies(network, inputs[seen], labels[:MANY], GOAL, FEW):
                    yield {
                        "trial": "remedies",
                        "seed": seed,
                        "network": name,
                        "fault": fault,
                        "change": one.what,
                        "before": one.before if one.before < MOST else None,
                        "after": one.after if one.after < MOST else None,
                        "of_adam": one.of_adam,
                        "of_descent": one.of_descent,
                    }


def rows_of_checks(
    raw: Float[Tensor, "n 3 side side"], labels: Int[Tensor, " n"], seeds: Sequence[int]
) -> Iterator[dict[str, Cell]]:
    """Yield a row for each seed, loss, optimiser and network: the check of thirty steps, and where the training ended.

    The networks are those of the eleven trainings of the guide. Gradient descent has a quarter of the largest stable
    rate, Adam 0.001. `early` is the largest eigenvalue after thirty steps over that at the start.
    """
    x, y = prepared(raw)["standardised"][:FEW].double(), labels[:FEW]
    for seed in seeds:
        kinds = {name: make for name, make in makers(seed).items() if "perceptron" not in name}
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


def sooner(row: Row) -> float:
    """Return how many times fewer steps a change of the trial takes, where what does not arrive has a thousand."""
    return (row["before"] or MOST) / (row["after"] or MOST)


def first_tries(rows: Sequence[Row]) -> list[Row]:
    """Return of each network of the trial the change with the largest factor foretold for Adam.

    `sooner` is added, how many times fewer steps the change takes: at least so many if `before` is None.
    """
    firsts: dict[tuple[Cell, ...], Row] = {}
    for row in rows:
        patient = tuple(row[column] for column in ("seed", "network", "fault"))
        if row["of_adam"] and (patient not in firsts or row["of_adam"] > firsts[patient]["of_adam"]):
            firsts[patient] = row | {"sooner": sooner(row)}
    return [*firsts.values()]
