"""Zhao 2024, section 4 and appendices A, C, E, G and H: linear networks of any depth, and of one hidden layer."""

import itertools
import math

import numpy as np
import pytest
import torch
from gnbook.deep_linear.bounds import product_vector_bound, sum_bounds, weyl
from gnbook.one_hidden_layer.bounds import asymptotic_bound, from_below, zhao_lemma_6, zhao_lemma_7
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import SecondMoment, condition_number, linear_gauss_newton, linear_weights, whiten
from gnlib.linear.bounds import sharp_linear, zhao_lemma_1, zhao_lemma_2, zhao_lemma_2_terms
from gnlib.linear.gauss_newton import partial_products
from tests import strategies
from tests.oracles import identity, products, spectrum
from tests.strategies import diagonal, exact, gaussian, kron, problems, seeds, true_condition, up_to_rounding


def assert_close(a, b, scale):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12 * max(float(scale), 1e-300))


@pytest.mark.claim("Decomposition of the Gauss-Newton matrix", verdict="holds if")
@pytest.mark.claim("Eq. 4", "Eq. 5", verdict="holds")
@given(problems(1, 4))
def test_the_gauss_newton_matrix_and_the_reduced_one_are_what_the_paper_says(problem):
    weights, x = problem
    j, factors, sigma, k = strategies.jacobian(weights, x), products(weights), x.mT @ x / len(x), len(weights[-1])
    u = torch.cat([kron(a.mT, b) for a, b in factors])  # (the paper's transpose sign arranges blocks only)
    total, middle = sum(kron(a @ a.mT, b.mT @ b) for a, b in factors), kron(identity(k), sigma)
    assert_close(u.mT @ u, total, torch.linalg.matrix_norm(total))
    assert_close(j.mT @ j / len(x), u @ middle @ u.mT, u.square().sum() * torch.linalg.matrix_norm(middle))
    root = kron(identity(k), strategies.square_root(sigma))
    reduced, large = spectrum(root @ total @ root), strategies.nonzero_eigenvalues(j, len(x))
    if len(large):
        small, zeros = reduced[: len(large)], reduced[len(large) :]
        torch.testing.assert_close(small, large, rtol=1e-9, atol=1e-12 * large[0].item())
        assert (zeros.abs() <= 1e-12 * large[0]).all()
        torch.testing.assert_close(spectrum(j @ j.mT / len(x))[0], large[0], rtol=1e-9, atol=0)


@pytest.mark.claim("Lemma 2, first inequality", "Lemma 2, second inequality", verdict="holds")
@given(problems(1, 5, wide=True, regular=True))
def test_both_bounds_under_the_assumptions_of_lemma_2_and_the_library_evaluates_them_as_printed(problem):
    weights, x = problem
    largest, alpha = strategies.terms(weights)
    assert (alpha > 0).all()
    true, data = true_condition(weights, x), strategies.data_condition(x)
    gamma, kappas = alpha / alpha.sum(), largest / alpha
    first, second = data * (gamma * kappas).sum().item(), data * kappas.max().item()
    assert true <= first * up_to_rounding(true) and first <= second * (1 + 1e-9)
    if torch.allclose(kappas, kappas[0], rtol=1e-9):
        assert first == pytest.approx(second, rel=1e-6)  # equality where all layers are conditioned alike
    if (alpha > 1e-12).all():
        assert zhao_lemma_2(weights, SecondMoment.from_data(x)) == pytest.approx((first, second), rel=1e-6)


