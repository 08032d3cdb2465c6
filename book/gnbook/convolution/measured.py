"""Condition numbers of many linear convolutional networks on the same images, and those that the public code has."""

from collections.abc import Sequence
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.convolution.gauss_newton import Patches, gauss_newton_of, path_moment, virtual_patches
from gnbook.convolution.networks import Option, as_convolutions, toeplitz
from gnlib.checks import numerical_rank
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


def two_layer_eigenvalues(
    filters: list[Tensor], second_moment: Float[Tensor, "d d"], factor: Float[Tensor, "d d"]
) -> Float[Tensor, " kd"]:
    r"""Return all eigenvalues, in descending order of sizes, that the public code of Zhao 2024 computes for Figure 8.

    They are of :math:`T_1 T_1^\top \otimes \Sigma + I \otimes R\, T_0^\top T_0 R` for two Toeplitz matrices. With
    :math:`R = \Sigma^{1/2}` it is the matrix of Eq. 5, for weights that are not shared; the code writes `S**1/2`, which
    in Python is half of S. An eigenvalue :math:`\lambda` of :math:`T_1 T_1^\top` has the block :math:`\lambda \Sigma +
    R\, T_0^\top T_0 R` to itself, of the size of the data.
    """
    first, second = filters
    pixels = len(second_moment)
    inner, outer = toeplitz(first, pixels), toeplitz(second, pixels - first.shape[-1] + 1)
    middle = inner @ factor
    above = torch.linalg.eigvalsh(outer @ outer.mT)
    found = torch.linalg.eigvalsh(above[:, None, None] * second_moment + middle.mT @ middle).flatten()
    return found[found.abs().argsort(descending=True)]


def pseudo_condition(eigenvalues: Float[Tensor, " kd"]) -> float:
    """Return the largest size over the smallest that a relative threshold counts, as the public code has it."""
    sizes = eigenvalues.abs()
    return (sizes[0] / sizes[numerical_rank(sizes, len(sizes)) - 1]).item()


@cache
def _patches(how: tuple[tuple[tuple[int, ...], int, int], ...], images: Tensor) -> list[Patches]:
    sizes, strides, paddings = zip(*how, strict=True)
    channels = [images.shape[1]] + [1] * len(sizes)
    ones = [torch.ones(1, fan_in, *size).to(images) for fan_in, size in zip(channels[:-1], sizes, strict=True)]
    return virtual_patches(*as_convolutions(ones, images, strides, paddings))
