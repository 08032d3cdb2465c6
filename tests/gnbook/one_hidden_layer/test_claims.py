"""Zhao 2024, section 4.1 and the proof of its Lemma 1: linear networks with one hidden layer."""

import pytest
import torch
from gnbook.one_hidden_layer.bounds import from_below
from hypothesis import given
from hypothesis import strategies as st

from gnlib import SecondMoment, whiten
from gnlib.linear.bounds import zhao_lemma_1
from tests.oracles import identity
from tests.strategies import (
    data_condition,
    diagonal,
    exact,
    instances,
    kron,
    problems,
    square_root,
    squares,
    true_condition,
    up_to_rounding,
)


def ratio_of_sums(v, w):
    """Return (smax^2(W) + smax^2(V)) / (smin^2(W) + smin^2(V)), zero-padded: lambda_min(W W^T), lambda_min(V^T V)."""
    w, v = squares(w, w.shape[0]), squares(v, v.shape[1])
    return ((w[0] + v[0]) / (w[-1] + v[-1])).item()


def unpadded(v, w):
    """Return the same with the smallest singular values that are not zero."""
    v, w = (s[s > 1e-12 * s[0]] ** 2 for s in map(torch.linalg.svdvals, (v, w)))
    return ((w[0] + v[0]) / (w[-1] + v[-1])).item()


def as_convex_combination(v, w):
    """Return Eq. 6, and the maximum in place of the combination."""
    w, v = squares(w, w.shape[0]), squares(v, v.shape[1])
    beta = w[-1] / (w[-1] + v[-1])
    return (beta * (w[0] / w[-1]) + (1 - beta) * (v[0] / v[-1])).item(), max(w[0] / w[-1], v[0] / v[-1]).item()


@pytest.mark.claim("Lemma 1", verdict="holds")
@pytest.mark.claim("Lemma 1 for narrow layers", verdict="holds if")
@pytest.mark.claim("Lemma 1, equality for white data", verdict="holds")
@instances
@given(problems(2, 2), problems(2, 2, wide=True))
def test_lemma_1_for_any_width_with_zero_padded_singular_values_and_its_equality_for_white_data(any_width, wide):
    for (v, w), x in (any_width, wide):
        if (true := true_condition([v, w], x)) is not None:
            bound, printed = zhao_lemma_1([v, w], SecondMoment.from_data(x)), data_condition(x) * ratio_of_sums(v, w)
            assert true <= bound * up_to_rounding(true) and true <= printed * up_to_rounding(true)
            # on the range of the data V has no larger and no smaller singular values than on the whole space
            assert bound <= printed * up_to_rounding(bound) or bound > 1e20
    (v, w), x = any_width
    white = whiten(x)
    moment = SecondMoment.from_data(white)
    torch.testing.assert_close(moment.eigenvalues, torch.ones(len(moment.eigenvalues)).double())
    bound = zhao_lemma_1([v, w], moment)
    if bound < 1e12:
        assert true_condition([v, w], white) == pytest.approx(bound, rel=1e-6)
        if x.shape[1] == len(moment.eigenvalues):
            assert bound == pytest.approx(ratio_of_sums(v, w), rel=1e-6)


@pytest.mark.claim("Lemma 1 with smallest non-zero singular values", verdict="fails")
@pytest.mark.claim("Lemma 1 for narrow layers", verdict="holds if")
@pytest.mark.parametrize(("v", "w"), [(diagonal([1], 3, 2), diagonal([1], 1, 3)), (exact([[1, 0]]), exact([[1]]))])
def test_lemma_1_needs_the_singular_values_that_are_zero_and_a_narrow_layer_zero_padded_ones(v, w):
    assert unpadded(v, w) == 1 and zhao_lemma_1([v, w], identity(2)) == 2
    assert true_condition([v, w], identity(2)) == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Lemma 1", verdict="holds")
@pytest.mark.claim("Lemma 1 with smallest non-zero singular values", verdict="fails")
@pytest.mark.claim("Lemma 1, from below", verdict="holds")
@pytest.mark.claim("Eq. 6, the equality", verdict="holds if")
@pytest.mark.claim("Lemma 1, the maximum in place of the combination", verdict="holds")
@instances
@given(problems(2, 2, wide=True, regular=True), st.sampled_from([0.1, 1.0, 10.0]))
def test_all_forms_of_lemma_1_and_the_bound_from_below_where_both_layers_are_regular(problem, scale):
    (v, w), x = problem
    true, moment, data = true_condition([v, w], x), SecondMoment.from_data(x), data_condition(x)
    ratio, (combination, maximum) = ratio_of_sums(v, w), as_convex_combination(v, w)
    assert zhao_lemma_1([v, w], moment) == pytest.approx(data * ratio, rel=1e-6)
    assert (unpadded(v, w), combination) == pytest.approx((ratio, ratio), rel=1e-9)
    assert true <= data * ratio * up_to_rounding(true) and ratio <= maximum * (1 + 1e-6)
    assert true >= from_below((v, w), moment) / up_to_rounding(true)
    even = scale * torch.linalg.qr(v).Q  # for which the bound from below is an equality
    assert true_condition([even, w], x) == pytest.approx(from_below((even, w), moment), rel=1e-6)


@pytest.mark.claim("Eq. 6, the equality", verdict="holds if")
def test_the_convex_combination_is_undefined_where_one_matrix_is_singular():
    v, w = diagonal([1], 3, 2), diagonal([1, 1], 2, 3)  # m = 3 > max(d, k) = 2
    assert torch.isnan(torch.tensor(as_convex_combination(v, w)[0]))
    assert ratio_of_sums(v, w) == 2
    assert true_condition([v, w], identity(2)) == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Appendix H, steps of the proof of Lemma 1", verdict="holds")
@instances
@given(problems(2, 2))
def test_each_step_of_the_proof_of_lemma_1(problem):
    (v, w), x = problem
    sigma = x.mT @ x / len(x)
    root, gram = square_root(sigma), v.mT @ v
    first, second = kron(w @ w.mT, sigma), kron(identity(len(w)), root @ gram @ root)
    matrices = (first + second, first, second, root @ gram @ root, w @ w.mT, gram, sigma)
    ends = torch.stack([torch.linalg.eigvalsh(matrix)[[-1, 0]] for matrix in matrices]).mT
    tolerance = 1e-12 * (ends[0, 1] + ends[0, 2] + ends[0, 6] * (ends[0, 4] + ends[0, 5]))
    for sign, (total, of_first, of_second, inner, wide, below, data) in zip((1, -1), ends, strict=True):
        assert sign * (total - of_first - of_second) <= tolerance
        assert abs(of_first - wide * data) <= tolerance and abs(of_second - inner) <= tolerance
        assert sign * (inner - data * below) <= tolerance


@pytest.mark.claim("Remark R2", verdict="holds if")
def test_white_data_can_be_worse_than_others():
    v, w = exact([[0, 1], [0, 0], [0, 0]]), exact([[1, 0, 0]])  # m = 3 > 2 = max(d, k)
    assert true_condition([v, w], identity(2)) == pytest.approx(2, rel=1e-12)
    assert true_condition([v, w], exact([[2**0.5, 0], [0, 1]])) == pytest.approx(1, rel=1e-12)