@pytest.mark.claim("Lemma 1", "Product vectors", "Sharper bound", verdict="holds")
@pytest.mark.claim("Lemma 1 for narrow layers", "Lemma 2, its assumptions", verdict="holds if")
@given(problems(1, 5), problems(1, 2), problems(1, 2, regular=True), problems(2, 2), problems(2, 2, wide=True), seeds)
def test_product_vectors_the_truth_the_sharper_bound_and_lemmas_1_and_2_stand_in_this_order(
    deep, shallow, regular, one_hidden, wide, seed
):
    """Of any width; for one and two layers the sharper bound is exact, and product vectors if all are regular."""
    for weights, x in (deep, shallow, regular, one_hidden, wide):
        if (true := true_condition(weights, x)) is None:
            continue
        data, (largest, alpha) = SecondMoment.from_data(x), strategies.terms(weights)
        below, sharp = product_vector_bound(weights, data), sharp_linear(weights, data)
        first, of_sums = zhao_lemma_2(weights, data).first, largest.sum() / alpha.sum()
        assert below <= true * up_to_rounding(true) and true <= sharp * up_to_rounding(true)
        assert sharp <= first * up_to_rounding(first) or first > 1e16
        # on the range of the data products have no larger and no smaller singular values than on the whole space
        assert true <= strategies.data_condition(x) * of_sums * up_to_rounding(true)  # infinite if no alpha is positive
        assert first <= strategies.data_condition(x) * of_sums * up_to_rounding(first) or first > 1e20
        if len(weights) <= 2 and sharp < 1e12:
            assert sharp == pytest.approx(true, rel=1e-6)
        if len(weights) == 2:
            assert zhao_lemma_1(weights, data) == pytest.approx(first, rel=1e-6) or first > 1e20
        if x is regular[1] and sharp < 1e9:
            assert below == pytest.approx(true, rel=1e-4)
    # q is a quadratic form of the reduced matrix, written by layers
    weights, x = deep
    u, v = gaussian(seed, len(weights[-1])), gaussian(seed + 1, weights[0].shape[1])
    half, factors = strategies.square_root(x.mT @ x / len(x)), products(weights)
    q = sum((a.mT @ u).square().sum() * (b @ half @ v).square().sum() for a, b in factors)
    total = sum(kron(a @ a.mT, half @ b.mT @ b @ half) for a, b in factors)
    uv = kron(u[:, None], v[:, None])[:, 0]
    assert_close(q, uv @ total @ uv, uv.square().sum() * torch.linalg.matrix_norm(total))


@pytest.mark.claim("Lemma 2, its assumptions", verdict="holds if")
def test_narrow_layers_need_zero_padded_singular_values():
    weights, x = [exact([[1, 0]]), exact([[1]]), exact([[1]])], torch.eye(2).double()
    unpadded = [s[0] / s[-1] for pair in partial_products(weights) for s in map(torch.linalg.svdvals, pair)]
    assert {kappa.item() for kappa in unpadded} == {1}  # so both bounds would be 1
    assert true_condition(weights, x) == pytest.approx(3, rel=1e-12)
    assert zhao_lemma_2(weights, x) == (3, math.inf)


@pytest.mark.claim("Data and network, any depth", "Condition number of the network alone", verdict="holds")
@pytest.mark.claim("Remark R2", "Appendix E, self-balancing", verdict="holds if")
@given(problems(1, 5, regular=True))
def test_the_condition_number_is_that_of_the_data_up_to_the_ratio_of_lemma_2_which_is_a_harmonic_mean(problem):
    weights, x = problem
    true, data = true_condition(weights, x), strategies.data_condition(x)
    network = true_condition(weights, identity(weights[0].shape[1]))
    largest, alpha = strategies.terms(weights)
    assume(alpha.any())
    ratio = (largest.sum() / alpha.sum()).item()
    assert true <= data * ratio * up_to_rounding(true)
    assert data / network <= true * up_to_rounding(true)
    assert network <= ratio * up_to_rounding(network)  # so that it is the better bracket
    if (alpha > 1e-12).all():
        found = zhao_lemma_2_terms(weights, SecondMoment.from_data(whiten(x)))
        weighted = found.gamma * found.kappa_above * found.kappa_below
        torch.testing.assert_close(weighted, largest / alpha.sum(), rtol=1e-6, atol=0)
        torch.testing.assert_close(found.alpha, alpha, rtol=1e-6, atol=1e-8)
        kappas, share = largest / alpha, largest / largest.sum()  # so that each layer limits the mean
        assert ratio == pytest.approx(1 / (share / kappas).sum().item(), rel=1e-9)
        assert ratio <= (kappas / share).min() * (1 + 1e-9)
        assert kappas.min() * (1 - 1e-9) <= ratio <= kappas.max() * (1 + 1e-9)


