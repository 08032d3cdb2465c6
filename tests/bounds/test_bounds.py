"""Bounds on the condition number, against the formulas of the paper written in NumPy."""

import itertools
import math

import numpy as np
import pytest
import torch

from gnlib import SecondMoment, condition_number, linear_gauss_newton, second_moment, whiten
from gnlib.bounds import product_vector_bound, sharp_linear, zhao_lemma_1, zhao_lemma_2, zhao_lemma_2_terms
from gnlib.chapters.deep_linear.perturbation import sum_bounds, weyl
from gnlib.chapters.gauss_newton.bounds import gradient_descent_bound
from gnlib.chapters.one_hidden_layer.bounds import asymptotic_bound, zhao_lemma_6, zhao_lemma_7
from tests.oracles import network, normal, orthogonal, products, spectrum

WIDTHS = [
    (3, 4),
    (4, 6, 3),
    (3, 5, 5),
    (4, 7, 6, 3),
    (2, 3, 4, 5, 2),
    (3, 8, 7, 6, 5, 4),
    (1, 1, 1),
]
networks = pytest.mark.parametrize("widths", WIDTHS, ids=lambda widths: "-".join(map(str, widths)))
skips = pytest.mark.parametrize("skip", [0.0, 0.3, 1.0])


def case(widths):
    return network(widths, seed=1), second_moment(normal(12, widths[0], seed=2))


def squares(matrix, size):
    """Largest and smallest of `size` squared singular values, continued by zeros."""
    s = np.linalg.svd(matrix.numpy(), compute_uv=False) ** 2
    return s[0], s[-1] if len(s) >= size else 0.0


def extremes(weights, skip=0.0):
    """Largest and smallest eigenvalues of each A_l A_l^T, then of each B_l^T B_l."""
    d, k = weights[0].shape[1], weights[-1].shape[0]
    return np.array([squares(a, k) + squares(b, d) for a, b in products(weights, skip)]).T


def kappa(moment):
    return np.linalg.cond(moment.numpy())


@networks
@skips
def test_lemma_2_is_the_formula_of_the_paper(widths, skip):
    weights, moment = case(widths)
    a_max, a_min, b_max, b_min = extremes(weights, skip)
    gamma = a_min * b_min / (a_min * b_min).sum()
    kappas = a_max / a_min * b_max / b_min
    first, second = zhao_lemma_2(weights, moment, skip)
    assert first == pytest.approx(kappa(moment) * (gamma * kappas).sum(), rel=1e-9)
    assert second == pytest.approx(kappa(moment) * kappas.max(), rel=1e-9)


@networks
@skips
def test_the_terms_of_lemma_2_are_extreme_squared_singular_values(widths, skip):
    weights, moment = case(widths)
    terms = zhao_lemma_2_terms(weights, moment, skip)
    a_max, a_min, b_max, b_min = extremes(weights, skip)
    alpha = a_min * b_min
    expected = {
        "above_largest": a_max,
        "above_smallest": a_min,
        "below_largest": b_max,
        "below_smallest": b_min,
        "alpha": alpha,
        "gamma": alpha / alpha.sum(),
        "kappa_above": a_max / a_min,
        "kappa_below": b_max / b_min,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(terms, name).numpy(), value, rtol=1e-9, err_msg=name)
    assert terms.data == pytest.approx(kappa(moment), rel=1e-9)


@pytest.mark.parametrize("widths", [(4, 6, 3), (3, 5, 5), (4, 4, 4), (1, 1, 1)])
@skips
def test_lemma_1_is_the_formula_of_the_paper(widths, skip):
    (v, w), moment = case(widths)
    eye = lambda m: skip * np.eye(*m.shape)  # noqa: E731
    s_v, s_w = (np.linalg.svd(m.numpy() + eye(m), compute_uv=False) ** 2 for m in (v, w))
    expected = kappa(moment) * (s_w[0] + s_v[0]) / (s_w[-1] + s_v[-1])
    assert zhao_lemma_1([v, w], moment, skip) == pytest.approx(expected, rel=1e-9)


@networks
@skips
def test_the_sharper_bound_is_its_formula(widths, skip):
    weights, moment = case(widths)
    values, vectors = np.linalg.eigh(moment.numpy())
    root = vectors * np.sqrt(values) @ vectors.T
    a_max, a_min, _, _ = extremes(weights, skip)
    factors = [root @ b.numpy().T @ b.numpy() @ root for _, b in products(weights, skip)]
    top = np.linalg.eigvalsh(sum(c * s for c, s in zip(a_max, factors, strict=True)))[-1]
    bottom = np.linalg.eigvalsh(sum(c * s for c, s in zip(a_min, factors, strict=True)))[0]
    assert sharp_linear(weights, moment, skip) == pytest.approx(top / bottom, rel=1e-8)


