"""The beginnings in mini-batches, with either loss, and how well what they train does on images it has not seen."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

import gnlib
from gnbook.design.families import build
from gnbook.design.initialisations import SEARCHED, UNTUNED, Data, gained, initialised
from gnbook.design.trial import ADAM, CHOICE, SEED
from gnbook.results import Cell
from gnbook.shared.training import train
from gnbook.shared.tuning import LOSSES, Setting, constant_loss, tune

BATCH = 50  # images of a step, and of what tells where to look for a rate
HORIZON = 1_000  # steps
OPTIMIZERS = {"descent": torch.optim.SGD, "adam": torch.optim.Adam}


def rows_in_batches(
    family: str,
    here: Data,
    there: Data,
    test: Data,
    *,
    seeds: Sequence[int],
    optimizers: Sequence[str],
    losses: Sequence[str],
    horizon: int = HORIZON,
) -> Iterator[dict[str, Cell]]:
    """Yield a row for each beginning, seed, loss and optimiser: the steps to half the best constant's loss.

    The beginnings are those that nobody searches for, and the gains that were chosen for the trial. Gains are found on
    the first samples, networks are trained on the second, and the share of right answers is counted on the third, at
    the step that reaches the goal.
    """
    start = initialised(build(family, seed=SEED).to(here.x.device), "Kaiming", here, seed=SEED)
    gains = SEARCHED[CHOICE](start, here)
    for seed in seeds:
        network = build(family, seed=seed).to(there.x.device)
        beginnings = {name: initialised(network, name, there, seed=seed) for name in UNTUNED}
        beginnings[CHOICE] = gained(network, gains, seed=seed)
        for name, module in beginnings.items():
            largest = gnlib.condition_number(module, there.x[:BATCH], mode="train").largest
            for loss in losses:
                y = there.y if loss == "mse" else there.y.argmax(1)
                goals = {"half": constant_loss(y, loss) / 2}
                for optimizer in optimizers:
                    setting = Setting(there.x, y, loss, optimizer, goals, horizon, BATCH, seed)
                    outcome = tune(module, setting, 2 / largest if optimizer == "descent" else ADAM)
                    steps, rate = outcome.best("half")
                    arrives = steps < np.inf
                    yield {
                        "family": family,
                        "initialisation": name,
                        "seed": seed,
                        "loss": loss,
                        "optimizer": optimizer,
                        "initial_loss": outcome.curves[rate][0],
                        "steps": steps if arrives else None,
                        "rate": rate if arrives else None,
                        "accuracy": accuracy(trained(module, setting, rate, int(steps)), test) if arrives else None,
                    }


def trained(network: nn.Module, setting: Setting, rate: float, steps: int) -> nn.Module:
    """Return a copy of a network after the whole epochs within so many steps, trained in batches as `tune` does it."""
    y, size = setting.y.float() if setting.y.is_floating_point() else setting.y, setting.batch_size or len(setting.x)
    how = {"loss": LOSSES[setting.loss], "optimizer": OPTIMIZERS[setting.optimizer], "seed": setting.seed}
    return train(network, setting.x.float(), y, rate=rate, most=steps, batch_size=size, **how).module


@torch.no_grad()
def accuracy(network: nn.Module, data: Data) -> float:
    """Return the share of samples whose largest output is that of their class."""
    dtype = next((p.dtype for p in network.parameters()), data.x.dtype)
    return (network(data.x.to(dtype)).argmax(1) == data.y.argmax(1)).double().mean().item()
