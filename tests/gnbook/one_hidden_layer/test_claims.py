"""Zhao 2024, section 4.1 and the proof of its Lemma 1: linear networks with one hidden layer."""

import pytest
import torch
from gnbook.one_hidden_layer.bounds import from_below
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import SecondMoment, condition_number, linear_gauss_newton, whiten
from gnlib.linear.bounds import zhao_lemma_1
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


def printed(v, w, x):
    return data_condition(x) * ratio_of_sums(v, w)


@pytest.mark.claim("Lemma 1", verdict="holds")
@pytest.mark.claim("Lemma 1 for narrow layers", verdict="holds if")
@instances
@given(st.booleans().flatmap(lambda wide: problems(2, 2, wide)))
def test_lemma_1_under_its_assumptions_and_for_any_width_with_zero_padded_singular_values(problem):
    (v, w), x = problem
    true = true_condition([v, w], x)
    assume(true is not None)
    bound = zhao_lemma_1([v, w], SecondMoment.from_data(x))
    assert true <= bound * up_to_rounding(true) and true <= printed(v, w, x) * up_to_rounding(true)
    # on the range of the data V has no larger and no smaller singular values than on the whole space
    assert bound <= printed(v, w, x) * up_to_rounding(bound) or bound > 1e20


def with_nonzero_singular_values(v, w):
    """Return the ratio of Lemma 1 with the smallest singular values that are not zero."""
    v, w = (s[s > 1e-12 * s[0]] ** 2 for s in map(torch.linalg.svdvals, (v, w)))
    return ((w[0] + v[0]) / (w[-1] + v[-1])).item()


@pytest.mark.claim("Lemma 1 with smallest non-zero singular values", verdict="fails")
def test_lemma_1_needs_the_singular_values_that_are_zero():
    v, w = diagonal([1], 3, 2), diagonal([1], 1, 3)  # m = 3 > max(d, k) = 2
    assert with_nonzero_singular_values(v, w) == 1
    assert true_condition([v, w], torch.eye(2).double()) == pytest.approx(2, rel=1e-12)
    assert zhao_lemma_1([v, w], torch.eye(2).double()) == 2


def as_convex_combination(v, w):
    w, v = squares(w, w.shape[0]), squares(v, v.shape[1])
    beta = w[-1] / (w[-1] + v[-1])
    return (beta * (w[0] / w[-1]) + (1 - beta) * (v[0] / v[-1])).item(), max(w[0] / w[-1], v[0] / v[-1]).item()


@pytest.mark.claim("Lemma 1", verdict="holds")
@pytest.mark.claim("Lemma 1 with smallest non-zero singular values", verdict="fails")
@pytest.mark.claim("Lemma 1, from below", verdict="holds")
@pytest.mark.claim("Eq. 6, the equality", verdict="holds if")
@pytest.mark.claim("Lemma 1, the maximum in place of the combination", verdict="holds")
@instances
@given(problems(2, 2, wide=True, regular=True))
def test_all_forms_of_lemma_1_and_the_bound_from_below_where_both_layers_are_regular(problem):
    (v, w), x = problem
    true, moment, data = true_condition([v, w], x), SecondMoment.from_data(x), data_condition(x)
    bound, ratio, (combination, maximum) = (
        zhao_lemma_1([v, w], moment),
        ratio_of_sums(v, w),
        as_convex_combination(v, w),
    )
    assert bound == pytest.approx(data * ratio, rel=1e-6)
    assert (with_nonzero_singular_values(v, w), combination) == pytest.approx((ratio, ratio), rel=1e-9)
    assert true <= data * ratio * up_to_rounding(true) and ratio <= maximum * (1 + 1e-6)
    assert true >= from_below((v, w), moment) / up_to_rounding(true)


@pytest.mark.claim("Lemma 1, equality for white data", verdict="holds")
@instances
@given(problems(2, 2))
def test_lemma_1_is_an_equality_for_white_data(problem):
    (v, w), x = problem
    x = whiten(x)
    moment = SecondMoment.from_data(x)
    assert torch.allclose(moment.eigenvalues, torch.ones(1).double())
    bound = zhao_lemma_1([v, w], moment)
    assume(bound < 1e12)
    assert true_condition([v, w], x) == pytest.approx(bound, rel=1e-6)
    if x.shape[1] == len(moment.eigenvalues):
        assert bound == pytest.approx(ratio_of_sums(v, w), rel=1e-6)