@networks
@skips
def test_the_bounds_are_in_order_above_the_condition_number(widths, skip):
    weights, moment = case(widths)
    value = condition_number(linear_gauss_newton(weights, moment, skip)).value
    first, second = zhao_lemma_2(weights, moment, skip)
    bounds = [product_vector_bound(weights, moment, skip), value, sharp_linear(weights, moment, skip), first, second]
    assert all(a <= b * (1 + 1e-8) for a, b in itertools.pairwise(bounds))


@pytest.mark.parametrize("widths", [(4, 3), (4, 6, 3), (3, 5, 5), (6, 4, 3)])
def test_the_sharper_bound_is_exact_for_one_and_two_layers(widths):
    weights, moment = case(widths)
    exact = condition_number(linear_gauss_newton(weights, moment)).value
    assert sharp_linear(weights, moment) == pytest.approx(exact, rel=1e-8)
    assert product_vector_bound(weights, moment) == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize("skip", [0.0, 0.5, 2.0])
def test_product_vectors_are_close_below_the_condition_number(skip):
    weights, moment = case((4, 6, 6, 3))
    value = condition_number(linear_gauss_newton(weights, moment, skip)).value
    assert 0.9 * value <= product_vector_bound(weights, moment, skip) <= value * (1 + 1e-9)


@pytest.mark.parametrize("widths", [(3, 2, 3), (4, 5, 3, 5, 4)])
def test_product_vectors_say_nothing_of_a_singular_matrix(widths):
    assert product_vector_bound(*case(widths)) == 1


@pytest.mark.parametrize("widths", [(4, 6, 3), (3, 5, 5), (6, 4, 3), (3, 4, 6)])
def test_lemma_1_is_exact_for_white_data(widths):
    weights, moment = network(widths, seed=3), second_moment(whiten(normal(12, widths[0], seed=4)))
    exact = condition_number(linear_gauss_newton(weights, moment)).value
    assert zhao_lemma_1(weights, moment) == pytest.approx(exact, rel=1e-8)


@networks
def test_bounds_see_the_range_of_the_data_only(widths):
    """Inputs Q z with orthonormal columns Q have the bounds of the network that takes z."""
    weights, z = network((widths[0] + 2, *widths[1:]), seed=5), normal(12, widths[0], seed=6)
    q = orthogonal(widths[0] + 2, widths[0], seed=7)
    reduced, x = [weights[0] @ q, *weights[1:]], z @ q.T
    for moment in (second_moment(x), SecondMoment.from_data(x)):
        for bound in (zhao_lemma_2, sharp_linear, product_vector_bound):
            assert bound(weights, moment) == pytest.approx(bound(reduced, second_moment(z)), rel=1e-8)


@pytest.mark.parametrize("widths", [(2, 3, 4), (4, 3, 2), (3, 4, 2, 3, 2)])
def test_a_layer_narrower_than_inputs_or_outputs_makes_the_second_bound_infinite_alone(widths):
    weights, moment = case(widths)
    first, second = zhao_lemma_2(weights, moment)
    a_max, a_min, b_max, b_min = extremes(weights)
    expected = kappa(moment) * (a_max * b_max).sum() / (a_min * b_min).sum()
    assert first == pytest.approx(expected, rel=1e-9)
    assert second > 1e12  # singular up to rounding where it is a product
    assert sharp_linear(weights, moment) <= first * (1 + 1e-9)


def test_a_bottleneck_makes_all_bounds_infinite_up_to_rounding():
    weights, moment = case((4, 5, 3, 5, 4))
    assert min(*zhao_lemma_2(weights, moment), sharp_linear(weights, moment)) > 1e12


@pytest.mark.parametrize("widths", [(3, 2, 3), (4, 3, 4)])
def test_all_bounds_are_infinite_where_one_hidden_layer_is_narrower_than_inputs_and_outputs(widths):
    weights, moment = case(widths)
    assert zhao_lemma_1(weights, moment) == math.inf
    assert zhao_lemma_2(weights, moment) == (math.inf, math.inf)
    assert sharp_linear(weights, moment) == math.inf


def test_bounds_promote_single_precision():
    weights, moment = case((4, 6, 3))
    single, moment = [w.float() for w in weights], torch.diag(moment.diagonal()).float()
    double = [w.double() for w in single]
    assert zhao_lemma_2(single, moment) == zhao_lemma_2(double, moment.double())
    assert sharp_linear(single, moment) == sharp_linear(double, moment.double())


