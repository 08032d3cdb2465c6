"""Whole training sets in their original order, where figures depend on it.

:func:`gnlib.load` serves images in a class-balanced order and as they are. The public code of Zhao 2024 takes the first
ones in the original order, and its images of CIFAR-10 are without the mean image of the training set.
"""

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from gnlib.data import LUMA, training_set

AT_ONCE = 5000  # images in double precision


def first_images(
    name: str, n: int, *, stride: int = 1, grayscale: bool = False, centred: bool = False
) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Return the first images of a training set in its original order, which is not class-balanced.

    Images, in rows of bytes / 255, and labels; centred ones are without the mean of all images of the training set,
    which is to be fetched before by `python -m gnlib.data fetch`.
    """
    images, labels = training_set(name)
    x = _pixels(images[:n], stride, grayscale)
    if centred:
        x = x - _pixels(images.mean(0, keepdims=True), stride, grayscale)
    return x, torch.from_numpy(labels[:n].astype(np.int64))


def second_moment_of_all(name: str, *, centred: bool = False) -> Float[Tensor, "d d"]:
    """Return the second moment of all images of a training set, with or without their mean image.

    The images are summed over some thousands at a time, so that CIFAR-10 needs no gigabyte of double precision.
    """
    images, _ = training_set(name)
    d = images[0].size
    total, mean = torch.zeros(d, d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    for start in range(0, len(images), AT_ONCE):
        x = _pixels(images[start : start + AT_ONCE], 1, False)
        total += x.mT @ x / len(images)
        mean += x.sum(0) / len(images)
    return total - torch.outer(mean, mean) if centred else total


def _pixels(images: UInt8[np.ndarray, "n c h w"] | Float[np.ndarray, "n c h w"], stride: int, gray: bool) -> Tensor:
    x = torch.from_numpy(images[:, :, ::stride, ::stride].astype(np.float64)) / 255
    return (torch.einsum("c,nchw->nhw", torch.tensor(LUMA, dtype=x.dtype), x) if gray else x).flatten(1)
