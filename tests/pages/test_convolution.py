"""The numbers in the text of the lesson "Convolution", and its findings."""

import re
from functools import cache

import numpy as np
import pytest
import torch
from gnbook.convolution.measured import linear_condition
from gnbook.convolution.networks import convolution_weights

from tests.pages.pages import checked_lines, parameters, printed

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
        "images": float(printed("convolution", "limit ")),
        "three": limit(3, 3),
        "two": limit(2, 4),
        "reach": [m * (2 * 9 - m) for m in (1, 8)],
        "most": max(GIVEN["filters"]),
        "even": [evened(1.0), evened(1.5)],
        "factor": 1.5,
    }


def test_strides_leave_fewer_paths():
    for stride in (1, 2, 3):
        line = printed("convolution", f"stride {stride}: paths along an edge ")
        assert line.startswith(str([*paths(2, 3, stride).astype(int)]).replace("np.int64(", "").replace(")", ""))
        shown, last = (float(found) for found in re.search(r"limit (\d+), 256 filters ([\d.]+)", line).groups())
        assert shown == limit(2, 3, stride) < last < 2 * shown


def test_the_peak_is_where_filters_just_reach_each_direction():
    pixels = {stride: torch.eye((2 * stride + 3) ** 2, dtype=torch.float64) for stride in (1, 3)}
    for stride, peak in ((1, 2), (3, 8)):
        side, medians = 2 * stride + 3, {}
        for m in (1, 2, 4, 8, 16, 64):
            draws = [
                convolution_weights([1, m, 1], [(3, 3)] * 2, generator=torch.Generator().manual_seed(seed))
                for seed in range(5)
            ]
            white = pixels[stride].reshape(-1, 1, side, side)
            medians[m] = np.median([linear_condition(weights, white, [stride, 1]) for weights in draws])
        assert max(medians, key=medians.get) == peak
        if stride == 3:
            assert medians[16] > 20 > 2 > limit(2, 3, 3)


def test_filters_and_flattening_save_steps():
    """Four times the filters save more than a third of the steps, flattening half; kappa and T* fall further."""
    pattern = r"(\d+) filters, (\w+) +kappa +([\d,]+), T\* +(\d+), steps +(\d+)"
    lines = filter(None, (re.fullmatch(pattern, line) for line in checked_lines("convolution")))
    found = {(int(m[1]), m[2]): [float(m[i].replace(",", "")) for i in (3, 4, 5)] for m in lines}
    few, many = found[16, "mean"], found[64, "mean"]
    flat, both = found[16, "flatten"], found[64, "flatten"]
    assert many[2] < 2 / 3 * few[2] and flat[2] / few[2] == pytest.approx(1 / 2, abs=0.05)
    assert both[2] < min(flat[2], many[2])
    ratios = [[some[i] / few[i] for i in (0, 1, 2)] for some in (many, flat, both)]
    assert all(of_kappa < of_wait < of_steps for of_kappa, of_wait, of_steps in ratios)
    assert sum(steps < wait for _, wait, steps in found.values()) == 3
