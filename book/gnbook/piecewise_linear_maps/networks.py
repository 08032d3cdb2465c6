"""The small networks of the page on piecewise linear maps, and the Gauss-Newton blocks of their layers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.piecewise_linear_maps import landscape
from gnbook.piecewise_linear_maps.one_layer import layer_factors
from gnbook.shared.piecewise_linear import SkipLayer, as_layers


class Block(NamedTuple):
    """Gauss-Newton block of one layer, with all others fixed."""

    gram: Float[Tensor, "nk nk"]  # the Gram form of the layer's block
    rank: int  # number of eigenvalues that are not zero
    kappa: float  # the largest of them over the smallest
    inputs: float  # the same of the inputs of the layer
    bound: float  # that times the same of the layers after it: an upper bound of kappa
    by_sizes: float  # its value by the sizes of the coordinates of the inputs alone
    smallest: float  # eigenvalue that is not zero


def gaussian(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw standard normal numbers in double precision."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def network(widths: Sequence[int], seed: int, slope: float, bias: float = 1.0, scale: float = 1.0) -> nn.Sequential:
    """Draw Gaussian layers, `scale` and `bias` times as large as standard normal weights and biases."""
    generator = torch.Generator().manual_seed(seed)
    drawn = ((scale * gaussian(generator, m, d), bias * gaussian(generator, m)) for d, m in pairwise(widths))
    return nn.Sequential(*(SkipLayer(weight, bias, slope) for weight, bias in drawn))


def classifier(inputs: int, seed: int, slope: float, *, width: int = 10, output: float = 1.0) -> nn.Sequential:
    """Draw three layers without biases and ten outputs; `output` is the slope of the last layer, 1 if it is linear."""
    net = network([inputs, width, width, 10], seed, slope, bias=0.0, scale=10**-0.5)
    for layer in net:
        layer.bias.requires_grad_(False)
    net[-1].activation.slope = output
    return net


def condition(matrix: Float[Tensor, "rows columns"]) -> float:
    """Return the largest singular value over the smallest that is not zero."""
    s = torch.linalg.svdvals(matrix)
    return (s[0] / s[s > 1e-9 * s[0]][-1]).item()


def blocks(net: nn.Sequential, x: Float[Tensor, "n d"]) -> list[Block]:
    """Return the Gauss-Newton block of each layer of a network, on samples in rows."""
    found = []
    for index in range(len(net)):
        f = layer_factors(as_layers(net), index, x)
        gram = landscape.quadratic_form_gram(f.product, f.z)
        values = torch.linalg.eigvalsh(gram)
        values = values[values > 1e-11 * values[-1]]
        kappa, inputs = (values[-1] / values[0]).item(), condition(f.z) ** 2
        bounds = landscape.landscape_condition(f.product, f.z) ** 2, landscape.riedi_corollary_11(f.product, f.z) ** 2
        found.append(Block(gram, len(values), kappa, inputs, *bounds, values[0].item()))
    return found
