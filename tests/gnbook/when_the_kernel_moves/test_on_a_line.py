"""Networks on a line from moments of groups of units: the same as from all units."""

import pytest
import torch
from gnbook.when_the_kernel_moves import crowd
from gnbook.when_the_kernel_moves.clusters import with_one
from gnbook.when_the_kernel_moves.networks import shallow
from gnbook.when_the_kernel_moves.on_a_line import shallow_on_a_line

from tests.strategies import gaussian

SHAPES = [(1, 1, 1), (7, 3, 1), (50, 2, 9), (300, 3, 60)]  # units, outputs, samples
SEEDS = [3, 1, 4]


@pytest.fixture(autouse=True, params=[2**13, 37])
def chunk(request, monkeypatch):
    monkeypatch.setattr(crowd, "CHUNK", request.param)


def both(units, outputs, samples):
    """The same networks twice, and samples of their own for each; some are equal."""
    x = with_one(gaussian(samples, 3, samples, 1))
    x[:, -1] = x[:, 0]
    return shallow(units, outputs, seeds=SEEDS), shallow_on_a_line(units, outputs, seeds=SEEDS), x


def same(a, b):
    return torch.allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_kernels_are_those_of_all_units(shape):
    plain, grouped, x = both(*shape)
    assert same(grouped(x), plain(x)) and same(grouped.kernel(x), plain.kernel(x))
    assert same(grouped(x[1]), plain(x[1])) and same(grouped.kernel(x[1]), plain.kernel(x[1]))
    assert same(grouped.only([2, 0])(x[[2, 0]]), plain(x)[[2, 0]])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rate", [1e-3, 0.1, 3.0])
def test_steps_are_those_of_all_units(shape, rate):
    plain, grouped, x = both(*shape)
    rates = rate * torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64) / shape[2]
    for step in range(20):  # long ones, and short ones
        slopes = gaussian(step, 3, shape[2], shape[1]) * (1.0 if step < 10 else 0.01)
        for networks in (plain, grouped):
            networks.step(networks.passes(x), slopes, rates)
        assert same(grouped(x), plain(x)) and same(grouped.kernel(x), plain.kernel(x))
    assert all(same(w, e) for w, e in zip(grouped.weights, plain.weights, strict=True))
