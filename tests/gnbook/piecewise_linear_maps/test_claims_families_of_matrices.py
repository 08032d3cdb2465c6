"""Riedi 2022, section 4, Lemma 12 and Corollary 13: families of matrices."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.piecewise_linear_maps.helpers import singular_values
from tests.strategies import a_hundred, exact, gaussian, instances, seeds


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
    assert torch.linalg.eigvalsh(n).diff() > 0 and singular_values(n).diff() == 0  # S_i of Eq. 13 is empty
