"""The trial: gains found once for a family, then trained with other weights and on other images, beside the rest."""

from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

import gnlib
from gnlib.chapters.design.families import HELD_OUT, build
from gnlib.chapters.design.initialisations import SEARCHED, UNTUNED, Data, gained, initialised
from gnlib.chapters.design.layers import layers_of
from gnlib.chapters.results import Cell, Row
from gnlib.chapters.shared.tuning import Setting, constant_loss, race, tune

SEED = 0  # of the network on which gains are found
DRAWS = 2_000  # of the bootstrap
ADAM = 2.0**-7  # a guess of its rate
HORIZON = 400  # steps

CHOICE = "forecast"
"""What was chosen for gradient descent, on the four families that are not held out, before the trial."""

ENOUGH = 1.3
"""How many times sooner than the best untuned initialisation, on the families held out, was to count as success."""


def rows_of(
    family: str, here: Data, there: Data, *, seeds: Sequence[int], optimizers: Sequence[str], horizon: int = HORIZON
) -> Iterator[dict[str, Cell]]:
    """Yield a row for each initialisation, seed and optimiser: the steps to a tenth of the best constant's loss.

    Parameters
    ----------
    family
        of the networks
    here, there
        samples on which gains are found, and others, on which is trained
    seeds
        of the networks that are trained; gains are found on that of seed 0
    optimizers
        `"descent"`, `"adam"`
    horizon
        steps after which a training ends
    """
    start = initialised(build(family, seed=SEED).to(here.x.device), "Kaiming", here, seed=SEED)
    layers_of(start, here.x)  # what is loaded at its first call is not charged
    begun, found = perf_counter(), {}
    for name, find in SEARCHED.items():
        gains = find(start, here)
        found[name] = gains, perf_counter() - begun
        begun = perf_counter()
    goals = {"tenth": constant_loss(there.y, "mse") / 10}
    for seed in seeds:
        network = build(family, seed=seed).to(there.x.device)
        networks = {name: initialised(network, name, there, seed=seed) for name in UNTUNED}
        networks |= {name: gained(network, gains, seed=seed) for name, (gains, _) in found.items()}
        for name, module in networks.items():
            condition = gnlib.condition_number(module, there.x, mode="train")
            gains, seconds = found.get(name, (None, 0.0))
            for optimizer in optimizers:
                setting = Setting(there.x, there.y, "mse", optimizer, goals, horizon)
                outcome = tune(module, setting, 2 / condition.largest if optimizer == "descent" else ADAM)
                steps, rate = outcome.best("tenth")
                yield {
                    "family": family,
                    "held_out": family in HELD_OUT,
                    "initialisation": name,
                    "seed": seed,
                    "optimizer": optimizer,
                    "kappa": condition.value,
                    "initial_loss": outcome.curves[rate][0],
                    "gains": None if gains is None else " ".join(f"{gain:.4g}" for gain in gains.tolist()),
                    "steps": steps if steps < np.inf else None,
                    "rate": rate if steps < np.inf else None,
                    "search_seconds": seconds,
                    "step_seconds": seconds_of_a_step(module, setting, rate),
                }


def seconds_of_a_step(network: nn.Module, setting: Setting, rate: float, steps: int = 10) -> float:
    """Return the seconds that a step of training takes, the fastest of three times so many."""
    short = Setting(setting.x, setting.y, setting.loss, setting.optimizer, {"never": 0.0}, steps)
    times = []
    for _ in range(3):
        begun = perf_counter()
        race(network, short, [rate])
        times.append(perf_counter() - begun)
    return min(times) / steps


def speedups(
    rows: Sequence[Row], name: str, over: str, *, horizon: int = HORIZON, charged: bool = False, seed: int = 0
) -> tuple[float, float, float]:
    """Return how many times fewer steps one initialisation takes than another, with its interval of 95 %.

    The geometric mean over the networks that both have; families are drawn with replacement, and in each of them its
    seeds. What does not arrive counts as arriving at the horizon.

    Parameters
    ----------
    rows
        as :func:`rows_of` yields them, for one optimiser
    name, over
        initialisations
    horizon
        of the trainings
    charged
        whether the search is charged, in steps of that training
    seed
        of the bootstrap

    Examples
    --------
    >>> pairs = ("x", 5), ("y", 10)
    >>> table = [{"family": f, "seed": 1, "initialisation": i, "steps": steps} for f in "ab" for i, steps in pairs]
    >>> [round(number, 6) for number in speedups(table, "x", "y")]
    [2.0, 2.0, 2.0]
    """
    steps = {
        (row["family"], row["seed"], row["initialisation"]): (row["steps"] or horizon)
        + (row["search_seconds"] / row["step_seconds"] if charged else 0)
        for row in rows
        if row["initialisation"] in (name, over)
    }
    logarithms: dict[str, list[float]] = {}
    for family, number, which in steps:
        if which == name:
            ratio = steps[family, number, over] / steps[family, number, name]
            logarithms.setdefault(family, []).append(np.log(ratio))
    table: Float[np.ndarray, "families seeds"] = np.array([*logarithms.values()])
    generator, found = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        some = table[generator.integers(len(table), size=len(table))]
        columns = generator.integers(table.shape[1], size=some.shape)
        found.append(np.take_along_axis(some, columns, 1).mean())
    low, high = np.quantile(found, [0.025, 0.975])
    return float(np.exp(table.mean())), float(np.exp(low)), float(np.exp(high))


def images(count: int, first: int, device: torch.device) -> Data:
    """Return images of CIFAR-10 of 16 x 16 pixels, standardised by channel, from one on, and their targets.

    Examples
    --------
    >>> x, y = images(3, 10, torch.device("cpu"))
    >>> x.shape, y.shape, round(x.std().item(), 2)
    (torch.Size([3, 3, 16, 16]), torch.Size([3, 10]), 1.0)
    """
    x, labels = (part[first:] for part in gnlib.load("cifar10", first + count, stride=2))
    x = x.view(count, 3, 16, 16)
    mean, deviation = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    targets: Tensor = nn.functional.one_hot(labels, 10).double()
    return Data(((x - mean) / deviation).to(device), targets.to(device))
