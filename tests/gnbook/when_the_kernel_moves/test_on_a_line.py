"""Networks on a line from moments of groups of units: the same as from all units."""

import pytest
import torch
from gnbook.when_the_kernel_moves import crowd
from gnbook.when_the_kernel_moves.networks import shallow
from gnbook.when_the_kernel_moves.on_a_line import shallow_on_a_line, with_one

from tests.strategies import gaussian

SHAPES = [(1, 1, 1), (7, 3, 1), (50, 2, 9), (300, 3, 60)]  # units, outputs, samples


@pytest.fixture(autouse=True, params=[2**13, 37])
def chunk(request, monkeypatch):
    monkeypatch.setattr(crowd, "CHUNK", request.param)


def same(a, b):
    return torch.allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rate", [1e-3, 0.1, 3.0])
def test_outputs_kernels_and_steps_are_those_of_all_units(shape, rate):
    units, outputs, samples = shape
    x = with_one(gaussian(samples, 3, samples, 1))  # of their own for each of three networks
    x[:, -1] = x[:, 0]  # some are equal
    plain, grouped = (build(units, outputs, seeds=[3, 1, 4]) for build in (shallow, shallow_on_a_line))
    assert same(grouped(x[1]), plain(x[1])) and same(grouped.kernel(x[1]), plain.kernel(x[1]))
    assert same(grouped.only([2, 0])(x[[2, 0]]), plain(x)[[2, 0]])
    rates = rate * torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64) / samples
    for step in range(21):  # long ones, and short ones
        assert same(grouped(x), plain(x)) and same(grouped.kernel(x), plain.kernel(x))
        slopes = gaussian(step, 3, samples, outputs) * (1.0 if step < 10 else 0.01)
        for networks in (plain, grouped):
            networks.step(networks.passes(x), slopes, rates)
    assert all(same(w, e) for w, e in zip(grouped.weights, plain.weights, strict=True))
