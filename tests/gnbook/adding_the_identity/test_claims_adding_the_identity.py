"""Riedi 2022, section 4, statements 14 to 22: singular values under a skip, on a thousand matrices."""

import itertools
import math

import pytest
import torch
from gnbook.adding_the_identity.bounds import shifted_singular_values
from gnbook.adding_the_identity.singular_values import derivatives, follow, one_sided_derivatives, zeros
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.gnbook.adding_the_identity.helpers import ROUNDING, THOUSAND, thousand
from tests.oracles import identity, singular, with_skip
from tests.strategies import EPS, exact, gaussian, orthogonal, seeds


def taus(matrix):
    """Return the smallest and the largest eigenvalue of M + M^T (Riedi 2022, Definition 15)."""
    values = torch.linalg.eigvalsh(matrix + matrix.mT)
    return values[..., 0], values[..., -1]


@pytest.mark.claim("Riedi Lemma 14", verdict="holds")
@thousand
@pytest.mark.parametrize("rho", [0.37, -1.4])
def test_the_derivative_is_the_cosine_of_the_angle_between_singular_vectors(matrices, rho):
    checked, step = 0, 1e-5
    for m in matrices / matrices.flatten(1).norm(dim=1).clamp_min(1e-9)[:, None, None]:
        at = with_skip(m, rho)
        v, s, uh = torch.linalg.svd(at)
        if min([s[-1].item(), *(s[:-1] - s[1:]).tolist()]) < 1e-2:
            continue
        cosines = (v * uh.mT).sum(0)
        ahead, behind = (singular(with_skip(at, h)) for h in (step, -step))
        torch.testing.assert_close((ahead - behind) / (2 * step), cosines, rtol=0, atol=1e-6)
        torch.testing.assert_close(derivatives(at), cosines, rtol=0, atol=1e-12)
        quadratic = (uh * (uh @ (m + m.mT))).sum(1) + 2 * rho
        torch.testing.assert_close((ahead**2 - behind**2) / (2 * step), quadratic, rtol=0, atol=1e-5)
        checked += 1
    assert checked >= 40


@pytest.mark.claim("Riedi Definition 15 and Eq. 69", verdict="holds")
@pytest.mark.claim("Riedi Theorem 16", "Riedi Eq. 73", verdict="holds if")
@thousand
@pytest.mark.parametrize("rho", [0.0, 1e-3, 0.3, 0.7, 1.0, 2.0, 30.0, -0.3, -2.0])
def test_theorem_16_and_its_square_root_where_there_is_one_the_two_tau_swapped_for_a_negative_skip(matrices, rho):
    before, s, (low, high) = singular(matrices), singular(matrices + rho * identity(matrices.shape[-1])), taus(matrices)
    norm = torch.linalg.matrix_norm(matrices + matrices.mT, 2)
    for tau in (torch.maximum(low.abs(), high.abs()), torch.maximum(-low, high)):
        assert (norm - tau).abs().le(ROUNDING * (1 + norm)).all()
    assert (norm <= 2 * before[:, 0] + ROUNDING * (1 + norm)).all()

    scale, ordered = before[:, :1] + abs(rho), (low, high) if rho >= 0 else (high, low)
    below, above = (before**2 + rho * tau[:, None] + rho**2 for tau in ordered)
    assert (below <= s**2 + ROUNDING * scale**2).all() and (s**2 <= above + ROUNDING * scale**2).all()
    lower, upper = below.clamp_min(0).sqrt(), above.clamp_min(0).sqrt()
    slack = ROUNDING * scale + ROUNDING**0.5 * (below < 1e-9 * scale**2)
    assert ((below < 0) | (lower <= s + slack)).all()
    assert (s <= upper + slack).all() and (upper <= scale + slack).all()
    for m, *expected in zip(matrices[::4], lower[::4], upper[::4], strict=True):
        for found, printed in zip(shifted_singular_values(m, rho), expected, strict=True):
            assert (found**2 - printed**2).abs().max() <= ROUNDING * (singular(m)[0] + abs(rho)) ** 2


