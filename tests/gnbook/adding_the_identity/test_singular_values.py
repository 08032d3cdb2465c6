"""Singular values of square matrices with a skip: derivatives, zeros, branches."""

import pytest
import torch
from gnbook.adding_the_identity.singular_values import follow, zeros

from tests.gnbook.adding_the_identity.helpers import identity
from tests.oracles import normal, with_spectrum
from tests.strategies import exact

GRID = torch.linspace(-2, 2, 41, dtype=torch.float64)


# Zeros
@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ([[0, 1], [-1, 0]], []),
        ([[0, 1], [0, 0]], [0]),
        ([[-2, 1, 0], [0, -2, 1], [0, 0, -2]], [2]),
        ([[0, 0], [0, 0]], [0]),
        ([[1, 0, 0], [0, 1, 0], [0, 0, -1e-3]], [-1, 1e-3]),
    ],
)
def test_zeros_of_rotations_and_of_defective_and_repeated_eigenvalues(matrix, expected):
    assert zeros(exact(matrix)).tolist() == pytest.approx(expected, abs=1e-4)


# Paths
@pytest.mark.parametrize("n", [2, 3, 5, 9])
@pytest.mark.parametrize("seed", range(3))
def test_branches_of_a_symmetric_matrix_are_straight_lines(n, seed):
    values = normal(n, seed=seed)
    paths = follow(with_spectrum(values, seed=seed), GRID)
    first = (values + GRID[0]).abs().argsort(descending=True)
    lines = (values[first] + GRID[:, None]) * (values[first] + GRID[0]).sign()
    torch.testing.assert_close(paths.branches, lines, rtol=0, atol=1e-10)
    within = sorted(-v for v in values.tolist() if -2 < -v < 2)
    assert paths.zeros.tolist() == pytest.approx(within, abs=1e-7)
    meet = [-(values[i] + values[j]).item() / 2 for i in range(n) for j in range(i)]
    assert paths.crossings.tolist() == pytest.approx(sorted(t for t in meet if -2 < t < 2), abs=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_branches_are_the_singular_values_and_smooth_and_their_product_is_the_determinant(seed):
    m, fine = normal(5, 5, seed=seed), torch.linspace(-3, 3, 401, dtype=torch.float64)
    paths = follow(m, fine)
    s = torch.linalg.svdvals(m + fine[:, None, None] * identity(5))
    torch.testing.assert_close(paths.ordered, s, rtol=0, atol=1e-13)
    torch.testing.assert_close(paths.branches.abs().sort(1, descending=True).values, s, rtol=0, atol=1e-13)
    determinant = torch.linalg.det(m + fine[:, None, None] * identity(5))
    torch.testing.assert_close(paths.branches.prod(1), determinant * determinant[0].sign(), rtol=1e-6, atol=1e-9)
    assert paths.zeros.tolist() == [z for z in zeros(m).tolist() if abs(z) < 3]
