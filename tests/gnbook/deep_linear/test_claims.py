"""Zhao 2024, sections 4.1 and 4.2 and appendix E: linear networks of any depth, and a sharper bound."""

import itertools
import math

import pytest
import torch
from gnbook.deep_linear.bounds import product_vector_bound
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import SecondMoment, condition_number, linear_gauss_newton, linear_weights, whiten
from gnlib.linear.bounds import sharp_linear, zhao_lemma_1, zhao_lemma_2, zhao_lemma_2_terms
from gnlib.linear.gauss_newton import partial_products
from tests.oracles import products
from tests.strategies import (
    data_condition,
    diagonal,
    exact,
    gaussian,
    instances,
    jacobian,
    kron,
    matrices,
    nonzero_eigenvalues,
    problems,
    seeds,
    sizes,
    square_root,
    squares,
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


@pytest.mark.claim("Decomposition of the Gauss-Newton matrix", verdict="holds if")
def test_transposing_the_blocks_of_u_as_well_gives_another_matrix():
    # all dimensions equal, the only shapes for which the display can be read that way
    v, w, sigma = exact([[0, 1], [0, 0]]), torch.zeros(2, 2).double(), exact([[2, 0], [0, 1]])
    read_literally = torch.cat([kron(a, b.mT) for a, b in products([v, w])])
    middle = kron(torch.eye(2).double(), sigma)
    true = jacobian([v, w], sigma.sqrt() * 2**0.5)
    both = [u @ middle @ u.mT for u in (stacked([v, w]), read_literally)]
    largest = [torch.linalg.matrix_norm(m, 2).item() for m in (true.mT @ true / 2, *both)]
    assert largest == pytest.approx([1, 1, 2], rel=1e-12)


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
def test_a_single_zero_alpha_makes_the_second_bound_infinite_and_the_printed_first_one_undefined():
    weights = [diagonal([1, 1], 3, 2), diagonal([1, 0], 3, 3), diagonal([1, 1], 2, 3)]
    x = 2**0.5 * torch.eye(2).double()
    assert terms(weights)[1].tolist() == [0, 1, 0]
    assert math.isnan(printed(weights, x)[0])
    assert zhao_lemma_2(weights, torch.eye(2).double()) == (3, math.inf)
    assert true_condition(weights, x) == pytest.approx(3, rel=1e-12)
    between = [torch.eye(2).double(), torch.zeros(2, 2).double(), torch.eye(2).double()]
    assert zhao_lemma_2(between, torch.eye(2).double()) == (1, math.inf)
    assert true_condition(between, x) == pytest.approx(1, rel=1e-12)


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


def on_the_range(x):
    """Return an orthonormal basis of the span of the samples."""
    _, s, rows = torch.linalg.svd(x, full_matrices=False)
    return rows[s > 1e-12 * s[0]].mT


@pytest.mark.claim("Condition number of the network alone", verdict="holds")
@instances
@given(problems(1, 4))
def test_data_change_the_condition_number_of_the_network_by_no_more_than_their_own(problem):
    weights, x = problem
    true = true_condition(weights, x)
    assume(true is not None)
    basis = on_the_range(x)
    network, data = (
        true_condition([weights[0] @ basis, *weights[1:]], torch.eye(basis.shape[1]).double()),
        data_condition(x),
    )
    assert network / data <= true * up_to_rounding(network)
    assert true <= network * data * up_to_rounding(true)


@pytest.mark.claim("Condition number of the network alone", verdict="holds")
def test_the_lower_bound_of_the_network_alone_is_attained():
    v, w, x = exact([[0, 1], [0, 0], [0, 0]]), exact([[1, 0, 0]]), exact([[2**0.5, 0], [0, 1]])
    network = true_condition([v, w], torch.eye(2).double())
    assert (network, data_condition(x)) == (pytest.approx(2), pytest.approx(2))
    assert true_condition([v, w], x) == pytest.approx(1)


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


@pytest.mark.claim("Product vectors", verdict="holds")
@instances
@given(problems(1, 4))
def test_the_matrix_is_regular_unless_two_neighbouring_products_lose_rank(problem):
    weights, x = problem
    true = nonzero_eigenvalues(jacobian(weights, x), len(x))
    assume(len(true) and true[-1] > 1e-12 * true[0])
    basis = on_the_range(x)
    k, r = len(weights[-1]), basis.shape[1]
    ranks = [[torch.linalg.matrix_rank(m, rtol=1e-9).item() for m in (a, b @ basis)] for a, b in products(weights)]
    regular = all(a == k or b == r for (a, _), (_, b) in itertools.pairwise(ranks))
    assert (len(true) == k * r) == regular
    if not regular:
        assert product_vector_bound(weights, SecondMoment.from_data(x)) == 1


@pytest.mark.claim("Product vectors", verdict="holds")
def test_product_vectors_come_close_in_deep_networks():
    sigma = torch.logspace(0, 2, 12).double().diag()
    for seed, hidden in itertools.product(range(3), ([20, 20], [20] * 5, [6, 6])):
        weights = linear_weights([12, *hidden, 4], generator=torch.Generator().manual_seed(seed))
        true = float(condition_number(linear_gauss_newton(weights, sigma)))
        assert 0.99 * true <= product_vector_bound(weights, sigma) <= true * (1 + 1e-9)


def exponents(m, count):
    """Return the Lyapunov exponents of products of m x m matrices with normal entries of variance 1 / m."""
    return (torch.digamma((m - torch.arange(count)) / 2) - math.log(m / 2)) / 2


@pytest.mark.claim("Growth with the depth", verdict="holds")
@pytest.mark.parametrize(("m", "count"), [(3, 3), (6, 2), (20, 5)])
def test_singular_values_of_random_products_fall_at_the_rates_of_the_digamma_function(m, count):
    q, total = torch.eye(m).double()[:, :count], torch.zeros(count).double()
    layers = 2000
    for w in gaussian(0, layers, m, m) / m**0.5:
        q, r = torch.linalg.qr(w @ q)
        total += r.diagonal().abs().log()
    assert torch.allclose(total / layers, exponents(m, count).double(), rtol=0, atol=0.06)


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


@pytest.mark.claim("Section 7, quadratic growth with the depth", verdict="fails")
@pytest.mark.parametrize(("d", "k"), [(3, 1), (1, 3)])
def test_with_one_input_or_output_the_growth_is_about_quadratic(d, k):
    logs = [mean_log_condition(d, 5, k, layers)[0] for layers in (32, 128)]
    assert (logs[1] - logs[0]) / math.log(4) == pytest.approx(2, abs=0.35)


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


@pytest.mark.claim("Sharper bound", verdict="holds")
@instances
@given(problems(3, 5, regular=True))
def test_the_sharper_bound_is_the_quotient_of_the_two_sums(problem):
    weights, x = problem
    half, k = square_root(moment(x)), weights[-1].shape[0]
    pairs = [(squares(a, k), half @ b.mT @ b @ half) for a, b in products(weights)]
    top = torch.linalg.eigvalsh(sum(a[0] * s for a, s in pairs))[-1]
    bottom = torch.linalg.eigvalsh(sum(a[-1] * s for a, s in pairs))[0]
    assume(bottom > 1e-9 * top)
    assert sharp_linear(weights, SecondMoment.from_data(x)) == pytest.approx((top / bottom).item(), rel=1e-5)


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


@pytest.mark.claim("Appendix E, self-balancing", verdict="holds if")
@instances
@given(sizes.flatmap(lambda d: st.lists(matrices(d, d, regular=True), min_size=2, max_size=4)))
def test_larger_condition_numbers_have_smaller_weights_where_the_largest_eigenvalues_agree(weights):
    weights = [w / torch.linalg.matrix_norm(w, 2) for w in weights]
    largest, alpha = terms(weights)
    assume((alpha > 1e-12).all())
    kappas, gamma = largest / alpha, alpha / alpha.sum()
    assert torch.allclose(gamma * kappas, largest / alpha.sum(), rtol=1e-9)
    top = largest / largest.max()
    for i in range(len(weights)):  # where one largest eigenvalue is not above the other, the order must be reversed
        for j in range(len(weights)):
            if top[i] <= top[j] and kappas[i] > kappas[j] * (1 + 1e-9):
                assert gamma[i] < gamma[j]


@pytest.mark.claim("Appendix E, self-balancing", verdict="holds if")
def test_the_worse_conditioned_layer_can_have_the_larger_weight():
    weights = [diagonal([3, 2], 3, 2), exact([[1, 0, 0]])]  # m = 3 > max(d, k) = 2
    found = zhao_lemma_2_terms(weights, torch.eye(2).double())
    kappas = found.kappa_above * found.kappa_below
    assert torch.allclose(kappas, exact([1, 9 / 4])) and torch.allclose(found.gamma, exact([1 / 5, 4 / 5]))
    truth = condition_number(linear_gauss_newton(weights, torch.eye(2).double()))
    assert float(truth) == pytest.approx(2, rel=1e-9)
