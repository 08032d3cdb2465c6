"""Zhao 2024, section 5 and appendix H: one hidden layer of leaky ReLUs unit by unit, Lemmas 3 and 4."""

import math

import pytest
import torch
from gnbook.leaky_relu.bounds import leaky_relu_ends, zhao_lemma_4
from gnbook.shared.hidden_layer import leaky_relu_gram
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn import functional

from gnlib import linear_gauss_newton, second_moment
from tests.gnbook.leaky_relu.helpers import SLOPES, Parts, condition, jacobian, leaky, networks, slopes
from tests.oracles import ends
from tests.strategies import EPS, exact, gaussian, instances, kron, orthogonal, squares, symmetric, up_to_rounding


def two_slopes(left, right):
    return lambda z: torch.where(z > 0, right * z, left * z)


@pytest.mark.claim("Eq. 9", verdict="holds")
@instances
@given(networks(), slopes)
def test_the_network_is_the_sum_of_its_units(problem, slope):
    v, w, x = problem
    whole = leaky(slope)(x @ v.mT) @ w.mT
    units = sum(leaky(slope)(x @ v[u : u + 1].mT) @ w[:, u : u + 1].mT for u in range(len(v)))
    torch.testing.assert_close(whole, units, rtol=0, atol=1e-12 * (x.norm() * v.norm() * w.norm()).item() + 1e-300)


def blocks_of_lemma_3(v, w, x, derivative, unit):
    """The two blocks of Lemma 3, `X Lambda kron W^T` above `V X Lambda kron I`, for one unit."""
    data = x.mT * derivative
    return kron(data, w[:, unit : unit + 1].mT), kron(v[unit : unit + 1] @ data, torch.eye(len(w), dtype=x.dtype))


@pytest.mark.claim("Lemma 3", verdict="holds if")
@instances
@given(networks(), st.integers(-8, 8), st.integers(-8, 8), st.data())
def test_the_blocks_of_lemma_3_on_top_of_each_other_are_the_jacobian(problem, left, right, data):
    v, w, x = problem
    unit = data.draw(st.integers(0, len(v) - 1))
    derivative = torch.where(x @ v[unit] > 0, right, left).double()  # slopes of any sign
    first, second = blocks_of_lemma_3(v, w, x, derivative, unit)
    found = jacobian(v[unit : unit + 1], w[:, unit : unit + 1], x, two_slopes(left, right)).mT
    expected = torch.cat([first, second])  # heights d and k, one width
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * expected.abs().max().item() + 1e-300)


@pytest.mark.claim("Piecewise linear activations", verdict="fails")
def test_a_ramp_is_piecewise_linear_and_not_its_derivative_times_its_argument():
    z = exact([2.0]).requires_grad_()
    (derivative,) = torch.autograd.grad(functional.hardtanh(z).sum(), z)
    assert functional.hardtanh(z) == 1 and derivative * z == 0


@pytest.mark.claim("Activations with two slopes", verdict="holds")
@instances
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-5, 5, allow_subnormal=False), st.floats(0.01, 5))
def test_two_slopes_that_meet_at_zero_satisfy_it_and_are_positively_homogeneous(left, right, z, scale):
    activation, z = two_slopes(left, right), exact([z]).requires_grad_()
    (derivative,) = torch.autograd.grad(activation(z).sum(), z)
    assert activation(z) == derivative * z
    torch.testing.assert_close(activation(scale * z), scale * activation(z), rtol=1e-12, atol=1e-300)


@pytest.mark.claim("Sum over units", verdict="holds")
@instances
@given(networks(), slopes)
def test_the_jacobian_is_the_sum_of_those_of_the_units_whose_mixed_products_vanish(problem, slope):
    v, w, x = problem
    units = []
    for u in range(len(v)):
        mask = (torch.arange(len(v)) == u).double()
        units.append(jacobian(v, w, x, lambda z, mask=mask: leaky(slope)(z) * mask).mT)  # the other units silent
    whole = jacobian(v, w, x, leaky(slope)).mT
    torch.testing.assert_close(whole, sum(units), rtol=0, atol=1e-14 * whole.abs().max().item())
    assert not any((a.mT @ b).any() for i, a in enumerate(units) for b in units[:i])


