"""Zhao 2024, section 4.3, Eq. 7 and 8, and appendix I.3: the bound for residual networks, and larger skips."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import SecondMoment, condition_number, linear_gauss_newton
from gnlib.linear.bounds import zhao_lemma_2, zhao_lemma_2_terms
from tests import strategies
from tests.gnbook.residual.helpers import shifted, skips
from tests.oracles import assert_same_nonzero_spectrum, identity, singular, spectrum, with_skip
from tests.strategies import diagonal, exact, gaussian, problems, seeds, terms, true_condition

not_negative = strategies.sizes.flatmap(lambda size: strategies.spectra(size, lowest=0))


@pytest.mark.claim("Residual networks, Gauss-Newton matrix", verdict="holds")
@given(problems(1, 4), skips)
def test_with_skips_the_formula_is_that_of_the_shifted_weights(problem, skip):
    weights, x = problem
    assume(x.any())
    thetas, outputs = [w.clone().requires_grad_() for w in weights], x
    for theta in thetas:
        rows, columns = theta.shape
        carried = torch.nn.functional.pad(outputs[:, : min(rows, columns)], (0, max(0, rows - columns)))
        outputs = outputs @ theta.mT + skip * carried
    true = strategies.derivatives(outputs, thetas)
    library = spectrum(linear_gauss_newton(weights, SecondMoment.from_data(x), skip).dense())
    assert_same_nonzero_spectrum(library, spectrum(true @ true.mT / len(x)), 1e-11)


@pytest.mark.claim("Eq. 7", verdict="holds")
@given(problems(2, 4, wide=True), skips)
def test_both_bounds_of_eq_7_hold_and_the_library_evaluates_them_as_printed(problem, skip):
    weights, x = problem
    assume(x.any())
    moved = shifted(weights, skip)
    largest, alpha = terms(moved)
    assume((alpha > 1e-20 * largest).all())
    gamma, kappas = alpha / alpha.sum(), largest / alpha
    first, second = (strategies.data_condition(x) * factor.item() for factor in ((gamma * kappas).sum(), kappas.max()))
    true = true_condition(moved, x)
    assert true <= first * strategies.up_to_rounding(true)
    assert first <= second * (1 + 1e-9)
    if (alpha > 1e-9 * largest).all() and torch.linalg.matrix_rank(x, rtol=1e-3) == x.shape[1]:
        assert zhao_lemma_2(weights, SecondMoment.from_data(x), skip) == pytest.approx((first, second), rel=1e-5)


@pytest.mark.claim("Which layers a skip shifts", verdict="holds")
@given(not_negative, st.integers(0, 4), st.booleans(), seeds, skips)
def test_positive_semi_definite_layers_continued_by_zeros_are_shifted(values, more, tall, seed, skip):
    q = strategies.orthogonal(seed, len(values))
    weight = torch.nn.functional.pad((q * values) @ q.mT, (0, 0, 0, more) if tall else (0, more))
    expected = values.sort(descending=True).values + skip
    assert torch.allclose(singular(with_skip(weight, skip)), expected, rtol=1e-12, atol=1e-12 * expected[0].item())


@pytest.mark.claim("Conserved along gradient flow", verdict="holds")
@given(problems(2, 4), st.one_of(st.just(0.0), skips), seeds)
def test_the_gradients_of_neighbours_conserve_the_difference_of_their_squares(problem, skip, seed):
    weights, outputs = problem
    moving, moved = [w.clone().requires_grad_() for w in weights], shifted(weights, skip)
    for w in shifted(moving, skip):
        outputs = outputs @ w.mT
    targets = gaussian(seed, *outputs.shape)
    grads = torch.autograd.grad((outputs - targets).square().mean() + (outputs - targets).abs().sum(), moving)
    scale = max(g.abs().max().item() * w.abs().max().item() for g in grads for w in moved)
    for (w, g), (w_next, g_next) in itertools.pairwise(zip(moved, grads, strict=True)):
        rate = w_next.mT @ g_next + g_next.mT @ w_next - w @ g.mT - g @ w.mT  # of M^T M above minus M M^T below
        assert rate.abs().max() <= 1e-10 * scale + 1e-280


def product_of_conditions(weights, layer):
    largest, alpha = terms(weights)
    return (largest[layer] / alpha[layer]).item()


@pytest.mark.claim("Singular values with a skip", "Aligned layers at small initialisation", "Eq. 8", verdict="fails")
@pytest.mark.claim("Second bound, smaller with a skip", "Skips improve the conditioning", verdict="fails")
@pytest.mark.claim("Appendix I.3, each term falls as the skip grows", verdict="fails")
@pytest.mark.claim("Large skips push the condition number to one", verdict="holds if")
def test_the_smallest_counterexamples_are_a_rotation_a_reflection_and_a_narrow_network():
    assert singular(with_skip(exact([[-1]]), 1.0)).item() == 0  # not 2
    turned = singular(with_skip(exact([[0, -1], [1, 0]]), 1.0))
    assert turned.tolist() == pytest.approx([2**0.5] * 2, rel=1e-12)  # not 2
    for scale in (1, 1e-3, 1e-9):
        first, second = scale * exact([[1], [0]]), scale * exact([[0, 1]])  # d = k = 1, m = 2
        assert torch.linalg.svd(first).U[:, 0] @ torch.linalg.svd(second).Vh[0] == 0  # aligned would be 1 or -1

    reflected = [diagonal([1, -1], 3, 2), diagonal([1], 1, 3)]  # d = 2, m = 3, k = 1: singular vectors coincide
    narrow = [diagonal([1], 2, 1), diagonal([2, 1], 2, 2), diagonal([1], 1, 2)]  # aligned, positive semi-definite
    for weights, skip, layer, by_ratios, conditions in ((reflected, 0.5, 1, 1, 9), (narrow, 1.0, 0, 9 / 4, 1)):
        others = [singular(w) + skip for i, w in enumerate(weights) if i != layer]
        assert math.prod((s[0] / s[-1]).item() ** 2 for s in others) == pytest.approx(by_ratios, rel=1e-12)
        assert product_of_conditions(shifted(weights, skip), layer) == pytest.approx(conditions, rel=1e-12)
    for skip, bound, kappa in ((0.0, 1, 1), (0.5, 9, 1.8)):
        assert zhao_lemma_2(reflected, identity(2), skip).second == pytest.approx(bound, rel=1e-12)
        assert true_condition(shifted(reflected, skip), identity(2)) == pytest.approx(kappa, rel=1e-12)
        found = condition_number(linear_gauss_newton(reflected, identity(2), skip))
        assert float(found) == pytest.approx(kappa, rel=1e-9)
    rising = [product_of_conditions(shifted(reflected, skip), layer=1) for skip in (0.1, 0.25, 0.5, 0.75)]
    assert rising == sorted(rising) and rising[-1] > 10 * rising[0]

    v, w, x = exact([[1, 0], [0, 1], [0, 0]]), exact([[1, 0, 0]]), exact([[2, 0], [0, 1]])
    assert true_condition(shifted([v, w], 1e6), x) == pytest.approx(4, rel=1e-5)


@pytest.mark.claim("Each factor of Eq. 8", verdict="fails")
@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=4), st.integers(1, 4), skips)
def test_equal_singular_values_leave_nothing_to_gain(multiples, n, skip):
    weights = [c * identity(n) for c in multiples]  # aligned, symmetric, positive definite
    row = [identity(n), gaussian(n, 1, n)]  # the last layer of a network with one output has one singular value
    for beta in (0.0, skip):
        found = zhao_lemma_2_terms(weights, identity(n), beta)
        assert torch.allclose(found.kappa_above * found.kappa_below, identity(1), rtol=1e-9)
        assert zhao_lemma_2(weights, identity(n), beta).second == pytest.approx(1, rel=1e-9)
        assert zhao_lemma_2_terms(row, identity(n), beta).kappa_above[0] == pytest.approx(1, rel=1e-9)


def norm_of(weights):
    return max(torch.linalg.matrix_norm(w, 2).item() for w in weights)


@pytest.mark.claim("Large skips push the condition number to one", verdict="holds if")
@given(problems(2, 4, wide=True, regular=True))
def test_the_condition_number_tends_to_that_of_the_data(problem):
    weights, x = problem
    moved = shifted(weights, 1e5 * norm_of(weights))
    assert true_condition(moved, x) == pytest.approx(strategies.data_condition(x), rel=1e-3)


@pytest.mark.claim("Appendix I.3, the terms tend to one", "Condition number for large skips", verdict="holds")
@given(problems(2, 4, wide=True))
def test_the_terms_tend_to_one_and_the_excess_over_one_is_inversely_proportional_to_the_skip(problem):
    weights, depth, excess = problem[0], len(problem[0]), 0
    norm = norm_of(weights)
    for ratio in (1e3, 1e5):
        largest, alpha = terms(shifted(weights, ratio * max(norm, 1e-3)))
        assert -1e-9 <= (largest / alpha - 1).max().item() <= 5 * depth / ratio
    assume(norm > 0)
    for size, layers in ((len(weights[-1]), weights), (weights[0].shape[1], weights[::-1])):
        blocks = [w[:size, :size] for w in layers[1:]]  # of the layers after this end, in the order of their weights
        values = spectrum(sum(c * (block + block.mT) for c, block in enumerate(blocks, 1)))
        excess += (values[0] - values[-1]).item() / depth
    for ratio in (1e3, 1e4):
        true = true_condition(shifted(weights, ratio * norm), identity(weights[0].shape[1]))
        assert abs(true - 1 - excess / (ratio * norm)) <= 30 * depth**2 / ratio**2
