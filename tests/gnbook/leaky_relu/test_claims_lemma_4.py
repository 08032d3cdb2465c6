"""Zhao 2024, Lemma 4 and its proof in appendix H: bounds for one hidden layer of leaky ReLUs."""

import math

import pytest
import torch
from gnbook.leaky_relu.bounds import leaky_relu_ends, zhao_lemma_4
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.gnbook.leaky_relu.helpers import SLOPES, Parts, condition, ends, networks, slopes
from tests.strategies import (
    EPS,
    exact,
    gaussian,
    instances,
    kron,
    matrices,
    orthogonal,
    seeds,
    squares,
    symmetric,
    up_to_rounding,
)

proper = st.sampled_from(SLOPES[1:-1])


@pytest.mark.claim("Weyl unit by unit", verdict="holds if")
@instances
@given(networks(), slopes)
def test_weyl_unit_by_unit_gives_zero_for_two_outputs_or_more_and_for_one_more_than_the_paper(problem, slope):
    v, w, x = problem
    parts, one = Parts(v, w, x, slope), Parts(v, w[:1], x, slope)
    for a, b in zip(parts.inner, parts.outer, strict=True):
        assert len(w) == 1 or abs(ends(kron(a, b))[0]) <= 1e-14 * max(ends(a)[1] * ends(b)[1], 1e-300)
    unit_by_unit = sum(ends(a)[0] * b.item() for a, b in zip(one.inner, one.outer, strict=True))
    assert ends(one.first)[0] >= unit_by_unit - one.tolerance
    assert unit_by_unit >= min(ends(a)[0] for a in one.inner) * sum(one.outer).item() - one.tolerance


@pytest.mark.claim("Weyl unit by unit", verdict="holds if")
def test_with_one_output_it_can_be_positive():
    parts = Parts(exact([[1]]), exact([[2]]), exact([[3]]), 0.0)
    assert ends(parts.inner[0])[0] * parts.outer[0].item() == 36


@st.composite
def kronecker_terms(draw):
    a, b = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    count = draw(st.integers(1, 4))
    return [(draw(symmetric(a, 0)), draw(symmetric(b, 0))) for _ in range(count)]


@pytest.mark.claim("Sum of Kronecker products", verdict="holds")
@instances
@given(kronecker_terms())
def test_the_ends_of_a_sum_of_kronecker_products(terms):
    total, right = sum(kron(a, b) for a, b in terms), sum(b for _, b in terms)
    smallest, largest = ends(total)
    tolerance = 1e-12 * sum(ends(a)[1] * ends(b)[1] for a, b in terms)
    assert smallest >= min(ends(a)[0] for a, _ in terms) * ends(right)[0] - tolerance
    assert largest <= max(ends(a)[1] for a, _ in terms) * ends(right)[1] + tolerance


@pytest.mark.claim("Lemma 4", verdict="holds if")
@instances
@given(networks(), slopes)
def test_lemma_4_with_zero_padded_singular_values_and_the_library_evaluates_it_as_printed(problem, slope):
    v, w, x = problem
    bounds, parts, n, k = zhao_lemma_4([v, w], x, slope), Parts(v, w, x, slope), len(x), len(w)
    data, output = squares(x, n), squares(w, k)
    for bound, hidden, shrunk in zip(bounds, (parts.hidden, parts.linear), (1, slope**2), strict=True):
        gamma = squares(hidden, n)
        top, bottom = data[0] * output[0] + gamma[0], slope**2 * data[-1] * output[-1] + shrunk * gamma[-1]
        if bottom > 1e-20 * top > 0:
            assert bound == pytest.approx((top / bottom).item(), rel=1e-9)
    assume(bounds.first < 1e15)
    true, rank = condition(v, w, x, slope)
    assert rank == n * k and true <= bounds.first * up_to_rounding(true)


@st.composite
def more_samples_than_inputs(draw):
    """Draw `(v, w)` and more samples than inputs, with as many units as the hidden values need to be regular."""
    d, k = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    n = d + draw(st.integers(1, 3))
    m = n + draw(st.integers(0, 4))
    x = gaussian(draw(seeds), n, d)
    if draw(st.booleans()):
        x[1] = -x[0]
    return draw(matrices(m, d, regular=True)), draw(matrices(k, m, regular=True)), x


