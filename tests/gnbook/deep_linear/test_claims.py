"""Zhao 2024, sections 4.1 and 4.2, appendices A, C and E: linear networks of any depth and a sharper bound."""

import itertools
import math

import numpy as np
import pytest
import torch
from gnbook.deep_linear.bounds import product_vector_bound
from gnbook.deep_linear.perturbation import sum_bounds, weyl
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import SecondMoment, condition_number, linear_gauss_newton, linear_weights, whiten
from gnlib.linear.bounds import sharp_linear, zhao_lemma_1, zhao_lemma_2, zhao_lemma_2_terms
from gnlib.linear.gauss_newton import partial_products
from tests.oracles import products, spectrum
from tests.strategies import (
    EPS,
    data_condition,
    diagonal,
    exact,
    gaussian,
    instances,
    jacobian,
    kron,
    nonzero_eigenvalues,
    pairs,
    problems,
    seeds,
    spectra,
    square_root,
    symmetric,
    terms,
    true_condition,
    up_to_rounding,
)


def stacked(weights):
    """Return U, the blocks A_l^T kron B_l on top of each other (the paper's transpose sign arranges blocks only)."""
    return torch.cat([kron(a.mT, b) for a, b in products(weights)])


def moment(x):
    return x.mT @ x / len(x)


def close(a, b, scale):
    return torch.allclose(a, b, rtol=0, atol=1e-12 * max(float(scale), 1e-300))


@pytest.mark.claim("Decomposition of the Gauss-Newton matrix", verdict="holds if")
@instances
@given(problems(1, 4))
def test_the_gauss_newton_matrix_is_u_i_kron_sigma_u_transposed(problem):
    weights, x = problem
    j, u, k = jacobian(weights, x), stacked(weights), weights[-1].shape[0]
    middle = kron(torch.eye(k, dtype=torch.float64), moment(x))
    scale = torch.linalg.matrix_norm(u) ** 2 * torch.linalg.matrix_norm(middle)
    assert close(j.mT @ j / len(x), u @ middle @ u.mT, scale)


@pytest.mark.claim("Eq. 4", verdict="holds")
@instances
@given(problems(1, 4))
def test_the_reduced_matrix_has_the_non_zero_eigenvalues(problem):
    weights, x = problem
    large = nonzero_eigenvalues(jacobian(weights, x), len(x))
    assume(len(large))
    k, half, u = weights[-1].shape[0], square_root(moment(x)), stacked(weights)
    factor = kron(torch.eye(k, dtype=torch.float64), half)
    small = torch.linalg.eigvalsh(factor @ u.mT @ u @ factor).flip(0)
    assert torch.allclose(small[: len(large)], large[: len(small)], rtol=1e-9, atol=1e-12 * large[0].item())
    assert (small[len(large) :].abs() <= 1e-12 * large[0]).all() and len(large) <= len(small)
    gram = jacobian(weights, x) @ jacobian(weights, x).mT / len(x)
    assert torch.allclose(torch.linalg.eigvalsh(gram)[-1], large[0], rtol=1e-9)


@pytest.mark.claim("Eq. 5", verdict="holds")
@instances
@given(problems(1, 4))
def test_the_reduced_matrix_is_a_sum_of_kronecker_products(problem):
    weights, x = problem
    u, sigma, k = stacked(weights), moment(x), weights[-1].shape[0]
    total = sum(kron(a @ a.mT, b.mT @ b) for a, b in products(weights))
    assert close(u.mT @ u, total, torch.linalg.matrix_norm(total))
    factor = kron(torch.eye(k, dtype=torch.float64), square_root(sigma))
    reduced = factor @ total @ factor
    assume(sigma.any())
    # the library works in the eigenbasis of sigma, an orthogonal change of coordinates
    library = linear_gauss_newton(weights, SecondMoment.from_data(x)).dense()
    scale = torch.linalg.matrix_norm(total) * torch.linalg.matrix_norm(sigma)
    assert close(torch.linalg.eigvalsh(library), torch.linalg.eigvalsh(reduced), scale)
    for ours, (a, b) in zip(partial_products(weights), products(weights), strict=True):
        assert close(ours[0], a, torch.linalg.matrix_norm(a)) and close(ours[1], b, torch.linalg.matrix_norm(b))


