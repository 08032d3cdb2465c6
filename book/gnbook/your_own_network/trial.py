"""A trial of two rules of the guide: what is foretold for Adam, and the check of thirty steps."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn

import gnlib
from gnbook.results import Cell, Row
from gnbook.shared.training import one_hot
from gnbook.shared.tuning import LOSSES
from gnbook.your_own_network.networks import (
    INITIALISATIONS,
    OUTPUTS,
    Initialisation,
    Transformer,
    cnn,
    group_norm,
    initialised,
    perceptron,
)
from gnbook.your_own_network.trainings import MOST, remedies

SIDE = 16
GOAL, FEW, MANY = 0.3, 20, 256
STEPS, EARLY = 300, 30
ADAMS_RATE = 1e-3
WAYS = "torch default", "Kaiming normal", "orthogonal", "Kaiming / 4"


def tiny(weight: Tensor) -> object:
    """Draw weights with a deviation of 0.02."""
    return nn.init.normal_(weight, std=0.02)


FAULTS: dict[str, tuple[str, Initialisation | None]] = {
    "none": ("standardised", None),
    "images from 0 to 1": ("raw", None),
    "images from 0 to 255": ("pixels", None),
    "weights of 0.02": ("standardised", tiny),
}
"""What is wrong with a network: the inputs that it sees, and how its weights are drawn."""


def makers(seed: int) -> dict[str, Callable[[], nn.Module]]:
    """Return what builds each of the five networks."""
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
    """Yield a row for each seed, network, fault and change that a report tries: what Adam gains, and what is foretold.

    Steps are `None` if no rate arrives within a thousand.
    """
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
                    for way in WAYS[:3] if name == "transformer" else WAYS:
                        network = initialised(make, INITIALISATIONS[way], seed).eval()
                        found = checked(network, x, y, loss, optimizer)
                        what = {"seed": seed, "network": name, "weights": way, "loss": loss, "optimizer": optimizer}
                        yield {"trial": "thirty steps"} | what | found


def checked(
    network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], loss: str, optimizer: str, steps: int = STEPS
) -> dict[str, Cell]:
    """Train a network in place, beside its linear model; return what the check says, and both losses at the end."""
    network.double()
    start = gnlib.condition_number(network, x).largest
    targets = one_hot(y, OUTPUTS) if loss == "mse" else y
    stable = gnlib.GaussNewton(network, x, targets, loss).stable_rate().rate
    rate = stable / 4 if optimizer == "descent" else ADAMS_RATE
    modelled = linear_losses(network, x, targets, loss, optimizer, rate, steps)
    network.float()
    kind = torch.optim.SGD if optimizer == "descent" else torch.optim.Adam
    moving, measured, early = kind(network.parameters(), rate), [], math.nan
    aims = targets.float() if loss == "mse" else y
    for step in range(steps + 1):
        if step == EARLY and all(q.isfinite().all() for q in network.parameters()):
            early = gnlib.condition_number(network, x).largest / start
            network.float()
        value = LOSSES[loss](network(x.float()), aims)
        measured.append(value.item())
        moving.zero_grad()
        value.backward()
        moving.step()
    ratio = measured[-1] / modelled[-1]
    return {
        "rate": rate,
        "early": None if math.isnan(early) else early,
        "off": ratio if math.isfinite(ratio) else None,
        "left": measured[-1] / measured[0] if math.isfinite(ratio) else None,
        "off_early": measured[EARLY] / modelled[EARLY] if math.isfinite(measured[EARLY]) else None,
    }


def linear_losses(
    network: nn.Module,
    x: Float[Tensor, "n ..."],
    targets: Tensor,
    loss: str,
    optimizer: str,
    rate: float,
    steps: int,
) -> Float64[np.ndarray, " steps"]:
    """Return the losses of the linear model, trained as the network is: before each step and after the last."""
    parameters = {name: q.detach() for name, q in network.named_parameters()}

    def outputs(values: dict[str, Tensor]) -> Tensor:
        found: Tensor = torch.func.functional_call(network, values, (x,))
        return found

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        first, blocks = outputs(parameters).detach(), torch.func.jacrev(outputs)(parameters)
    jacobian = torch.cat([blocks[name].flatten(2) for name in parameters], 2).flatten(0, 1)
    moved = torch.zeros(jacobian.shape[1], dtype=torch.float64, requires_grad=True)
    kind = torch.optim.SGD if optimizer == "descent" else torch.optim.Adam
    moving, losses = kind([moved], rate), []
    for _ in range(steps + 1):
        value = LOSSES[loss](first + (jacobian @ moved).view_as(first), targets)
        losses.append(value.item())
        moving.zero_grad()
        value.backward()
        moving.step()
    return np.array(losses)


def sooner(row: Row) -> float:
    """Return how many times fewer steps a change of the trial takes, where what does not arrive has a thousand."""
    return (row["before"] or MOST) / (row["after"] or MOST)


def first_tries(rows: Sequence[Row]) -> list[Row]:
    """Return the first suggestion for Adam of each network of the trial: that with the largest factor foretold.

    `sooner` is added, how many times fewer steps the change takes: at least so many if `before` is None.
    """
    firsts: dict[tuple[Cell, ...], Row] = {}
    for row in rows:
        patient = tuple(row[column] for column in ("seed", "network", "fault"))
        if row["of_adam"] and (patient not in firsts or row["of_adam"] > firsts[patient]["of_adam"]):
            firsts[patient] = row | {"sooner": sooner(row)}
    return [*firsts.values()]
