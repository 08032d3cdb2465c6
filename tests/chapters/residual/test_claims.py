"""Zhao 2024, section 4.3 and appendix I.3, and Riedi 2022, Lemmas 17 and 21 and Theorem 22: layers with a skip."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import SecondMoment, condition_number, linear_gauss_newton, linear_weights
from gnlib.bounds import zhao_lemma_2, zhao_lemma_2_terms
from gnlib.chapters.shared.skips import kaiming_skip_limits, residual_bound, skip_bounds
from tests.strategies import (
    a_hundred,
    data_condition,
    diagonal,
    exact,
    gaussian,
    hundreds,
    matrices,
    nonzero_eigenvalues,
    orthogonal,
    problems,
    seeds,
    sizes,
    spectra,
    squares,
    symmetric,
    true_condition,
    up_to_rounding,
)

skips = st.sampled_from([1e-3, 0.1, 0.25, 1 / 3, 0.5, 2**-0.5, 1.0, 2.0, 3.0, 10.0, 1e3])
shapes = st.tuples(sizes, sizes)


def with_skip(weight, skip):
    return weight + skip * torch.eye(*weight.shape, dtype=weight.dtype)


def shifted(weights, skip):
    return [with_skip(w, skip) for w in weights]


def singular(matrix):
    return torch.linalg.svdvals(matrix)


def block_eigenvalues(weight):
    """Return the eigenvalues of W + W^T for the leading square block, ascending."""
    size = min(weight.shape)
    block = weight[:size, :size]
    return torch.linalg.eigvalsh(block + block.mT)


def slack(weight, skip):
    """Return what a comparison of squared singular values must allow for."""
    return 1e-12 * (torch.linalg.matrix_norm(weight) + abs(skip)) ** 2 + 1e-280


@st.composite
def layers(draw, square=False):
    """Draw a layer: of any kind, symmetric, antisymmetric, or with an eigenvalue that a skip removes."""
    rows, columns = draw(shapes)
    columns = rows if square else columns
    kind = draw(st.sampled_from(["any", "any", "symmetric", "antisymmetric", "near the skip"]))
    size = min(rows, columns)
    weight = torch.zeros(rows, columns, dtype=torch.float64)
    if kind == "any":
        return draw(matrices(rows, columns))
    if kind == "symmetric":
        block = draw(symmetric(size))
    elif kind == "antisymmetric":
        block = gaussian(draw(seeds), size, size)
        block = block - block.mT
    else:
        block = 1e-3 * gaussian(draw(seeds), size, size) - draw(skips) * torch.eye(size, dtype=torch.float64)
    weight[:size, :size] = block
    return weight


@st.composite
def aligned(draw, fewest=2, most=4, regular=False):
    """Draw square symmetric positive semi-definite layers with the same eigenvectors, in the same order."""
    n, depth = draw(sizes), draw(st.integers(fewest, most))
    q = orthogonal(draw(seeds), n)
    values = [draw(spectra(n, lowest=0)).sort(descending=True).values for _ in range(depth)]
    if regular:
        values = [v + 1e-3 * v[0].clamp_min(1e-3) for v in values]
    return [(q * v) @ q.mT for v in values], values


# The Gauss-Newton matrix and Eq. 7


@pytest.mark.claim("Residual networks, Gauss-Newton matrix", verdict="holds")
@hundreds
@given(problems(1, 4), skips)
def test_with_skips_the_formula_is_that_of_the_shifted_weights(problem, skip):
    weights, x = problem
    moment = SecondMoment.from_data(x) if x.any() else None
    assume(moment is not None)

    def through_the_skips(thetas):
        outputs = x
        for theta in thetas:
            rows, columns = theta.shape
            carried = torch.nn.functional.pad(outputs[:, : min(rows, columns)], (0, max(0, rows - columns)))
            outputs = outputs @ theta.mT + skip * carried
        return outputs.flatten()

    thetas = [w.clone().requires_grad_() for w in weights]
    outputs = through_the_skips(thetas)
    each = torch.eye(len(outputs), dtype=torch.float64)
    grads = torch.autograd.grad(outputs, thetas, each, is_grads_batched=True, materialize_grads=True)
    true = torch.cat([g.flatten(1) for g in grads], 1)
    true = torch.linalg.eigvalsh(true @ true.mT / len(x)).flip(0)
    library = torch.linalg.eigvalsh(linear_gauss_newton(weights, moment, skip).dense()).flip(0)
    common = min(len(true), len(library))
    tolerance = 1e-11 * max(true[0].item(), 1e-280)
    assert (true[:common] - library[:common]).abs().max() <= tolerance
    assert not any((rest[common:].abs() > tolerance).any() for rest in (true, library))


@pytest.mark.claim("Residual networks, Gauss-Newton matrix", verdict="holds")
def test_a_skip_across_two_layers_is_another_network():
    v, w, x = exact([[2, 0], [0, 1]]), exact([[1, 0], [0, 1]]), torch.eye(2).double()
    across_each = true_condition(shifted([v, w], 1.0), x)
    v_, w_ = v.clone().requires_grad_(), w.clone().requires_grad_()
    outputs = (x @ v_.mT @ w_.mT + x).flatten()  # x + W V x
    grads = torch.autograd.grad(outputs, [v_, w_], torch.eye(4).double(), is_grads_batched=True)
    values = nonzero_eigenvalues(torch.cat([g.flatten(1) for g in grads], 1), 2)
    assert (values[0] / values[-1]).item() != pytest.approx(across_each, rel=1e-3)


def terms(weights):
    """Return smax^2(A_l) smax^2(B_l) and alpha_l, zero-padded, each product from its definition."""
    k, d = weights[-1].shape[0], weights[0].shape[1]
    pairs = []
    for layer in range(len(weights)):
        a, b = torch.eye(k, dtype=torch.float64), torch.eye(d, dtype=torch.float64)
        for w in reversed(weights[layer + 1 :]):
            a = a @ w
        for w in weights[:layer]:
            b = w @ b
        pairs.append((squares(a, k), squares(b, d)))
    return torch.stack([a[0] * b[0] for a, b in pairs]), torch.stack([a[-1] * b[-1] for a, b in pairs])


@pytest.mark.claim("Eq. 7", verdict="holds")
@hundreds
@given(problems(2, 4, wide=True), skips)
def test_both_bounds_of_eq_7_hold(problem, skip):
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


@pytest.mark.claim("Eq. 7", verdict="holds")
@a_hundred
@given(problems(2, 4, wide=True, regular=True), skips)
def test_the_library_evaluates_eq_7_as_printed(problem, skip):
    weights, x = problem
    largest, alpha = terms(shifted(weights, skip))
    assume((alpha > 1e-9 * largest).all())
    gamma, kappas = alpha / alpha.sum(), largest / alpha
    both = zhao_lemma_2(weights, SecondMoment.from_data(x), skip)
    assert both.first == pytest.approx(data_condition(x) * (gamma * kappas).sum().item(), rel=1e-5)
    assert both.second == pytest.approx(data_condition(x) * kappas.max().item(), rel=1e-5)


@pytest.mark.claim("Eq. 7", verdict="holds")
def test_a_skip_can_make_an_alpha_vanish_that_did_not():
    weights = [diagonal([-1, -1], 3, 2), diagonal([1], 1, 3)]
    assert (terms(weights)[1] > 0).all()
    assert terms(shifted(weights, 1.0))[1].tolist() == [4, 0]
    assert zhao_lemma_2(weights, torch.eye(2), 1.0).second == math.inf


# The step before Eq. 8


@pytest.mark.claim("Singular values with a skip", verdict="fails")
def test_a_negative_weight_and_a_rotation_have_other_singular_values():
    assert singular(with_skip(exact([[-1]]), 1.0)).item() == 0  # not 2
    turned = singular(with_skip(exact([[0, -1], [1, 0]]), 1.0))
    assert turned.tolist() == pytest.approx([2**0.5] * 2, rel=1e-12)  # not 2


@pytest.mark.claim("Singular values with a skip", verdict="fails")
@a_hundred
@given(seeds, shapes, skips)
def test_for_random_layers_larger_than_one_weight_some_singular_value_is_smaller(seed, shape, skip):
    weight = gaussian(seed, *shape)
    assume(weight.numel() > 1)
    assert singular(with_skip(weight, skip)).sum() < (singular(weight) + skip).sum() * (1 - 1e-9)


@pytest.mark.claim("Singular values with a skip", verdict="fails")
@pytest.mark.parametrize("skip", [0.1, 1.0, 10.0])
def test_one_random_weight_is_shifted_with_probability_one_half(skip):
    weights = gaussian(0, 4000, 1, 1)
    moved = singular(weights + skip)[:, 0]
    shifted_by_it = torch.isclose(moved, singular(weights)[:, 0] + skip, rtol=1e-12)
    assert torch.equal(shifted_by_it, weights[:, 0, 0] >= 0)
    assert shifted_by_it.double().mean().item() == pytest.approx(0.5, abs=0.05)


def semi_definite(rows, columns, values, seed):
    """Return a positive semi-definite matrix with these eigenvalues, continued by zeros to the shape of a layer."""
    size = min(rows, columns)
    q = orthogonal(seed, size)
    weight = torch.zeros(rows, columns, dtype=torch.float64)
    weight[:size, :size] = (q * values) @ q.mT
    return weight


@pytest.mark.claim("Which layers a skip shifts", verdict="holds")
@hundreds
@given(shapes.flatmap(lambda shape: st.tuples(st.just(shape), spectra(min(shape), lowest=0))), seeds, skips)
def test_positive_semi_definite_layers_are_shifted(case, seed, skip):
    (rows, columns), values = case
    weight = semi_definite(rows, columns, values, seed)
    expected = values.sort(descending=True).values + skip
    assert torch.allclose(singular(with_skip(weight, skip)), expected, rtol=1e-12, atol=1e-12 * expected[0].item())


@pytest.mark.claim("Which layers a skip shifts", verdict="holds")
@hundreds
@given(layers(), skips)
def test_what_the_squares_fall_short_by_is_the_trace_norm_minus_the_trace(weight, skip):
    sums = [(s**2).sum() for s in (singular(with_skip(weight, skip)), singular(weight) + skip)]
    missing = singular(weight).sum() - weight.diagonal().sum()
    assert abs(sums[1] - sums[0] - 2 * skip * missing) <= slack(weight, skip) * 100
    assert missing >= -1e-12 * singular(weight).sum()
    size = min(weight.shape)
    block = weight[:size, :size]
    away = torch.linalg.matrix_norm(weight) ** 2 - torch.linalg.matrix_norm(block) ** 2
    asymmetry = torch.linalg.matrix_norm(block - block.mT)
    if away > 1e-6 * torch.linalg.matrix_norm(weight) ** 2 or asymmetry > 1e-3 * torch.linalg.matrix_norm(weight):
        assert missing > 0


@pytest.mark.claim("Which layers a skip shifts", verdict="holds")
@hundreds
@given(layers(), skips)
def test_a_shift_is_the_most_that_a_skip_can_do(weight, skip):
    assert (singular(with_skip(weight, skip)) <= (singular(weight) + skip) * (1 + 1e-12)).all()


# The alignment of layers


@pytest.mark.claim("Aligned layers at small initialisation", verdict="fails")
@pytest.mark.parametrize("exponent", [0, 3, 9])
def test_a_small_scale_does_not_align_the_layers(exponent):
    first, second = 10.0**-exponent * exact([[1], [0]]), 10.0**-exponent * exact([[0, 1]])  # d = k = 1, m = 2
    left, right = torch.linalg.svd(first).U[:, 0], torch.linalg.svd(second).Vh[0]
    assert left @ right == 0  # aligned would be 1 or -1


@pytest.mark.claim("Aligned layers at small initialisation", verdict="fails")
@a_hundred
@given(seeds, st.integers(2, 5), st.sampled_from([1e-12, 1e-6, 1e-3]))
def test_singular_vectors_do_not_depend_on_the_scale(seed, n, scale):
    overlaps = []
    for factor in (1.0, scale):
        first, second = factor * gaussian(seed, n, n), factor * gaussian(seed + 1, n, n)
        overlaps.append((torch.linalg.svd(second).Vh @ torch.linalg.svd(first).U).abs())
    assert torch.allclose(*overlaps, rtol=0, atol=1e-6)
    assert overlaps[1].diagonal().min() < 1 - 1e-9


def gradient_flow(weights, skip, time, step):
    """Return the weights along gradient flow on |f - target|^2 / 2 for white data, by the rule of Runge and Kutta."""
    target = diagonal([2, 1], weights[-1].shape[0], weights[0].shape[1])

    def slope(weights):
        moving = [w.clone().requires_grad_() for w in weights]
        product = torch.linalg.multi_dot(shifted(moving, skip)[::-1])
        return [-g for g in torch.autograd.grad((product - target).square().sum() / 2, moving)]

    def ahead(slopes, length):
        return [w + length * s for w, s in zip(weights, slopes, strict=True)]

    path = [weights]
    for _ in range(round(time / step)):
        one = slope(weights)
        two = slope(ahead(one, step / 2))
        three = slope(ahead(two, step / 2))
        four = slope(ahead(three, step))
        mean = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(one, two, three, four, strict=True)]
        weights = ahead(mean, step)
        path.append(weights)
    return path


def imbalance(weights, skip=0.0):
    """Return W_2^T W_2 - W_1 W_1^T for the two (shifted) layers."""
    first, second = shifted(weights, skip)
    return second.mT @ second - first @ first.mT


@pytest.mark.claim("Conserved along gradient flow", verdict="holds")
@pytest.mark.parametrize("skip", [0.0, 0.7])
def test_what_is_conserved_stays_the_same_while_the_weights_move(skip):
    weights = [gaussian(0, 4, 3) / 2, gaussian(1, 2, 4) / 2]
    path = gradient_flow(weights, skip, time=10, step=0.05)
    assert torch.linalg.matrix_norm(path[-1][0] - weights[0]) > 0.3
    for point in path[:: len(path) // 10]:
        assert torch.allclose(imbalance(point, skip), imbalance(weights, skip), rtol=0, atol=1e-5)
    if skip:  # it is the shifted layers that stay balanced
        assert not torch.allclose(imbalance(path[-1]), imbalance(weights), rtol=0, atol=1e-2)


@pytest.mark.claim("Conserved along gradient flow", verdict="holds")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("epsilon", [0.3, 0.03])
def test_layers_that_start_small_align_where_their_squares_have_come_apart(seed, epsilon):
    weights = [gaussian(seed, 4, 3), gaussian(seed + 100, 2, 4)]
    weights = [epsilon * w / torch.linalg.matrix_norm(w, 2) for w in weights]
    path = gradient_flow(weights, 0.0, time=20, step=0.05)
    assert max(torch.linalg.matrix_norm(imbalance(point), 2).item() for point in path) <= epsilon**2 * (1 + 1e-4)
    overlaps = []
    for first, second in (path[0], path[-1]):
        left, right = torch.linalg.svd(first).U, torch.linalg.svd(second).Vh
        overlaps.append((left[:, :2].mT * right[:2]).sum(1).abs())
        below, above = squares(first, 4), squares(second, 4)
        for i in range(2):
            gap = min(abs(above[i] - below[j]).item() for j in range(4) if j != i)
            if gap > 2 * epsilon**2:  # the sine of Davis and Kahan
                assert overlaps[-1][i] >= math.sqrt(1 - (epsilon**2 / gap) ** 2) - 1e-9
    assert overlaps[0].min() < 0.9 and overlaps[1].min() > 1 - 2 * epsilon**2


@pytest.mark.claim("Conserved along gradient flow", verdict="holds")
@hundreds
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


def product_of_ratios(weights, skip, layer):
    ratios = [
        ((s[0] + skip) / (s[-1] + skip)).item() ** 2 for i, w in enumerate(weights) if i != layer for s in [singular(w)]
    ]
    return math.prod(ratios)


def product_of_conditions(weights, layer):
    largest, alpha = terms(weights)
    return (largest[layer] / alpha[layer]).item()


@pytest.mark.claim("Eq. 8", verdict="fails")
@hundreds
@given(aligned(), skips)
def test_eq_8_for_square_positive_semi_definite_aligned_layers(case, skip):
    weights, _ = case
    for layer in range(len(weights)):
        expected = product_of_ratios(weights, skip, layer)
        assume(expected < 1e14)
        computed = product_of_conditions(shifted(weights, skip), layer)
        assert computed == pytest.approx(expected, rel=1e-7 + 1e-13 * expected)


REFLECTED = [diagonal([1, -1], 3, 2), diagonal([1], 1, 3)]  # d = 2, m = 3, k = 1: singular vectors coincide


@pytest.mark.claim("Eq. 8", verdict="fails")
def test_eq_8_needs_positive_semi_definite_layers():
    assert product_of_ratios(REFLECTED, 0.5, layer=1) == 1
    assert product_of_conditions(shifted(REFLECTED, 0.5), layer=1) == pytest.approx(9, rel=1e-12)


@pytest.mark.claim("Eq. 8", verdict="fails")
def test_eq_8_needs_square_layers():
    weights = [diagonal([1], 2, 1), diagonal([2, 1], 2, 2), diagonal([1], 1, 2)]  # aligned, positive semi-definite
    assert product_of_conditions(shifted(weights, 1.0), layer=0) == pytest.approx(1, rel=1e-12)
    assert product_of_ratios(weights, 1.0, layer=0) == pytest.approx(9 / 4, rel=1e-12)


@pytest.mark.claim("Eq. 8", verdict="fails")
@hundreds
@given(problems(2, 4, wide=True, regular=True), skips)
def test_without_alignment_the_product_of_condition_numbers_is_an_upper_bound(problem, skip):
    moved = shifted(problem[0], skip)
    for layer in range(len(moved)):
        bound = math.prod((s[0] / s[-1]).item() ** 2 for i, w in enumerate(moved) if i != layer for s in [singular(w)])
        assume(bound < 1e14)
        assert product_of_conditions(moved, layer) <= bound * (1 + 1e-6)


@pytest.mark.claim("Each factor of Eq. 8", verdict="fails")
@hundreds
@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), skips)
def test_adding_the_same_to_both_brings_a_ratio_closer_to_one(smallest, largest, skip):
    assume(smallest < largest * (1 - 1e-6))
    skip = skip * largest  # of a size that counts
    assert (largest + skip) / (smallest + skip) < largest / smallest


@pytest.mark.claim("Each factor of Eq. 8", verdict="fails")
@hundreds
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
@hundreds
@given(aligned(regular=True), skips)
def test_the_second_bound_falls_under_the_assumptions_of_eq_8(case, skip):
    weights, values = case
    n, depth = len(values[0]), len(weights)
    without, with_ = (
        max(
            math.prod(((v[0] + b) / (v[-1] + b)).item() ** 2 for v in values[:i] + values[i + 1 :])
            for i in range(depth)
        )
        for b in (0.0, skip)
    )
    assume(without < 1e12)
    computed = [zhao_lemma_2(weights, torch.eye(n).double(), b).second for b in (0.0, skip)]
    assert computed == pytest.approx([without, with_], rel=1e-7 + 1e-13 * without)
    if sum((v[0] > v[-1] * (1 + 1e-9)).item() for v in values) > 0 and depth > 1:
        assert with_ < without


@pytest.mark.claim("Second bound, smaller with a skip", verdict="fails")
def test_a_reflection_has_a_larger_second_bound_with_a_skip():
    assert zhao_lemma_2(REFLECTED, torch.eye(2), 0.0).second == pytest.approx(1, rel=1e-12)
    assert zhao_lemma_2(REFLECTED, torch.eye(2), 0.5).second == pytest.approx(9, rel=1e-12)


@pytest.mark.claim("Second bound, smaller with a skip", verdict="fails")
def test_at_kaiming_initialisation_a_small_skip_lowers_the_second_bound_about_as_often_as_not():
    widths, eye, better = [8, 12, 12, 3], torch.eye(8).double(), {0.1: 0, 4.0: 0}
    for seed in range(200):
        weights = linear_weights(widths, generator=torch.Generator().manual_seed(seed))
        without = zhao_lemma_2(weights, eye).second
        for skip in better:
            better[skip] += zhao_lemma_2(weights, eye, skip).second < without
    assert 60 <= better[0.1] <= 140
    assert better[4.0] == 200


# What skips do to the condition number


@pytest.mark.claim("Skips improve the conditioning", verdict="fails")
def test_a_skip_can_make_the_condition_number_worse():
    x = torch.eye(2).double()
    assert true_condition(REFLECTED, x) == pytest.approx(1, rel=1e-12)
    assert true_condition(shifted(REFLECTED, 0.5), x) == pytest.approx(1.8, rel=1e-12)
    assert float(condition_number(linear_gauss_newton(REFLECTED, torch.eye(2), 0.5))) == pytest.approx(1.8, rel=1e-9)


@pytest.mark.claim("Skips improve the conditioning", verdict="fails")
def test_no_smaller_network_has_a_condition_number_to_lose():
    for v, w in itertools.product(range(-3, 4), repeat=2):  # with d = k = 1 there is one eigenvalue
        for skip in (0.0, 0.5, 1.0):
            weights = shifted([exact([[v], [0]]), exact([[w, 0]])], skip)
            assert true_condition(weights, torch.ones(1, 1).double()) in (None, 1)


@pytest.mark.claim("Skips improve the conditioning", verdict="fails")
def test_with_uneven_data_no_skip_is_large_enough():
    v, w, x = exact([[0, 1], [0, 0], [0, 0]]), exact([[1, 0, 0]]), exact([[2**0.5, 0], [0, 1]])
    assert true_condition([v, w], x) == pytest.approx(1, rel=1e-12)
    for skip in (10.0, 100.0, 1e3):
        assert true_condition(shifted([v, w], skip), x) > 1.9


@pytest.mark.claim("Skips improve the conditioning", verdict="fails")
@a_hundred
@given(problems(2, 4, wide=True))
def test_a_skip_that_is_large_enough_for_the_bound_improves_white_data(problem):
    weights, _ = problem
    x = torch.eye(weights[0].shape[1]).double()
    without = true_condition(weights, x)
    assume(without is not None and without > 1.001)
    norm = max(torch.linalg.matrix_norm(w, 2).item() for w in weights)
    skip = norm * 20 * len(weights) / (without - 1) + 20 * len(weights) * norm
    assert residual_bound(weights, torch.eye(len(x)).double(), skip) < without
    assert true_condition(shifted(weights, skip), x) < without


@pytest.mark.claim("Appendix I.3, each term falls as the skip grows", verdict="fails")
@hundreds
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
@hundreds
@given(problems(2, 4, wide=True), st.sampled_from([1e3, 1e5]))
def test_the_terms_tend_to_one_for_all_weights(problem, ratio):
    weights, _ = problem
    norm = max(torch.linalg.matrix_norm(w, 2).item() for w in weights)
    skip = ratio * max(norm, 1e-3)
    largest, alpha = terms(shifted(weights, skip))
    gap = (largest / alpha - 1).max().item()
    assert -1e-9 <= gap <= 5 * len(weights) / ratio


@pytest.mark.claim("Large skips push the condition number to one", verdict="holds if")
@hundreds
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
@hundreds
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


# Riedi 2022


@pytest.mark.claim("Riedi Lemma 17", verdict="holds if")
@hundreds
@given(layers(square=True), skips)
def test_riedi_lemma_17_for_skips_that_are_not_negative(weight, rho):
    s, largest = singular(with_skip(weight, rho)), singular(weight)[0]
    assert (rho - largest <= s + 1e-12 * (largest + rho)).all() and (s <= (rho + largest) * (1 + 1e-12)).all()


@pytest.mark.claim("Riedi Lemma 17", verdict="holds if")
@a_hundred
@given(layers(square=True), skips)
def test_riedi_lemma_17_with_the_absolute_value_of_the_skip(weight, rho):
    s, largest = singular(with_skip(weight, -rho)), singular(weight)[0]
    assert ((s - rho).abs() <= largest + 1e-12 * (largest + rho)).all()


@pytest.mark.claim("Riedi Lemma 17", verdict="holds if")
def test_a_negative_skip_breaks_riedi_lemma_17_as_printed():
    weight, rho = exact([[0]]), -1.0
    assert singular(with_skip(weight, rho)).item() == 1 > rho + singular(weight).item()


def printed_lemma_21(weight, rho):
    s, tau = singular(weight) ** 2, block_eigenvalues(weight)
    return (s[-1] + rho * tau[0] + rho**2).item(), (s[0] + rho * tau[-1] + rho**2).item()


@pytest.mark.claim("Riedi Lemma 21", verdict="holds if")
@hundreds
@given(layers(square=True), skips)
def test_riedi_lemma_21_for_skips_that_are_not_negative(weight, rho):
    lower, upper = printed_lemma_21(weight, rho)
    s = singular(with_skip(weight, rho)) ** 2
    assert lower <= s[-1] + slack(weight, rho) and s[0] <= upper + slack(weight, rho)


@pytest.mark.claim("Riedi Lemma 21", verdict="holds if")
def test_a_negative_skip_breaks_riedi_lemma_21_as_printed():
    weight, rho = exact([[1, 0], [0, -1]]), -1.0
    assert printed_lemma_21(weight, rho) == (4, 0)
    assert singular(with_skip(weight, rho)).tolist() == [2, 0]


@pytest.mark.claim("Riedi Lemma 21 against Lemma 17", verdict="fails")
@hundreds
@given(layers(square=True), skips)
def test_the_upper_bound_of_riedi_lemma_21_is_the_sharper_one(weight, rho):
    assert printed_lemma_21(weight, rho)[1] <= (rho + singular(weight)[0]) ** 2 + slack(weight, rho)


@pytest.mark.claim("Riedi Lemma 21 against Lemma 17", verdict="fails")
def test_the_lower_bound_of_riedi_lemma_21_can_be_the_weaker_one():
    weight, rho = exact([[0, 0], [0, -0.5]]), 1.0
    assert singular(with_skip(weight, rho)).tolist() == [1, 0.5]
    assert printed_lemma_21(weight, rho)[0] == 0 < (rho - singular(weight)[0]) ** 2


@pytest.mark.claim("Riedi Lemma 21 against Lemma 17", verdict="fails")
@a_hundred
@given(st.floats(-5, 5), skips)
def test_no_single_number_makes_it_weaker(w, rho):
    lower = printed_lemma_21(exact([[w]]), rho)[0]
    assert lower >= (rho - abs(w)) ** 2 - slack(exact([[w]]), rho)


def four_bounds(weight):
    """Return the bounds of Theorem 22 on the condition number of W + I: two of (76), two of (77), or None."""
    s, tau = singular(weight), block_eigenvalues(weight)
    top = (1 + tau[-1] + s[0] ** 2).clamp_min(0).sqrt()
    first = (top / (1 - s[0]), (1 + s[0]) / (1 - s[0])) if s[0] < 1 else None
    root = (1 + tau[0]).clamp_min(0).sqrt()
    second = (top / (1 + tau[0] + s[-1] ** 2).sqrt(), (1 + s[0]) / root) if tau[0] > -1 else None
    return first, second


@pytest.mark.claim("Riedi Theorem 22", verdict="holds")
@hundreds
@given(layers(square=True), st.sampled_from([0.05, 0.3, 0.6, 0.9, 0.999, None]))
def test_each_bound_of_riedi_theorem_22(weight, size):
    largest = singular(weight)[0]
    if size is not None and largest > 0:
        weight = weight * (size / largest)
    first, second = four_bounds(weight)
    assume(first or second)
    s = singular(with_skip(weight, 1.0))
    for pair in filter(None, (first, second)):
        assert pair[0] <= pair[1] * (1 + 1e-9)
        assert s[0] <= pair[0] * s[-1] * (1 + 1e-9) + 1e-9 * s[0]


@pytest.mark.claim("Riedi Theorem 22, which bound is tightest", verdict="holds if")
@hundreds
@given(layers(square=True), st.floats(0.01, 0.99))
def test_the_exact_condition_for_77_to_be_tighter_than_76(weight, size):
    largest = singular(weight)[0]
    assume(largest > 0)
    weight = weight * (size / largest)
    first, second = four_bounds(weight)
    assume(second)
    s, tau = singular(weight), block_eigenvalues(weight)
    margin = (1 + tau[0] + s[-1] ** 2 - (1 - s[0]) ** 2).item()
    assume(abs(margin) > 1e-9)
    assert (second[0] < first[0]) == (margin > 0)


@pytest.mark.claim("Riedi Theorem 22, which bound is tightest", verdict="holds if")
@pytest.mark.parametrize(("r", "tighter"), [(1.1, 76), (1.15, 76), (1.3, 77), (2.0, 77), (3.0, 77)])
def test_for_gaussian_layers_it_is_77_from_r_of_one_and_a_fifth_on(r, tighter):
    n = 400
    for seed in range(3):
        first, second = four_bounds(gaussian(seed, n, n) / (r * (8 * n) ** 0.5))
        assert (second[0] < first[0]) == (tighter == 77)


# Our own: one layer, any network


@pytest.mark.claim("Skip across one layer", verdict="holds")
@hundreds
@given(layers(), skips, st.sampled_from([1, -1]))
def test_every_singular_value_moves_between_the_bounds(weight, size, sign):
    skip = sign * size
    lower, upper = skip_bounds(weight, skip)
    moved, before = singular(with_skip(weight, skip)) ** 2, singular(weight) ** 2
    tolerance = slack(weight, skip)
    assert lower**2 <= moved[-1] + tolerance and moved[0] <= upper**2 + tolerance
    least, most = sorted((skip * block_eigenvalues(weight)[0].item(), skip * block_eigenvalues(weight)[-1].item()))
    assert (before + least + skip**2 <= moved + tolerance).all()
    assert (moved <= before + most + skip**2 + tolerance).all()


@pytest.mark.claim("Skip across one layer", verdict="holds")
@hundreds
@given(layers(), skips)
def test_the_lower_bound_is_below_neither_lemma_of_riedi(weight, skip):
    s, lower = singular(weight), skip_bounds(weight, skip).lower
    tolerance = slack(weight, skip)
    assert lower**2 >= s[-1] ** 2 + skip * block_eigenvalues(weight)[0] + skip**2 - tolerance
    assert lower >= skip - s[0] - tolerance.sqrt()
    assert lower >= s[-1] - skip - tolerance.sqrt()


def attains_the_lower_bound(s, t, skip):
    """Return a layer with smallest singular value s and least eigenvalue t of its symmetric part, 0 <= s, |t|."""
    if abs(t) <= s:
        sine = (s**2 - t**2) ** 0.5
        return exact([[t, -sine], [sine, t]])
    middle = -min(max(s, skip), -t)  # t < -s: an eigenvalue between t and -s, as close to -skip as can be
    return torch.diag(exact([t, middle, s]))


@pytest.mark.claim("Skip across one layer", verdict="holds")
@hundreds
@given(st.floats(0, 5), st.floats(-5, 5), skips)
def test_no_better_lower_bound_follows_from_the_same_numbers(s, t, skip):
    assume(t <= s)  # since t <= x^T W x <= |W x| for all unit vectors x
    weight = attains_the_lower_bound(s, t, skip)
    assert singular(weight)[-1].item() == pytest.approx(s, abs=1e-9)
    assert block_eigenvalues(weight)[0].item() == pytest.approx(2 * t, abs=1e-9)
    smallest = singular(with_skip(weight, skip))[-1].item()
    assert skip_bounds(weight, skip).lower == pytest.approx(smallest, abs=1e-5 * (1 + skip))


@pytest.mark.claim("Skip across one layer", verdict="holds")
@hundreds
@given(st.floats(0, 5), st.floats(-1, 1), skips)
def test_no_better_upper_bound_follows_from_the_same_numbers(s, cosine, skip):
    sine = (1 - cosine**2) ** 0.5
    weight = s * exact([[cosine, -sine], [sine, cosine]])
    largest = singular(with_skip(weight, skip))[0].item()
    assert skip_bounds(weight, skip).upper == pytest.approx(largest, rel=1e-9)


@pytest.mark.claim("Skip across one layer", verdict="holds")
@a_hundred
@given(layers(square=True), st.sampled_from([1e3, 1e4]))
def test_to_first_order_the_condition_number_is_the_spread_of_the_symmetric_part(weight, ratio):
    norm = torch.linalg.matrix_norm(weight, 2).item()
    assume(norm > 0)
    skip, tau = ratio * norm, block_eigenvalues(weight)
    s, bounds = singular(with_skip(weight, skip)), skip_bounds(weight, skip)
    first = 1 + (tau[-1] - tau[0]).item() / (2 * skip)
    assert (s[0] / s[-1]).item() == pytest.approx(first, abs=10 / ratio**2)
    assert bounds.upper / bounds.lower == pytest.approx(first, abs=10 / ratio**2)


@pytest.mark.claim("Residual networks from symmetric parts", verdict="holds")
@hundreds
@given(problems(1, 4), skips, st.sampled_from([1, -1]))
def test_the_bound_from_symmetric_parts_is_above_eq_7_and_the_truth(problem, size, sign):
    weights, x = problem
    assume(x.any())
    moment, skip = SecondMoment.from_data(x), sign * size
    bound, first = residual_bound(weights, moment, skip), zhao_lemma_2(weights, moment, skip).first
    assert first <= bound * (1 + 1e-6) or bound > 1e20
    true = true_condition(shifted(weights, skip), x)
    assume(true is not None)
    assert true <= bound * up_to_rounding(true)


@pytest.mark.claim("Residual networks from symmetric parts", verdict="holds")
@hundreds
@given(problems(2, 4, wide=True, regular=True), st.sampled_from([30.0, 1e3]))
def test_the_bound_from_symmetric_parts_bounds_each_product(problem, ratio):
    weights, x = problem
    moment = SecondMoment.from_data(x)
    skip = ratio * max(torch.linalg.matrix_norm(w, 2).item() for w in weights)
    bound = residual_bound(weights, moment, skip)
    parts = zhao_lemma_2_terms(weights, moment, skip)
    ratio_of_sums = (parts.above_largest * parts.below_largest).sum() / parts.alpha.sum()
    assert ratio_of_sums * parts.data <= bound * (1 + 1e-9)
    assert bound <= parts.data * (1 + 10 * len(weights) / ratio)


@pytest.mark.claim("Residual networks from symmetric parts", verdict="holds")
def test_the_middle_term_is_about_the_range_of_the_data():
    weights, sigma = [diagonal([0, -1], 2, 2), exact([[-1, 0]])], diagonal([1, 0], 2, 2)
    assert not terms(shifted(weights, 1.0))[1].any()  # over the whole input space every alpha is 0
    assert zhao_lemma_2_terms(weights, sigma, 1.0).alpha.tolist() == [0, 1]
    assert zhao_lemma_2(weights, sigma, 1.0).first == residual_bound(weights, sigma, 1.0) == 1


@pytest.mark.claim("Residual networks from symmetric parts", verdict="holds")
def test_the_same_layer_has_other_bounds_read_from_either_side():
    # the last layer narrows, so from the inputs it counts as singular; from the output it does not
    weights, skip = [diagonal([1, 1], 3, 2), diagonal([2, 1, 1], 3, 3), exact([[1, 0, 0]])], 0.5
    bound = residual_bound(weights, torch.eye(2).double(), skip)
    first, second, last = 1.5, (1.5, 2.5), 1.5  # singular values on what is reached; from the output, 2.5 of the second
    largest = (2.5 * last) ** 2 + (first * last) ** 2 + (second[1] * first) ** 2
    smallest = (2.5 * last) ** 2 + (first * last) ** 2 + (second[0] * first) ** 2
    assert bound == pytest.approx(largest / smallest, rel=1e-9)


@pytest.mark.claim("Residual networks from symmetric parts", verdict="holds")
def test_the_bound_is_finite_at_kaiming_initialisation_with_a_skip_of_one():
    weights = linear_weights([20, 100, 100, 5], generator=torch.Generator().manual_seed(0))
    moment = torch.eye(20)
    ratio = residual_bound(weights, moment, 1.0) / zhao_lemma_2(weights, moment, 1.0).first
    assert 1 < ratio < 20


@pytest.mark.claim("Kaiming layer with a skip", verdict="holds")
@pytest.mark.parametrize("skip", [0.0, 0.25, 0.5, 1.0, 1.25, 2.0, 4.0])
def test_the_extreme_singular_values_approach_the_limits_as_the_width_grows(skip):
    errors = []
    for m in (50, 800):
        worst = torch.zeros(2)
        for seed in range(4):
            s = singular(with_skip(gaussian(seed, m, m) / m**0.5, skip))
            lower, upper = kaiming_skip_limits(skip)
            worst += torch.tensor([abs(s[-1] - lower), abs(s[0] - upper)]) / 4
        errors.append(worst)
    assert (errors[1] < 0.5 * errors[0]).all() and (errors[1] < 0.03).all()


@pytest.mark.claim("Kaiming layer with a skip", verdict="holds")
@a_hundred
@given(st.floats(1.01, 100))
def test_the_limits_are_double_roots_of_the_equation_of_the_spectrum(skip):
    for limit in kaiming_skip_limits(skip):
        # w = y + y / (y^2 - skip^2) has a double root y at the edges w, so the cubic has discriminant zero
        a, b, c, d = 1.0, -limit, 1 - skip**2, limit * skip**2  # (y - w)(y^2 - skip^2) + y
        pieces = (18 * a * b * c * d, -4 * b**3 * d, b**2 * c**2, -4 * a * c**3, -27 * a**2 * d**2)
        assert abs(sum(pieces)) <= 1e-9 * max(map(abs, pieces))


@pytest.mark.claim("Kaiming layer with a skip", verdict="holds")
def test_at_one_the_smallest_singular_value_falls_more_slowly_than_without_a_skip():
    medians = {}
    for skip, m in itertools.product((0.0, 1.0), (25, 400)):
        smallest = [singular(with_skip(gaussian(seed, m, m) / m**0.5, skip))[-1].item() for seed in range(60)]
        medians[skip, m] = torch.tensor(smallest).median().item()
    slopes = [math.log(medians[skip, 25] / medians[skip, 400]) / math.log(16) for skip in (0.0, 1.0)]
    assert slopes[0] == pytest.approx(1, abs=0.2) and slopes[1] == pytest.approx(0.75, abs=0.15)
