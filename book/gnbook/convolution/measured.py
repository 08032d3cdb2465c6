"""Condition numbers of many linear convolutional networks on the same images."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from gnbook.convolution.gauss_newton import Patches, gauss_newton_of, path_moment, virtual_patches
from gnbook.convolution.networks import Option, as_convolutions
from gnlib.condition import condition_number


def linear_condition(weights: Sequence[Tensor], images: Tensor, stride: Option = 1, padding: Option = 0) -> float:
    """Return the condition number of a network; networks of these sizes share what stands for the patches."""
    layers, _ = as_convolutions(weights, images, stride, padding)
    how = tuple((layer.filter_size, layer.stride, layer.padding) for layer in layers)
    return float(condition_number(gauss_newton_of(layers, _patches(how, images))))


def limit(weights: Sequence[Tensor], images: Tensor, stride: Option = 1, padding: Option = 0) -> float:
    """Return what the condition number of networks of these sizes tends to with many filters."""
    return float(condition_number(path_moment(weights, images, stride, padding)))


def most_paths(layers: int, kernel: int) -> tuple[int, int]:
    """Return the side of the window on squares, of kernels of one size with stride 1, and the paths from its middle."""
    paths = torch.ones(1, dtype=torch.float64)
    for _ in range(layers):
        paths = torch.stack([torch.nn.functional.pad(paths, (t, kernel - 1 - t)) for t in range(kernel)]).sum(0)
    return len(paths), int(paths.max().item() ** 2)


@cache
def _patches(how: tuple[tuple[tuple[int, ...], int, int], ...], images: Tensor) -> list[Patches]:
    sizes, strides, paddings = zip(*how, strict=True)
    channels = [images.shape[1]] + [1] * len(sizes)
    ones = [torch.ones(1, fan_in, *size).to(images) for fan_in, size in zip(channels[:-1], sizes, strict=True)]
    return virtual_patches(*as_convolutions(ones, images, strides, paddings))
