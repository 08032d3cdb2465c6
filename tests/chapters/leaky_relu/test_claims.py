"""Zhao 2024, section 5, its Lemmas 3 and 4 and their proofs in appendix H: one hidden layer of leaky ReLUs."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn import functional

from gnlib import leaky_relu_gram, linear_gauss_newton, linear_weights, load, second_moment, whiten
from gnlib.chapters import results
from gnlib.chapters.leaky_relu.bounds import leaky_relu_ends, wide_leaky_relu_kernel, zhao_lemma_4
from tests.strategies import (
    EPS,
    exact,
    gaussian,
    hundreds,
    kron,
    matrices,
    nonzero_eigenvalues,
    orthogonal,
    samples,
    seeds,
    squares,
    symmetric,
    up_to_rounding,
)

SLOPES = [0.0, 0.01, 0.3, 0.5, 0.9, 1.0]
slopes = st.sampled_from(SLOPES)
proper = st.sampled_from(SLOPES[1:-1])


@st.composite
def networks(draw, white=False):
    """Draw `(v, w)` and samples; units and samples that are dead, zero, repeated or opposite among them."""
    d, k, m = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 9))
    if white:
        x = orthogonal(draw(seeds), d)[: draw(st.integers(1, d))] * draw(st.sampled_from([0.1, 1, 10]))
    else:
        x = draw(samples(d))
    v, w = draw(matrices(m, d)), draw(matrices(k, m))
    kind = draw(st.sampled_from(["free", "dead", "opposite", "repeated"]))
    if kind == "dead":
        v[0] = -x.abs().sum(0) * x.sum(0).sign()
    elif kind in ("opposite", "repeated"):
        v[m // 2 :] = v[0] * (-1 if kind == "opposite" else 1)
    return v, w, x


class Parts:
    """What section 5 is written with; in the names of the paper, X is x transposed."""

    def __init__(self, v, w, x, slope):
        self.v, self.w, self.x, self.slope = v, w, x, slope
        self.linear = x @ v.mT
        self.derivative = torch.ones_like(self.linear).where(self.linear > 0, slope)
        self.hidden = self.derivative * self.linear
        self.kernel, self.gamma = x @ x.mT, self.hidden @ self.hidden.mT
        self.eye = torch.eye(len(w), dtype=x.dtype)
        self.inner = [column.diag() @ self.kernel @ column.diag() for column in self.derivative.mT]
        self.outer = [torch.outer(column, column) for column in w.mT]
        self.first = sum(kron(a, b) for a, b in zip(self.inner, self.outer, strict=True))
        self.second = kron(self.gamma, self.eye)
        scale = ends(self.kernel)[1] * ends(w @ w.mT)[1] + self.linear.square().sum().item()
        self.tolerance = 1e-12 * max(1, slope**2) * scale
        self.gram = self.first + self.second


def ends(matrix):
    values = torch.linalg.eigvalsh(matrix)
    return values[0].item(), values[-1].item()


def jacobian(v, w, x, activation):
    """Return d f(x_i)_c / d (V, W) of `W activation(V x)` by automatic differentiation, rows first and sample-major."""
    v, w = v.clone().requires_grad_(), w.clone().requires_grad_()
    outputs = activation(x @ v.mT) @ w.mT
    each = torch.eye(outputs.numel(), dtype=outputs.dtype).reshape(-1, *outputs.shape)
    grads = torch.autograd.grad(outputs, (v, w), each, is_grads_batched=True)
    return torch.cat([g.flatten(1) for g in grads], 1)


def leaky(slope):
    return lambda z: functional.leaky_relu(z, slope)


def condition(v, w, x, slope):
    """Return the pseudo-condition number from the singular values of the Jacobian, and the rank."""
    values = nonzero_eigenvalues(jacobian(v, w, x, leaky(slope)), 1)
    return ((values[0] / values[-1]).item() if len(values) and values[0] > 0 else None), len(values)


def two_slopes(left, right):
    return lambda z: torch.where(z > 0, right * z, left * z)


# Units: Eq. 9, Lemma 3


@pytest.mark.claim("Eq. 9", verdict="holds")
@hundreds
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
@hundreds
@given(networks(), st.integers(-8, 8), st.integers(-8, 8), st.data())
def test_the_blocks_of_lemma_3_on_top_of_each_other_are_the_jacobian(problem, left, right, data):
    v, w, x = problem
    unit = data.draw(st.integers(0, len(v) - 1))
    derivative = torch.where(x @ v[unit] > 0, right, left).double()  # slopes of any sign
    first, second = blocks_of_lemma_3(v, w, x, derivative, unit)
    found = jacobian(v[unit : unit + 1], w[:, unit : unit + 1], x, two_slopes(left, right)).mT
    expected = torch.cat([first, second])  # heights d and k, one width
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * expected.abs().max().item() + 1e-300)


@pytest.mark.claim("Lemma 3", verdict="holds if")
def test_side_by_side_the_blocks_of_lemma_3_do_not_fit():
    v, w, x = gaussian(0, 3, 4), gaussian(1, 2, 3), gaussian(2, 5, 4)
    first, second = blocks_of_lemma_3(v, w, x, torch.ones(5).double(), 0)
    assert first.shape == (4, 10) and second.shape == (2, 10)


@pytest.mark.claim("Lemma 3", verdict="holds if")
@pytest.mark.parametrize("activation", [torch.tanh, functional.softplus, functional.hardtanh, torch.sin])
def test_without_the_assumption_the_block_of_the_output_weights_is_another(activation):
    v, w, x = exact([[2]]), exact([[1]]), exact([[1]])
    point = (x @ v.mT).requires_grad_()
    (derivative,) = torch.autograd.grad(activation(point).sum(), point)
    _, second = blocks_of_lemma_3(v, w, x, derivative[:, 0], 0)
    assert abs(second.item() - jacobian(v, w, x, activation)[0, 1].item()) > 0.05
    assert jacobian(v, w, x, activation)[0, 1] == activation(exact(2.0))


@pytest.mark.claim("Piecewise linear activations", verdict="fails")
def test_a_ramp_is_piecewise_linear_and_not_its_derivative_times_its_argument():
    z = exact([2.0]).requires_grad_()
    (derivative,) = torch.autograd.grad(functional.hardtanh(z).sum(), z)
    assert functional.hardtanh(z) == 1 and derivative * z == 0


def bent(slope, kinks):
    """Return the function through zero with this slope there, and with kinks `(where, change of slope)` off zero."""

    def activation(z):
        return slope * z + sum(change * (z - where) * ((z - where) * where > 0) for where, change in kinks)

    return activation


@pytest.mark.claim("Piecewise linear activations", verdict="fails")
@hundreds
@given(
    st.floats(-3, 3),
    st.lists(st.tuples(st.integers(-6, 6).filter(bool), st.floats(0.1, 3)), min_size=1, max_size=4),
    st.integers(-8, 8),
)
def test_a_kink_off_zero_always_breaks_it(slope, kinks, piece):
    """Each kink between zero and z takes the distance of the kink times the change of slope."""
    activation, z = bent(slope, kinks), exact([piece + 0.5]).requires_grad_()
    (derivative,) = torch.autograd.grad(activation(z).sum(), z)
    passed = [(where, change) for where, change in kinks if 0 < where / z.item() < 1]
    excess = (activation(z) - derivative * z).item()
    assert excess == pytest.approx(-sum(change * where for where, change in passed), rel=1e-12, abs=1e-12)
    assert (abs(excess) > 0.09) is bool(passed)


@pytest.mark.claim("Activations with two slopes", verdict="holds")
@hundreds
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-5, 5, allow_subnormal=False), st.floats(0.01, 5))
def test_two_slopes_that_meet_at_zero_satisfy_it_and_are_positively_homogeneous(left, right, z, scale):
    activation, z = two_slopes(left, right), exact([z]).requires_grad_()
    (derivative,) = torch.autograd.grad(activation(z).sum(), z)
    assert activation(z) == derivative * z
    torch.testing.assert_close(activation(scale * z), scale * activation(z), rtol=1e-12, atol=1e-300)


@pytest.mark.claim("Sum over units", verdict="holds")
@hundreds
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


@pytest.mark.claim("Gram form", verdict="holds")
@hundreds
@given(networks(), slopes)
def test_both_products_of_the_jacobian_have_the_same_non_zero_eigenvalues(problem, slope):
    j = jacobian(*problem, leaky(slope)).mT
    a, b = (torch.linalg.eigvalsh(product).flip(0) for product in (j @ j.mT, j.mT @ j))
    size = min(len(a), len(b))
    for values in (a[:size] - b[:size], a[size:], b[size:]):
        assert values.abs().max() <= 1e-12 * a[0] if len(values) else True


@pytest.mark.claim("Eq. 10", verdict="holds")
@hundreds
@given(networks(), st.sampled_from([*SLOPES, -0.5, 2.0]))
def test_eq_10_is_n_times_the_gram_matrix_of_the_library_and_of_autograd(problem, slope):
    v, w, x = problem
    parts, j = Parts(v, w, x, slope), jacobian(v, w, x, leaky(slope))
    tolerance = 1e-12 * max(parts.gram.abs().max().item(), 1e-300)
    torch.testing.assert_close(parts.gram, j @ j.mT, rtol=0, atol=tolerance)
    torch.testing.assert_close(len(x) * leaky_relu_gram([v, w], x, slope), j @ j.mT, rtol=0, atol=tolerance)


# Lemma 4


@pytest.mark.claim("Weyl unit by unit", verdict="holds if")
@hundreds
@given(networks(), slopes)
def test_weyl_unit_by_unit_gives_zero_for_two_outputs_or_more(problem, slope):
    parts = Parts(*problem, slope)
    assume(len(parts.w) > 1)
    for a, b in zip(parts.inner, parts.outer, strict=True):
        assert abs(ends(kron(a, b))[0]) <= 1e-14 * max(ends(a)[1] * ends(b)[1], 1e-300)


@pytest.mark.claim("Weyl unit by unit", verdict="holds if")
@hundreds
@given(networks(), slopes)
def test_with_one_output_it_gives_more_than_the_approach_of_the_paper(problem, slope):
    v, w, x = problem
    parts = Parts(v, w[:1], x, slope)
    unit_by_unit = sum(ends(a)[0] * b.item() for a, b in zip(parts.inner, parts.outer, strict=True))
    assert ends(parts.first)[0] >= unit_by_unit - parts.tolerance
    papers = min(ends(a)[0] for a in parts.inner) * sum(parts.outer).item()
    assert unit_by_unit >= papers - parts.tolerance


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
@hundreds
@given(kronecker_terms())
def test_the_ends_of_a_sum_of_kronecker_products(terms):
    total, right = sum(kron(a, b) for a, b in terms), sum(b for _, b in terms)
    smallest, largest = ends(total)
    tolerance = 1e-12 * sum(ends(a)[1] * ends(b)[1] for a, b in terms)
    assert smallest >= min(ends(a)[0] for a, _ in terms) * ends(right)[0] - tolerance
    assert largest <= max(ends(a)[1] for a, _ in terms) * ends(right)[1] + tolerance


@pytest.mark.claim("Lemma 4", verdict="holds if")
@hundreds
@given(networks(), slopes)
def test_lemma_4_with_zero_padded_singular_values(problem, slope):
    v, w, x = problem
    bound = zhao_lemma_4([v, w], x, slope).first
    assume(bound < 1e15)
    true, rank = condition(v, w, x, slope)
    assert rank == len(x) * len(w)
    assert true <= bound * up_to_rounding(true)


@pytest.mark.claim("Lemma 4", verdict="holds if")
@hundreds
@given(networks(), slopes)
def test_the_library_evaluates_lemma_4_as_printed(problem, slope):
    v, w, x = problem
    parts, n, k = Parts(v, w, x, slope), len(x), len(w)
    data, output, gamma = squares(x, n), squares(w, k), squares(parts.hidden, n)
    top, bottom = data[0] * output[0] + gamma[0], slope**2 * data[-1] * output[-1] + gamma[-1]
    assume(bottom > 1e-20 * top > 0)
    assert zhao_lemma_4([v, w], x, slope).first == pytest.approx((top / bottom).item(), rel=1e-9)


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
@hundreds
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
@hundreds
@given(networks(), slopes)
def test_the_ends_are_between_the_sums_of_the_ends_of_the_two_sums(problem, slope):
    parts = Parts(*problem, slope)
    (low, high), (a, b), (c, e) = (ends(matrix) for matrix in (parts.gram, parts.first, parts.second))
    assert low >= a + c - parts.tolerance and high <= b + e + parts.tolerance


@pytest.mark.claim("Eq. 23 and 24", verdict="holds if")
@hundreds
@given(networks(), slopes)
def test_each_step_to_the_smallest_eigenvalue_of_the_first_sum(problem, slope):
    parts = Parts(*problem, slope)
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


@pytest.mark.claim("Appendix H, largest eigenvalue of the first sum", verdict="holds")
@hundreds
@given(networks(), slopes)
def test_the_largest_eigenvalue_of_the_first_sum(problem, slope):
    parts = Parts(*problem, slope)
    bound = squares(parts.x, 1)[0] * squares(parts.w, 1)[0]
    assert ends(parts.first)[1] <= bound + parts.tolerance


def gamma_and_linear(v, x, slope):
    parts = Parts(v, torch.ones(1, len(v)).double(), x, slope)
    return ends(parts.gamma), ends(parts.linear @ parts.linear.mT)


@pytest.mark.claim("Eq. 25", verdict="fails")
@hundreds
@given(proper)
def test_a_leaky_relu_can_make_a_regular_layer_singular(slope):
    v = exact([[1, -1 / slope], [-1, slope]])  # hidden values (1, -slope) and (-1, slope)
    (gamma, scale), (linear, _) = gamma_and_linear(v, torch.eye(2).double(), slope)
    assert abs(gamma) <= 1e-13 * scale
    assert slope**2 * linear > 1e-7


@pytest.mark.claim("Eq. 25", verdict="fails")
@hundreds
@given(networks(), slopes)
def test_eq_25_holds_for_one_sample_one_input_one_unit_and_at_both_slopes_of_the_range(problem, slope):
    v, _, x = problem
    cases = [(v[:1], x, slope), (v, x[:1], slope), (v[:, :1], x[:, :1], slope), (v, x, 0.0), (v, x, 1.0)]
    for units, inputs, a in cases:
        (gamma, _), (linear, top) = gamma_and_linear(units, inputs, a)
        assert gamma >= a**2 * linear - 1e-11 * top


@pytest.mark.claim("Eq. 25", verdict="fails")
@hundreds
@given(networks(), slopes)
def test_the_equality_of_eq_25_holds(problem, slope):
    parts = Parts(*problem, slope)
    assert abs(ends(parts.second)[0] - ends(parts.gamma)[0]) <= parts.tolerance


@pytest.mark.claim("Eq. 26", verdict="fails")
@hundreds
@given(st.sampled_from(SLOPES[:-1]))
def test_a_leaky_relu_can_enlarge_the_largest_eigenvalue(slope):
    v = exact([[1, 1], [1, -1]])
    (_, gamma), (_, linear) = gamma_and_linear(v, torch.eye(2).double(), slope)
    assert linear == pytest.approx(2, rel=1e-12)
    expected = 1 + (1 + slope**2) / 2 + math.sqrt(((1 - slope**2) / 2) ** 2 + (1 - slope) ** 2)
    assert gamma == pytest.approx(expected, rel=1e-12) and gamma > 2.001


@pytest.mark.claim("Eq. 26", verdict="fails")
@hundreds
@given(networks(), slopes)
def test_eq_26_holds_for_one_sample_one_input_and_one_unit(problem, slope):
    v, _, x = problem
    for units, inputs in ((v, x[:1]), (v[:, :1], x[:, :1]), (v[:1], x)):
        (_, gamma), (_, linear) = gamma_and_linear(units, inputs, slope)
        assert gamma <= linear * (1 + 1e-12) + 1e-300


@pytest.mark.claim("Eq. 26, repaired", verdict="holds")
@hundreds
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
@hundreds
@given(proper)
def test_for_every_slope_in_between_the_second_bound_is_too_small_by_any_factor(slope):
    x = torch.eye(2).double()
    for factor, w in ((1, 1e-2), (100, 1e-3)):
        v, w = exact([[1, -1 / slope], [-1, slope]]), w * slope * torch.ones(1, 2).double()
        assert condition(v, w, x, slope)[0] > factor * zhao_lemma_4([v, w], x, slope).second


@pytest.mark.claim("Lemma 4, second upper bound", verdict="fails")
@hundreds
@given(networks(), slopes)
def test_the_second_bound_holds_for_one_sample_one_input_or_one_unit(problem, slope):
    v, w, x = problem
    for first, second, inputs in ((v, w, x[:1]), (v[:, :1], w, x[:, :1]), (v[:1], w[:, :1], x)):
        bound = zhao_lemma_4([first, second], inputs, slope).second
        if bound < 1e15:
            true, _ = condition(first, second, inputs, slope)
            assert true <= bound * up_to_rounding(true)


# What figures 6 and 23 are said to show


def white_network(n, d, m, k, seed):
    return linear_weights([d, m, k], generator=torch.Generator().manual_seed(seed)), n**0.5 * torch.eye(n, d).double()


def median_ends(n, d, m, k, slope):
    """Median over three networks of the bounds of the condition number, for n white samples."""
    bounds = [leaky_relu_ends(*white_network(n, d, m, k, seed), slope).condition for seed in range(3)]
    return (torch.tensor(column).median().item() for column in zip(*bounds, strict=True))


@pytest.mark.claim("Figure 6, growth with the width", verdict="fails")
def test_for_many_white_samples_it_grows_from_as_many_units_to_a_few_times_as_many():
    n, d, k = 200, 240, 2
    previous = 0
    for m in (n, 2 * n, 4 * n):
        lower, upper = median_ends(n, d, m, k, 0.01)
        assert previous < lower
        previous = upper


@pytest.mark.claim("Figure 6, growth with the width", verdict="fails")
def test_it_falls_again_at_larger_widths():
    n, d, k = 200, 240, 2
    peak, _ = median_ends(n, d, 8 * n, k, 0.01)
    _, far = median_ends(n, d, 100 * n, k, 0.01)
    assert far < 0.85 * peak


@pytest.mark.claim("Figure 6, growth with the width", verdict="fails")
def test_at_the_size_of_figure_6_it_rises_to_eight_times_as_many_units_and_falls_from_sixteen_times_on():
    kept = [row for row in results.kept("leaky-relu") if row["figure"] == 6]
    means = {m: torch.tensor([r["kappa"] for r in kept if r["width"] == m and r["kappa"]]).mean() for m in (500, 4000)}
    below, above = ({r["width"]: r[end] for r in kept if r[end]} for end in ("below", "above"))
    assert means[4000] > 2 * means[500]
    assert below[4000] > above[16000] and below[16000] > above[32000]


@pytest.mark.claim("Figure 6, growth with the width", verdict="fails")
def test_for_more_images_than_pixels_it_rises_throughout():
    """MNIST at half resolution, whitened: 500 samples of rank 140, so that the second moment of samples is singular."""
    x = whiten(load("mnist", 500, stride=2)[0])
    assert torch.linalg.matrix_rank(x) == 140
    smallest, largest = ends(wide_leaky_relu_kernel(x, 0.01))
    values = []
    for m in (500, 1000, 2000, 5000, 20_000):
        weights = linear_weights([x.shape[1], m, 2], generator=torch.Generator().manual_seed(0))
        low, high = ends(leaky_relu_gram(weights, x, 0.01))
        values.append(high / low)
    assert values == sorted(values) and values[0] < 1.5e4 and 2.4e4 < values[-1] < largest / smallest < 2.6e4


@pytest.mark.claim("Figure 6, growth with the width", verdict="fails")
def test_for_few_white_samples_it_only_falls():
    values = []
    for m in (15, 30, 120, 1000, 4000):
        each = []
        for seed in range(9):
            weights, x = white_network(30, 40, m, 3, seed)
            low, high = ends(leaky_relu_gram(weights, x, 0.01))
            each.append(high / low)
        values.append(torch.tensor(each).median().item())
    assert values == sorted(values, reverse=True)


@pytest.mark.claim("Figure 6, growth with the width", verdict="fails")
def test_of_a_linear_network_it_falls_over_the_same_widths():
    n, d, k = 200, 240, 2
    values = [next(median_ends(n, d, m, k, 1.0)) for m in (2 * n, 4 * n, 8 * n)]
    assert values == sorted(values, reverse=True)


@pytest.mark.claim("Figure 6, tightness with the width", verdict="holds if")
def test_the_bound_closes_up_on_the_condition_number_from_as_many_units_as_samples_on():
    n, d, k = 50, 60, 3
    ratios = []
    for m in (n, 2 * n, 4 * n, 20 * n, 200 * n):
        each = []
        for seed in range(3):
            weights, x = white_network(n, d, m, k, seed)
            low, high = ends(leaky_relu_gram(weights, x, 0.01))
            each.append(zhao_lemma_4(weights, x, 0.01).first * low / high)
        ratios.append(torch.tensor(each).median().item())
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 100 and 1 <= ratios[-1] < 1.05


@pytest.mark.claim("Figure 6, tightness with the width", verdict="holds if")
@pytest.mark.parametrize("seed", range(3))
def test_up_to_as_many_units_as_samples_the_bound_opens_up(seed):
    ratios = []
    for m in (3, 10, 25, 60):
        weights, x = white_network(100, 100, m, 2, seed)
        low, high = ends(leaky_relu_gram(weights, x, 0.01))
        ratios.append(zhao_lemma_4(weights, x, 0.01).first * low / high)
    assert ratios == sorted(ratios) and ratios[0] < 1.2 and ratios[-1] > 1000


@pytest.mark.claim("Figure 6, tightness with the width", verdict="holds if")
@hundreds
@given(networks(), st.sampled_from([1e-2, 1e-3, 1e-4]))
def test_with_fewer_units_than_samples_the_bound_grows_as_the_inverse_square_of_the_slope(problem, slope):
    v, w, x = problem
    assume(len(v) < len(x) and x.any() and w.any())
    bound = zhao_lemma_4([v, w], x, slope).first
    assert bound >= (1 - 1e-9) / slope**2


@pytest.mark.claim("Figure 23, smaller slopes", verdict="fails")
@hundreds
@given(st.integers(0, 98).map(lambda percent: percent / 100))
def test_for_two_white_samples_and_one_unit_a_smaller_slope_is_worse(slope):
    v, w, x = exact([[1, -1]]), exact([[1]]), torch.eye(2).double()
    if slope == 0:
        assert condition(v, w, x, slope)[1] == 1  # the second sample is lost
        return
    true, above = (condition(v, w, x, a)[0] for a in (slope, slope + 0.01))
    root = math.sqrt((2 + 2 * slope**2) ** 2 - 12 * slope**2)
    assert true == pytest.approx((2 + 2 * slope**2 + root) / (2 + 2 * slope**2 - root), rel=1e-9)
    assert true > above


@pytest.mark.claim("Figure 23, smaller slopes", verdict="fails")
@hundreds
@given(st.sampled_from([-3, -1, 2]), st.integers(1, 3), slopes)
def test_no_smaller_network_tells_slopes_apart(v, w, slope):
    """One unit and one output, with one sample or with two of one input: a single non-zero eigenvalue."""
    for x in ([[1.0]], [[-2.0]], [[1.0], [-1.0]], [[1.0], [2.0]]):
        true, rank = condition(exact([[v]]), exact([[w]]), exact(x), slope)
        assert rank <= 1 and true in (None, 1)


@pytest.mark.claim("Figure 23, smaller slopes", verdict="fails")
@pytest.mark.parametrize("seed", range(5))
def test_for_white_samples_every_step_down_raises_the_condition_number_of_a_wide_network(seed):
    weights, x = white_network(60, 70, 600, 2, seed)
    values = []
    for slope in (1.0, 0.7, 0.5, 0.3, 0.1, 0.0):
        low, high = ends(leaky_relu_gram(weights, x, slope))
        values.append(high / low)
    assert values == sorted(values) and values[-1] > 4 * values[0]


# Our own


@pytest.mark.claim("Active units", verdict="holds")
@hundreds
@given(networks(), st.sampled_from([*SLOPES, -0.5, 2.0]))
def test_both_ends_are_within_the_bounds_of_the_active_units(problem, slope):
    v, w, x = problem
    parts, found = Parts(v, w, x, slope), leaky_relu_ends([v, w], x, slope)
    low, high = (value / len(x) for value in ends(parts.gram))
    tolerance = 1e-12 * high
    assert found.smallest.lower - tolerance <= low <= found.smallest.upper + tolerance
    assert found.largest.lower - tolerance <= high <= found.largest.upper + tolerance


@pytest.mark.claim("Active units", verdict="holds")
@hundreds
@given(networks(), st.sampled_from([*SLOPES, -0.5, 2.0]))
def test_the_condition_number_is_within_the_bounds_of_the_active_units(problem, slope):
    v, w, x = problem
    bounds = leaky_relu_ends([v, w], x, slope).condition
    assume(bounds.upper < 1e12)
    true, rank = condition(v, w, x, slope)
    assert rank == len(x) * len(w)
    assert bounds.lower * (1 - 1e-9 - 1e2 * EPS * true) <= true <= bounds.upper * up_to_rounding(true)


@pytest.mark.claim("Active units", verdict="holds")
@hundreds
@given(networks(), slopes)
def test_it_is_never_worse_than_lemma_4(problem, slope):
    v, w, x = problem
    found, lemma = leaky_relu_ends([v, w], x, slope).condition.upper, zhao_lemma_4([v, w], x, slope).first
    assert found <= lemma * (1 + 1e-9) or found > 1e15


@pytest.mark.claim("Active units", verdict="holds")
@hundreds
@given(networks(), slopes)
def test_each_step_between_the_bound_and_lemma_4(problem, slope):
    parts = Parts(*problem, slope)
    blocks = [ends(parts.w * row**2 @ parts.w.mT) for row in parts.derivative]
    for end, sign in ((0, 1), (1, -1)):
        data = ends(parts.kernel)[end]
        outer = exact([block[end] for block in blocks])
        bound = ends(parts.gamma + data * outer.diag())[end]
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
@hundreds
@given(networks(), slopes)
def test_with_one_output_and_white_samples_it_is_the_condition_number(problem, slope):
    v, w, x = problem
    n, d = min(x.shape), x.shape[1]
    x, w = orthogonal(len(v), d)[:n], w[:1]
    bounds = leaky_relu_ends([v, w], x, slope).condition
    assume(bounds.upper < 1e8)
    assert bounds.lower == pytest.approx(bounds.upper, rel=1e-6)


@pytest.mark.claim("White samples", verdict="holds")
@hundreds
@given(networks(white=True), st.sampled_from([*SLOPES, -0.5, 2.0]))
def test_white_samples_meet_in_the_second_sum_only(problem, slope):
    v, w, x = problem
    parts, scale = Parts(v, w, x, slope), problem[2][0].square().sum()
    closed = torch.block_diag(*(scale * (w * row**2) @ w.mT for row in parts.derivative)) + parts.second
    torch.testing.assert_close(closed, parts.gram, rtol=0, atol=1e-12 * parts.gram.abs().max().item() + 1e-300)


@pytest.mark.claim("Wide limit", verdict="holds")
@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n, d", [(4, 6), (6, 3)])
def test_the_condition_number_of_a_very_wide_network_is_that_of_the_kernel(n, d, slope):
    assume_regular = n <= d or slope < 1
    x, errors = gaussian(n, n, d), []
    for m in (2_000, 200_000):
        (v, w) = linear_weights([d, m, 2], generator=torch.Generator().manual_seed(0))
        low, high = ends(leaky_relu_gram([v, w], x, slope))
        smallest, largest = ends(wide_leaky_relu_kernel(x, slope))
        if assume_regular:
            errors.append(abs(high / low / (largest / smallest) - 1))
        else:
            assert abs(low) < 1e-12 * high and abs(smallest) < 1e-12 * largest
    assert not errors or (errors[1] < 0.05 and errors[1] < errors[0])


@pytest.mark.claim("Wide limit", verdict="holds")
@hundreds
@given(st.integers(1, 40), st.floats(0, 1), st.floats(0.1, 10))
def test_for_white_samples_the_limit_falls_as_the_slope_rises(n, slope, scale):
    def limit(slope):
        return 1 + n * (1 - slope) ** 2 / (math.pi * (1 + slope**2) - (1 - slope) ** 2)

    low, high = ends(wide_leaky_relu_kernel(scale * torch.eye(n).double(), slope))
    assert high / low == pytest.approx(limit(slope) if n > 1 else 1, rel=1e-9)
    assert limit(slope) >= limit(min(slope + 0.01, 1)) - 1e-9 and limit(1) == 1


@pytest.mark.claim("Wide limit", verdict="holds")
@hundreds
@given(st.integers(1, 4), seeds, st.floats(0, 0.95))
def test_below_slope_one_the_limit_is_regular_if_no_two_samples_are_parallel(d, seed, slope):
    x = gaussian(seed, 2 if d == 1 else 6, d)
    angles = (functional.normalize(x) @ functional.normalize(x).mT - torch.eye(len(x)).double()).abs().max()
    low, high = ends(wide_leaky_relu_kernel(x, slope))
    if d == 1:  # opposite samples may do for d = 1, equal directions do not
        assert (low > 1e-9 * high) == bool(x.prod() < 0)
    elif angles < 0.95:
        assert low > 1e-7 * (1 - slope) ** 2 * high


@pytest.mark.claim("Slope one", verdict="holds")
@hundreds
@given(networks())
def test_slope_one_is_the_linear_network(problem):
    v, w, x = problem
    assume(x.any())
    gram = torch.linalg.eigvalsh(leaky_relu_gram([v, w], x, 1.0)).flip(0)
    linear = torch.linalg.eigvalsh(linear_gauss_newton([v, w], second_moment(x)).dense()).flip(0)
    size = min(len(gram), len(linear))
    for values in (gram[:size] - linear[:size], gram[size:], linear[size:]):
        assert not len(values) or values.abs().max() <= 1e-11 * gram[0]


@pytest.mark.claim("Slope one", verdict="holds")
@pytest.mark.parametrize("seed", range(5))
def test_with_more_samples_than_inputs_the_condition_number_explodes_before_slope_one(seed):
    v, w, x = gaussian(seed, 30, 2), gaussian(seed + 1, 2, 30), gaussian(seed + 2, 5, 2)
    values = {slope: condition(v, w, x, slope) for slope in (0.0, 0.9, 0.99, 0.999, 1.0)}
    assert [rank for _, rank in values.values()] == [10, 10, 10, 10, 4]
    assert values[0.999][0] == pytest.approx(100 * values[0.99][0], rel=0.2)
    assert values[1.0][0] < values[0.9][0] < values[0.99][0]


@pytest.mark.claim("Rank", verdict="holds")
@hundreds
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


@pytest.mark.claim("Rank", verdict="holds")
@hundreds
@given(networks(white=True), st.sampled_from([0.01, 0.3, 1.0, -0.5]))
def test_independent_samples_and_outputs_give_full_rank_at_any_slope_but_zero(problem, slope):
    v, w, x = problem
    assume(squares(w, len(w))[-1] > 1e-6 * squares(w, len(w))[0] > 0)
    low, high = ends(leaky_relu_gram([v, w], x, slope))
    floor = slope**2 * (squares(x, len(x))[-1] * squares(w, len(w))[-1]).item() / len(x)
    assert low >= floor - 1e-12 * high


@pytest.mark.claim("Dead units", verdict="holds")
@hundreds
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
