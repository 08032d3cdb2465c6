"""The picture of the landing page, and of the README: `python book/picture.py` draws it again."""

from pathlib import Path

import numpy as np
import torch

import gnlib
from gnlib import bounds
from gnlib.chapters import figures

DEPTHS = (2, 3, 4, 6, 8, 10, 12)
WIDTHS = (150, 300, 600)


def picture():
    """Draw condition number and bound against depth for three widths, on whitened MNIST at half resolution."""
    x, _ = gnlib.load("mnist", stride=2)
    moment = gnlib.SecondMoment.from_data(gnlib.whiten(x))
    figure, (axis,) = figures.panels(height=3.6)
    for width, color in zip(WIDTHS, figures.COLORS, strict=False):
        kappas, limits = np.empty((3, len(DEPTHS))), np.empty((3, len(DEPTHS)))
        for seed in range(3):
            for j, depth in enumerate(DEPTHS):
                generator = torch.Generator().manual_seed(seed)
                weights = gnlib.linear_weights([196] + [width] * (depth - 1) + [10], generator=generator)
                operator = gnlib.linear_gauss_newton(weights, moment)
                kappas[seed, j] = gnlib.condition_number(operator)
                limits[seed, j] = bounds.sharp_linear(weights, moment)
        figures.band(axis, DEPTHS, kappas, f"width {width}", color)
        axis.plot(DEPTHS, limits.mean(0), ":", color=color)
    axis.plot([], [], ":", color="0.3", label="upper bound")
    axis.set(xlabel="depth (weight matrices)", ylabel="condition number", xscale="log", yscale="log")
    axis.set_xticks(DEPTHS, DEPTHS)
    axis.minorticks_off()
    axis.legend()
    return figure


if __name__ == "__main__":
    picture().savefig(Path(__file__).parent / "_static" / "picture.png", dpi=160)