@pytest.mark.claim("Riedi, all singular values increase", verdict="holds if")
@thousand
def test_all_singular_values_have_grown_once_the_skip_is_as_large_as_minus_the_lower_tau(matrices):
    n, before = matrices.shape[-1], singular(matrices)
    for factor in (1.0, 1.5, 10.0):
        rho = factor * (-taus(matrices)[0]).clamp_min(0)
        after = singular(matrices + rho[:, None, None] * identity(n))
        assert (after >= before - 1e-7 * (before[:, :1] + rho[:, None])).all()
        assert factor == 1 or (after > before)[rho > 1e-3].all()


NILPOTENT = exact([[0, 1], [0, 0]])


@pytest.mark.claim("Riedi Eq. 73", "Riedi, all singular values increase", "Riedi Lemma 19", verdict="holds if")
@pytest.mark.claim("Riedi Lemma 18", verdict="fails")
def test_the_smallest_counterexamples_have_one_unit_or_two_or_a_triple_singular_value():
    m = exact([[0, 0], [0, -1]])  # the radicand of Eq. 73 can be negative
    assert (singular(m)[-1] ** 2 + taus(m)[0] + 1).item() == -1
    m = exact([[-0.5]])  # it falls for any smaller skip and is the same at minus the lower tau
    assert -taus(m)[0] == 1 and all(singular(m + rho) < singular(m) for rho in (0.25, 0.5, 0.99))
    assert singular(m + 1) == singular(m) == 0.5 and singular(m + 1.01) > singular(m)
    w, moved = exact([1, 0]), with_skip(NILPOTENT, 1)  # an eigenvector of zero need not stay a singular vector
    assert (NILPOTENT @ w == 0).all() and (NILPOTENT.mT @ (NILPOTENT @ w) == 0).all()
    assert (moved.mT @ (moved @ w)).tolist() == [1, 1]
    m, w = torch.diag(exact([1, 1, -1])), exact([0, 0, 1])  # of slope one, and no eigenvector with that eigenvalue
    left, right = one_sided_derivatives(m)
    assert left[1] == right[1] == 1  # the second one is differentiable
    assert (m.mT @ (m @ w) == w).all() and (m @ w == -w).all()
    assert [singular(with_skip(m, rho))[1].item() for rho in (-0.25, 0.25)] == [0.75, 1.25]


@pytest.mark.claim("Riedi Lemma 19", verdict="holds if")
@given(seeds, st.integers(1, 5), st.sampled_from([-2.0, -0.7, 0.3, 1.0]), st.floats(-3, 3))
def test_extreme_slopes_belong_to_vectors_that_are_both(seed, n, t, rho):
    q, inner = orthogonal(seed, n), gaussian(seed + 1, n, n)
    inner[0], inner[:, 0], inner[0, 0] = 0, 0, t
    m = q @ inner @ q.mT  # the eigenvector of t is a right singular vector too
    s = singular(m)
    i = (s - abs(t)).abs().argmin()
    assume(min([s[-1].item(), *(s[:-1] - s[1:]).tolist(), 1.0]) > 1e-3)
    slope = derivatives(m)[i].item()
    assert slope == pytest.approx(math.copysign(1, t), abs=1e-12)
    u = torch.linalg.svd(m).Vh[i]
    value = slope * s[i] + rho  # t + rho of the lemma, t = s for slope 1 and -s for slope -1
    assert (with_skip(m, rho) @ u - value * u).norm() <= 1e-10
    assert (singular(with_skip(m, rho)) - value.abs()).abs().min() <= 1e-10


def breaks_lemma_20(m):
    """Say whether a null vector at a zero is no singular vector beyond it, or its singular value another one."""
    vectors = [torch.linalg.svd(with_skip(m, rho)).Vh[-1] for rho in zeros(m).tolist()]
    moved = [with_skip(m, rho + 1) for rho in zeros(m).tolist()]
    return any((at.mT @ (at @ w) - w).norm() > 1e-9 for at, w in zip(moved, vectors, strict=True))


@pytest.mark.claim("Riedi Lemma 20", verdict="fails")
def test_the_smallest_matrix_that_breaks_lemma_20_has_one_entry():
    assert not any(breaks_lemma_20(m) for m in THOUSAND[0])
    broken = [e for e in itertools.product([0, 1], repeat=4) if breaks_lemma_20(exact(e).view(2, 2))]
    assert [e for e in broken if sum(e) == min(map(sum, broken))] == [(0, 0, 1, 0), (0, 1, 0, 0)]