def eigenvalues(n, seed):
    return normal(n, seed=seed), normal(n, seed=seed + 1)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("seed", [0, 10, 20])
def test_weyl_is_the_best_of_all_pairs(n, seed):
    a, b = eigenvalues(n, seed)
    lower, upper = weyl(a, b)
    down_a, down_b = (v.sort(descending=True).values for v in (a, b))
    for q in range(1, n + 1):  # the paper counts from 1
        pairs = [(i, j) for i in range(1, n + 1) for j in range(1, n + 1)]
        above = [(down_a[i - 1] + down_b[j - 1]).item() for i, j in pairs if i + j - 1 == q]
        below = [(down_a[i - 1] + down_b[j - 1]).item() for i, j in pairs if i + j - n == q]
        assert upper[q - 1].item() == min(above)
        assert lower[q - 1].item() == max(below)


@pytest.mark.parametrize("seed", range(10))
def test_weyl_and_the_bounds_of_a_sum_hold_and_are_attained_by_commuting_terms(seed):
    n = 5
    a, b = (v**2 for v in eigenvalues(n, seed))
    one, other = (torch.diag(v) for v in (a, b))
    q = orthogonal(n, n, seed=seed)
    values = spectrum(one + q @ other @ q.T)
    lower, upper = weyl(a, b)
    assert (lower <= values + 1e-12).all()
    assert (values <= upper + 1e-12).all()
    bounds = sum_bounds(a, b)
    assert bounds.lower <= values[0] / values[-1] * (1 + 1e-12)
    assert values[0] / values[-1] <= bounds.upper * (1 + 1e-12)
    aligned = torch.diag(a.sort().values) + torch.diag(b.sort().values)
    assert bounds.upper == pytest.approx(np.linalg.cond(aligned.numpy()))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_bounds_of_a_sum_are_the_formula_of_the_paper(n):
    a, b = (v**2 for v in eigenvalues(n, 30))
    down_a, down_b = (np.sort(v.numpy())[::-1] for v in (a, b))
    mixed = [down_a[n - 1 - j] + down_b[j] for j in range(n)]
    upper = (down_a[0] + down_b[0]) / (down_a[-1] + down_b[-1])
    assert sum_bounds(a, b) == pytest.approx((max(mixed) / min(mixed), upper))


def test_the_bounds_of_a_sum_allow_a_term_that_is_not_definite():
    a, b = (torch.tensor(v, dtype=torch.float64) for v in ([3.0, -1.0], [2.0, 4.0]))
    assert sum_bounds(a, b) == (5.0 / 3.0, 7.0 / 1.0)


def test_the_bound_of_a_sum_of_two_singular_terms_is_infinite():
    a = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert sum_bounds(a, a) == (1.0, math.inf)


@pytest.mark.parametrize("rows, columns, t", [(9, 4, 0.0), (4, 9, 1.5), (1, 1, 2.0)])
def test_lemma_6_is_its_formula(rows, columns, t):
    expected = (rows**0.5 - (columns**0.5 + t), rows**0.5 + columns**0.5 + t)
    assert zhao_lemma_6(rows, columns, t) == pytest.approx(expected)


def test_lemma_6_holds_for_a_normal_matrix():
    s = torch.linalg.svdvals(normal(200, 50, seed=8))
    bounds = zhao_lemma_6(200, 50, 3.0)
    assert 0 < bounds.lower <= s[-1] <= s[0] <= bounds.upper


@pytest.mark.parametrize("t", [0.0, 0.5])
@pytest.mark.parametrize("d, m, k", [(4, 100, 9), (100, 36, 1), (9, 25, 16)])
def test_lemma_7_is_its_formula_with_negative_differences_cut_at_zero(d, m, k, t):
    largest = 0.5 * (m**0.5 + k**0.5 + t) ** 2 + 0.25 * (m**0.5 + d**0.5 + t) ** 2
    smallest = 0.5 * max(m**0.5 - k**0.5 - t, 0) ** 2 + 0.25 * max(m**0.5 - d**0.5 - t, 0) ** 2
    bound = zhao_lemma_7(d, m, k, t, variance_v=0.25, variance_w=0.5, data=3.0)
    assert bound == pytest.approx(3 * largest / smallest)
    if t == 0:
        assert asymptotic_bound(d, m, k, variance_v=0.25, variance_w=0.5, data=3.0) == bound


def test_lemma_7_is_infinite_where_both_differences_are_negative():
    assert zhao_lemma_7(9, 4, 9, 0.0, variance_v=1.0, variance_w=1.0) == math.inf
    assert zhao_lemma_7(4, 9, 4, 1.0, variance_v=1.0, variance_w=1.0) == math.inf


