"""Bounds for layers with random weights, at their edges."""

import math

import pytest
import torch
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


def test_a_branch_of_zeros_and_one_whose_second_layer_is_the_identity():
    assert layers.all_regions_of_branch(torch.zeros(3, 2), torch.ones(2, 3)) == (1, 1)
    assert layers.all_regions_of_branch(torch.zeros(1, 1), torch.zeros(1, 1), -0.5) == (0.5, 1)
    for seed, slope in enumerate((-1.0, -0.4, 0.0, 0.3, 1.0)):
        weight = rm.draw(4, 1, generator=generator(seed))[0] / 20
        half, norm = (1 - slope) / 2, torch.linalg.matrix_norm(weight, 2).item()
        middle = torch.linalg.svdvals(torch.eye(4) + (1 + slope) / 2 * weight)
        expected = ((abs(slope) or 1) * (middle[-1].item() - half * norm), middle[0].item() + half * norm)
        assert expected[0] > 0
        for pair in ((weight, torch.eye(4)), (torch.eye(4), weight)):
            assert layers.all_regions_of_branch(*pair, slope) == pytest.approx(expected, rel=1e-12)
    assert layers.all_regions_of_branch(3 * torch.eye(2), torch.eye(2)) == (1, 4)  # 1 + 3/2 -+ 3/2


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


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ((10, 0, 0, 99, 5), "At least one in all"),
        ((10, 1, 0, 99, 4), "theta is 4 and r 99; above 4 and at most"),
        ((10, 1, 0, 9, 5), "and above 9, is meant"),
    ],
)
def test_theorem_39_has_assumptions(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        layers.riedi_theorem_39(*arguments)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: layers.all_regions(torch.eye(2), 1.5), r"slope is 1.5; a number from -1"),
        (lambda: layers.all_regions_of_branch(torch.eye(2), torch.eye(2), 2.0), r"slope is 2.0; a number from -1"),
        (
            lambda: layers.all_regions_of_branch(torch.ones(2, 1), torch.ones(3, 2)),
            r"\(m, n\) and \(n, m\) were expected",
        ),
        (lambda: layers.norm_of(-1.0), "r is -1.0; a finite number above 0"),
        (lambda: layers.riedi_theorem_38(-2.0), "r is -2.0; a finite number above 0"),
        (lambda: layers.skip_condition_limit(-2.0), "r is -2.0; a finite number above 0"),
        (lambda: layers.all_regions_limit(-2.0), "r is -2.0; a finite number above 0"),
    ],
)
def test_slopes_sizes_and_shapes_outside_of_the_theorems_are_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
