"""What a result says of itself."""

import dataclasses

import pytest

from gnlib import ConditionNumber, NotResolvedError


def result(**changes):
    some = ConditionNumber(largest=8.0, smallest=2.0, rank=3, gap=1e9, residual=1e-9, method="some method")
    return dataclasses.replace(some, **changes)


def test_a_result_is_a_number_and_a_line_that_says_how_it_was_obtained():
    assert result().value == float(result()) == 4.0
    assert str(result()) == (
        "condition number 4: eigenvalues 8 to 2, rank 3 (gap 1e+09), relative residual 1e-09, some method"
    )


def test_a_result_that_is_not_resolved_is_a_lower_bound_and_no_number():
    lost = result(residual=3.0)
    assert result(residual=1e-3).resolved
    assert not lost.resolved
    assert lost.value == 8 / (2 * (1 + 3.0))
    assert "condition number at least 1.0e+00 (not resolved)" in str(lost)
    with pytest.raises(NotResolvedError, match=r"at least 1.0e\+00 .* relative error of 3e\+00"):
        float(lost)
