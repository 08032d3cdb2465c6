"""Experiment of both pages of the chapter: prepared images, networks by name and seed, a row of the sweep."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import torch
from jaxtyping import Float
from torch import Tensor, nn

import gnlib
from gnbook import figures
from gnbook.deep_nonlinear.bound import chain_bound, schur_ends
from gnbook.deep_nonlinear.chain import layers_of, random_chain
from gnbook.deep_nonlinear.networks import limit_kernel, network

COLORS = dict(zip(("ReLU", "leaky ReLU", "GELU", "tanh", "linear"), figures.COLORS, strict=False))
KAIMING = "GELU, gain √2"  # weights of Kaiming's gain, where the other networks keep signals at their size
LESS = "less the mean image, at rms 1"


def prepared(raw: Float[Tensor, "n d"]) -> dict[str, Tensor]:
    """Return images as they are, scaled, standardised, and less their mean image; rms is the root mean square."""
    less = raw - raw.mean(0)
    return {
        "raw": raw,
        "at rms 1": raw / raw.square().mean().sqrt(),
        "standardised": (raw - raw.mean()) / raw.std(),
        LESS: less / less.square().mean().sqrt(),
    }


def widths_of(pixels: int, depth: int, width: int, outputs: int) -> list[int]:
    """Return the numbers of units of a network with `depth` layers of weights, from the input to the output."""
    return [pixels, *[width] * (depth - 1), outputs]


def draw(activation: str, widths: list[int], shape: str = "chain", *, seed: int = 0) -> nn.Sequential:
    """Draw one of :func:`gnbook.deep_nonlinear.networks.network` by its seed, or a chain of `KAIMING`."""
    generator = torch.Generator().manual_seed(seed)
    if activation == KAIMING:
        return random_chain(widths, nn.GELU, gain=2**0.5, generator=generator)
    return network(activation, shape, widths, generator=generator)


def kappa(matrix: Float[Tensor, "n n"]) -> float:
    """Return the largest eigenvalue over the smallest."""
    values = torch.linalg.eigvalsh(matrix)
    return (values[-1] / values[0]).item()


def row_of(
    activation: str, shape: str, widths: list[int], x: Float[Tensor, "n d"], *, seed: int = 0
) -> dict[str, str | int | float]:
    """Return a row of the sweep: the condition number of a network, its bounds, and that of infinite width."""
    net = draw(activation, widths, shape, seed=seed).to(x.device)
    layers = layers_of(net, x)
    found = chain_bound(layers).ends.condition
    about = {"activation": activation, "shape": shape, "depth": len(widths) - 1, "n": len(x), "k": widths[-1]}
    about |= {"width": widths[1], "seed": seed, "kappa": float(gnlib.condition_number(net, x))}  # not from its layers
    about |= {"sharper": found.upper, "from_below": found.lower, "plain": schur_ends(layers).condition.upper}
    return about | {"limit": kappa(limit_kernel(activation, shape, widths, x))}


def of_table(rows: list[Mapping[str, object]], data: str, activation: str, shape: str = "chain") -> dict[int, Mapping]:
    """Return the rows of one network on one kind of images by their depths, the smallest first."""
    own = [row for row in rows if (row["data"], row["activation"], row["shape"]) == (data, activation, shape)]
    return {row["depth"]: row for row in sorted(own, key=lambda row: row["depth"])}


def legend_below(figure: plt.Figure, axis: plt.Axes, columns: int) -> None:
    """Put the legend of one axis under the figure."""
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