def printed(weights, x):
    """Return both bounds of Lemma 2 as printed, gammas and all."""
    largest, alpha = terms(weights)
    gamma, kappas = alpha / alpha.sum(), largest / alpha
    return data_condition(x) * (gamma * kappas).sum().item(), data_condition(x) * kappas.max().item()


@pytest.mark.claim("Lemma 2, first inequality", verdict="holds")
@pytest.mark.claim("Lemma 2, second inequality", verdict="holds")
@instances
@given(problems(1, 5, wide=True, regular=True))
def test_both_bounds_under_the_assumptions_of_lemma_2_and_the_library_evaluates_them_as_printed(problem):
    weights, x = problem
    largest, alpha = terms(weights)
    assert (alpha > 0).all()
    true, (first, second) = true_condition(weights, x), printed(weights, x)
    assert true <= first * up_to_rounding(true) and first <= second * (1 + 1e-9)
    if torch.allclose(largest / alpha, (largest / alpha)[0], rtol=1e-9):
        assert first == pytest.approx(second, rel=1e-6)  # equality where all layers are conditioned alike
    if (alpha > 1e-12).all():
        assert zhao_lemma_2(weights, SecondMoment.from_data(x)) == pytest.approx((first, second), rel=1e-6)


@pytest.mark.claim("Lemma 2, its assumptions", verdict="holds if")
@instances
@given(problems(1, 4))
def test_one_positive_alpha_is_enough_for_the_first_inequality_whatever_the_widths(problem):
    weights, x = problem
    true = true_condition(weights, x)
    assume(true is not None)
    largest, alpha = terms(weights)
    bound = (largest.sum() / alpha.sum()).item() if alpha.any() else math.inf
    assert true <= data_condition(x) * bound * up_to_rounding(true)
    assert true <= zhao_lemma_2(weights, SecondMoment.from_data(x)).first * up_to_rounding(true)


@pytest.mark.claim("Lemma 2, its assumptions", verdict="holds if")
def test_narrow_layers_need_zero_padded_singular_values():
    weights, x = [exact([[1, 0]]), exact([[1]]), exact([[1]])], torch.eye(2).double()
    unpadded = [s[0] / s[-1] for pair in partial_products(weights) for s in map(torch.linalg.svdvals, pair)]
    assert {kappa.item() for kappa in unpadded} == {1}  # so both bounds would be 1
    assert true_condition(weights, x) == pytest.approx(3, rel=1e-12)
    assert zhao_lemma_2(weights, torch.eye(2).double()) == (3, math.inf)


@pytest.mark.claim("Data and network, any depth", verdict="holds")
@pytest.mark.claim("Condition number of the network alone", verdict="holds")
@instances
@given(problems(1, 4, regular=True))
def test_the_condition_number_is_that_of_the_data_up_to_the_network_alone_and_up_to_the_ratio_of_lemma_2(problem):
    weights, x = problem
    true, data = true_condition(weights, x), data_condition(x)
    network = true_condition(weights, torch.eye(weights[0].shape[1]).double())
    largest, alpha = terms(weights)
    assume(alpha.any())
    ratio = (largest.sum() / alpha.sum()).item()
    assert true <= data * ratio * up_to_rounding(true)
    assert data / network <= true * up_to_rounding(true)
    assert network <= ratio * up_to_rounding(network)  # so that it is the better bracket


@pytest.mark.claim("Product vectors", verdict="holds")
@instances
@given(problems(1, 4), seeds)
def test_product_vectors_give_a_lower_bound(problem, seed):
    weights, x = problem
    true = true_condition(weights, x)
    assume(true is not None)
    assert product_vector_bound(weights, SecondMoment.from_data(x)) <= true * up_to_rounding(true)
    # q is a quadratic form of the reduced matrix, written by layers
    u, v = gaussian(seed, len(weights[-1])), gaussian(seed + 1, weights[0].shape[1])
    half, pairs = square_root(moment(x)), products(weights)
    q = sum((a.mT @ u).square().sum() * (b @ half @ v).square().sum() for a, b in pairs)
    total = sum(kron(a @ a.mT, half @ b.mT @ b @ half) for a, b in pairs)
    uv = kron(u[:, None], v[:, None])[:, 0]
    assert torch.isclose(q, uv @ total @ uv, rtol=1e-9, atol=1e-12 * float(torch.linalg.matrix_norm(total)))