@pytest.mark.claim("Lemma 4", verdict="holds if")
@instances
@given(more_samples_than_inputs(), st.sampled_from(SLOPES[:-1]))
def test_lemma_4_with_more_samples_than_inputs(problem, slope):
    """All that is left of the smallest eigenvalue is that of the hidden values."""
    v, w, x = problem
    smallest, largest = ends(Parts(v, w, x, slope).gamma)
    assume(smallest > 1e-12 * largest)
    true, rank = condition(v, w, x, slope)
    assert rank == len(x) * len(w)
    bound = zhao_lemma_4([v, w], x, slope).first
    assert true <= bound * up_to_rounding(true)
    top = squares(x, 1)[0] * squares(w, 1)[0] + largest
    assert bound == pytest.approx((top / smallest).item(), rel=1e-3)


def unpadded(v, w, x, slope):
    """Return the right side of Eq. 11 with the last of min(rows, columns) singular values of each matrix."""
    parts = Parts(v, w, x, slope)
    data, output = squares(x, min(x.shape)), squares(w, min(w.shape))
    smallest, largest = ends(parts.gamma)
    top = data[0] * output[0] + largest
    return (top / (slope**2 * data[-1] * output[-1] + smallest)).item()


@pytest.mark.claim("Lemma 4", verdict="holds if")
def test_more_samples_than_inputs_need_zero_padded_singular_values():
    v, w, x = exact([[1], [-1]]), exact([[1, 1]]), exact([[1], [-1]])  # n = 2, d = 1
    true, rank = condition(v, w, x, 0.5)
    assert rank == 2 and true == pytest.approx(9, rel=1e-12)
    assert unpadded(v, w, x, 0.5) == 5
    assert zhao_lemma_4([v, w], x, 0.5).first == pytest.approx(25, rel=1e-9)


@pytest.mark.claim("Lemma 4", verdict="holds if")
def test_fewer_units_than_outputs_need_zero_padded_singular_values():
    v, w, x = exact([[1]]), exact([[1], [0]]), exact([[1]])  # m = 1, k = 2
    assert condition(v, w, x, 0.5) == (pytest.approx(2, rel=1e-12), 2)
    assert unpadded(v, w, x, 0.5) == 1.6
    assert zhao_lemma_4([v, w], x, 0.5).first == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Appendix H, Weyl for the two sums", verdict="holds")
@pytest.mark.claim("Appendix H, largest eigenvalue of the first sum", verdict="holds")
@pytest.mark.claim("Eq. 23 and 24", verdict="holds if")
@instances
@given(networks(), slopes)
def test_each_step_to_the_ends_of_the_two_sums_and_of_the_first(problem, slope):
    parts = Parts(*problem, slope)
    (low, high), (a, b), (c, e) = (ends(matrix) for matrix in (parts.gram, parts.first, parts.second))
    assert low >= a + c - parts.tolerance and high <= b + e + parts.tolerance
    assert b <= squares(parts.x, 1)[0] * squares(parts.w, 1)[0] + parts.tolerance
    data, output = ends(parts.kernel)[0], ends(parts.w @ parts.w.mT)[0]
    inner = min(ends(a)[0] for a in parts.inner)
    torch.testing.assert_close(sum(parts.outer), parts.w @ parts.w.mT, rtol=0, atol=parts.tolerance + 1e-14)
    assert ends(parts.first)[0] >= inner * output - parts.tolerance
    assert inner * output >= slope**2 * data * output - parts.tolerance
    n, k = len(parts.x), len(parts.w)
    expected = (squares(parts.x, n)[-1] * squares(parts.w, k)[-1]).item()
    assert abs(data * output - expected) <= parts.tolerance


@pytest.mark.claim("Eq. 23 and 24", verdict="holds if")
def test_with_one_unit_in_place_of_the_worst_of_them_it_is_wrong():
    """Two samples and two units, each active on both or on none."""
    parts = Parts(exact([[1, 1], [-1, -1]]), exact([[1, 1]]), torch.eye(2).double(), 0.5)
    assert ends(parts.first)[0] == pytest.approx(1.25, rel=1e-12)
    assert ends(parts.inner[0])[0] * ends(parts.w @ parts.w.mT)[0] == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Eq. 23 and 24", verdict="holds if")
