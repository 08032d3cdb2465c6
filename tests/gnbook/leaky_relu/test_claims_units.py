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
from tests.gnbook.leaky_relu.helpers import SLOPES, any_slope, condition, jacobian, leaky, networks, slopes
from tests.oracles import assert_same_nonzero_spectrum, ends, identity, spectrum
from tests.strategies import EPS, exact, gaussian, kron, orthogonal, squares, symmetric, up_to_rounding


class Parts:
    """The symbols of section 5; in the names of the paper, X is x transposed."""

    def __init__(self, v, w, x, slope):
        self.w, self.x, self.linear = w, x, x @ v.mT
        self.derivative = torch.ones_like(self.linear).where(self.linear > 0, slope)
        hidden = self.derivative * self.linear
        self.kernel, self.gamma = x @ x.mT, hidden @ hidden.mT
        self.inner = [column.diag() @ self.kernel @ column.diag() for column in self.derivative.mT]
        self.outer = [torch.outer(column, column) for column in w.mT]
        self.first = sum(kron(a, b) for a, b in zip(self.inner, self.outer, strict=True))
        self.second = kron(self.gamma, identity(len(w)))
        scale = ends(self.kernel)[1] * ends(w @ w.mT)[1] + self.linear.square().sum().item()
        self.tolerance = 1e-12 * max(1, slope**2) * scale
        self.gram = self.first + self.second


def two_slopes(left, right):
    return lambda z: torch.where(z > 0, right * z, left * z)


@pytest.mark.claim("Piecewise linear activations", verdict="fails")
@pytest.mark.claim("Activations with two slopes", verdict="holds")
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-5, 5, allow_subnormal=False), st.floats(0.01, 5))
def test_two_slopes_that_meet_at_zero_are_their_derivative_times_their_argument_and_a_ramp_is_not(
    left, right, z, scale
):
    activation, z = two_slopes(left, right), exact([z]).requires_grad_()
    (derivative,) = torch.autograd.grad(activation(z).sum(), z)
    assert activation(z) == derivative * z
    torch.testing.assert_close(activation(scale * z), scale * activation(z), rtol=1e-12, atol=1e-300)
    two = exact([2.0]).requires_grad_()
    (derivative,) = torch.autograd.grad(functional.hardtanh(two).sum(), two)
    assert functional.hardtanh(two) == 1 and derivative * two == 0


@pytest.mark.claim("Eq. 9", "Sum over units", verdict="holds")
@pytest.mark.claim("Lemma 3", verdict="holds if")
@given(networks(), st.integers(-8, 8), st.integers(-8, 8))
def test_network_and_jacobian_are_the_sums_of_those_of_the_units_whose_blocks_are_those_of_lemma_3(
    problem, left, right
):
    (v, w, x), activation = problem, two_slopes(left, right)  # slopes of any sign
    whole, outputs = jacobian(v, w, x, activation).mT, activation(x @ v.mT) @ w.mT
    units = []
    for u in range(len(v)):
        only = torch.arange(len(v)) == u
        units.append(jacobian(v, w, x, lambda z, only=only: activation(z) * only).mT)  # the other units silent
        outputs = outputs - activation(x @ v[only].mT) @ w[:, only].mT
        data = x.mT * torch.where(x @ v[u] > 0, right, left).double()
        expected = torch.cat([kron(data, w[:, only].mT), kron(v[only] @ data, identity(len(w)))])
        found = jacobian(v[only], w[:, only], x, activation).mT  # heights d and k, one width
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * expected.abs().max().item() + 1e-300)
    assert outputs.abs().max() <= 1e-12 * (x.norm() * v.norm() * w.norm()) * max(abs(left), abs(right)) + 1e-300
    torch.testing.assert_close(whole, sum(units), rtol=0, atol=1e-14 * whole.abs().max().item())
    assert not any((a.mT @ b).any() for i, a in enumerate(units) for b in units[:i])


@pytest.mark.claim("Eq. 10", "Gram form", "White samples", "Slope one", "Rank", verdict="holds")
@given(networks(), any_slope, st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1, 10]))
def test_eq_10_is_n_times_the_gram_matrix_of_the_library_and_of_autograd(problem, slope, seed, scale):
    v, w, x = problem
    parts, j = Parts(v, w, x, slope), jacobian(v, w, x, leaky(slope))
    tolerance = 1e-12 * max(parts.gram.abs().max().item(), 1e-300)
    torch.testing.assert_close(parts.gram, j @ j.mT, rtol=0, atol=tolerance)
    torch.testing.assert_close(len(x) * leaky_relu_gram([v, w], x, slope), j @ j.mT, rtol=0, atol=tolerance)
    assert_same_nonzero_spectrum(spectrum(j.mT @ j), spectrum(j @ j.mT), 1e-12)
    if x.any():
        linear = spectrum(linear_gauss_newton([v, w], second_moment(x)).dense())
        assert_same_nonzero_spectrum(linear, spectrum(leaky_relu_gram([v, w], x, 1.0)), 1e-11)

    span, values = int((torch.linalg.svdvals(x) > 1e-12).sum()), torch.linalg.svdvals(j)
    seen = [min(span, int(column.count_nonzero())) for column in parts.derivative.mT]
    bound = min(sum(s + len(w) - 1 for s in seen if s), len(x) * len(w))
    assert int((values > 1e-9 * values[0].clamp_min(1e-300)).sum()) <= bound

    d = v.shape[1]
    white = Parts(v, w, scale * orthogonal(seed, d)[: min(len(x), d)], slope)  # they meet in the second sum only
    closed = torch.block_diag(*(scale**2 * (w * row**2) @ w.mT for row in white.derivative)) + white.second
    torch.testing.assert_close(closed, white.gram, rtol=0, atol=1e-12 * white.gram.abs().max().item() + 1e-300)