@pytest.mark.claim("Product vectors", verdict="holds")
@instances
@given(problems(1, 2, regular=True))
def test_product_vectors_are_exact_for_one_and_two_layers(problem):
    weights, x = problem
    true, data = true_condition(weights, x), SecondMoment.from_data(x)
    assume(sharp_linear(weights, data) < 1e9)
    assert product_vector_bound(weights, data) == pytest.approx(true, rel=1e-4)


def exponents(m, count):
    """Return the Lyapunov exponents of products of m x m matrices with normal entries of variance 1 / m."""
    return (torch.digamma((m - torch.arange(count)) / 2) - math.log(m / 2)) / 2


def mean_log_condition(d, m, k, layers, draws=40):
    """Return the mean logarithm of the condition number for white data at Kaiming initialisation, and its error."""
    logs = []
    for seed in range(draws):
        weights = linear_weights([d, *[m] * (layers - 1), k], generator=torch.Generator().manual_seed(seed))
        values = torch.linalg.eigvalsh(linear_gauss_newton(weights, torch.eye(d).double()).dense())
        logs.append((values[-1] / values[0]).log())
    logs = torch.stack(logs)
    return logs.mean().item(), logs.std().item() / draws**0.5


@pytest.mark.claim("Growth with the depth", verdict="holds")
@pytest.mark.parametrize(("d", "m", "k"), [(2, 3, 2), (3, 4, 2), (2, 4, 3), (3, 5, 1)])
def test_each_layer_adds_the_same_to_the_logarithm_of_the_condition_number(d, m, k):
    (first, e), (second, f) = (mean_log_condition(d, m, k, layers) for layers in (20, 32))
    top, bottom = exponents(m, min(d, k))[[0, -1]].tolist()
    assert (second - first) / 12 == pytest.approx(2 * (top - bottom), abs=0.05 + 4 * (e + f) / 12)


@pytest.mark.claim("Section 7, quadratic growth with the depth", verdict="fails")
def test_no_power_of_the_depth_is_the_law():
    slopes = []  # of log kappa against log L, which would be 2
    for fewer, more in ((2, 4), (4, 8), (8, 16), (16, 32)):
        logs = [mean_log_condition(2, 3, 2, layers)[0] for layers in (fewer, more)]
        slopes.append((logs[1] - logs[0]) / math.log(2))
    assert all(b > a + 1 for a, b in itertools.pairwise(slopes)) and slopes[-1] > 10


@pytest.mark.claim("Section 7, bounds cannot tell a solution from an initialisation", verdict="fails")
def test_the_bound_of_a_solution_is_not_that_of_its_initialisation():
    eye, target = torch.eye(2).double(), exact([[2, 0]])
    v, w = diagonal([1, 1], 3, 2), torch.zeros(1, 3).double()  # m = 3 > max(d, k) = 2
    assert zhao_lemma_1([v, w], eye) == true_condition([v, w], eye) == pytest.approx(1)
    for _ in range(4000):
        residual = w @ v - target
        v, w = v - 0.005 * w.mT @ residual, w - 0.005 * residual @ v.mT
    assert (w @ v - target).abs().max() < 1e-9
    assert zhao_lemma_1([v, w], eye) == pytest.approx(true_condition([v, w], eye), rel=1e-9)
    assert zhao_lemma_1([v, w], eye) == pytest.approx(
        2 * 17**0.5 / (1 + 17**0.5), rel=0.02
    )  # 1.61, along gradient flow


def balance(d, m, k, layers, draws=40):
    """Return how often, of two terms of Lemma 2, the worse conditioned one has the smaller weight."""
    opposite = []
    for seed in range(draws):
        weights = linear_weights([d, *[m] * (layers - 1), k], generator=torch.Generator().manual_seed(seed))
        found = zhao_lemma_2_terms(weights, torch.eye(d).double())
        kappas = found.kappa_above * found.kappa_below
        i, j = torch.triu_indices(layers, layers, 1)
        opposite.append((kappas[i] > kappas[j]) == (found.alpha[i] < found.alpha[j]))
    return torch.cat(opposite).double().mean().item()


