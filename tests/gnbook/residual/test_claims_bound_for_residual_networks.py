"""Zhao 2024, section 4.3, Eq. 7 and 8, and appendix I.3: the bound for residual networks, and larger skips."""

import itertools

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import SecondMoment, condition_number, linear_gauss_newton
from gnlib.linear.bounds import zhao_lemma_2, zhao_lemma_2_terms
from tests.gnbook.residual.helpers import (
    REFLECTED,
    product_of_conditions,
    product_of_ratios,
    shapes,
    shifted,
    skips,
    terms,
)
from tests.oracles import singular, with_skip
from tests.strategies import (
    data_condition,
    derivatives,
    diagonal,
    exact,
    gaussian,
    instances,
    orthogonal,
    problems,
    seeds,
    spectra,
    true_condition,
    up_to_rounding,
)

# The Gauss-Newton matrix and Eq. 7


@pytest.mark.claim("Residual networks, Gauss-Newton matrix", verdict="holds")
@instances
@given(problems(1, 4), skips)
def test_with_skips_the_formula_is_that_of_the_shifted_weights(problem, skip):
    weights, x = problem
    moment = SecondMoment.from_data(x) if x.any() else None
    assume(moment is not None)

    thetas, outputs = [w.clone().requires_grad_() for w in weights], x
    for theta in thetas:
        rows, columns = theta.shape
        carried = torch.nn.functional.pad(outputs[:, : min(rows, columns)], (0, max(0, rows - columns)))
        outputs = outputs @ theta.mT + skip * carried
    true = derivatives(outputs, thetas)
    true = torch.linalg.eigvalsh(true @ true.mT / len(x)).flip(0)
    library = torch.linalg.eigvalsh(linear_gauss_newton(weights, moment, skip).dense()).flip(0)
    common = min(len(true), len(library))
    tolerance = 1e-11 * max(true[0].item(), 1e-280)
    assert (true[:common] - library[:common]).abs().max() <= tolerance
    assert not any((rest[common:].abs() > tolerance).any() for rest in (true, library))


@pytest.mark.claim("Eq. 7", verdict="holds")
@instances
@given(problems(2, 4, wide=True), skips)
def test_both_bounds_of_eq_7_hold_and_the_library_evaluates_them_as_printed(problem, skip):
    weights, x = problem
    assume(x.any())
    moved = shifted(weights, skip)
    largest, alpha = terms(moved)
    assume((alpha > 1e-20 * largest).all())
    gamma, kappas = alpha / alpha.sum(), largest / alpha
    first = data_condition(x) * (gamma * kappas).sum().item()
    second = data_condition(x) * kappas.max().item()
    true = true_condition(moved, x)
    assert true <= first * up_to_rounding(true)
    assert first <= second * (1 + 1e-9)
    if (alpha > 1e-9 * largest).all() and torch.linalg.matrix_rank(x, rtol=1e-3) == x.shape[1]:
        assert zhao_lemma_2(weights, SecondMoment.from_data(x), skip) == pytest.approx((first, second), rel=1e-5)


# The step before Eq. 8


@pytest.mark.claim("Singular values with a skip", verdict="fails")
def test_a_negative_weight_and_a_rotation_have_other_singular_values():
    assert singular(with_skip(exact([[-1]]), 1.0)).item() == 0  # not 2
    turned = singular(with_skip(exact([[0, -1], [1, 0]]), 1.0))
    assert turned.tolist() == pytest.approx([2**0.5] * 2, rel=1e-12)  # not 2


def semi_definite(rows, columns, values, seed):
    """Return a positive semi-definite matrix with these eigenvalues, continued by zeros to the shape of a layer."""
    size = min(rows, columns)
    q = orthogonal(seed, size)
    weight = torch.zeros(rows, columns, dtype=torch.float64)
    weight[:size, :size] = (q * values) @ q.mT
    return weight


@pytest.mark.claim("Which layers a skip shifts", verdict="holds")
@instances
@given(shapes.flatmap(lambda shape: st.tuples(st.just(shape), spectra(min(shape), lowest=0))), seeds, skips)
def test_positive_semi_definite_layers_are_shifted(case, seed, skip):
    (rows, columns), values = case
    weight = semi_definite(rows, columns, values, seed)
    expected = values.sort(descending=True).values + skip
    assert torch.allclose(singular(with_skip(weight, skip)), expected, rtol=1e-12, atol=1e-12 * expected[0].item())