def drawn(d, m, k, layers, draws=40):
    """Weights at Kaiming initialisation."""
    for seed in range(draws):
        yield linear_weights([d, *[m] * (layers - 1), k], generator=torch.Generator().manual_seed(seed))


def log_conditions(d, m, k, layers):
    """Logarithms of the condition number for white data."""
    values = [spectrum(linear_gauss_newton(weights, identity(d)).dense()) for weights in drawn(d, m, k, layers)]
    return torch.stack([(value[0] / value[-1]).log() for value in values])


@pytest.mark.claim("Growth with the depth", verdict="holds")
@pytest.mark.parametrize(("d", "m", "k"), [(2, 3, 2), (3, 4, 2), (2, 4, 3), (3, 5, 1)])
def test_each_layer_adds_the_same_to_the_logarithm_of_the_condition_number(d, m, k):
    """By the Lyapunov exponents of products of m x m matrices with normal entries of variance 1 / m."""
    few, many = log_conditions(d, m, k, 20), log_conditions(d, m, k, 32)
    exponents = (torch.digamma((m - torch.arange(min(d, k))) / 2) - math.log(m / 2)) / 2
    slack = 0.05 + 4 * (few.std() + many.std()).item() / 40**0.5 / 12
    assert (many.mean() - few.mean()).item() / 12 == pytest.approx(2 * (exponents[0] - exponents[-1]).item(), abs=slack)


@pytest.mark.claim("Section 7, quadratic growth with the depth", verdict="fails")
def test_no_power_of_the_depth_is_the_law():
    logs = [log_conditions(2, 3, 2, layers).mean().item() for layers in (2, 4, 8, 16, 32)]
    slopes = np.diff(logs) / math.log(2)  # of log kappa against log L, which would be 2
    assert (np.diff(slopes) > 1).all() and slopes[-1] > 10


@pytest.mark.claim("Section 7, bounds cannot tell a solution from an initialisation", verdict="fails")
def test_the_bound_of_a_solution_is_not_that_of_its_initialisation():
    eye, target = torch.eye(2).double(), exact([[2, 0]])
    v, w = diagonal([1, 1], 3, 2), torch.zeros(1, 3).double()  # m = 3 > max(d, k) = 2
    assert zhao_lemma_1([v, w], eye) == true_condition([v, w], eye) == pytest.approx(1)
    for _ in range(4000):
        residual = w @ v - target
        v, w = v - 0.005 * w.mT @ residual, w - 0.005 * residual @ v.mT
    assert (w @ v - target).abs().max() < 1e-9
    bound = zhao_lemma_1([v, w], eye)
    assert bound == pytest.approx(true_condition([v, w], eye), rel=1e-9)
    assert bound == pytest.approx(2 * 17**0.5 / (1 + 17**0.5), rel=0.02)  # 1.61, along gradient flow


def balance(d, m, k, layers):
    """Return how often, of two terms of Lemma 2, the worse conditioned one has the smaller weight."""
    opposite, (i, j) = [], torch.triu_indices(layers, layers, 1)
    for weights in drawn(d, m, k, layers):
        found = zhao_lemma_2_terms(weights, identity(d))
        kappas = found.kappa_above * found.kappa_below
        opposite.append((kappas[i] > kappas[j]) == (found.alpha[i] < found.alpha[j]))
    return torch.cat(opposite).double().mean().item()


