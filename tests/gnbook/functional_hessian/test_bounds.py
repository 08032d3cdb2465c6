"""Bounds on the functional Hessian: its norm, Eq. 18, and the interval of the whole Hessian."""

import math

import pytest
import torch
from gnbook.functional_hessian.bounds import functional_hessian_norm, hessian_condition, zhao_eq_18


def test_the_bound_on_the_norm_by_hand():
    ones = [torch.ones(1, 1)] * 3  # H_F has zeros on the diagonal and ones off it
    assert functional_hessian_norm(ones, torch.tensor([[-2.0]])) == pytest.approx(4)


def test_eq_18_for_singular_data_and_for_an_error_of_low_rank():
    error = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.25, 1.0]])
    assert zhao_eq_18(error, torch.tensor([2.0, 1.0, 0.0]).diag()) == pytest.approx(4 * 2)
    assert zhao_eq_18(torch.ones(2, 3), torch.tensor([3.0, 2.0, 1.0]).diag()) == pytest.approx(3)


def test_the_interval_of_the_hessian():
    assert hessian_condition(4.0, 2.0, 1.0) == (1, 5)
    assert hessian_condition(12.0, 2.0, 1.0) == pytest.approx((11 / 3, 13))
    assert hessian_condition(4.0, 2.0, 0.0) == (2, 2)
    assert hessian_condition(4.0, 2.0, 2.0).upper == math.inf
    assert hessian_condition(4.0, 2.0, 3.0) == (1, math.inf)  # a ratio of ordered eigenvalues is never below one


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("error", "moment", "told"),
    [(torch.tensor([[0.0, 1.0]]), torch.tensor([1.0, 0.0]).diag(), "error is zero on the range of second_moment")],
)
def test_eq_18_needs_an_error_that_the_data_can_see(error, moment, told):
    with pytest.raises(ValueError, match=told):
        zhao_eq_18(error, moment)
