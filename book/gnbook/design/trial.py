"""The trial: gains found once for a family, then trained with other weights and on other images, beside the rest."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np
import scipy
import torch
from jaxtyping import Float
from torch import nn

import gnlib
from gnbook.design.families import HELD_OUT, build
from gnbook.design.initialisations import SEARCHED, UNTUNED, Data, gained, initialised
from gnbook.design.layers import layers_of
from gnbook.results import Cell, Row
from gnbook.shared.families import colour_images
from gnbook.shared.training import one_hot
from gnbook.shared.tuning import Setting, constant_loss, race, tune

SEED = 0  # of the network on which gains are found
DRAWS = 2_000  # of the bootstrap
ADAM = 2.0**-7  # a guess of its rate
HORIZON = 400  # steps
LEAST = 0.1  # of the trainings of a family: where fewer arrive, all initialisations are equal, which says nothing

CHOICE = "forecast"
"""What was chosen for gradient descent, on the four families that are not held out, before the trial."""

ENOUGH = 1.3
"""How many times sooner than the best untuned initialisation, on the families held out, was to count as success."""


def rows_of(
    family: str, here: Data, there: Data, *, seeds: Sequence[int], optimizers: Sequence[str], horizon: int = HORIZON
) -> Iterator[dict[str, Cell]]:
    """Yield a row for each initialisation, seed and optimiser: the steps to a tenth of the best constant's loss.

    Gains are found on the samples `here`, for the network of seed 0, and networks are trained on those `there`.
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


def arriving(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the families in which at least a tenth of the trainings arrive; the others are ties."""
    arrive = defaultdict(list)
    for row in rows:
        arrive[row["family"]].append(row["steps"] is not None)
    return [row for row in rows if np.mean(arrive[row["family"]]) >= LEAST]


def speedups(
    rows: Sequence[Row], name: str, over: str, *, horizon: int = HORIZON, charged: bool = False
) -> tuple[float, float, float]:
    """Return how many times fewer steps one initialisation takes than another, with its interval of 95 %.

    The geometric mean over the seeds of each family, and then over the families. The interval is by bootstrap: families
    are drawn with replacement, and then in each of them its seeds. What does not arrive counts as arriving at the
    horizon. If `charged`, the search counts, in steps of that training. Networks that only one of the two has are left
    out.
    """
    steps = {
        (row["family"], row["seed"], row["initialisation"]): (row["steps"] or horizon)
        + (row["search_seconds"] / row["step_seconds"] if charged else 0)
        for row in rows
        if row["initialisation"] in (name, over)
    }
    found = defaultdict(list)
    for family, number, which in steps:
        if which == name and (family, number, over) in steps:
            found[family].append(np.log(steps[family, number, over] / steps[family, number, name]))
    logarithms = [np.array(values) for values in found.values()]
    shape, generator = (DRAWS, len(logarithms)), np.random.default_rng(0)
    families = generator.integers(len(logarithms), size=shape)
    by_seeds: Float[np.ndarray, "families draws places"] = np.stack(
        [values[generator.integers(len(values), size=(*shape, len(values)))].mean(2) for values in logarithms]
    )
    means = np.take_along_axis(by_seeds, families[None], 0)[0].mean(1)
    value = np.mean([values.mean() for values in logarithms])
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    return float(np.exp(value)), float(low), float(high)


def written_speed(rows: Sequence[Row], name: str, over: str, *, horizon: int = HORIZON, charged: bool = False) -> str:
    """Return a speed as :func:`speedups` has it, with its interval.

    A sign before it says that it is a bound: "≤" where it would be smaller, and "≥" where it would be larger, if what
    does not arrive counted as more steps. (The logarithm is linear in that of the horizon, unless a search is charged.)

    >>> steps = ("a", "x", 5), ("a", "y", 10), ("b", "x", 5), ("b", "y", 40)
    >>> table = [{"family": f, "seed": 1, "initialisation": i, "steps": number} for f, i, number in steps]
    >>> written_speed(table, "x", "y")
    '4.00 [2.00, 8.00]'
    >>> written_speed([*table, {"family": "b", "seed": 1, "initialisation": "y", "steps": None}], "x", "y")
    '≥ 12.65 [2.00, 80.00]'
    """
    value, low, high = speedups(rows, name, over, horizon=horizon, charged=charged)
    more = value if charged else speedups(rows, name, over, horizon=10 * horizon)[0]
    sign = "" if np.isclose(more, value) else "≥ " if more > value else "≤ "
    return f"{sign}{value:.2f} [{low:.2f}, {high:.2f}]"


def sooner(rows: Sequence[Row], name: str, over: str) -> tuple[int, int]:
    """Return on how many networks one initialisation arrives sooner than another, and on how many later.

    This takes no horizon: what does not arrive is later than all that does, and where neither does it is neither.

    >>> steps = ("a", "x", 5), ("a", "y", 10), ("b", "x", None), ("b", "y", 40), ("c", "x", None), ("c", "y", None)
    >>> sooner([{"family": f, "seed": 1, "initialisation": i, "steps": number} for f, i, number in steps], "x", "y")
    (1, 1)
    """
    steps: dict[Cell, dict[tuple[Cell, Cell], float]] = {name: {}, over: {}}
    for row in rows:
        if row["initialisation"] in steps:
            steps[row["initialisation"]][row["family"], row["seed"]] = row["steps"] or np.inf
    pairs = [(steps[name][which], steps[over][which]) for which in steps[name] if which in steps[over]]
    return sum(one < other for one, other in pairs), sum(one > other for one, other in pairs)


def written_steps(rows: Sequence[Row], family: str, name: str) -> str | None:
    """Return the geometric mean of the steps over the seeds, with ">" where some do not arrive; None where none does.

    >>> rows = [{"family": "a", "initialisation": "x", "steps": steps} for steps in (100, None)]
    >>> written_steps(rows, "a", "x"), written_steps(rows[:1], "a", "x"), written_steps(rows[1:], "a", "x")
    ('> 200', '100', None)
    """
    steps = [row["steps"] for row in rows if (row["family"], row["initialisation"]) == (family, name)]
    if not any(steps):
        return None
    mean = np.exp(np.mean(np.log([found or HORIZON for found in steps])))
    return f"{'' if all(steps) else '> '}{mean:.0f}"


def orders(rows: Sequence[Row], column: str) -> dict[str, float]:
    """Return by family how a column orders the initialisations: its rank correlation with the steps, mean over seeds.

    What does not arrive counts as the horizon; networks on which nothing does are left out.
    """
    networks, found = defaultdict(list), defaultdict(list)
    for row in rows:
        networks[row["family"], row["seed"]].append((row["steps"] or HORIZON, row[column]))
    for (family, _), pairs in networks.items():
        steps, values = zip(*pairs, strict=True)
        if len({*steps}) > 1:
            found[family].append(scipy.stats.spearmanr(steps, values).statistic)
    return {family: float(np.mean(correlations)) for family, correlations in found.items()}


def images(count: int, first: int, device: torch.device) -> Data:
    """Return images of CIFAR-10 of 16 x 16 pixels, standardised by channel, from one on, and their targets."""
    x, labels = colour_images(count, first)
    return Data(x.to(device), one_hot(labels, 10).to(device))
