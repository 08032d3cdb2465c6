"""Bounds for layers with random weights, beside those of one layer with a skip."""

import math

import pytest
from gnbook.random_layers import bounds as layers
from gnbook.random_layers import matrices as rm
from gnbook.shared.skips import kaiming_skip_limits, skip_bounds

from tests.gnbook.random_layers.helpers import generator


@pytest.mark.parametrize("seed", range(8))
def test_the_sharper_bound_is_that_of_one_layer_with_a_skip(seed):
    n = seed % 5 + 1
    weight = rm.draw(n, 1, generator=generator(seed))[0] * 10.0 ** (seed % 3 - 1.5)
    interval, bounds = skip_bounds(weight, 1.0), layers.riedi_lemma_36(rm.extremes(weight))
    assert bounds.sharper.item() == pytest.approx(interval.upper / interval.lower if interval.lower else math.inf)
    assert bounds.sharper <= min(bounds.norm, bounds.symmetric) * (1 + 1e-12)


def test_limits_are_infinite_up_to_their_thresholds():
    for field, threshold in (("norm", 0.5**0.5), ("symmetric", 1.0), ("sharper", 0.5)):
        assert getattr(layers.riedi_theorem_38(threshold * (1 - 1e-9)), field) == math.inf
        assert getattr(layers.riedi_theorem_38(threshold * 1.01), field) < math.inf
    assert layers.skip_condition_limit(0.99 / 8**0.5) == math.inf
    assert layers.all_regions_limit(0.4999) == math.inf and layers.all_regions_limit(0.51) < math.inf
    for r in (0.4, 1.0, 2.0, 7.0):
        root = math.sqrt(1 + 64 * r**2)
        square = (root + 3) ** 3 * (root - 1) / ((root - 3) ** 3 * (root + 1))
        assert layers.skip_condition_limit(r) == pytest.approx(math.sqrt(square))
        low, high = kaiming_skip_limits(r * math.sqrt(8))
        assert high / low == pytest.approx(math.sqrt(square))
