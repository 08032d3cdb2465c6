"""The numbers in the text of the lesson "Convolution", and its findings."""

from functools import cache

import numpy as np
import pytest
import torch
from gnbook.convolution.measured import linear_condition
from gnbook.convolution.networks import convolution_weights

from tests.pages.pages import parameters, rows

GIVEN = parameters("convolution")


def paths(layers, kernel, stride=1):
    """How many paths lead from each place along one axis, with a stride in the first layer."""
    counts = np.ones(1)
    for _ in range(layers - 1):
        counts = np.convolve(counts, np.ones(kernel))
    spread = np.zeros(stride * (len(counts) - 1) + 1)
    spread[::stride] = counts
    return np.convolve(spread, np.ones(kernel))


def limit(*shape):
    return (max(paths(*shape)) / min(paths(*shape))) ** 2


@cache
def evened(factor):
    """Median condition number of the networks of exercise 3, by the library of the book: 128 filters, white pixels."""
    p = torch.tensor([factor, 1, factor], dtype=torch.float64)
    pixels = 5 * torch.eye(25, dtype=torch.float64).reshape(25, 1, 5, 5)
    found = []
    for seed in range(GIVEN["seeds"]):
        both = convolution_weights([1, 128, 1], [(3, 3)] * 2, generator=torch.Generator().manual_seed(seed))
        found.append(linear_condition([w * torch.outer(p, p) for w in both], pixels))
    return np.median(found)


def values():
    return {
        "limits": [limit(2, kernel) for kernel in GIVEN["kernels"]],
        "one": 2 * 3**2,
        "window": len(paths(2, 3)) ** 2,
        "apart": len(paths(2, 3, 3)) ** 2,
        "late": 16,
        "images": rows("convolution", "limit")[0][0],
        "three": limit(3, 3),
        "two": limit(2, 4),
        "reach": [m * (2 * 9 - m) for m in (1, 8)],
        "most": max(GIVEN["filters"]),
        "even": [evened(1.0), evened(1.5)],
        "factor": 1.5,
    }


def test_strides_leave_fewer_paths():
    for stride in (1, 2, 3):
        ((*shown, of_many, filters, last),) = rows("convolution", f"stride {stride}: paths along an edge")
        assert shown == [*paths(2, 3, stride)] and filters == 256
        assert of_many == limit(2, 3, stride) < last < 2 * of_many


def test_filters_and_flattening_save_steps():
    """Four times the filters save more than a third of the steps, flattening half; kappa and T* fall further."""
    few, flat, many, both = rows("convolution", r"\d+ filters, (?:mean|flatten)")
    assert many[2] < 2 / 3 * few[2] and flat[2] / few[2] == pytest.approx(1 / 2, abs=0.05)
    assert both[2] < min(flat[2], many[2])
    ratios = [[some[i] / few[i] for i in (0, 1, 2)] for some in (many, flat, both)]
    assert all(of_kappa < of_wait < of_steps for of_kappa, of_wait, of_steps in ratios)
    assert [steps < wait for _, wait, steps in (few, flat, many, both)] == [True, True, True, False]