@pytest.mark.parametrize("slope", SLOPES)
def test_the_derivative_of_a_negative_value_is_the_slope_and_not_its_opposite(slope):
    z = exact([-1.0]).requires_grad_()
    assert torch.autograd.grad(torch.maximum(slope * z, z).sum(), z)[0] == (slope if slope < 1 else 1)


def gamma_and_linear(v, x, slope):
    parts = Parts(v, torch.ones(1, len(v)).double(), x, slope)
    return ends(parts.gamma), ends(parts.linear @ parts.linear.mT)


@pytest.mark.claim("Eq. 25", verdict="fails")
@instances
@given(proper)
def test_a_leaky_relu_can_make_a_regular_layer_singular(slope):
    v = exact([[1, -1 / slope], [-1, slope]])  # hidden values (1, -slope) and (-1, slope)
    (gamma, scale), (linear, _) = gamma_and_linear(v, torch.eye(2).double(), slope)
    assert abs(gamma) <= 1e-13 * scale
    assert slope**2 * linear > 1e-7


@pytest.mark.claim("Eq. 25", verdict="fails")
@pytest.mark.claim("Eq. 26", verdict="fails")
@pytest.mark.claim("Lemma 4, second upper bound", verdict="fails")
@instances
@given(networks(), slopes)
def test_for_one_sample_one_input_or_one_unit_eq_25_and_26_and_the_second_bound_hold(problem, slope):
    v, w, x = problem
    for a in (0.0, 1.0):  # Eq. 25 at both ends of the range too
        (gamma, _), (linear, top) = gamma_and_linear(v, x, a)
        assert gamma >= a**2 * linear - 1e-11 * top
    for first, second, inputs in ((v, w, x[:1]), (v[:, :1], w, x[:, :1]), (v[:1], w[:, :1], x)):
        (least, most), (linear, top) = gamma_and_linear(first, inputs, slope)
        assert least >= slope**2 * linear - 1e-11 * top and most <= top * (1 + 1e-12) + 1e-300
        parts = Parts(first, second, inputs, slope)
        assert abs(ends(parts.second)[0] - ends(parts.gamma)[0]) <= parts.tolerance
        bound = zhao_lemma_4([first, second], inputs, slope).second
        if bound < 1e15:
            true, _ = condition(first, second, inputs, slope)
            assert true <= bound * up_to_rounding(true)


@pytest.mark.claim("Eq. 26", verdict="fails")
@instances
@given(st.sampled_from(SLOPES[:-1]))
def test_a_leaky_relu_can_enlarge_the_largest_eigenvalue(slope):
    v = exact([[1, 1], [1, -1]])
    (_, gamma), (_, linear) = gamma_and_linear(v, torch.eye(2).double(), slope)
    assert linear == pytest.approx(2, rel=1e-12)
    expected = 1 + (1 + slope**2) / 2 + math.sqrt(((1 - slope**2) / 2) ** 2 + (1 - slope) ** 2)
    assert gamma == pytest.approx(expected, rel=1e-12) and gamma > 2.001


@pytest.mark.claim("Eq. 26, repaired", verdict="holds")
@instances
@given(networks(), slopes)
def test_the_largest_eigenvalue_is_at_most_that_of_the_absolute_values(problem, slope):
    v, _, x = problem
    linear = x @ v.mT
    (_, gamma), (_, plain) = gamma_and_linear(v, x, slope)
    absolute = squares(linear.abs(), 1)[0].item()
    assert gamma <= absolute * (1 + 1e-12) + 1e-300
    assert absolute <= linear.square().sum().item() * (1 + 1e-12) + 1e-300
    assert linear.square().sum().item() <= min(linear.shape) * plain * (1 + 1e-9) + 1e-300


@pytest.mark.claim("Lemma 4, second upper bound", verdict="fails")
def test_the_second_bound_is_below_the_condition_number_of_two_samples():
    v, w, x = exact([[8, -16], [-8, 4]]), exact([[1, 1]]), torch.eye(2).double()
    true, rank = condition(v, w, x, 0.5)
    assert rank == 2 and true == pytest.approx(129, rel=1e-12)
    assert 56 < zhao_lemma_4([v, w], x, 0.5).second < 57
    assert zhao_lemma_4([v, w], x, 0.5).first > 129


