"""The search for gains."""

import copy
import itertools

import pytest
import torch
from gnbook.design.layers import layers_of
from gnbook.design.objectives import log_condition
from gnbook.design.search import MOST, search, with_gains

from tests.gnbook.design.helpers import chain, condition, kernel
from tests.strategies import exact, gaussian

X = gaussian(1, 4, 6)


def test_no_gains_on_a_grid_are_better():
    network = chain([6, 12, 9, 2], seed=3)
    layers = layers_of(network, X)
    found = search(lambda z: log_condition(layers.kernel(z)), 3)
    steps = torch.linspace(-1.5, 1.5, 9, dtype=torch.float64)
    grid = [log_condition(layers.kernel(exact([a, b, 0]))).item() for a, b in itertools.product(steps, steps)]
    assert found.end <= min(grid) + 1e-6 and found.end < found.start - 0.1
    better = with_gains(copy.deepcopy(network), found.gains)
    assert condition(kernel(better, X)) < 0.9 * condition(kernel(network, X))


@pytest.mark.parametrize("degrees", [exact([1.0, 1.0]), exact([0.0, 1.0])])
def test_the_product_is_held(degrees):
    aim = exact([0.6, 0.5])
    found = search(lambda z: (z - aim).square().sum(), 2, degrees=degrees)
    assert (degrees @ found.gains.log()).item() == pytest.approx(0, abs=1e-12)
    expected = aim - degrees * (degrees @ aim) / degrees.square().sum()
    torch.testing.assert_close(found.gains.log(), expected, rtol=1e-4, atol=1e-4)


def test_gains_stay_between_a_tenth_and_ten():
    found = search(lambda z: -z.sum(), 2)
    assert found.gains.tolist() == pytest.approx([10.0, 10.0]) and found.end == pytest.approx(-2 * MOST)


@pytest.mark.bad_input
@pytest.mark.parametrize("count", [0, 16])
def test_more_gains_than_that(count):
    with pytest.raises(ValueError, match=f"There are {count} layers; from one to 15 gains were expected"):
        search(lambda z: z.sum(), count)