@pytest.mark.claim("Lemma 1, from below", verdict="holds")
@instances
@given(problems(2, 2, wide=True, regular=True), st.sampled_from([0.1, 1.0, 10.0]))
def test_from_below_it_is_an_equality_for_an_even_hidden_layer(problem, scale):
    (v, w), x = problem
    even = scale * torch.linalg.qr(v).Q
    true = true_condition([even, w], x)
    assert true == pytest.approx(from_below((even, w), SecondMoment.from_data(x)), rel=1e-6)


@pytest.mark.claim("Eq. 6, the equality", verdict="holds if")
def test_the_convex_combination_is_undefined_where_one_matrix_is_singular():
    v, w = diagonal([1], 3, 2), diagonal([1, 1], 2, 3)  # m = 3 > max(d, k) = 2
    assert torch.isnan(torch.tensor(as_convex_combination(v, w)[0]))
    assert ratio_of_sums(v, w) == 2
    assert true_condition([v, w], torch.eye(2).double()) == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Appendix H, steps of the proof of Lemma 1", verdict="holds")
@instances
@given(problems(2, 2))
def test_each_step_of_the_proof_of_lemma_1(problem):
    (v, w), x = problem
    sigma = x.mT @ x / len(x)
    root = square_root(sigma)
    wide, inner = w @ w.mT, root @ v.mT @ v @ root
    first, second = kron(wide, sigma), kron(torch.eye(len(w)).double(), inner)
    terms = {
        "sum": first + second,
        "first": first,
        "second": second,
        "inner": inner,
        "w": wide,
        "v": v.mT @ v,
        "s": sigma,
    }
    eigenvalues = {name: torch.linalg.eigvalsh(matrix) for name, matrix in terms.items()}
    top, bottom = ({name: values[end] for name, values in eigenvalues.items()} for end in (-1, 0))
    tolerance = 1e-12 * (top["first"] + top["second"] + top["s"] * (top["w"] + top["v"]))
    assert top["sum"] <= top["first"] + top["second"] + tolerance
    assert bottom["sum"] >= bottom["first"] + bottom["second"] - tolerance
    for end in (top, bottom):
        assert abs(end["first"] - end["w"] * end["s"]) <= tolerance
        assert abs(end["second"] - end["inner"]) <= tolerance
    assert top["inner"] <= top["s"] * top["v"] + tolerance
    assert bottom["inner"] >= bottom["s"] * bottom["v"] - tolerance
    assert abs(top["w"] - squares(w, len(w))[0]) <= 1e-12 * top["w"]
    assert abs(bottom["v"] - squares(v, v.shape[1])[-1]) <= 1e-12 * top["v"]


def unpadded(v, w):
    """Return the ratio of sums with the last of min(rows, columns) singular values, whatever the shapes."""
    w, v = squares(w, min(w.shape)), squares(v, min(v.shape))
    return ((w[0] + v[0]) / (w[-1] + v[-1])).item()


@pytest.mark.claim("Lemma 1 for narrow layers", verdict="holds if")
def test_a_narrow_layer_needs_zero_padded_singular_values():
    v, w, x = exact([[1, 0]]), exact([[1]]), torch.eye(2).double()
    assert true_condition([v, w], x) == pytest.approx(2, rel=1e-12)
    assert unpadded(v, w) == 1
    assert zhao_lemma_1([v, w], torch.eye(2).double()) == 2


@pytest.mark.claim("Remark R2", verdict="holds if")
@instances
@given(problems(2, 2, regular=True))
def test_the_data_condition_the_network_up_to_the_ratio_of_lemma_1(problem):
    (v, w), x = problem
    ratio, data, true = ratio_of_sums(v, w), data_condition(x), true_condition([v, w], x)
    assert data / ratio <= true * up_to_rounding(true)
    assert true <= data * ratio * up_to_rounding(true)


@pytest.mark.claim("Remark R2", verdict="holds if")
def test_white_data_can_be_worse_than_others():
    v, w = exact([[0, 1], [0, 0], [0, 0]]), exact([[1, 0, 0]])  # m = 3 > 2 = max(d, k)
    assert true_condition([v, w], torch.eye(2).double()) == pytest.approx(2, rel=1e-12)
    skewed = exact([[2**0.5, 0], [0, 1]])  # condition number 2
    assert true_condition([v, w], skewed) == pytest.approx(1, rel=1e-12)
    assert float(condition_number(linear_gauss_newton([v, w], skewed.mT @ skewed))) == pytest.approx(1, rel=1e-9)