@pytest.mark.claim("Appendix E, other widths and dimensions", verdict="fails")
def test_in_a_wide_network_the_weights_have_no_order_and_with_more_inputs_than_outputs_they_have():
    assert 0.4 < balance(20, 400, 5, layers=5) < 0.65
    assert balance(20, 30, 5, layers=10) > 0.95 and balance(5, 30, 20, layers=10) > 0.95
    assert balance(3, 4, 1, layers=40) > balance(3, 4, 1, layers=10) > balance(3, 4, 3, layers=10)


def rounding(*parts):
    """Return a bound on the rounding of eigenvalues of these matrices."""
    return 100 * strategies.EPS * sum(p.abs().max().item() * len(p) for p in parts)


def middle_sums(a, b):
    """Return lambda_{n-j}(A) + lambda_{1+j}(B) for j = 0, ..., n - 1, the terms of Eq. 12."""
    return a.flip(0) + b


@pytest.mark.claim("Lemma 5", "Appendix A, extreme eigenvalues of a sum", verdict="holds")
@given(strategies.pairs())
def test_weyl_and_dual_weyl_for_every_pair_of_indices_of_which_four_bound_the_ends(pair):
    a, b, s = (spectrum(m) for m in (*pair, sum(pair)))
    n, tolerance = len(a), rounding(*pair)
    lower, upper = torch.full((2, n), math.inf, dtype=torch.float64) * exact([[-1], [1]])
    for i, j in itertools.product(range(n), repeat=2):
        if i + j < n:
            upper[i + j] = torch.minimum(upper[i + j], a[i] + b[j])
        if i + j >= n - 1:
            lower[i + j - n + 1] = torch.maximum(lower[i + j - n + 1], a[i] + b[j])
    assert (s <= upper + tolerance).all() and (s >= lower - tolerance).all()
    torch.testing.assert_close(torch.stack(weyl(a.flip(0), b)), torch.stack([lower, upper]), rtol=0, atol=0)
    four = [a[0] + b[0], middle_sums(a, b).min(), middle_sums(a, b).max(), a[-1] + b[-1]]
    assert [upper[0], upper[-1], lower[0], lower[-1]] == four


@pytest.mark.claim("Lemma 5", verdict="holds")
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(strategies.spectra(n), strategies.spectra(n))))
def test_each_bound_of_weyl_is_attained_by_diagonal_matrices(spectra_pair):
    a, b = (v.sort(descending=True).values for v in spectra_pair)
    lower, upper = weyl(*spectra_pair)
    for q in range(len(a)):
        # the q + 1 largest of one against those of the other, in opposite orders
        highest = a + torch.cat([b[: q + 1].flip(0), b[q + 1 :]])
        lowest = a + torch.cat([b[:q], b[q:].flip(0)])
        for found, bound in ((highest, upper), (lowest, lower)):
            assert torch.isclose(found.sort(descending=True).values[q], bound[q], rtol=1e-14, atol=1e-14)


@pytest.mark.claim("Appendix A, condition number of a symmetric matrix", verdict="fails")
def test_the_ratio_of_the_last_eigenvalues_misses_the_middle_of_an_indefinite_spectrum():
    for values, by_the_paper, true in (([1.0, 0.0, -1.0], 1, math.inf), ([1.0, -2.0], 0.5, 2)):
        first, *_, last = spectrum(exact(values).diag()).abs()
        assert first / last == by_the_paper and torch.linalg.cond(exact(values).diag()) == true