@pytest.mark.claim("Appendix E, other widths and dimensions", verdict="fails")
def test_in_a_wide_network_the_weights_have_no_order():
    assert 0.4 < balance(20, 400, 5, layers=5) < 0.65


@pytest.mark.claim("Appendix E, other widths and dimensions", verdict="fails")
def test_in_deep_networks_with_other_numbers_of_inputs_than_outputs_they_have():
    assert balance(20, 30, 5, layers=10) > 0.95 and balance(5, 30, 20, layers=10) > 0.95
    assert balance(3, 4, 1, layers=40) > balance(3, 4, 1, layers=10) > balance(3, 4, 3, layers=10)


@pytest.mark.claim("Sharper bound", verdict="holds")
@instances
@given(problems(1, 5))
def test_the_sharper_bound_lies_between_the_truth_and_lemma_2(problem):
    weights, x = problem
    true = true_condition(weights, x)
    assume(true is not None)
    data = SecondMoment.from_data(x)
    sharp, first = sharp_linear(weights, data), zhao_lemma_2(weights, data).first
    assert true <= sharp * up_to_rounding(true)
    assert sharp <= first * up_to_rounding(first) or first > 1e16


@pytest.mark.claim("Sharper bound", verdict="holds")
@instances
@given(problems(1, 2))
def test_the_sharper_bound_is_exact_for_one_and_two_layers(problem):
    weights, x = problem
    true, sharp = true_condition(weights, x), sharp_linear(weights, SecondMoment.from_data(x))
    assume(sharp < 1e12)
    assert sharp == pytest.approx(true, rel=1e-6)


@pytest.mark.claim("Appendix E, self-balancing", verdict="holds if")
@instances
@given(problems(1, 5, regular=True))
def test_each_term_of_the_combination_is_its_largest_eigenvalue_and_the_combination_a_harmonic_mean(problem):
    weights, x = problem
    found = zhao_lemma_2_terms(weights, SecondMoment.from_data(whiten(x)))
    largest, alpha = terms(weights)
    assume((alpha > 1e-12).all())
    weighted = found.gamma * found.kappa_above * found.kappa_below
    assert torch.allclose(weighted, largest / alpha.sum(), rtol=1e-6)
    assert torch.allclose(found.alpha, alpha, rtol=1e-6)
    kappas, share = largest / alpha, largest / largest.sum()
    combination = largest.sum() / alpha.sum()  # a harmonic mean, so that each layer limits it
    assert torch.isclose(combination, 1 / (share / kappas).sum(), rtol=1e-9)
    assert combination <= (kappas / share).min() * (1 + 1e-9)
    assert kappas.min() * (1 - 1e-9) <= combination <= kappas.max() * (1 + 1e-9)


def rounding(*parts):
    """Return a bound on the rounding of eigenvalues of these matrices."""
    return 100 * EPS * sum(p.abs().max().item() * len(p) for p in parts)


def middle_sums(a, b):
    """Return lambda_{n-j}(A) + lambda_{1+j}(B) for j = 0, ..., n - 1, the terms of Eq. 12."""
    return a.flip(0) + b


@pytest.mark.claim("Lemma 5", verdict="holds")
@instances
@given(pairs())
def test_weyl_and_dual_weyl_for_every_pair_of_indices(pair):
    a, b, s = (spectrum(m) for m in (*pair, sum(pair)))
    n, tolerance = len(a), rounding(*pair)
    for i, j in itertools.product(range(1, n + 1), repeat=2):
        if i + j - 1 <= n:
            assert s[i + j - 2] <= a[i - 1] + b[j - 1] + tolerance
        if i + j - n >= 1:
            assert s[i + j - n - 1] >= a[i - 1] + b[j - 1] - tolerance