@pytest.mark.claim("Rank", verdict="holds")
@pytest.mark.parametrize("d, m, k, n", [(3, 2, 2, 9), (2, 3, 3, 8), (4, 1, 3, 6), (1, 2, 4, 5)])
@pytest.mark.parametrize("slope", [0.3, -0.5])
def test_in_general_position_few_units_reach_that_number(d, m, k, n, slope):
    v, w, x = gaussian(0, m, d), gaussian(1, k, m), gaussian(2, n, d)
    assert condition(v, w, x, slope)[1] == m * (d + k - 1) < n * k


@pytest.mark.claim("Dead units", verdict="holds")
@given(networks(), st.data())
def test_a_dead_unit_is_missing_and_a_sample_that_no_unit_sees_is_lost(problem, data):
    v, w, x = problem
    unit, sample = data.draw(st.integers(0, len(v) - 1)), data.draw(st.integers(0, len(x) - 1))
    rest = torch.arange(len(v)) != unit
    gram = leaky_relu_gram([v * rest[:, None], w], x, 0.0)
    expected = leaky_relu_gram([v[rest], w[:, rest]], x, 0.0) if rest.any() else torch.zeros_like(gram)
    torch.testing.assert_close(gram, expected, rtol=0, atol=1e-13 * expected.abs().max().item() + 1e-300)
    blind = -torch.outer((v @ x[sample]).abs() + 1, x[sample])  # all units are negative on this sample
    assert not leaky_relu_gram([blind, w], x, 0.0).view(len(x), len(w), -1)[sample].any()
    assert leaky_relu_ends([blind, w], x, 0.0).smallest.lower <= 1e-12 * (1 + gram.abs().max().item())


@pytest.mark.claim("Sum of Kronecker products", verdict="holds")
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.data())
def test_the_ends_of_a_sum_of_kronecker_products(a, b, count, data):
    terms = [(data.draw(symmetric(a, 0)), data.draw(symmetric(b, 0))) for _ in range(count)]
    total, right = sum(kron(a, b) for a, b in terms), sum(b for _, b in terms)
    smallest, largest = ends(total)
    tolerance = 1e-12 * sum(ends(a)[1] * ends(b)[1] for a, b in terms)
    assert smallest >= min(ends(a)[0] for a, _ in terms) * ends(right)[0] - tolerance
    assert largest <= max(ends(a)[1] for a, _ in terms) * ends(right)[1] + tolerance


@pytest.mark.claim("Lemma 4", verdict="holds if")
@given(networks(), slopes)
def test_lemma_4_with_zero_padded_singular_values_and_the_library_evaluates_it_as_printed(problem, slope):
    v, w, x = problem
    bounds, parts, n, k = zhao_lemma_4([v, w], x, slope), Parts(v, w, x, slope), len(x), len(w)
    data, output, linear = squares(x, n), squares(w, k), squares(parts.linear, n)
    gamma = squares(parts.derivative * parts.linear, n)
    for bound, hidden, shrunk in zip(bounds, (gamma, linear), (1, slope**2), strict=True):
        top, bottom = data[0] * output[0] + hidden[0], slope**2 * data[-1] * output[-1] + shrunk * hidden[-1]
        if bottom > 1e-20 * top > 0:
            assert bound == pytest.approx((top / bottom).item(), rel=1e-9)
    assume(bounds.first < 1e15)
    true, rank = condition(v, w, x, slope)
    assert rank == n * k and true <= bounds.first * up_to_rounding(true)


@pytest.mark.claim("Lemma 4", verdict="holds if")
@pytest.mark.claim("Lemma 4, second upper bound", verdict="fails")
def test_more_samples_than_inputs_need_zero_padded_singular_values_and_the_second_bound_can_be_too_small():
    v, w, x = exact([[1], [-1]]), exact([[1, 1]]), exact([[1], [-1]])  # n = 2, d = 1
    true, rank = condition(v, w, x, 0.5)
    assert rank == 2 and true == pytest.approx(9, rel=1e-12)
    smallest, largest = ends(Parts(v, w, x, 0.5).gamma)
    assert (2 * 2 + largest) / (0.5**2 * 2 * 2 + smallest) == 5  # with the one singular value that w and x have
    assert zhao_lemma_4([v, w], x, 0.5).first == pytest.approx(25, rel=1e-9)
    v, x = exact([[8, -16], [-8, 4]]), identity(2)
    true, rank = condition(v, w, x, 0.5)
    assert rank == 2 and true == pytest.approx(129, rel=1e-12)
    first, second = zhao_lemma_4([v, w], x, 0.5)
    assert 56 < second < 57 and first > 129