@pytest.mark.claim("Eq. 12, lower bound", "Eq. 12, upper bound", verdict="fails")
def test_both_bounds_are_violated_by_symmetric_matrices():
    """The condition numbers are right by every reading: the eigenvalue of largest modulus comes first."""

    def by_eq_12(a, b):
        """Both sides as printed, and the condition number between them."""
        la, lb, ls = (spectrum(m) for m in (a, b, a + b))
        sums = middle_sums(la, lb)
        ends = torch.stack([sums.max(), sums.min(), ls[0], ls[-1], la[0] + lb[0], la[-1] + lb[-1]]).abs()
        top, bottom = ends.where(ends > 1e-12, 0).view(3, 2).mT
        return (top / bottom).tolist()

    assert by_eq_12(exact([-1, 0]).diag(), exact([0, 2]).diag())[:2] == [math.inf, 2]
    assert by_eq_12(exact([-2, 2]).diag(), exact([0, 1]).diag())[:2] == [2, 1.5]
    assert by_eq_12(exact([0, -1]).diag(), exact([-1, 0]).diag())[1:] == [1, 0]
    # even with a positive definite sum, where all readings of the condition number agree
    golden = (1 + 5**0.5) / 2
    found = by_eq_12(exact([[0, 1], [1, 1]]), exact([[2, 0], [0, 0]]))[1:]
    assert found == pytest.approx([golden**4, golden**4 - 1], rel=1e-12)


@pytest.mark.claim("Eq. 12, lower bound", "Eq. 12, upper bound", verdict="fails")
@given(strategies.pairs(0))
def test_both_bounds_hold_for_positive_semidefinite_matrices(pair):
    a, b, s = (spectrum(m).clamp_min(0) for m in (*pair, sum(pair)))
    if middle_sums(a, b).min() <= 0:  # no sum of matrices with these eigenvalues is positive definite
        return
    bounds, tolerance = sum_bounds(a, b), rounding(*pair)
    if s[-1] > tolerance:
        assert bounds.lower * s[-1] <= s[0] + tolerance * (1 + bounds.lower)
    assert bounds.upper == float("inf") or s[0] <= bounds.upper * (s[-1] + tolerance) + tolerance
    if a[-1] + b[-1] > tolerance:
        printed = middle_sums(a, b).max() / middle_sums(a, b).min(), (a[0] + b[0]) / (a[-1] + b[-1])
        assert tuple(bounds) == pytest.approx([p.item() for p in printed], rel=1e-9)


@pytest.mark.claim("Appendix A, spectrum of a Kronecker product", verdict="holds")
@given(st.integers(1, 4), st.integers(1, 3), seeds)
def test_eigenvalues_of_a_kronecker_product_are_all_products_for_any_square_matrices(p, q, seed):
    # Equal power sums, in exact integers, mean equal spectra: complex, repeated and defective ones too.
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, (n, n)).astype(object) for n in (p, q))
    a_power, b_power, power = a, b, np.kron(a, b)
    for _ in range(p * q):
        assert np.trace(power) == np.trace(a_power) * np.trace(b_power)
        a_power, b_power, power = a_power @ a, b_power @ b, power @ np.kron(a, b)


@pytest.mark.claim("Eq. 13 and 14", "Appendix A, extreme eigenvalues of a product", verdict="holds")
@given(strategies.pairs(0))
def test_extreme_eigenvalues_of_products_of_semidefinite_matrices(pair):
    (a, b), (ends_a, ends_b, ends) = pair, (spectrum(m)[[0, -1]] for m in (*pair, kron(*pair)))
    scale = ends_a[0] * ends_b[0]
    torch.testing.assert_close(ends, ends_a * ends_b, rtol=0, atol=1e-13 * max(1, scale.item()))
    root = strategies.square_root(a)
    similar = spectrum(root @ b @ root)  # AB has the eigenvalues of A^1/2 B A^1/2
    of_product = torch.linalg.eigvals(a @ b).real.sort(descending=True).values
    torch.testing.assert_close(of_product, similar, rtol=0, atol=1e-6 * scale.item())
    assert similar[0] <= scale * (1 + 1e-13) and similar[-1] >= ends_a[-1] * ends_b[-1] - 1e-13 * scale


@pytest.mark.claim("Appendix A, products with smallest non-zero eigenvalues", verdict="fails")
@pytest.mark.parametrize("angle", [0.1, 0.7, 1.5])
def test_two_lines_at_an_angle_have_a_smaller_product(angle):
    e, f = exact([1, 0]), exact([math.cos(angle), math.sin(angle)])
    a, b = torch.outer(e, e), torch.outer(f, f)  # one non-zero eigenvalue each, which is one
    values = torch.linalg.eigvals(a @ b).real
    assert values.max().item() == pytest.approx(math.cos(angle) ** 2, rel=1e-9) and values.max() < 1