# The alignment of layers


@pytest.mark.claim("Aligned layers at small initialisation", verdict="fails")
@pytest.mark.parametrize("exponent", [0, 3, 9])
def test_a_small_scale_does_not_align_the_layers(exponent):
    first, second = 10.0**-exponent * exact([[1], [0]]), 10.0**-exponent * exact([[0, 1]])  # d = k = 1, m = 2
    left, right = torch.linalg.svd(first).U[:, 0], torch.linalg.svd(second).Vh[0]
    assert left @ right == 0  # aligned would be 1 or -1


@pytest.mark.claim("Conserved along gradient flow", verdict="holds")
@instances
@given(problems(2, 4), st.one_of(st.just(0.0), skips), seeds)
def test_the_gradients_of_neighbours_conserve_the_difference_of_their_squares(problem, skip, seed):
    weights, x = problem
    moving = [w.clone().requires_grad_() for w in weights]
    outputs = x
    for w in shifted(moving, skip):
        outputs = outputs @ w.mT
    targets = gaussian(seed, *outputs.shape)
    loss = (outputs - targets).square().mean() + (outputs - targets).abs().sum()
    grads = torch.autograd.grad(loss, moving)
    scale = max(g.abs().max().item() * w.abs().max().item() for g in grads for w in shifted(weights, skip))
    for lower, upper in itertools.pairwise(zip(shifted(weights, skip), grads, strict=True)):
        (w, g), (w_next, g_next) = lower, upper
        rate = w_next.mT @ g_next + g_next.mT @ w_next - w @ g.mT - g @ w.mT  # of M^T M above minus M M^T below
        assert rate.abs().max() <= 1e-10 * scale + 1e-280


# Eq. 8 and what is concluded from it


@pytest.mark.claim("Eq. 8", verdict="fails")
def test_eq_8_needs_square_positive_semi_definite_layers():
    narrow = [diagonal([1], 2, 1), diagonal([2, 1], 2, 2), diagonal([1], 1, 2)]  # aligned, positive semi-definite
    for weights, skip, layer, ratios, conditions in ((REFLECTED, 0.5, 1, 1, 9), (narrow, 1.0, 0, 9 / 4, 1)):
        assert product_of_ratios(weights, skip, layer) == pytest.approx(ratios, rel=1e-12)
        assert product_of_conditions(shifted(weights, skip), layer) == pytest.approx(conditions, rel=1e-12)


@pytest.mark.claim("Each factor of Eq. 8", verdict="fails")
@instances
@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=4), st.integers(1, 4), skips)
def test_equal_singular_values_leave_nothing_to_gain(multiples, n, skip):
    weights = [c * torch.eye(n, dtype=torch.float64) for c in multiples]  # aligned, symmetric, positive definite
    for beta in (0.0, skip):
        terms = zhao_lemma_2_terms(weights, torch.eye(n).double(), beta)
        assert torch.allclose(terms.kappa_above * terms.kappa_below, torch.ones(1).double(), rtol=1e-9)
        assert zhao_lemma_2(weights, torch.eye(n).double(), beta).second == pytest.approx(1, rel=1e-9)
    row = gaussian(n, 1, n)  # the last layer of a network with one output has one singular value
    for beta in (0.0, skip):
        last = zhao_lemma_2_terms([torch.eye(n).double(), row], torch.eye(n).double(), beta)
        assert last.kappa_above[0] == pytest.approx(1, rel=1e-9)


@pytest.mark.claim("Second bound, smaller with a skip", verdict="fails")
def test_a_reflection_has_a_larger_second_bound_with_a_skip():
    assert zhao_lemma_2(REFLECTED, torch.eye(2), 0.0).second == pytest.approx(1, rel=1e-12)
    assert zhao_lemma_2(REFLECTED, torch.eye(2), 0.5).second == pytest.approx(9, rel=1e-12)


# What skips do to the condition number


@pytest.mark.claim("Skips improve the conditioning", verdict="fails")
def test_a_skip_can_make_the_condition_number_worse():
    x = torch.eye(2).double()
    assert true_condition(REFLECTED, x) == pytest.approx(1, rel=1e-12)
    assert true_condition(shifted(REFLECTED, 0.5), x) == pytest.approx(1.8, rel=1e-12)
    assert float(condition_number(linear_gauss_newton(REFLECTED, torch.eye(2), 0.5))) == pytest.approx(1.8, rel=1e-9)


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
