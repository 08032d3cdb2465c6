"""Which method is taken: the first of a list that applies, pays and works, or the one that is named."""

import pytest
import torch

from gnlib import ConditionNumber, NotConvergedError, SecondMoment, condition_number, linear_gauss_newton
from gnlib.eigen.result import Limits
from gnlib.eigen.strategy import Method, find_ends
from tests.oracles import network


def method(name, *, applies=True, pays=True, works=True):
    """A method that finds its own name."""
    result = ConditionNumber(largest=2.0, smallest=1.0, rank=2, gap=1e9, residual=1e-9, method=name)
    return Method(name, lambda *_: result if works else None, applies=lambda *_: applies, pays=lambda *_: pays)


def taken(methods, name=None):
    return find_ends("operand", methods, Limits(), name).method


@pytest.mark.parametrize("reason", ["applies", "pays", "works"])
def test_a_method_that_does_not_apply_or_pay_or_work_is_left_for_the_next(reason):
    assert taken([method("first"), method("second")]) == "first"
    assert taken([method("first", **{reason: False}), method("second"), method("third")]) == "second"


def test_a_named_method_is_taken_wherever_it_stands_and_whether_it_pays_or_not():
    methods = [method("first"), method("second", pays=False), method("third")]
    for name in ("first", "second", "third"):
        assert taken(methods, name) == name


@pytest.mark.bad_input
def test_a_name_that_is_not_there_is_told_what_there_is():
    methods = [method("first"), method("second"), method("first")]
    with pytest.raises(
        ValueError, match=r"^method is 'third'; for this operand it can be 'first', 'second', or None\.$"
    ):
        taken(methods, "third")


@pytest.mark.bad_input
def test_a_named_method_that_does_not_apply_is_refused_and_no_other_taken():
    with pytest.raises(ValueError, match=r"^The method 'first' does not apply to this operand; leave method out"):
        taken([method("first", applies=False), method("second")], "first")


@pytest.mark.bad_input
def test_a_named_method_that_does_not_work_raises_and_no_other_is_taken():
    with pytest.raises(NotConvergedError, match=r"^The method 'first' does not work here; leave method out"):
        taken([method("first", works=False), method("second")], "first")


# The lists


def white(d):
    return SecondMoment(torch.eye(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64))


def spread(d):
    return SecondMoment(torch.eye(d, dtype=torch.float64), torch.linspace(1, 0.5, d, dtype=torch.float64))


OPERATORS = {  # a word of what is found, and for whom
    "on the range of the first layer": (network((40, 12, 30), seed=1), white(40)),
    "eigenvalues of the matrix": (network((6, 8, 7, 3), seed=1), spread(6)),
    "exact blocks": (network((40, 60, 12), seed=1), spread(40)),
    "block iteration": (network((40, 60, 50, 12), seed=1), spread(40)),
}


@pytest.mark.parametrize("found, operand", OPERATORS.items(), ids=OPERATORS.keys())
def test_a_kronecker_sum_goes_to_the_method_that_it_is_for(found, operand):
    assert found in condition_number(linear_gauss_newton(*operand)).method


@pytest.mark.parametrize("name", ["dense", "blocks", "iteration"])
def test_the_methods_for_a_kronecker_sum_agree(name):
    op = linear_gauss_newton(network((20, 30, 5), seed=1), spread(20))
    assert condition_number(op, method=name).value == pytest.approx(condition_number(op).value, rel=1e-7)
