"""Layers with a skip: the hard bound, singular values along a line, and chains of blocks that are trained."""

import math

import pytest
import torch
from gnbook.adding_the_identity import chains
from gnbook.adding_the_identity.bounds import hard_bound
from gnbook.adding_the_identity.singular_values import follow, zeros
from torch.nn.functional import layer_norm

from tests.oracles import identity, normal, singular, with_spectrum
from tests.strategies import exact


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("part", [0.0, 0.2, 0.7, 0.99])
def test_the_hard_bound_is_the_largest_ratio_over_a_disc(n, part):
    angle = torch.linspace(0, math.pi / 2, 100_001, dtype=torch.float64)

    def largest(r):
        return pytest.approx(((1 + r * angle.cos()) / (1 - r * angle.sin())).max().item(), rel=1e-6)

    entry = part / n
    assert hard_bound(entry, n) == largest(part) and hard_bound(entry, n, depth=3) == largest(part**3)
    assert hard_bound(entry, n, 1, 0.25) / 4 == largest(part)
    assert hard_bound(entry, n, n, 0.25) == hard_bound(entry, n, 0, 0.25) == hard_bound(entry, n)
    assert hard_bound(entry, n, 1, 0.0) == largest(math.sqrt((n - 1) / n) * part if n > 2 else 0)


@pytest.mark.parametrize("name", chains.CHAINS)
def test_the_outputs_are_those_of_the_blocks_and_the_matrices_are_their_jacobians(name):
    chain, x = chains.CHAINS[name], normal(60, 12, seed=0).float()
    single = chains.drawn(chain, 12, 3)
    weights = {key: value.double() for key, value in single.items()}

    def blocks(z):
        for inner, outer in zip(weights["inner"], weights["outer"], strict=True):
            seen = layer_norm(z, (chains.UNITS,)) if chain.norm else z
            z = chain.shrink * (z @ chains.skip_of(chain) + torch.relu(seen @ inner.mT) @ outer.mT)
        return z

    first = torch.relu(x.double() @ weights["first"].mT)
    last = layer_norm(blocks(first), (chains.UNITS,)) if chain.norm else blocks(first)
    said = chains.outputs(chain, {key: value[None] for key, value in single.items()}, x[None])[0].double()
    assert torch.allclose(said, last @ weights["last"].mT, rtol=1e-3, atol=1e-4 * last.abs().max().item())
    if name in ("a quarter", "one, normalised", "zero, squeezing skip"):
        _, whole = chains.condition_numbers(chain, weights, x[:2])
        for z, kappa in zip(first, whole, strict=False):
            jacobian = torch.autograd.functional.jacobian(blocks, z)
            assert torch.linalg.cond(jacobian).item() == pytest.approx(kappa.item(), rel=1e-4)


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


@pytest.mark.parametrize("n", [2, 3, 5, 9])
@pytest.mark.parametrize("seed", range(3))
def test_branches_of_a_symmetric_matrix_are_straight_lines(n, seed):
    values, grid = normal(n, seed=seed), torch.linspace(-2, 2, 41, dtype=torch.float64)
    paths = follow(with_spectrum(values, seed=seed), grid)
    ordered = values[(values - 2).abs().argsort(descending=True)]
    lines = (ordered + grid[:, None]) * (ordered - 2).sign()
    torch.testing.assert_close(paths.branches, lines, rtol=0, atol=1e-10)
    meet = [-(values[i] + values[j]).item() / 2 for i in range(n) for j in range(i)]
    for found, expected in ((paths.zeros, (-values).tolist()), (paths.crossings, meet)):
        assert found.tolist() == pytest.approx(sorted(t for t in expected if -2 < t < 2), abs=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_branches_are_the_singular_values_and_smooth_and_their_product_is_the_determinant(seed):
    m, fine = normal(5, 5, seed=seed), torch.linspace(-3, 3, 401, dtype=torch.float64)
    paths, moved = follow(m, fine), m + fine[:, None, None] * identity(5)
    for found in (paths.ordered, paths.branches.abs().sort(1, descending=True).values):
        torch.testing.assert_close(found, singular(moved), rtol=0, atol=1e-13)
    determinant = torch.linalg.det(moved)
    torch.testing.assert_close(paths.branches.prod(1), determinant * determinant[0].sign(), rtol=1e-6, atol=1e-9)
    assert paths.zeros.tolist() == [z for z in zeros(m).tolist() if abs(z) < 3]