@pytest.mark.claim("Lemma 4, second upper bound", verdict="fails")
@instances
@given(proper)
def test_for_every_slope_in_between_the_second_bound_is_too_small_by_any_factor(slope):
    x = torch.eye(2).double()
    for factor, w in ((1, 1e-2), (100, 1e-3)):
        v, w = exact([[1, -1 / slope], [-1, slope]]), w * slope * torch.ones(1, 2).double()
        assert condition(v, w, x, slope)[0] > factor * zhao_lemma_4([v, w], x, slope).second


@pytest.mark.claim("Active units", verdict="holds")
@instances
@given(networks(), st.sampled_from([*SLOPES, -0.5, 2.0]))
def test_both_ends_and_the_condition_number_are_within_the_bounds_of_the_active_units(problem, slope):
    v, w, x = problem
    parts, found = Parts(v, w, x, slope), leaky_relu_ends([v, w], x, slope)
    low, high = (value / len(x) for value in ends(parts.gram))
    tolerance = 1e-12 * high
    assert found.smallest.lower - tolerance <= low <= found.smallest.upper + tolerance
    assert found.largest.lower - tolerance <= high <= found.largest.upper + tolerance
    lower, upper = found.condition
    if upper < 1e12:
        true, rank = condition(v, w, x, slope)
        assert rank == len(x) * len(w)
        assert lower * (1 - 1e-9 - 1e2 * EPS * true) <= true <= upper * up_to_rounding(true)


@pytest.mark.claim("Active units", verdict="holds")
@instances
@given(networks(), slopes)
def test_it_is_its_formula_and_each_step_between_it_and_lemma_4(problem, slope):
    parts = Parts(*problem, slope)
    n, k = len(parts.x), len(parts.w)
    mean = parts.gram.view(n, k, n, k).diagonal(dim1=1, dim2=3).mean(-1)
    found = leaky_relu_ends([parts.v, parts.w], parts.x, slope)
    lemma_4 = zhao_lemma_4([parts.v, parts.w], parts.x, slope).first
    assert found.condition.upper <= lemma_4 * (1 + 1e-9) or found.condition.upper > 1e15
    blocks = [ends(parts.w * row**2 @ parts.w.mT) for row in parts.derivative]
    for end, sign in ((0, 1), (1, -1)):
        data = ends(parts.kernel)[end]
        outer = exact([block[end] for block in blocks])
        bound = ends(parts.gamma + data * outer.diag())[end]
        assert n * found[end][end] == pytest.approx(bound, rel=1e-9, abs=parts.tolerance)
        assert n * found[end][1 - end] == pytest.approx(ends(mean)[end], rel=1e-9, abs=parts.tolerance)
        worst = (outer.min() if end == 0 else outer.max()).item()
        weyl = data * worst + ends(parts.gamma)[end]
        lemma = (slope**2 if end == 0 else 1) * data * ends(parts.w @ parts.w.mT)[end] + ends(parts.gamma)[end]
        assert sign * (ends(parts.gram)[end] - bound) >= -parts.tolerance
        assert sign * (bound - weyl) >= -parts.tolerance
        assert sign * (weyl - lemma) >= -parts.tolerance


@pytest.mark.claim("Active units", verdict="holds")
def test_it_is_finite_for_the_relu_where_lemma_4_is_not():
    v, w, x = exact([[1, 1], [2, 2]]), exact([[1, 0], [0, 1]]), torch.eye(2).double()
    assert zhao_lemma_4([v, w], x, 0.0).first > 1e30
    assert leaky_relu_ends([v, w], x, 0.0).condition.upper == pytest.approx(11, rel=1e-12)
    assert condition(v, w, x, 0.0)[0] == pytest.approx(11, rel=1e-12)


@pytest.mark.claim("Active units", verdict="holds")
@instances
@given(networks(), slopes)
def test_with_one_output_and_white_samples_it_is_the_condition_number(problem, slope):
    v, w, x = problem
    n, d = min(x.shape), x.shape[1]
    x, w = orthogonal(len(v), d)[:n], w[:1]
    bounds = leaky_relu_ends([v, w], x, slope).condition
    assume(bounds.upper < 1e8)
    assert bounds.lower == pytest.approx(bounds.upper, rel=1e-6)