@pytest.mark.claim("Appendix H, Weyl for the two sums", verdict="holds")
@pytest.mark.claim("Appendix H, largest eigenvalue of the first sum", "Eq. 26, repaired", verdict="holds")
@pytest.mark.claim("Eq. 23 and 24", "Weyl unit by unit", verdict="holds if")
@given(networks(), slopes)
def test_each_step_to_the_ends_of_the_two_sums_and_of_the_first_and_weyl_unit_by_unit(problem, slope):
    v, w, x = problem
    parts, one = Parts(v, w, x, slope), Parts(v, w[:1], x, slope)
    (low, high), (a, b), (c, e) = (ends(matrix) for matrix in (parts.gram, parts.first, parts.second))
    assert low >= a + c - parts.tolerance and high <= b + e + parts.tolerance
    assert b <= squares(parts.x, 1)[0] * squares(parts.w, 1)[0] + parts.tolerance
    data, output = ends(parts.kernel)[0], ends(parts.w @ parts.w.mT)[0]
    inner = min(ends(a)[0] for a in parts.inner)
    torch.testing.assert_close(sum(parts.outer), parts.w @ parts.w.mT, rtol=0, atol=parts.tolerance + 1e-14)
    assert a >= inner * output - parts.tolerance
    assert inner * output >= slope**2 * data * output - parts.tolerance
    expected = (squares(parts.x, len(parts.x))[-1] * squares(parts.w, len(parts.w))[-1]).item()
    assert abs(data * output - expected) <= parts.tolerance

    for a, b in zip(parts.inner, parts.outer, strict=True):  # zero for two outputs or more
        assert len(w) == 1 or abs(ends(kron(a, b))[0]) <= 1e-14 * max(ends(a)[1] * ends(b)[1], 1e-300)
    unit_by_unit = sum(ends(a)[0] * b.item() for a, b in zip(one.inner, one.outer, strict=True))
    assert ends(one.first)[0] >= unit_by_unit - one.tolerance
    assert unit_by_unit >= inner * sum(one.outer).item() - one.tolerance
    positive = Parts(exact([[1]]), exact([[2]]), exact([[3]]), 0.0)
    assert ends(positive.inner[0])[0] * positive.outer[0].item() == 36

    absolute, total = squares(parts.linear.abs(), 1)[0].item(), parts.linear.square().sum().item()
    assert ends(parts.gamma)[1] <= absolute * (1 + 1e-12) + 1e-300
    assert absolute <= total * (1 + 1e-12) + 1e-300
    assert total <= min(parts.linear.shape) * squares(parts.linear, 1)[0].item() * (1 + 1e-9) + 1e-300


def gamma_and_linear(v, x, slope):
    parts = Parts(v, torch.ones(1, len(v)).double(), x, slope)
    return ends(parts.gamma), ends(parts.linear @ parts.linear.mT)


@pytest.mark.claim("Eq. 25", "Eq. 26", verdict="fails")
@pytest.mark.parametrize("slope", SLOPES[:-1])
def test_a_leaky_relu_can_make_a_regular_layer_singular_and_enlarge_the_largest_eigenvalue(slope):
    if slope:
        v = exact([[1, -1 / slope], [-1, slope]])  # hidden values (1, -slope) and (-1, slope)
        (gamma, scale), (linear, _) = gamma_and_linear(v, identity(2), slope)
        assert abs(gamma) <= 1e-13 * scale
        assert slope**2 * linear > 1e-7
    (_, gamma), (_, linear) = gamma_and_linear(exact([[1, 1], [1, -1]]), identity(2), slope)
    assert linear == pytest.approx(2, rel=1e-12)
    expected = 1 + (1 + slope**2) / 2 + math.sqrt(((1 - slope**2) / 2) ** 2 + (1 - slope) ** 2)
    assert gamma == pytest.approx(expected, rel=1e-12) and gamma > 2.001


@pytest.mark.claim("Active units", verdict="holds")
@given(networks(), any_slope)
def test_the_bounds_of_the_active_units_which_are_equal_with_one_output_and_white_samples(problem, slope):
    v, w, x = problem
    found = leaky_relu_ends([v, w], x, slope)
    low, high = (value / len(x) for value in ends(Parts(v, w, x, slope).gram))
    for value, (lower, upper) in ((low, found.smallest), (high, found.largest)):
        assert lower - 1e-12 * high <= value <= upper + 1e-12 * high
    lower, upper = found.condition
    if upper < 1e12:
        true, rank = condition(v, w, x, slope)
        assert rank == len(x) * len(w)
        assert lower * (1 - 1e-9 - 1e2 * EPS * true) <= true <= upper * up_to_rounding(true)
    white = orthogonal(len(v), x.shape[1])[: min(x.shape)]
    lower, upper = leaky_relu_ends([v, w[:1]], white, slope).condition
    assert upper >= 1e8 or lower == pytest.approx(upper, rel=1e-6)
