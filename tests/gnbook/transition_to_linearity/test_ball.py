"""Norms in a ball of weights, by hand and at their edges."""

import math

import pytest
from gnbook.shared.hessian import hessian_ends
from gnbook.transition_to_linearity.ball import (
    TANH,
    Smoothness,
    Start,
    ball_norms,
    likely_start,
    measured_start,
)
from gnbook.transition_to_linearity.linearity import layer_norms, layered_bound
from gnbook.transition_to_linearity.wide_network import WideNetwork

from tests.gnbook.transition_to_linearity.cases import draw, gaussian


def test_a_ball_without_extent_and_a_fixed_output_layer():
    network, x = WideNetwork(draw([3, 8, 6, 1])), gaussian(1, 1, 3)
    at_start, in_ball = layer_norms(network, x), ball_norms(measured_start(network, x), TANH, 0.0)
    assert [a.gradient_max for a in at_start] == pytest.approx([b.gradient_max for b in in_ball])
    assert layered_bound(at_start, None) <= layered_bound(at_start, 6) <= layered_bound(in_ball, 6)
    network.last.requires_grad_(False)
    assert hessian_ends(network, x).norm <= layered_bound(at_start, None)


def test_a_smaller_failure_costs_a_little():
    norms = [likely_start([3, 100, 100], 1.0, TANH, failure=failure) for failure in (1e-1, 1e-6)]
    assert all(a < b < 2 * a for a, b in zip(norms[0].maxima, norms[1].maxima, strict=True))


@pytest.mark.parametrize("skip", [False, True])
def test_the_norms_in_a_ball_by_hand(skip):
    start = Start([4, 9, 9], [2.0, 3.0], [1.0, 0.5], [0.7, 0.6], [0.3, 0.2])
    first, second = ball_norms(start, Smoothness(1.5, 0.8, 0.0), 2.0, skip=skip)
    # preactivations move by 2 * 1 and 3 * 3 + 2 * (0.5 + 3 / 3), gradients by 2 / 3 and what follows
    moved = 2 / 3 * 1.5 * (0.6 + 2 / 3) + 3 * (0.8 * 0.2 * 12 + 1.5 * 2 / 3) + skip * 2 / 3
    s = 3 + 2 / 3
    assert first == pytest.approx((0.3 + moved, 0, 1.5, 0, 0, 0.8))
    by_hand = (0.2 + 2 / 3, 1.5 * s + skip, 1.5 * 1.5, 0.8 * s**2, 0.8 * s * 1.5 + 1.5, 0.8 * 1.5**2)
    assert second == pytest.approx(by_hand)


def test_the_likely_start_by_hand():
    slack = (2 * math.log(5 / 0.05)) ** 0.5
    start = likely_start([4, 9, 16], 0.5, Smoothness(2.0, 1.0, 0.1), failure=0.05)
    first, second = (3 + 2 + slack) / 2, (4 + 3 + slack) / 3
    assert start.weights == pytest.approx([first, second])
    assert start.values == pytest.approx([0.5, 2 * first * 0.5 * 2 / 3 + 0.1])
    assert start.gradients == pytest.approx([2 * second * (1 + slack / 4), 1 + slack / 4])
    largest = [(2 * math.log(2 * m * 5 / 0.05) / 16) ** 0.5 for m in (9, 16)]
    assert start.maxima == pytest.approx([2 * second * largest[0], largest[1]])
