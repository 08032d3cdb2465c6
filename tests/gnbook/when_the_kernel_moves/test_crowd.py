"""Units followed by groups: the same as one by one."""

import pytest
import torch
from gnbook.when_the_kernel_moves import crowd
from gnbook.when_the_kernel_moves.crowd import Crowd

from tests.strategies import gaussian

RUNS, UNITS, SAMPLES, OUTPUTS = 2, 100, 7, 3


@pytest.fixture(autouse=True, params=[2**13, 37])
def chunk(request, monkeypatch):
    monkeypatch.setattr(crowd, "CHUNK", request.param)


def active(units, line):
    """Whether each unit is active on each sample."""
    return units[:, 0, :, None] * line[:, None] + units[:, 1, :, None] > 0


def sums_of(units, line):
    """Second moments by the samples on which units are active."""
    on, (runs, size, _), n = active(units, line), units.shape, line.shape[1]
    sums = torch.zeros(runs, 2 * (n + 1), size, size).double()
    for run in range(runs):
        for unit, samples in zip(units[run].mT, on[run], strict=True):
            falls = int(samples[0] > samples[-1])
            before = samples.sum() if falls else n - samples.sum()
            sums[run, falls * (n + 1) + before] += torch.outer(unit, unit)
    return sums


def moments(crowd):
    """Those of a crowd: a unit that is active on all samples, or on none, counts as one that rises."""
    sums = crowd.moments()
    sums[:, 0] += sums[:, -1]
    sums[:, SAMPLES] += sums[:, SAMPLES + 1]
    sums[:, [-1, SAMPLES + 1]] = 0
    return sums


def stepped(units, line, matrices):
    """Each unit after a step, one by one; `matrices` are (runs, n, 2, k), added by each sample if it is active."""
    slope, value = torch.einsum("rmn,rnak->arkm", active(units, line).double(), matrices)
    w, b, v = units[:, 0], units[:, 1], units[:, 2:]
    return torch.cat(
        [torch.stack([w + (v * slope).sum(1), b + (v * value).sum(1)], 1), v + w[:, None] * slope + b[:, None] * value],
        1,
    )


def moves_of(matrices):
    """The same by groups."""
    zero = torch.zeros_like(matrices[:, :1])
    rising = torch.cat([matrices.flip(1).cumsum(1).flip(1), zero], 1)
    return torch.cat([rising, torch.cat([zero, matrices.cumsum(1)], 1)], 1)


@pytest.mark.parametrize("size", [1e-4, 1e-2, 0.3])
def test_sums_and_units_are_those_of_all_units_one_by_one(size):
    units, line = gaussian(0, RUNS, 2 + OUTPUTS, UNITS), gaussian(1, RUNS, SAMPLES).sort().values
    followed, start = Crowd(units, line), sums_of(units, line)
    for step in range(16):
        matrices = size * gaussian(step, RUNS, SAMPLES, 2, OUTPUTS) / SAMPLES * (1.0 if step < 8 else 0.01)
        followed.step(moves_of(matrices))
        units = stepped(units, line, matrices)
        assert torch.allclose(moments(followed), sums_of(units, line), rtol=1e-10, atol=1e-11)
        if step % 7 == 0:  # to ask in between makes no difference
            assert torch.allclose(followed.units(), units, rtol=1e-10, atol=1e-11)
    assert not torch.allclose(moments(followed), start, rtol=1e-3)
    assert torch.allclose(followed.units(), units, rtol=1e-10, atol=1e-11)
    assert torch.allclose(moments(followed), sums_of(units, line), rtol=1e-10, atol=1e-11)


def test_the_units_given_are_left_alone():
    units, line = gaussian(0, 1, 5, 20), gaussian(1, 1, 4).sort().values
    given, followed = units.clone(), Crowd(units, line)
    followed.step(moves_of(gaussian(2, 1, 4, 2, 3)))
    assert not torch.allclose(followed.units(), given) and torch.equal(units, given)
