"""Riedi 2022, sections 2 and 4: how singular values move under a perturbation, and in families of matrices."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.gnbook.piecewise_linear_maps.helpers import family, squares_of
from tests.oracles import singular
from tests.strategies import a_hundred, diagonal, exact, gaussian, instances, pairs, seeds


@pytest.mark.claim("Riedi Proposition 1", verdict="holds")
@pytest.mark.claim("Riedi Corollary 2", verdict="holds")
@instances
@given(pairs(), squares_of())
def test_eigenvalues_and_singular_values_in_order_move_by_no_more_than_the_frobenius_norm(symmetric, square):
    for values, (a, b) in ((torch.linalg.eigvalsh, symmetric), (singular, square)):
        left = (values(a) - values(b)).square().sum()
        assert left <= (a - b).square().sum() * (1 + 1e-9) + 1e-24 * (a.norm() + b.norm()) ** 2


@pytest.mark.claim("Riedi Lemma 3", verdict="holds if")
@instances
@given(squares_of(), st.floats(0, 1), st.floats(-1e-3, 1e-3))
def test_simple_singular_values_stay_simple_nearby_and_all_are_continuous(pair, at, step):
    a, b = pair
    here, there = singular(a + at * b), singular(a + (at + step) * b)
    moved = abs(step) * b.norm() * (1 + 1e-9) + 1e-12 * (a.norm() + b.norm())
    assert (here - there).abs().max() <= moved
    gaps = here.diff().abs()
    for i in range(len(here)):
        near = torch.cat([gaps[max(i - 1, 0) : i], gaps[i : i + 1]])
        if len(near) and near.min() > 2 * moved:  # in S_i, and so is all within that distance
            others = torch.cat([there[:i], there[i + 1 :]])
            assert (others - there[i]).abs().min() > 0


@pytest.mark.claim("Riedi Lemma 3", verdict="holds if")
def test_on_a_closed_interval_the_set_may_be_closed():
    grid = torch.linspace(0, 1, 5)
    values = torch.stack([singular(exact([[2.0, 0.0], [0.0, rho.item()]])) for rho in grid])
    assert (values[:, 0] > values[:, 1]).all()  # S_1 is the whole of [0, 1], open in [0, 1] but not in the line


@pytest.mark.claim("Riedi Proposition 4", verdict="holds")
@instances
@given(squares_of(), seeds)
def test_the_largest_singular_value_the_operator_norm_and_the_frobenius_norm(pair, seed):
    a, b = pair
    s, frobenius = singular(a), a.norm()
    rank = int((s > 1e-12 * s[0].clamp_min(1e-300)).sum())
    u = gaussian(seed, len(a))
    assert (a @ u).norm() <= s[0] * u.norm() * (1 + 1e-9)
    right = torch.linalg.svd(a).Vh[0]
    assert (a @ right).norm() == pytest.approx(s[0].item(), rel=1e-9, abs=1e-300)
    assert s[0] <= frobenius * (1 + 1e-9) and frobenius <= rank**0.5 * s[0] * (1 + 1e-9) + 1e-300
    assert singular(a + b)[0] <= (s[0] + singular(b)[0]) * (1 + 1e-9)


@pytest.mark.claim("Riedi Proposition 5", verdict="holds")
@instances
@given(squares_of())
def test_weyl_for_singular_values(pair):
    a, b = pair
    n, (left, right, difference) = len(a), map(singular, (a, b, a - b))
    tolerance = 1e-12 * (left[0] + right[0])
    for i, j in itertools.product(range(n), repeat=2):
        if i + j < n:
            assert left[i + j] <= right[i] + difference[j] + tolerance
    assert (left - right).abs().max() <= difference[0] + tolerance
    assert difference[0] <= (a - b).norm() * (1 + 1e-9)


@pytest.mark.claim("Riedi Proposition 5", verdict="holds")
@instances
@given(squares_of(), st.data())
def test_cauchy_interlacing_by_deletion_and_by_zeroing(pair, data):
    a, n = pair[0], len(pair[0])
    gone = data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1))
    kept = [i for i in range(n) if i not in gone]
    zeroed = a.clone()
    zeroed[:, list(gone)] = 0
    whole, tolerance = singular(a), 1e-12 * a.norm()
    padded = torch.cat([whole, torch.zeros(n).double()])
    for part in (singular(a[kept]), singular(a[:, kept]), singular(zeroed)):
        for i, value in enumerate(part):
            assert padded[i] + tolerance >= value >= padded[i + len(gone)] - tolerance


@pytest.mark.claim("Riedi Theorem 6", verdict="holds")
@a_hundred
@given(st.integers(1, 4), seeds, st.floats(-1, 1))
def test_hellmann_feynman_and_a_smooth_eigenvector(n, seed, rho):
    matrix, derivative = family(seed, n)

    def symmetric_part(rho):
        return matrix(rho) + matrix(rho).mT

    values, vectors = torch.linalg.eigh(symmetric_part(rho))
    assume(n == 1 or values.diff().min() > 0.3)
    h, slope = 1e-6, derivative(rho) + derivative(rho).mT
    low, high = torch.linalg.eigh(symmetric_part(rho - h)), torch.linalg.eigh(symmetric_part(rho + h))
    formula = vectors.mT @ slope @ vectors
    torch.testing.assert_close((high[0] - low[0]) / (2 * h), formula.diagonal(), rtol=0, atol=1e-6)
    for i in range(n):
        aligned = [pair[1][:, i] * torch.sign(pair[1][:, i] @ vectors[:, i]) for pair in (low, high)]
        weights = torch.tensor([formula[j, i] / (values[i] - values[j]) if j != i else 0.0 for j in range(n)])
        torch.testing.assert_close((aligned[1] - aligned[0]) / (2 * h), vectors @ weights.double(), rtol=0, atol=1e-5)


@pytest.mark.claim("Riedi Corollary 7", verdict="holds")
@instances
@given(st.integers(1, 4), seeds, st.floats(-1, 1))
def test_the_derivative_of_a_simple_singular_value_needs_no_assumption_on_the_others(n, seed, rho):
    """The set of points where it is simple and positive is open: none of them is isolated, as is printed."""
    matrix, derivative = family(seed, n)
    left, s, right = torch.linalg.svd(matrix(rho))
    h, near = 1e-6, singular(matrix(rho + 1e-9))
    for i in range(n):
        gaps = [abs(s[i] - s[j]).item() for j in range(n) if j != i]
        if s[i] > 1e-6 and min(gaps, default=1) > 1e-6:
            assert near[i] > 0 and all(near[i] != near[j] for j in range(n) if j != i)
        if s[i] > 0.1 and min(gaps, default=1) > 0.1:
            quotient = (singular(matrix(rho + h))[i] - singular(matrix(rho - h))[i]) / (2 * h)
            assert quotient.item() == pytest.approx((right[i] @ derivative(rho).mT @ left[:, i]).item(), abs=1e-5)


@pytest.mark.claim("Riedi Example 1", verdict="holds")
@instances
@given(st.floats(-1, 7))
def test_the_singular_values_of_the_example_and_their_kinks(rho):
    s = singular(diagonal([-4, -2], 2, 2) + rho * torch.eye(2).double())
    expected = sorted([abs(rho - 4), abs(rho - 2)], reverse=True)  # with kinks at 2, 3 and 4
    assert s.tolist() == pytest.approx(expected, abs=1e-12)
    assert s[0] >= 1 - 1e-12  # the largest has no zero; the smallest has two, 2 and 4


def multiple(matrix):
    """Whether a symmetric matrix has a multiple eigenvalue, up to rounding."""
    values = torch.linalg.eigvalsh(matrix)
    return len(values) > 1 and bool(values.diff().min() < 1e-9 * (1 + values.abs().max()))


@pytest.mark.claim("Riedi Lemma 12", verdict="holds")
@instances
@given(st.lists(st.integers(-3, 3), min_size=6, max_size=6))
def test_two_by_two_families_have_two_multiple_points_at_most_or_all(entries):
    a, b, c, d, e, f = entries  # N = [[a + d rho, b + e rho], [., c + f rho]]; the discriminant is a sum of two squares
    first, second = np.poly1d([d - f, a - c]), np.poly1d([e, b])
    discriminant = first * first + 4 * second * second
    roots = [r.real for r in discriminant.roots if abs(r.imag) < 1e-6] if discriminant.order else []

    def family(rho):
        return exact([[a + d * rho, b + e * rho], [b + e * rho, c + f * rho]])

    everywhere = not np.any(discriminant.coeffs)
    assert len(roots) <= 2
    for rho in np.linspace(-4.05, 3.95, 41):
        if all(abs(rho - r) > 1e-3 for r in roots):
            assert multiple(family(rho)) == everywhere
    for root in {round(r, 3) for r in roots}:
        values = torch.linalg.eigvalsh(family(root))
        assert values.diff().min() < 0.05


@pytest.mark.claim("Riedi Corollary 13", verdict="holds if")
@a_hundred
@given(st.integers(1, 4), seeds, st.floats(0.1, 1))
def test_eigenvalues_grow_by_the_integral_of_their_derivative(n, seed, end):
    first, second = (gaussian(seed + i, n, n) for i in range(2))
    first, second = first + first.mT, second + second.mT
    steps = 4000
    middle = (torch.arange(steps).double() + 0.5) * end / steps
    _, vectors = torch.linalg.eigh(first + middle[:, None, None] * second)
    integral = torch.einsum("sai,ab,sbi->i", vectors, second, vectors) * end / steps
    change = torch.linalg.eigvalsh(first + end * second) - torch.linalg.eigvalsh(first)
    variation = 2 * n * second.norm()
    torch.testing.assert_close(integral, change, rtol=0, atol=(variation * end / steps).item())


@pytest.mark.claim("Riedi Corollary 13", verdict="holds if")
def test_simple_eigenvalues_may_be_multiple_singular_values():
    n = exact([[1, 0], [0, -1]])
    assert torch.linalg.eigvalsh(n).diff() > 0 and singular(n).diff() == 0  # S_i of Eq. 13 is empty