@pytest.mark.claim("Appendix A, extreme eigenvalues of a sum", verdict="holds")
@instances
@given(pairs())
def test_the_four_consequences_of_weyl(pair):
    a, b, s = (spectrum(m) for m in (*pair, sum(pair)))
    tolerance = rounding(*pair)
    assert s[0] <= a[0] + b[0] + tolerance
    assert (s[-1] <= middle_sums(a, b) + tolerance).all()
    assert (s[0] >= middle_sums(a, b) - tolerance).all()
    assert s[-1] >= a[-1] + b[-1] - tolerance
    lower, upper = weyl(a, b)
    best = [lower[0] - middle_sums(a, b).max(), upper[-1] - middle_sums(a, b).min()]
    assert torch.allclose(
        torch.stack([*best, upper[0] - a[0] - b[0], lower[-1] - a[-1] - b[-1]]), torch.zeros(4).double()
    )


def by_the_paper(matrix):
    """Return |lambda_max| / |lambda_min|, the first and the last of the ordered eigenvalues."""
    values = spectrum(matrix)
    return (values[0].abs() / values[-1].abs()).item()


@pytest.mark.claim("Appendix A, condition number of a symmetric matrix", verdict="fails")
def test_the_ratio_of_the_last_eigenvalues_misses_the_middle_of_an_indefinite_spectrum():
    singular = exact([1.0, 0.0, -1.0]).diag()
    assert by_the_paper(singular) == 1 and torch.linalg.matrix_rank(singular) == 2
    below_one = exact([1.0, -2.0]).diag()
    assert by_the_paper(below_one) == 0.5 and torch.linalg.cond(below_one) == 2


def exact_ends(a, b):
    """Return both sides of Eq. 12 as printed, and the condition number between them; 0 / 0 is no number."""
    la, lb, ls = (spectrum(m) for m in (a, b, a + b))

    def ratio(top, bottom):
        top, bottom = (abs(z.item()) if abs(z.item()) > 1e-12 else 0.0 for z in (top, bottom))
        return top / bottom if bottom else float("inf" if top else "nan")

    middle = middle_sums(la, lb)
    return ratio(middle.max(), middle.min()), ratio(ls[0], ls[-1]), ratio(la[0] + lb[0], la[-1] + lb[-1])


@pytest.mark.claim("Eq. 12, lower bound", verdict="fails")
def test_the_lower_bound_is_violated_by_symmetric_matrices():
    # the condition numbers are right by every reading: the eigenvalue of largest modulus comes first
    lower, kappa, _ = exact_ends(exact([-1, 0]).diag(), exact([0, 2]).diag())
    assert (lower, kappa) == (float("inf"), 2)
    lower, kappa, _ = exact_ends(exact([-2, 2]).diag(), exact([0, 1]).diag())
    assert (lower, kappa) == (2, 1.5)


@pytest.mark.claim("Eq. 12, upper bound", verdict="fails")
def test_the_upper_bound_is_violated_by_symmetric_matrices():
    a, b = (exact(v).diag() for v in ([0.0, -1.0], [-1.0, 0.0]))
    _, kappa, upper = exact_ends(a, b)
    assert (kappa, upper) == (1, 0)
    # even with a positive definite sum, where all readings of the condition number agree
    a, b = exact([[0.0, 1.0], [1.0, 1.0]]), exact([[2.0, 0.0], [0.0, 0.0]])
    _, kappa, upper = exact_ends(a, b)
    golden = (1 + 5**0.5) / 2
    assert kappa == pytest.approx(golden**4, rel=1e-12) and upper == pytest.approx(golden**4 - 1, rel=1e-12)


@pytest.mark.claim("Appendix A, spectrum of a Kronecker product", verdict="holds")
@instances
@given(st.integers(1, 4), st.integers(1, 3), st.data())
def test_eigenvalues_of_a_kronecker_product_are_all_products_for_any_square_matrices(p, q, data):
    # Equal power sums, in exact integers, mean equal spectra: complex, repeated and defective ones too.
    entries = st.integers(-3, 3)
    a, b = (
        np.array(data.draw(st.lists(entries, min_size=n * n, max_size=n * n)), dtype=object).reshape(n, n)
        for n in (p, q)
    )
    product = np.kron(a, b)
    a_power, b_power, power = (np.eye(n, dtype=int).astype(object) for n in (p, q, p * q))
    for _ in range(p * q):
        a_power, b_power, power = a_power @ a, b_power @ b, power @ product
        assert np.trace(power) == np.trace(a_power) * np.trace(b_power)