@pytest.mark.claim("Appendix C", verdict="holds")
@given(st.integers(2, 6), st.data())
def test_the_pseudo_condition_number_and_what_one_more_eigenvalue_changes(n, data):
    rank = data.draw(st.integers(1, n))
    kept = data.draw(strategies.spectra(rank, 1)).sort(descending=True).values
    values = torch.nn.functional.pad(kept, (0, n - rank))
    found = condition_number(values.diag())
    assert found.rank == rank and found.value == pytest.approx((values[0] / values[rank - 1]).item())
    if rank > 1:
        fewer = condition_number(values.diag(), rank=rank - 1)
        gap = (values[rank - 2] / values[rank - 1]).item()
        assert found.value / (fewer.largest / fewer.smallest) == pytest.approx(gap)


def ratio_of_sums(v, w):
    """Return (smax^2(W) + smax^2(V)) / (smin^2(W) + smin^2(V)), zero-padded: lambda_min(W W^T), lambda_min(V^T V)."""
    w, v = strategies.squares(w, w.shape[0]), strategies.squares(v, v.shape[1])
    return ((w[0] + v[0]) / (w[-1] + v[-1])).item()


def unpadded(v, w):
    """Return the same with the smallest singular values that are not zero."""
    v, w = (s[s > 1e-12 * s[0]] ** 2 for s in map(torch.linalg.svdvals, (v, w)))
    return ((w[0] + v[0]) / (w[-1] + v[-1])).item()


def as_convex_combination(v, w):
    """Return Eq. 6, and the maximum in place of the combination."""
    w, v = strategies.squares(w, w.shape[0]), strategies.squares(v, v.shape[1])
    beta = w[-1] / (w[-1] + v[-1])
    return (beta * (w[0] / w[-1]) + (1 - beta) * (v[0] / v[-1])).item(), max(w[0] / w[-1], v[0] / v[-1]).item()


@pytest.mark.claim("Lemma 1, equality for white data", verdict="holds")
@given(problems(2, 2))
def test_lemma_1_is_an_equality_for_white_data(problem):
    (v, w), x = problem[0], whiten(problem[1])
    moment = SecondMoment.from_data(x)
    bound = zhao_lemma_1([v, w], moment)
    torch.testing.assert_close(moment.eigenvalues, torch.ones(len(moment.eigenvalues)).double())
    if bound < 1e12:
        assert true_condition([v, w], x) == pytest.approx(bound, rel=1e-6)
        if x.shape[1] == len(moment.eigenvalues):
            assert bound == pytest.approx(ratio_of_sums(v, w), rel=1e-6)


@pytest.mark.claim("Lemma 1 with smallest non-zero singular values", verdict="fails")
@pytest.mark.claim("Lemma 1 for narrow layers", verdict="holds if")
@pytest.mark.parametrize(("v", "w"), [(diagonal([1], 3, 2), diagonal([1], 1, 3)), (exact([[1, 0]]), exact([[1]]))])
def test_lemma_1_needs_the_singular_values_that_are_zero_and_a_narrow_layer_zero_padded_ones(v, w):
    assert unpadded(v, w) == 1 and zhao_lemma_1([v, w], identity(2)) == 2
    assert true_condition([v, w], identity(2)) == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Lemma 1", "Lemma 1, from below", verdict="holds")
