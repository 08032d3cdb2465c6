"""Zhao 2024, appendix I.3: larger skips."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.gnbook.residual.helpers import (
    REFLECTED,
    aligned,
    product_of_conditions,
    product_of_ratios,
    shifted,
    skips,
    terms,
)
from tests.strategies import data_condition, exact, instances, problems, true_condition


@pytest.mark.claim("Appendix I.3, each term falls as the skip grows", verdict="fails")
@instances
@given(aligned(), st.tuples(skips, skips))
def test_each_term_falls_under_the_assumptions_of_eq_8(case, pair):
    weights, _ = case
    small, large = sorted(pair)
    assume(small < large)
    for layer in range(len(weights)):
        before, after = (product_of_ratios(weights, skip, layer) for skip in (small, large))
        assume(before < 1e12)
        computed = [product_of_conditions(shifted(weights, skip), layer) for skip in (small, large)]
        assert computed == pytest.approx([before, after], rel=1e-7 + 1e-13 * before)
        assert after <= before * (1 + 1e-12)
        if before > 1.01 and large > 1.9 * small:
            assert after < before


@pytest.mark.claim("Appendix I.3, each term falls as the skip grows", verdict="fails")
def test_in_general_a_term_can_rise_as_the_skip_grows():
    rising = [product_of_conditions(shifted(REFLECTED, skip), layer=1) for skip in (0.1, 0.25, 0.5, 0.75)]
    assert rising == sorted(rising) and rising[-1] > 10 * rising[0]


@pytest.mark.claim("Appendix I.3, the terms tend to one", verdict="holds")
@instances
@given(problems(2, 4, wide=True), st.sampled_from([1e3, 1e5]))
def test_the_terms_tend_to_one_for_all_weights(problem, ratio):
    weights, _ = problem
    norm = max(torch.linalg.matrix_norm(w, 2).item() for w in weights)
    skip = ratio * max(norm, 1e-3)
    largest, alpha = terms(shifted(weights, skip))
    gap = (largest / alpha - 1).max().item()
    assert -1e-9 <= gap <= 5 * len(weights) / ratio


@pytest.mark.claim("Large skips push the condition number to one", verdict="holds if")
@instances
@given(problems(2, 4, wide=True, regular=True))
def test_the_condition_number_tends_to_that_of_the_data(problem):
    weights, x = problem
    norm = max(torch.linalg.matrix_norm(w, 2).item() for w in weights)
    data = data_condition(x)
    true = true_condition(shifted(weights, 1e5 * norm), x)
    assert true == pytest.approx(data, rel=1e-3)


@pytest.mark.claim("Large skips push the condition number to one", verdict="holds if")
def test_for_other_data_it_does_not_tend_to_one():
    v, w, x = exact([[1, 0], [0, 1], [0, 0]]), exact([[1, 0, 0]]), exact([[2, 0], [0, 1]])
    assert true_condition(shifted([v, w], 1e6), x) == pytest.approx(4, rel=1e-5)


def first_order(weights):
    """Return c such that the condition number for white data is 1 + c / skip + O(1 / skip^2)."""
    depth, k, d = len(weights), weights[-1].shape[0], weights[0].shape[1]

    def spread(size, coefficients):
        total = torch.zeros(size, size, dtype=torch.float64)
        for c, w in zip(coefficients, weights, strict=True):
            if c:
                block = w[:size, :size]
                total += c * (block + block.mT)
        values = torch.linalg.eigvalsh(total)
        return (values[-1] - values[0]).item()

    return (spread(k, range(depth)) + spread(d, range(depth - 1, -1, -1))) / depth


@pytest.mark.claim("Condition number for large skips", verdict="holds")
@instances
@given(problems(2, 4, wide=True))
def test_the_excess_over_one_is_inversely_proportional_to_the_skip(problem):
    weights, _ = problem
    norm = max(torch.linalg.matrix_norm(w, 2).item() for w in weights)
    assume(norm > 0)
    x = torch.eye(weights[0].shape[1]).double()
    for ratio in (1e3, 1e4):
        skip = ratio * norm
        true = true_condition(shifted(weights, skip), x)
        assert abs(true - 1 - first_order(weights) / skip) <= 30 * len(weights) ** 2 / ratio**2