@pytest.mark.claim("Eq. 13 and 14", verdict="holds")
@instances
@given(*(st.integers(1, 4).flatmap(lambda n: symmetric(n, 0)) for _ in "ab"))
def test_extreme_eigenvalues_of_a_kronecker_product_of_semidefinite_matrices(a, b):
    ends_a, ends_b, ends = (spectrum(m)[[0, -1]] for m in (a, b, kron(a, b)))
    assert torch.allclose(ends, ends_a * ends_b, rtol=0, atol=1e-13 * max(1, ends[0].item()))


@pytest.mark.claim("Appendix A, extreme eigenvalues of a product", verdict="holds")
@instances
@given(pairs(0))
def test_extreme_eigenvalues_of_a_product_of_semidefinite_matrices(pair):
    a, b = pair
    root = square_root(a)
    similar = spectrum(root @ b @ root)  # AB has the eigenvalues of A^1/2 B A^1/2
    scale = spectrum(a)[0] * spectrum(b)[0]
    assert torch.allclose(
        torch.linalg.eigvals(a @ b).real.sort(descending=True).values, similar, rtol=0, atol=1e-6 * scale
    )
    assert similar[0] <= scale * (1 + 1e-13)
    assert similar[-1] >= spectrum(a)[-1] * spectrum(b)[-1] - 1e-13 * scale


def nonzero(matrix):
    """Return the non-zero eigenvalues of a positive semi-definite matrix, descending."""
    values = spectrum(matrix)
    return values[values > 1e-10 * values[0]]


@pytest.mark.claim("Appendix A, products with smallest non-zero eigenvalues", verdict="fails")
@pytest.mark.parametrize("angle", [0.1, 0.7, 1.5])
def test_two_lines_at_an_angle_have_a_smaller_product(angle):
    e, f = exact([1, 0]), torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
    a, b = torch.outer(e, e), torch.outer(f, f)
    assert nonzero(a).tolist() == [1] and nonzero(b).tolist() == pytest.approx([1])
    values = torch.linalg.eigvals(a @ b).real
    assert values.max().item() == pytest.approx(math.cos(angle) ** 2, rel=1e-9) and values.max() < 1


@pytest.mark.claim("Appendix C", verdict="holds")
@instances
@given(st.integers(2, 6), st.data())
def test_the_pseudo_condition_number_and_what_one_more_eigenvalue_changes(n, data):
    rank = data.draw(st.integers(1, n))
    values = torch.cat([data.draw(spectra(rank, 1)).sort(descending=True).values, torch.zeros(n - rank).double()])
    matrix = values.diag()
    found = condition_number(matrix)
    assert found.rank == rank and found.value == pytest.approx((values[0] / values[rank - 1]).item())
    if rank == n:
        assert found.value == pytest.approx(torch.linalg.cond(matrix).item())
    if rank > 1:
        fewer = condition_number(matrix, rank=rank - 1)
        gap = (values[rank - 2] / values[rank - 1]).item()
        assert found.value / (fewer.largest / fewer.smallest) == pytest.approx(gap)


@pytest.mark.claim("Eq. 12, lower bound", verdict="fails")
@pytest.mark.claim("Eq. 12, upper bound", verdict="fails")
@instances
@given(pairs(0))
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


@pytest.mark.claim("Lemma 5", verdict="holds")
@instances
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(spectra(n), spectra(n))))
def test_each_bound_of_weyl_is_attained_by_diagonal_matrices(spectra_pair):
    a, b = (v.sort(descending=True).values for v in spectra_pair)
    lower, upper = weyl(*spectra_pair)
    for q in range(len(a)):
        # the q + 1 largest of one against those of the other, in opposite orders
        highest = a + torch.cat([b[: q + 1].flip(0), b[q + 1 :]])
        lowest = a + torch.cat([b[:q], b[q:].flip(0)])
        assert torch.isclose(highest.sort(descending=True).values[q], upper[q], rtol=1e-14, atol=1e-14)
        assert torch.isclose(lowest.sort(descending=True).values[q], lower[q], rtol=1e-14, atol=1e-14)
