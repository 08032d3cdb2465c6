"""Layers with a skip: bounds of the paper, singular values along a line, and chains of blocks that are trained."""

import math

import pytest
import scipy
import torch
from gnbook.adding_the_identity import chains
from gnbook.adding_the_identity.bounds import (
    hard_bound,
    riedi_theorem_22,
)
from gnbook.adding_the_identity.chains import CHAINS, condition_numbers, drawn, outputs, skip_of
from gnbook.adding_the_identity.singular_values import follow, zeros
from torch.nn.functional import layer_norm

from tests.gnbook.adding_the_identity.helpers import starts, taus
from tests.oracles import identity, normal, singular, with_spectrum
from tests.strategies import exact


def theorem_22(m):
    """Riedi 2022, Theorem 22, as printed, for a batch."""
    s, (low, high) = singular(m), taus(m)
    top, one = (1 + high + s[..., 0] ** 2).clamp_min(0).sqrt(), 1 - s[..., 0]
    second, root = ((1 + low + least).clamp_min(0).sqrt() for least in (s[..., -1] ** 2, 0))
    bounds = (top / one, (1 + s[..., 0]) / one, top / second, (1 + s[..., 0]) / root)
    return [b.where(ok, math.inf) for b, ok in zip(bounds, (one > 0, one > 0, low > -1, low > -1), strict=True)]


@pytest.mark.parametrize("n", range(1, 6))
def test_theorem_22_is_evaluated_as_printed(n):
    for m in torch.cat([starts(n, n, 8) / 4, 3 * starts(n, n, 8)]):
        assert list(riedi_theorem_22(m)) == pytest.approx([b.item() for b in theorem_22(m)], rel=1e-9)


def largest_ratio(r):
    """Return the largest (1 + a) / (1 - b) over the disc of radius r, by search."""
    found = scipy.optimize.minimize_scalar(
        lambda t: -(1 + r * math.cos(t)) / (1 - r * math.sin(t)),
        bounds=(0, math.pi / 2),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return -found.fun


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("part", [0.0, 0.2, 0.7, 0.99])
def test_the_hard_bound_is_the_largest_ratio_over_a_disc(n, part):
    entry = part / n
    assert hard_bound(entry, n) == pytest.approx(largest_ratio(part), rel=1e-9)
    assert hard_bound(entry, n, depth=3) == pytest.approx(largest_ratio(part**3), rel=1e-9)
    assert hard_bound(entry, n, 1, 0.25) == pytest.approx(4 * largest_ratio(part), rel=1e-9)
    assert hard_bound(entry, n, n, 0.25) == hard_bound(entry, n, 0, 0.25) == hard_bound(entry, n)
    kept = math.sqrt((n - 1) / n) * part
    assert hard_bound(entry, n, 1, 0.0) == pytest.approx(largest_ratio(kept) if n > 2 else 1, rel=1e-9)


SIZE = 12


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(60, SIZE, generator=generator), torch.randint(10, (60,), generator=generator)


@pytest.mark.parametrize("name", ["a quarter", "one, normalised", "zero, squeezing skip"])
def test_the_matrices_of_the_blocks_are_their_jacobians(name, images):
    chain = CHAINS[name]
    weights = {key: value.double() for key, value in drawn(chain, SIZE, 3).items()}
    x = images[0][:2]
    _, whole = condition_numbers(chain, weights, x)
    for z, kappa in zip(torch.relu(x.double() @ weights["first"].mT), whole, strict=True):
        blocks = torch.autograd.functional.jacobian(lambda z: _blocks(chain, weights, z), z)
        assert torch.linalg.cond(blocks).item() == pytest.approx(kappa.item(), rel=1e-4)


def test_the_outputs_are_those_of_the_blocks(images):
    for chain in CHAINS.values():
        weights = drawn(chain, SIZE, 4)
        z = _blocks(
            chain,
            {key: value.double() for key, value in weights.items()},
            images[0].double() @ weights["first"].double().mT,
            first=True,
        )
        z = layer_norm(z, (chains.UNITS,)) if chain.norm else z
        said = outputs(chain, {key: value[None] for key, value in weights.items()}, images[0][None])[0]
        assert torch.allclose(
            said.double(), z @ weights["last"].double().mT, rtol=1e-3, atol=1e-4 * z.abs().max().item()
        )


def _blocks(chain, weights, z, *, first=False):
    z, skip = (torch.relu(z) if first else z), skip_of(chain)
    for inner, outer in zip(weights["inner"], weights["outer"], strict=True):
        seen = layer_norm(z, (chains.UNITS,)) if chain.norm else z
        z = chain.shrink * (z @ skip + torch.relu(seen @ inner.mT) @ outer.mT)
    return z


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
