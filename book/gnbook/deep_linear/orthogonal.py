"""Networks of ReLUs with orthogonal weights and with random ones: their condition number, and steps at tuned rates."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

import gnlib
from gnbook.results import Cell
from gnbook.shared.networks import FullyConnected
from gnbook.shared.tuning import Setting, constant_loss, tune

WEIGHTS = ("default", "Kaiming", "orthogonal")
GUESSES = {"descent": 0.1, "adam": 0.001}  # of a good learning rate
SHARES = {"tenth": 0.1, "hundredth": 0.01}  # of the least loss of outputs that are the same for all images


def weights(kind: str, depth: int, width: int, inputs: int, *, seed: int) -> list[Tensor]:
    """Draw a network of ten outputs with ReLUs, of so many weight matrices.

    `"Kaiming"` has normal weights with which layers with ReLUs keep squared lengths on average; `"orthogonal"` the same
    with equal singular values in each layer; `"default"` is as `nn.Linear` draws, with a sixth of that variance.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = gnlib.linear_weights([inputs, *[width] * (depth - 1), 10], generator=generator)
    if kind == "default":
        return [nn.init.kaiming_uniform_(weight, a=5**0.5, generator=generator) for weight in drawn]
    if kind == "orthogonal":
        drawn = [nn.init.orthogonal_(weight, generator=generator) for weight in drawn]
    return [*(2**0.5 * weight for weight in drawn[:-1]), drawn[-1]]


def trainings(
    seed: int,
    depth: int,
    kinds: Sequence[str] = WEIGHTS,
    *,
    width: int = 200,
    n: int = 500,
    stride: int = 2,
    few: int = 40,
    horizon: int = 300,
) -> Iterator[dict[str, Cell]]:
    """Yield κ at the start, and the fewest steps of all rates to a tenth and a hundredth of the loss of guessing.

    The images are of MNIST, standardised; κ is computed on a `few` of them.
    """
    x, labels = gnlib.load("mnist", n, stride=stride)
    x = (x - x.mean()) / x.std()
    guessing = constant_loss(labels, "cross_entropy")
    goals = {name: share * guessing for name, share in SHARES.items()}
    for kind in kinds:
        drawn = weights(kind, depth, width, x.shape[1], seed=seed)
        kappa = float(gnlib.condition_number(FullyConnected(drawn, relu=True, dtype=torch.float64), x[:few]))
        for optimizer, guess in GUESSES.items():
            outcome = tune(
                FullyConnected(drawn, relu=True),
                Setting(x=x, y=labels, loss="cross_entropy", optimizer=optimizer, goals=goals, horizon=horizon),
                guess,
            )
            found = {name: outcome.best(name)[0] for name in goals}
            steps = {name: int(at) if np.isfinite(at) else None for name, at in found.items()}
            yield {"weights": kind, "depth": depth, "seed": seed, "kappa": kappa, "optimizer": optimizer} | steps