@pytest.mark.claim("Riedi Lemma 20, no zero without an eigenvector", "Zeros", verdict="holds")
@thousand
def test_a_singular_value_vanishes_where_there_is_a_real_eigenvalue_alone_and_leaves_no_faster_than_the_skip(matrices):
    for m in matrices[::4]:
        norm, found = singular(m)[0].item(), zeros(m).tolist()
        for rho in found:
            assert singular(with_skip(m, rho))[-1] <= 1e-13 * (norm + abs(rho))
            for change in (-1.0, -0.01, 0.01, 1.0):
                s = singular(with_skip(m, rho + change))[-1]
                assert s <= abs(change) * (1 + 1e-9) + 1e-6 * EPS**0.5
        values = torch.linalg.eigvals(m)
        distinct = min([1.0, *((a - b).abs().item() for a, b in itertools.combinations(values, 2))])
        if distinct > 1e-3 * max(norm, 1e-9) and norm > 0:
            assert len(found) == (values.imag.abs() < 1e-9 * norm).sum()


@pytest.mark.claim("One-sided derivatives", verdict="holds")
@given(seeds, st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=5), st.booleans())
def test_one_sided_derivatives_at_repeated_and_vanishing_singular_values(seed, values, skip):
    n = len(values)
    a = orthogonal(seed, n) @ torch.diag(exact(values)) @ orthogonal(seed + 1, n).mT
    b = identity(n) if skip else gaussian(seed + 2, n, n)
    left, right = one_sided_derivatives(a, b)
    h, scale = 1e-6, 1 + torch.linalg.matrix_norm(b, 2).item() ** 2
    s = exact(sorted(values, reverse=True))
    torch.testing.assert_close((singular(a + h * b) - s) / h, right, rtol=0, atol=20 * h * scale)
    torch.testing.assert_close((s - singular(a - h * b)) / h, left, rtol=0, atol=20 * h * scale)


@pytest.mark.claim("Zeros", verdict="holds")
@given(seeds, st.lists(st.integers(1, 2), min_size=1, max_size=3), st.integers(0, 2))
def test_at_a_repeated_eigenvalue_the_slope_is_zero_if_and_only_if_it_is_defective(seed, blocks, others):
    """Jordan blocks of eigenvalue 0 beside a regular matrix, in a basis of moderate condition."""
    parts = [NILPOTENT if size == 2 else exact([[0]]) for size in blocks]
    jordan = torch.block_diag(*parts, *[exact([[2.0 + i]]) for i in range(others)])
    n = len(jordan)
    basis = orthogonal(seed, n) @ torch.diag(torch.linspace(1, 2, n).double()) @ orthogonal(seed + 1, n)
    m = basis @ jordan @ torch.linalg.inv(basis)
    left, _, right = torch.linalg.svd(m)
    cosine = singular(left[:, -len(blocks) :].mT @ right[-len(blocks) :].mT)[-1].item()
    assert (cosine < 1e-12) == (2 in blocks)
    for side in (1e-6, -1e-6):
        assert singular(with_skip(m, side))[-1].item() / 1e-6 == pytest.approx(cosine, abs=1e-4)


@pytest.mark.claim("Riedi Figure 2", verdict="holds")
def test_even_the_largest_singular_value_can_fall_and_have_a_kink():
    paths = follow(torch.diag(exact([-0.4, -0.2, -0.1])), torch.linspace(0, 1, 101, dtype=torch.float64))
    assert paths.crossings.tolist() == pytest.approx([0.15, 0.25, 0.3], abs=1e-12)
    assert paths.zeros.tolist() == pytest.approx([0.1, 0.2, 0.4], abs=1e-12)
    assert (paths.ordered[:26, 0].diff() < 0).all()
    at_a_quarter = one_sided_derivatives(torch.diag(exact([-0.15, 0.05, 0.15])))
    assert at_a_quarter.left.tolist() == [-1, 1, 1] and at_a_quarter.right.tolist() == [1, -1, 1]
