"""Riedi 2022, sections 2 and 4: how singular values move under a perturbation, and in families of matrices."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.oracles import singular
from tests.strategies import a_hundred, exact, gaussian, matrices, pairs, seeds, sizes

two_squares = sizes.flatmap(lambda n: st.tuples(matrices(n, n), matrices(n, n)))  # hostile ones among them


@pytest.mark.claim("Riedi Proposition 1", "Riedi Corollary 2", "Riedi Proposition 4", verdict="holds")
@pytest.mark.claim("Riedi Proposition 5", verdict="holds")
@pytest.mark.claim("Riedi Lemma 3", verdict="holds if")
@given(pairs(), two_squares, seeds, st.floats(0, 1), st.floats(-1e-3, 1e-3), st.data())
def test_hoffman_and_wielandt_continuity_norms_weyl_and_cauchy_interlacing(symmetric, pair, seed, at, step, data):
    for values, (a, b) in ((torch.linalg.eigvalsh, symmetric), (singular, pair)):
        left = (values(a) - values(b)).square().sum()
        assert left <= (a - b).square().sum() * (1 + 1e-9) + 1e-24 * (a.norm() + b.norm()) ** 2

    here, there = singular(a + at * b), singular(a + (at + step) * b)
    moved = abs(step) * b.norm() * (1 + 1e-9) + 1e-12 * (a.norm() + b.norm())
    assert (here - there).abs().max() <= moved
    for i, value in enumerate(here):
        gaps, others = ((torch.cat([s[:i], s[i + 1 :]]) - v).abs() for s, v in ((here, value), (there, there[i])))
        assert not len(gaps) or gaps.min() <= 2 * moved or others.min() > 0  # in S_i, so is all within that distance

    n, u, (left, right, difference) = len(a), gaussian(seed, len(a)), map(singular, (a, b, a - b))
    rank = int((left > 1e-12 * left[0].clamp_min(1e-300)).sum())
    assert (a @ u).norm() <= left[0] * u.norm() * (1 + 1e-9)
    assert (a @ torch.linalg.svd(a).Vh[0]).norm() == pytest.approx(left[0].item(), rel=1e-9, abs=1e-300)
    assert left[0] <= a.norm() * (1 + 1e-9) and a.norm() <= rank**0.5 * left[0] * (1 + 1e-9) + 1e-300
    assert singular(a + b)[0] <= (left[0] + right[0]) * (1 + 1e-9)

    tolerance = 1e-12 * (left[0] + right[0])
    for i, j in itertools.product(range(n), repeat=2):
        assert i + j >= n or left[i + j] <= right[i] + difference[j] + tolerance
    assert (left - right).abs().max() <= difference[0] + tolerance
    assert difference[0] <= (a - b).norm() * (1 + 1e-9)

    gone = data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1))
    kept, zeroed = [i for i in range(n) if i not in gone], a.clone()
    zeroed[:, list(gone)] = 0
    padded, tolerance = torch.cat([left, torch.zeros(n).double()]), 1e-12 * a.norm()
    for part in (singular(a[kept]), singular(a[:, kept]), singular(zeroed)):
        assert (padded[: len(part)] + tolerance >= part).all()
        assert (part >= padded[len(gone) : len(gone) + len(part)] - tolerance).all()


@pytest.mark.claim("Riedi Theorem 6", "Riedi Corollary 7", verdict="holds")
@given(st.integers(1, 4), seeds, st.floats(-1, 1))
def test_hellmann_feynman_a_smooth_eigenvector_and_the_derivatives_of_simple_singular_values(n, seed, rho):
    """The set of points where one is simple and positive is open: none of them is isolated, as is printed."""
    parts, h = [gaussian(seed + i, n, n) for i in range(3)], 1e-6

    def matrix(rho):
        return parts[0] + rho * parts[1] + rho**2 * parts[2]

    derivative, (left, s, right) = parts[1] + 2 * rho * parts[2], torch.linalg.svd(matrix(rho))
    near, quotients = singular(matrix(rho + 1e-9)), (singular(matrix(rho + h)) - singular(matrix(rho - h))) / (2 * h)
    for i in range(n):
        least = min([s[i].item(), *(abs(s[i] - s[j]).item() for j in range(n) if j != i)])
        assert least <= 1e-6 or (near[i] > 0 and all(near[i] != near[j] for j in range(n) if j != i))
        expected = (right[i] @ derivative.mT @ left[:, i]).item()
        assert least <= 0.1 or quotients[i].item() == pytest.approx(expected, abs=1e-5)

    (values, vectors), low, high = (torch.linalg.eigh(m + m.mT) for m in map(matrix, (rho, rho - h, rho + h)))
    assume(n == 1 or values.diff().min() > 0.3)
    formula, gaps = vectors.mT @ (derivative + derivative.mT) @ vectors, values - values[:, None]
    torch.testing.assert_close((high[0] - low[0]) / (2 * h), formula.diagonal(), rtol=0, atol=1e-6)
    below, above = (found * (found * vectors).sum(0).sign() for _, found in (low, high))
    expected = vectors @ torch.where(gaps == 0, 0.0, formula / gaps)
    torch.testing.assert_close((above - below) / (2 * h), expected, rtol=0, atol=1e-5)


@pytest.mark.claim("Riedi Example 1", verdict="holds")
@given(st.floats(-1, 7))
def test_the_singular_values_of_the_example_and_their_kinks(rho):
    s = singular(exact([[rho - 4, 0], [0, rho - 2]]))
    expected = sorted([abs(rho - 4), abs(rho - 2)], reverse=True)  # with kinks at 2, 3 and 4
    assert s.tolist() == pytest.approx(expected, abs=1e-12)
    assert s[0] >= 1 - 1e-12  # the largest has no zero; the smallest has two, 2 and 4


@pytest.mark.claim("Riedi Lemma 12", verdict="holds")
@given(st.lists(st.integers(-3, 3), min_size=6, max_size=6))
def test_two_by_two_families_have_two_multiple_points_at_most_or_all(entries):
    a, b, c, d, e, f = entries  # N = [[a + d rho, b + e rho], [., c + f rho]]; the discriminant is a sum of two squares
    discriminant = np.poly1d([d - f, a - c]) ** 2 + 4 * np.poly1d([e, b]) ** 2
    roots = [r.real for r in discriminant.roots if abs(r.imag) < 1e-6] if discriminant.order else []
    assert len(roots) <= 2

    def eigenvalues(rho):
        return torch.linalg.eigvalsh(exact([[a + d * rho, b + e * rho], [b + e * rho, c + f * rho]]))

    for rho in np.linspace(-4.05, 3.95, 41):
        if all(abs(rho - r) > 1e-3 for r in roots):
            values = eigenvalues(rho)
            multiple = values.diff().item() < 1e-9 * (1 + values.abs().max().item())
            assert multiple == (not np.any(discriminant.coeffs))
    assert all(eigenvalues(round(root, 3)).diff().item() < 0.05 for root in roots)


@pytest.mark.claim("Riedi Corollary 13", verdict="holds if")
@a_hundred
@given(st.integers(1, 4), seeds, st.floats(0.1, 1))
def test_eigenvalues_grow_by_the_integral_of_their_derivative(n, seed, end):
    first, second = (part + part.mT for part in (gaussian(seed, n, n), gaussian(seed + 1, n, n)))
    steps = 4000
    middle = (torch.arange(steps).double() + 0.5) * end / steps
    vectors = torch.linalg.eigh(first + middle[:, None, None] * second).eigenvectors
    integral = torch.einsum("sai,ab,sbi->i", vectors, second, vectors) * end / steps
    change = torch.linalg.eigvalsh(first + end * second) - torch.linalg.eigvalsh(first)
    torch.testing.assert_close(integral, change, rtol=0, atol=(2 * n * second.norm() * end / steps).item())


@pytest.mark.claim("Riedi Lemma 3", "Riedi Corollary 13", verdict="holds if")
def test_on_a_closed_interval_the_set_may_be_closed_and_simple_eigenvalues_be_multiple_singular_values():
    values = [singular(exact([[2, 0], [0, rho]])).tolist() for rho in np.linspace(0, 1, 5)]
    assert all(first > second for first, second in values)  # S_1 is all of [0, 1], open in it but not in the line
    n = exact([[1, 0], [0, -1]])
    assert torch.linalg.eigvalsh(n).diff() > 0 and singular(n).diff() == 0  # S_i of Eq. 13 is empty