def test_gradient_descent_multiplies_its_factors():
    bounds = gradient_descent_bound([0.5, 0.25, 1.0], [1.0, 2.0, 0.0], distance=3.0)
    assert bounds.tolist() == [9.0, 4.5, 2.25, 2.25]
    assert gradient_descent_bound([], []).tolist() == [1.0]


@pytest.mark.parametrize("condition", [1.0, 10.0, 1000.0])
def test_gradient_descent_on_a_quadratic_stays_below_its_bound(condition):
    curvature = torch.tensor([1.0, 1 / condition], dtype=torch.float64)
    point = torch.tensor([0.6, 0.8], dtype=torch.float64)
    squared = [1.0]
    for _ in range(20):
        point = point - curvature * point
        squared.append((point**2).sum().item())
    bound = gradient_descent_bound([1.0] * 20, [1 / condition] * 20)
    assert all(s <= b + 1e-12 for s, b in zip(squared, bound.tolist(), strict=True))


@pytest.mark.bad_input
@pytest.mark.parametrize("bound", [zhao_lemma_1, zhao_lemma_2, zhao_lemma_2_terms, sharp_linear])
@pytest.mark.parametrize(
    "weights, moment, message",
    [
        ([torch.ones(3, 2), torch.ones(1, 4)], torch.eye(2), r"weights\[1\] takes 4 inputs but"),
        ([torch.ones(3, 2), torch.ones(1, 3)], torch.eye(3), "second_moment is of size 3 but"),
        (
            [torch.ones(3, 2), torch.full((1, 3), torch.nan)],
            torch.eye(2),
            r"weights\[1\] has 3 ent",
        ),
        ([torch.ones(3, 2), torch.ones(1, 3)], torch.zeros(2, 2), "second_moment is zero"),
    ],
)
def test_bounds_refuse_what_is_no_network(bound, weights, moment, message):
    with pytest.raises(ValueError, match=message):
        bound(weights, moment)


@pytest.mark.bad_input
@pytest.mark.parametrize("layers", [1, 3])
def test_lemma_1_is_about_two_layers(layers):
    with pytest.raises(ValueError, match=f"two weight matrices, and {layers} were given; zhao_lemma_2"):
        zhao_lemma_1([torch.eye(2)] * layers, torch.eye(2))


@pytest.mark.bad_input
@pytest.mark.parametrize("function", [weyl, sum_bounds])
@pytest.mark.parametrize("a, b", [(torch.ones(2), torch.ones(3)), (torch.eye(2), torch.eye(2))])
def test_eigenvalues_come_in_two_lists_of_the_same_length(function, a, b):
    with pytest.raises(ValueError, match=r"two lists of n eigenvalues were expected"):
        function(a, b)


@pytest.mark.bad_input
@pytest.mark.parametrize("a, b", [([1.0, -1.0], [1.0, 0.5]), ([1.0, 0.5], [-2.0, 1.0])])
def test_the_bounds_of_a_sum_refuse_terms_whose_sum_is_never_positive_definite(a, b):
    with pytest.raises(ValueError, match="the bounds are for positive definite sums"):
        sum_bounds(torch.tensor(a), torch.tensor(b))


@pytest.mark.bad_input
@pytest.mark.parametrize("rows, columns, t", [(0, 1, 1.0), (1, -1, 1.0), (1, 1, -0.5)])
def test_lemma_6_refuses_empty_matrices_and_negative_deviations(rows, columns, t):
    with pytest.raises(ValueError, match=f"rows = {rows}, columns = {columns}, t = {t}"):
        zhao_lemma_6(rows, columns, t)


@pytest.mark.bad_input
@pytest.mark.parametrize("step, convexity", [(2.0, 1.0), (1.0, -0.5)])
def test_gradient_descent_refuses_steps_that_the_bound_does_not_cover(step, convexity):
    with pytest.raises(ValueError, match=r"The factors 1 - step \* convexity lie in .*, not in \[0, 1"):
        gradient_descent_bound([step], [convexity])


@pytest.mark.bad_input
def test_a_bound_for_steps_and_curvatures_of_different_number_is_refused():
    with pytest.raises(ValueError, match="2 step sizes and 1 convexities"):
        gradient_descent_bound([0.1, 0.2], [1.0])


def test_a_sum_that_may_be_singular_has_no_upper_bound():
    # diag(2, -1) and diag(0.5, 2) have a positive definite sum, diag(2, -1) and diag(2, 0.5) an indefinite one
    assert sum_bounds(torch.tensor([2.0, -1.0]), torch.tensor([2.0, 0.5])) == (2.5, math.inf)