@pytest.mark.claim("Lemma 1, the maximum in place of the combination", verdict="holds")
@pytest.mark.claim("Lemma 1 with smallest non-zero singular values", verdict="fails")
@pytest.mark.claim("Eq. 6, the equality", verdict="holds if")
@given(problems(2, 2, wide=True, regular=True), st.sampled_from([0.1, 1.0, 10.0]))
def test_all_forms_of_lemma_1_and_the_bound_from_below_where_both_layers_are_regular(problem, scale):
    (v, w), x = problem
    true, moment, data = true_condition([v, w], x), SecondMoment.from_data(x), strategies.data_condition(x)
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
@given(problems(2, 2))
def test_each_step_of_the_proof_of_lemma_1(problem):
    (v, w), x = problem
    sigma = x.mT @ x / len(x)
    root, gram = strategies.square_root(sigma), v.mT @ v
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


shapes = st.tuples(*(st.integers(1, 12),) * 3)  # d, m, k
variances = st.sampled_from([1e-4, 0.1, 1.0, 30.0])


def ends(draws):
    """Return the extreme singular values of each N x n matrix in a batch, the smallest zero-padded to n of them."""
    s = torch.linalg.svdvals(draws)
    rows, columns = draws.shape[-2:]
    return s[..., 0], s[..., -1] * (rows >= columns)


@pytest.mark.claim("Lemma 6", verdict="holds")
@strategies.a_hundred
@given(seeds, st.integers(1, 12), st.integers(1, 12), st.floats(0, 5))
def test_the_singular_values_are_within_the_interval_as_often_as_stated(seed, rows, columns, t):
    largest, smallest = ends(gaussian(seed, 500, rows, columns))
    lower, upper = zhao_lemma_6(rows, columns, t)
    within = ((smallest >= lower) & (largest <= upper)).double().mean().item()
    assert within >= 1 - 2 * math.exp(-(t**2) / 2) - 6 * math.sqrt(0.25 / 500)  # but for six standard deviations
    assert (lower, upper) == pytest.approx((rows**0.5 - columns**0.5 - t, rows**0.5 + columns**0.5 + t), abs=1e-12)


def printed_lemma_7(d, m, k, t, variance_v, variance_w):
    """Return the bound of Lemma 7 as printed: the differences are squared whatever their sign."""
    m, d, k = math.sqrt(m), math.sqrt(d), math.sqrt(k)
    above = variance_w * (m + k + t) ** 2 + variance_v * (m + d + t) ** 2
    below = variance_w * (m - k - t) ** 2 + variance_v * (m - d - t) ** 2
    return above / below if below else math.inf


def white_conditions(seed, draws, d, m, k, variance_v, variance_w):
    """Return condition numbers for white data, exactly, of V and W with m >= max(d, k) that are drawn."""
    (v_top, v_bottom), (w_top, w_bottom) = ends(gaussian(seed, draws, m, d)), ends(gaussian(seed + 1, draws, m, k))
    top = variance_w * w_top**2 + variance_v * v_top**2
    return top / (variance_w * w_bottom**2 + variance_v * v_bottom**2)


@pytest.mark.claim("Lemma 7", "Eq. 20", verdict="fails")
@pytest.mark.parametrize(
    ("d", "m", "k", "t", "most"), [*((2, 2, 2, t, 0.25) for t in (2.5, 4.0, 6.0)), (4, 8, 1, 6.0, 0.8)]
)
def test_lemma_7_promises_more_than_there_is(d, m, k, t, most):
    frequency = white_conditions(0, 4000, d, m, k, 1 / d, 1 / m) <= printed_lemma_7(d, m, k, t, 1 / d, 1 / m)
    promised = 1 - 8 * math.exp(-(t**2) / 2)
    assert promised > 0.6 and frequency.double().mean() < most < promised


