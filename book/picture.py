"""The picture of the landing page, which moves, and that of the README, which `python book/picture.py` draws again."""

from pathlib import Path

import numpy as np
import torch
from gnbook import figures
from gnbook.moving import Curve, Moving
from gnbook.shared.training import GradientDescent, one_hot, train
from torch import nn

import gnlib

SHARES = (1, 0.5, 0.25, 0.1, 0)  # of the mean image, that are left in the images
STEPS = 1500
GOAL = 0.05  # squared error


def start(share):
    """Return a network before training, images with a share of their mean, and labels."""
    images, labels = gnlib.load("cifar10", 100, stride=4)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(192, 256), nn.ReLU(), nn.Linear(256, 10)).double()
    return network, images - (1 - share) * images.mean(0), one_hot(labels, 10)


def run(share):
    """Return the condition number at the start, and the losses, of a network on images with a share of their mean."""
    network, x, y = start(share)
    kappa, rate = float(gnlib.condition_number(network, x)), gnlib.GaussNewton(network, x).stable_rate().rate / 2
    return kappa, np.array(train(network, x, y, rate=rate, most=STEPS, optimizer=GradientDescent).losses)


def moving():
    """Return the loss of each run, over that of the first, by its condition number on the slider."""
    step = np.unique(np.geomspace(1, STEPS + 1, 200).astype(int))
    runs = {f"{kappa:,.0f}": losses[step - 1] for kappa, losses in map(run, SHARES)}
    slowest, goal = next(iter(runs)), Curve(step[[0, -1]], np.full(2, GOAL), "goal", ":", "dimgray")
    below = Curve(step, runs[slowest], f"at {slowest}", color="silver")
    frames = {kappa: [below, Curve(step, losses, "loss of the network"), goal] for kappa, losses in runs.items()}
    return Moving(
        frames,
        "condition number",
        "A falling loss on logarithmic axes, and the slowest in grey. The smaller κ, the sooner it is at the goal.",
        xlabel="1 + step of gradient descent",
        ylabel="training loss",
        xscale="log",
        yscale="log",
        xlim=(1, STEPS),
        ylim=(1e-3, 1),
    )


def picture():
    """Draw the two ends of the slider side by side."""
    figure, (axis,) = figures.panels(height=3.4)
    for share, name, color in ((1, "images as they are", figures.COLORS[0]), (0, "less their mean", figures.COLORS[1])):
        kappa, losses = run(share)
        label = f"{name}: condition number {float(f'{kappa:.3g}'):,.0f}"
        axis.loglog(1 + np.arange(STEPS + 1), losses, color=color, label=label)
    axis.axhline(GOAL, color="0.3", linestyle=":", label="goal")
    axis.set(xlabel="1 + step of gradient descent", ylabel="training loss", ylim=(1e-3, 1))
    axis.legend()
    return figure


if __name__ == "__main__":
    picture().savefig(Path(__file__).parent / "_static" / "picture.png", dpi=160)
