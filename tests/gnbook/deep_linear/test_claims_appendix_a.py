"""Zhao 2024, appendix A: eigenvalues of sums, Kronecker products and products of symmetric matrices; appendix C."""

import itertools
import math

import numpy as np
import pytest
import torch
from gnbook.deep_linear.perturbation import sum_bounds, weyl
from hypothesis import given
from hypothesis import strategies as st

from gnlib import condition_number
from tests.strategies import (
    EPS,
    exact,
    instances,
    kron,
    matrices,
    orthogonal,
    pairs,
    seeds,
    spectra,
    square_root,
    symmetric,
)


def descending(matrix):
    return torch.linalg.eigvalsh(matrix).flip(0)


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
    a, b, s = (descending(m) for m in (*pair, sum(pair)))
    n, tolerance = len(a), rounding(*pair)
    for i, j in itertools.product(range(1, n + 1), repeat=2):
        if i + j - 1 <= n:
            assert s[i + j - 2] <= a[i - 1] + b[j - 1] + tolerance
        if i + j - n >= 1:
            assert s[i + j - n - 1] >= a[i - 1] + b[j - 1] - tolerance


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


@pytest.mark.claim("Appendix A, extreme eigenvalues of a sum", verdict="holds")
@instances
@given(pairs())
def test_the_four_consequences_of_weyl(pair):
    a, b, s = (descending(m) for m in (*pair, sum(pair)))
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
    values = descending(matrix)
    return (values[0].abs() / values[-1].abs()).item()


@pytest.mark.claim("Appendix A, condition number of a symmetric matrix", verdict="fails")
def test_the_ratio_of_the_last_eigenvalues_misses_the_middle_of_an_indefinite_spectrum():
    singular = exact([1.0, 0.0, -1.0]).diag()
    assert by_the_paper(singular) == 1 and torch.linalg.matrix_rank(singular) == 2
    below_one = exact([1.0, -2.0]).diag()
    assert by_the_paper(below_one) == 0.5 and torch.linalg.cond(below_one) == 2


@pytest.mark.claim("Appendix A, condition number of a symmetric matrix", verdict="fails")
@instances
@given(st.integers(1, 5).flatmap(symmetric), st.integers(1, 5).flatmap(lambda n: symmetric(n, 0)))
def test_the_condition_number_is_the_ratio_of_largest_and_smallest_modulus(indefinite, semidefinite):
    for matrix in (indefinite, semidefinite):
        values = descending(matrix).abs()
        if values.min() > rounding(matrix):
            true = torch.linalg.cond(matrix).item()
            assert (values.max() / values.min()).item() == pytest.approx(true, rel=1e-6)
            if matrix is semidefinite:
                assert by_the_paper(matrix) == pytest.approx(true, rel=1e-6)


def integer_symmetric(n, bound):
    for entries in itertools.product(range(-bound, bound + 1), repeat=n * (n + 1) // 2):
        upper = np.zeros((n, n))
        upper[np.triu_indices(n)] = entries
        yield torch.from_numpy(upper + np.triu(upper, 1).T)


def exact_ends(a, b):
    """Return both sides of Eq. 12 as printed, and the condition number between them; 0 / 0 is no number."""
    la, lb, ls = (descending(m) for m in (a, b, a + b))

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


@pytest.mark.claim("Eq. 12, lower bound", verdict="fails")
@pytest.mark.claim("Eq. 12, upper bound", verdict="fails")
def test_no_smaller_integers_violate_either_bound():
    violated = {"lower": [], "upper": []}
    for n in (1, 2):
        for a, b in itertools.product(integer_symmetric(n, 1), repeat=2):
            lower, kappa, upper = exact_ends(a, b)
            if torch.linalg.matrix_rank(a + b) == n:
                size = (n, int(a.abs().sum() + b.abs().sum()))
                violated["lower"] += [size] * (lower > kappa * (1 + 1e-9))
                violated["upper"] += [size] * (upper < kappa * (1 - 1e-9))
    assert (min(violated["lower"]), min(violated["upper"])) == ((2, 3), (2, 2))


@pytest.mark.claim("Eq. 12, lower bound", verdict="fails")
@instances
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(symmetric(n), symmetric(n, 0))), st.floats(1e-3, 2))
def test_the_lower_bound_holds_where_the_sum_is_positive_definite(pair, least):
    a, positive = pair
    total = positive + least * torch.eye(len(a), dtype=torch.float64)
    lower, kappa, _ = exact_ends(a, total - a)
    assert lower <= kappa * (1 + 1e4 * EPS * kappa * (1 + a.abs().max().item()))


