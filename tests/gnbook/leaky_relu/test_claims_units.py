"""Zhao 2024, section 5, Eq. 9 and 10 and Lemma 3: one hidden layer of leaky ReLUs, unit by unit."""

import pytest
import torch
from gnbook.leaky_relu.bounds import leaky_relu_ends
from gnbook.shared.hidden_layer import leaky_relu_gram
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn import functional

from gnlib import linear_gauss_newton, second_moment
from tests.gnbook.leaky_relu.helpers import SLOPES, Parts, condition, ends, jacobian, leaky, networks, slopes
from tests.strategies import exact, gaussian, instances, kron, squares


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
@instances
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


@pytest.mark.claim("Slope one", verdict="holds")
@pytest.mark.parametrize("seed", range(5))
def test_with_more_samples_than_inputs_the_condition_number_explodes_before_slope_one(seed):
    v, w, x = gaussian(seed, 30, 2), gaussian(seed + 1, 2, 30), gaussian(seed + 2, 5, 2)
    values = {slope: condition(v, w, x, slope) for slope in (0.0, 0.9, 0.99, 0.999, 1.0)}
    assert [rank for _, rank in values.values()] == [10, 10, 10, 10, 4]
    assert values[0.999][0] == pytest.approx(100 * values[0.99][0], rel=0.2)
    assert values[1.0][0] < values[0.9][0] < values[0.99][0]


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


@pytest.mark.claim("Rank", verdict="holds")
@instances
@given(networks(white=True), st.sampled_from([0.01, 0.3, 1.0, -0.5]))
def test_independent_samples_and_outputs_give_full_rank_at_any_slope_but_zero(problem, slope):
    v, w, x = problem
    assume(squares(w, len(w))[-1] > 1e-6 * squares(w, len(w))[0] > 0)
    low, high = ends(leaky_relu_gram([v, w], x, slope))
    floor = slope**2 * (squares(x, len(x))[-1] * squares(w, len(w))[-1]).item() / len(x)
    assert low >= floor - 1e-12 * high


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
