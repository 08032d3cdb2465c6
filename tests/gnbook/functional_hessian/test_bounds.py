"""Bounds on the functional Hessian: its norm, Eq. 18, and the interval of the whole Hessian."""

import math

import pytest
import torch
from gnbook.functional_hessian.bounds import functional_hessian_norm, hessian_condition, zhao_eq_18
from gnbook.functional_hessian.hessian import functional_hessian, residual_moment

from gnlib import second_moment
from tests.gnbook.functional_hessian.cases import WIDTHS, problem, seeds
from tests.oracles import normal


@pytest.mark.parametrize("widths", [w for w in WIDTHS if len(w) > 2], ids=lambda w: "-".join(map(str, w)))
@seeds
def test_the_bound_on_the_norm(widths, seed):
    weights, x, y = problem(widths, "any", seed)
    omega = residual_moment(weights, x, y)
    norm = torch.linalg.matrix_norm(functional_hessian(weights, omega), 2).item()
    bound = functional_hessian_norm(weights, omega)
    assert norm <= bound * (1 + 1e-12) <= 3 * norm  # on these instances


def test_the_bound_on_the_norm_by_hand():
    ones = [torch.ones(1, 1)] * 3  # H_F has zeros on the diagonal and ones off it
    assert functional_hessian_norm(ones, torch.tensor([[-2.0]])) == pytest.approx(4)


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 4), (1, 3)])
def test_eq_18_for_regular_data_is_the_product_of_two_condition_numbers(shape):
    error, x = normal(*shape, seed=1), normal(9, shape[1], seed=2)
    s, t = torch.linalg.svdvals(error), torch.linalg.svdvals(x)
    assert zhao_eq_18(error, second_moment(x)) == pytest.approx((s[0] / s[-1] * (t[0] / t[-1]) ** 2).item(), rel=1e-9)


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
def test_eq_18_needs_an_error_that_the_data_can_see():
    with pytest.raises(ValueError, match=r"error has shape \(2, 2\); a matrix \(k, d\) with d = 3"):
        zhao_eq_18(torch.ones(2, 2), torch.eye(3))
    with pytest.raises(ValueError, match="error is zero on the range of second_moment"):
        zhao_eq_18(torch.tensor([[0.0, 1.0]]), torch.tensor([1.0, 0.0]).diag())
    with pytest.raises(ValueError, match="error is zero on the range of second_moment"):
        zhao_eq_18(torch.zeros(2, 3), torch.eye(3))


@pytest.mark.bad_input
@pytest.mark.parametrize("values", [(1, 2, 0), (2, 0, 1), (2, 1, -1), (math.nan, 1, 0), (2, 1, math.inf)])
def test_the_ends_of_the_spectrum_are_in_order(values):
    with pytest.raises(ValueError, match="finite numbers with 0 < smallest <= largest and 0 <= norm were expected"):
        hessian_condition(*values)
