"""The other half of the Hessian of linear networks, against automatic differentiation, and its bounds."""

import math

import pytest
import torch
from gnbook.functional_hessian.bounds import functional_hessian_norm, hessian_condition
from gnbook.functional_hessian.hessian import (
    linear_hessian,
    linear_hessian_product,
    residual_moment,
)

from gnlib import SecondMoment, second_moment
from tests.gnbook.functional_hessian.helpers import loss_hessian
from tests.oracles import network, normal, samples


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("widths", [(1, 1, 1), (4, 1, 2), (3, 5, 3), (2, 5, 4), (3, 2), (2, 3, 2, 3, 2)], ids=str)
@pytest.mark.parametrize("rank", [None, 1])
def test_the_hessian_and_its_products_are_those_of_automatic_differentiation(widths, rank):
    weights, x, y = network(widths, seed=1), samples(9, widths[0], rank=rank, seed=2), normal(9, widths[-1], seed=5)
    whole, omega = loss_hessian(weights, x, y), residual_moment(weights, x, y)
    direction = [normal(*w.shape, seed=80 + i) for i, w in enumerate(weights)]
    for moment in (second_moment(x), SecondMoment.from_data(x)):  # by matrix and by factors
        close(linear_hessian(weights, moment, omega), whole)
        along = linear_hessian_product(weights, moment, omega, direction)
        assert [p.shape for p in along] == [w.shape for w in weights]
        close(torch.cat([p.flatten() for p in along]), whole @ torch.cat([w.flatten() for w in direction]))


def test_the_bound_on_the_norm_by_hand():
    ones = [torch.ones(1, 1)] * 3  # H_F has zeros on the diagonal and ones off it
    assert functional_hessian_norm(ones, torch.tensor([[-2.0]])) == pytest.approx(4)


def test_the_interval_of_the_hessian():
    assert hessian_condition(4.0, 2.0, 1.0) == (1, 5)
    assert hessian_condition(12.0, 2.0, 1.0) == pytest.approx((11 / 3, 13))
    assert hessian_condition(4.0, 2.0, 0.0) == (2, 2)
    assert hessian_condition(4.0, 2.0, 2.0).upper == math.inf
    assert hessian_condition(4.0, 2.0, 3.0) == (1, math.inf)  # a ratio of ordered eigenvalues is never below one