@pytest.mark.claim("Lemma 7, repaired", verdict="holds")
@given(seeds, shapes, st.data(), variances, variances)
def test_the_repaired_bound_holds_for_every_draw_within_the_intervals_of_lemma_6(
    seed, shape, data, variance_v, variance_w
):
    (d, m, k), deviation = shape, 0  # of any width
    v, w = gaussian(seed, m, d), gaussian(seed + 1, k, m)
    for matrix in (v, w.mT):
        (largest, smallest), (lower, upper) = map(float, ends(matrix)), zhao_lemma_6(*matrix.shape, 0)
        deviation = max(deviation, largest - upper, lower - smallest)
    weights, x = [variance_v**0.5 * v, variance_w**0.5 * w], data.draw(strategies.samples(d))
    true, moment = true_condition(weights, x), SecondMoment.from_data(x)
    kappa = (moment.eigenvalues[0] / moment.eigenvalues[-1]).item()
    bound = zhao_lemma_7(d, m, k, deviation, variance_v=variance_v, variance_w=variance_w, data=kappa)
    assert zhao_lemma_1(weights, moment) <= bound * (1 + 1e-6)
    assert true <= bound * up_to_rounding(true)
    printed = printed_lemma_7(d, m, k, deviation, variance_v, variance_w)
    if m**0.5 >= max(d, k) ** 0.5 + deviation:  # no difference is negative
        assert bound == pytest.approx(kappa * printed)


@pytest.mark.claim("Eq. 21", verdict="holds if")
@given(st.integers(1, 1000), st.integers(1, 1000), st.floats(0, 5), st.floats(1e-6, 0.99))
def test_the_middle_of_eq_21_is_an_upper_bound_of_eq_20(d, k, t, r):
    k, m = min(d, k), (math.sqrt(d) + t) ** 2 / r**2
    middle = ((1 + r) / (1 - r)) ** 2
    eq_20 = zhao_lemma_7(d, m, k, t, variance_v=1 / d, variance_w=1 / m)
    smaller = ((math.sqrt(m) + math.sqrt(k) + t) / (math.sqrt(m) - math.sqrt(k) - t)) ** 2
    assert smaller * (1 - 1e-9) <= eq_20 <= middle * (1 + 1e-9)
    assert middle - 1 == pytest.approx(4 * r / (1 - r) ** 2, rel=1e-6)
    last = 1760**-0.5  # the root of d / m, at t = 0: ten percent off until then
    assert ((1 + last) / (1 - last)) ** 2 > 1.1 > ((1 + 1764**-0.5) / (1 - 1764**-0.5)) ** 2


@pytest.mark.claim("Appendix G.2, edges of the spectra", verdict="fails")
@given(seeds, shapes, variances)
def test_v_v_transposed_is_singular_whatever_the_draw(seed, shape, variance):
    d, m = shape[0], shape[1] + shape[0]
    v = variance**0.5 * gaussian(seed, m, d)
    values = torch.linalg.eigvalsh(v @ v.mT)
    assert abs(values[0]) <= 1e-12 * values[-1]
    assert variance * m * (1 - math.sqrt(d / m)) ** 2 > 1e-3 * values[-1] / m


@pytest.mark.claim("Eq. 22", verdict="holds")
@pytest.mark.parametrize(("inputs", "outputs"), [(0.1, 0.02), (0.5, 0.5), (0.3, 0.9), (1.0, 0.25)])
@pytest.mark.parametrize("kaiming", [True, False])
def test_lemma_1_converges_to_the_asymptotic_bound(inputs, outputs, kaiming):
    errors = []
    for m in (40, 160, 640):
        d, k = round(inputs * m), round(outputs * m)
        variance_v, variance_w = (1 / d, 1 / m) if kaiming else (1.0, 0.3)
        limit = asymptotic_bound(d, m, k, variance_v=variance_v, variance_w=variance_w)
        y, z = math.sqrt(d / m), math.sqrt(k / m)
        edges = [variance_w * (1 + s * z) ** 2 + variance_v * (1 + s * y) ** 2 for s in (1, -1)]
        assert limit == pytest.approx(edges[0] / edges[1], rel=1e-9)
        kappas = white_conditions(5, 3, d, m, k, variance_v, variance_w)
        errors.append(abs(kappas / limit - 1).mean().item())
    assert errors[-1] < min(errors[0], 0.12)