@pytest.mark.claim("Eq. 12, upper bound", verdict="fails")
@instances
@given(pairs(), st.floats(1e-3, 2))
def test_the_upper_bound_holds_where_the_smallest_eigenvalues_have_a_positive_sum(pair, least):
    a, b = pair
    b = b + (least - descending(a)[-1] - descending(b)[-1]) * torch.eye(len(b), dtype=torch.float64)
    _, kappa, upper = exact_ends(a, b)
    assert kappa <= upper * (1 + 1e4 * EPS * upper)


@pytest.mark.claim("Eq. 12, lower bound", verdict="fails")
@pytest.mark.claim("Eq. 12, upper bound", verdict="fails")
@instances
@given(pairs(0))
def test_both_bounds_hold_for_positive_semidefinite_matrices(pair):
    a, b, s = (descending(m).clamp_min(0) for m in (*pair, sum(pair)))
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
    ends_a, ends_b, ends = (descending(m)[[0, -1]] for m in (a, b, kron(a, b)))
    assert torch.allclose(ends, ends_a * ends_b, rtol=0, atol=1e-13 * max(1, ends[0].item()))


@pytest.mark.claim("Eq. 13 and 14", verdict="holds")
def test_one_negative_eigenvalue_is_enough_to_lose_them():
    a, b = exact([[-1.0]]), exact([1.0, 0.0]).diag()
    largest, smallest = descending(kron(a, b))
    assert largest == 0 and descending(a)[0] * descending(b)[0] == -1
    assert smallest == -1 and descending(a)[-1] * descending(b)[-1] == 0


@pytest.mark.claim("Appendix A, extreme eigenvalues of a product", verdict="holds")
@instances
@given(pairs(0))
def test_extreme_eigenvalues_of_a_product_of_semidefinite_matrices(pair):
    a, b = pair
    root = square_root(a)
    similar = descending(root @ b @ root)  # AB has the eigenvalues of A^1/2 B A^1/2
    scale = descending(a)[0] * descending(b)[0]
    assert torch.allclose(
        torch.linalg.eigvals(a @ b).real.sort(descending=True).values, similar, rtol=0, atol=1e-6 * scale
    )
    assert similar[0] <= scale * (1 + 1e-13)
    assert similar[-1] >= descending(a)[-1] * descending(b)[-1] - 1e-13 * scale


@pytest.mark.claim("Appendix A, extreme eigenvalues of a product", verdict="holds")
@instances
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(symmetric(n, 0), matrices(n + 1, n))))
def test_extreme_eigenvalues_of_a_congruence(pair):
    # the form in which the proof of Lemma 1 uses it
    sigma, v = pair
    root = square_root(sigma)
    ends, sigma_ends, v_ends = (descending(m)[[0, -1]] for m in (root @ v.mT @ v @ root, sigma, v.mT @ v))
    tolerance = 1e-13 * sigma_ends[0] * v_ends[0]
    assert ends[0] <= sigma_ends[0] * v_ends[0] + tolerance
    assert ends[1] >= sigma_ends[1] * v_ends[1] - tolerance


def nonzero(matrix):
    """Return the non-zero eigenvalues of a positive semi-definite matrix, descending."""
    values = descending(matrix)
    return values[values > 1e-10 * values[0]]


@pytest.mark.claim("Appendix A, products with smallest non-zero eigenvalues", verdict="fails")
@pytest.mark.parametrize("angle", [0.1, 0.7, 1.5])
def test_two_lines_at_an_angle_have_a_smaller_product(angle):
    e, f = exact([1, 0]), torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
    a, b = torch.outer(e, e), torch.outer(f, f)
    assert nonzero(a).tolist() == [1] and nonzero(b).tolist() == pytest.approx([1])
    values = torch.linalg.eigvals(a @ b).real
    assert values.max().item() == pytest.approx(math.cos(angle) ** 2, rel=1e-9) and values.max() < 1


@pytest.mark.claim("Appendix A, products with smallest non-zero eigenvalues", verdict="fails")
@instances
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n), st.integers(1, n))), st.data())
def test_where_one_range_contains_the_other_the_smallest_non_zero_eigenvalues_multiply(sizes, data):
    n, *ranks = sizes
    smaller, larger = sorted(ranks)
    basis = orthogonal(data.draw(seeds), n)[:, :larger]
    b = basis @ data.draw(matrices(larger, larger, regular=True))
    a = basis @ data.draw(matrices(larger, smaller, regular=True))
    product = torch.linalg.svdvals(a.mT @ b) ** 2  # the non-zero eigenvalues of A B, for A = a a^T and B = b b^T
    ends = [torch.linalg.svdvals(factor)[-1] ** 2 for factor in (a, b)]
    assert product[-1] >= ends[0] * ends[1] * (1 - 1e-6)
    assert torch.allclose(nonzero(square_root(b @ b.mT) @ a @ a.mT @ square_root(b @ b.mT))[0], product[0], rtol=1e-9)


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