@pytest.mark.claim("Eq. 10", verdict="holds")
@pytest.mark.claim("Gram form", verdict="holds")
@instances
@given(networks(), st.sampled_from([*SLOPES, -0.5, 2.0]))
def test_eq_10_is_n_times_the_gram_matrix_of_the_library_and_of_autograd(problem, slope):
    v, w, x = problem
    parts, j = Parts(v, w, x, slope), jacobian(v, w, x, leaky(slope))
    tolerance = 1e-12 * max(parts.gram.abs().max().item(), 1e-300)
    torch.testing.assert_close(parts.gram, j @ j.mT, rtol=0, atol=tolerance)
    torch.testing.assert_close(len(x) * leaky_relu_gram([v, w], x, slope), j @ j.mT, rtol=0, atol=tolerance)
    a, b = (torch.linalg.eigvalsh(product).flip(0) for product in (j @ j.mT, j.mT @ j))
    size = min(len(a), len(b))
    for values in (a[:size] - b[:size], a[size:], b[size:]):
        assert not len(values) or values.abs().max() <= 1e-12 * a[0]


@pytest.mark.claim("White samples", verdict="holds")
@instances
@given(networks(white=True), st.sampled_from([*SLOPES, -0.5, 2.0]))
def test_white_samples_meet_in_the_second_sum_only(problem, slope):
    v, w, x = problem
    parts, scale = Parts(v, w, x, slope), problem[2][0].square().sum()
    closed = torch.block_diag(*(scale * (w * row**2) @ w.mT for row in parts.derivative)) + parts.second
    torch.testing.assert_close(closed, parts.gram, rtol=0, atol=1e-12 * parts.gram.abs().max().item() + 1e-300)


@pytest.mark.claim("Slope one", verdict="holds")
@instances
@given(networks())
def test_slope_one_is_the_linear_network(problem):
    v, w, x = problem
    assume(x.any())
    gram = torch.linalg.eigvalsh(leaky_relu_gram([v, w], x, 1.0)).flip(0)
    linear = torch.linalg.eigvalsh(linear_gauss_newton([v, w], second_moment(x)).dense()).flip(0)
    size = min(len(gram), len(linear))
    for values in (gram[:size] - linear[:size], gram[size:], linear[size:]):
        assert not len(values) or values.abs().max() <= 1e-11 * gram[0]


@pytest.mark.claim("Rank", verdict="holds")
@instances
@given(networks(), slopes)
def test_the_rank_is_at_most_the_number_of_free_directions(problem, slope):
    v, w, x = problem
    parts = Parts(v, w, x, slope)
    span = int((torch.linalg.svdvals(x) > 1e-12).sum())
    seen = [min(span, int(column.count_nonzero())) for column in parts.derivative.mT]
    bound = sum(s + len(w) - 1 for s in seen if s)
    values = torch.linalg.svdvals(jacobian(v, w, x, leaky(slope)))
    assert int((values > 1e-9 * values[0].clamp_min(1e-300)).sum()) <= min(bound, len(x) * len(w))


@pytest.mark.claim("Rank", verdict="holds")
@pytest.mark.parametrize("d, m, k, n", [(3, 2, 2, 9), (2, 3, 3, 8), (4, 1, 3, 6), (1, 2, 4, 5)])
@pytest.mark.parametrize("slope", [0.3, -0.5])
def test_in_general_position_few_units_reach_that_number(d, m, k, n, slope):
    v, w, x = gaussian(0, m, d), gaussian(1, k, m), gaussian(2, n, d)
    assert condition(v, w, x, slope)[1] == m * (d + k - 1) < n * k


@pytest.mark.claim("Dead units", verdict="holds")
@instances
@given(networks(), st.data())
def test_a_dead_unit_is_missing_and_a_sample_that_no_unit_sees_is_lost(problem, data):
    v, w, x = problem
    unit, sample = data.draw(st.integers(0, len(v) - 1)), data.draw(st.integers(0, len(x) - 1))
    dead = v.clone()
    dead[unit] = 0
    rest = torch.arange(len(v)) != unit
    gram = leaky_relu_gram([dead, w], x, 0.0)
    if rest.any():
        expected = leaky_relu_gram([v[rest], w[:, rest]], x, 0.0)
        torch.testing.assert_close(gram, expected, rtol=0, atol=1e-13 * expected.abs().max().item() + 1e-300)
    else:
        assert not gram.any()
    blind = -torch.outer((v @ x[sample]).abs() + 1, x[sample])  # all units are negative on this sample
    block = leaky_relu_gram([blind, w], x, 0.0).view(len(x), len(w), -1)[sample]
    assert not block.any()
    assert leaky_relu_ends([blind, w], x, 0.0).smallest.lower <= 1e-12 * (1 + gram.abs().max().item())


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
def test_with_one_output_and_white_samples_it_is_the_condition_number(problem, slope):
    v, w, x = problem
    n, d = min(x.shape), x.shape[1]
    x, w = orthogonal(len(v), d)[:n], w[:1]
    bounds = leaky_relu_ends([v, w], x, slope).condition
    assume(bounds.upper < 1e8)
    assert bounds.lower == pytest.approx(bounds.upper, rel=1e-6)
