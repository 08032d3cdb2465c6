"""Singular values of square matrices with a skip: derivatives, zeros, branches."""

import pytest
import torch
from gnbook.adding_the_identity.singular_values import derivatives, follow, one_sided_derivatives, zeros

from tests.gnbook.adding_the_identity.helpers import identity
from tests.oracles import normal, with_spectrum
from tests.strategies import exact

GRID = torch.linspace(-2, 2, 41, dtype=torch.float64)


def test_one_number_is_followed_through_zero():
    assert [derivatives(exact([[value]])).item() for value in (-3, 2)] == [-1, 1]
    paths = follow(torch.tensor([[-1.0]]), torch.linspace(0, 2, 5))
    assert paths.ordered[:, 0].tolist() == [1, 0.5, 0, 0.5, 1]
    assert paths.branches[:, 0].tolist() == [1, 0.5, 0, -0.5, -1] and paths.branches.dtype == torch.float64
    assert len(paths.crossings) == 0 and paths.zeros.tolist() == pytest.approx([1], abs=1e-9)
    assert follow(torch.tensor([[-1.0]]), torch.tensor([0.5])).branches.tolist() == [[0.5]]


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


def test_singular_values_that_are_equal_all_along_do_not_meet():
    paths = follow(3 * identity(3), torch.linspace(-4, 1, 11))
    assert len(paths.crossings) == 0 and paths.zeros.tolist() == pytest.approx([-3], abs=1e-9)
    assert (paths.branches[-1] == -4).all()
    paths = follow(torch.diag(exact([1.0, 1.0, -2.0])), GRID)
    assert paths.crossings.tolist() == [0.5] and paths.zeros.tolist() == [-1, 2]


def test_a_branch_that_touches_zero_stays_on_its_side():
    paths = follow(exact([[0, 1], [0, 0]]), torch.linspace(-1, 1, 8))
    assert len(paths.zeros) == 1 and abs(paths.zeros.item()) < 2e-4
    assert (paths.branches == paths.ordered).all()


REFUSED = [
    (torch.eye(3), "Singular values 1 to 3 are equal; one_sided_derivatives returns"),
    (torch.diag(torch.tensor([2.0, 0.0])), "Singular value 2 is zero"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("matrix", "told"), REFUSED)
def test_singular_values_without_a_derivative_are_refused(matrix, told):
    with pytest.raises(ValueError, match=told):
        derivatives(matrix)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: one_sided_derivatives(torch.ones(1, 3), torch.ones(1, 3)), "matrix has shape .*; a square matrix was"),
        (
            lambda: one_sided_derivatives(torch.eye(3), torch.ones(1, 3)),
            r"direction has shape \(1, 3\); that of matrix",
        ),
        (lambda: follow(torch.eye(2), torch.tensor([1.0, -1.0])), "parameters has shape .*; a list of increasing"),
    ],
)
def test_wrong_arguments_are_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()
