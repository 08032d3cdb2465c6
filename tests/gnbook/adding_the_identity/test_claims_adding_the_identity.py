"""Riedi 2022, section 4, statements 14 to 22: singular values under a skip, on a thousand matrices."""

import itertools
import math

import pytest
import torch
from gnbook.adding_the_identity.bounds import shifted_singular_values
from gnbook.adding_the_identity.singular_values import derivatives, follow, one_sided_derivatives, zeros
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.gnbook.adding_the_identity.helpers import ROUNDING, THOUSAND, taus, thousand
from tests.oracles import identity, singular
from tests.strategies import EPS, exact, gaussian, instances, orthogonal, seeds

RHOS = [0.0, 1e-3, 0.3, 1.0, 2.0, 30.0]


@pytest.mark.claim("Riedi Lemma 14", verdict="holds")
@thousand
@pytest.mark.parametrize("rho", [0.37, -1.4])
def test_the_derivative_is_the_cosine_of_the_angle_between_singular_vectors(matrices, rho):
    checked, step, n = 0, 1e-5, matrices.shape[-1]
    for m in matrices / matrices.flatten(1).norm(dim=1).clamp_min(1e-9)[:, None, None]:
        at = m + rho * identity(n)
        s = singular(at)
        if min([s[-1].item(), *(s[:-1] - s[1:]).tolist()]) < 1e-2:
            continue
        v, _, uh = torch.linalg.svd(at)
        cosines = (v * uh.mT).sum(0)
        ahead, behind = (singular(at + h * identity(n)) for h in (step, -step))
        torch.testing.assert_close((ahead - behind) / (2 * step), cosines, rtol=0, atol=1e-6)
        torch.testing.assert_close(derivatives(at), cosines, rtol=0, atol=1e-12)
        quadratic = (uh * (uh @ (m + m.mT))).sum(1) + 2 * rho
        torch.testing.assert_close((ahead**2 - behind**2) / (2 * step), quadratic, rtol=0, atol=1e-5)
        checked += 1
    assert checked >= 40


@pytest.mark.claim("Riedi Definition 15 and Eq. 69", verdict="holds")
@thousand
def test_the_norm_of_the_symmetric_part_is_at_most_that_of_the_matrix(matrices):
    low, high = taus(matrices)
    norm = torch.linalg.matrix_norm(matrices + matrices.mT, 2)
    slack = ROUNDING * (1 + norm)
    assert (norm - torch.maximum(low.abs(), high.abs())).abs().le(slack).all()
    assert (norm - torch.maximum(-low, high)).abs().le(slack).all()
    assert (norm <= 2 * singular(matrices)[:, 0] + slack).all()


@pytest.mark.claim("Riedi Theorem 16", verdict="holds if")
@pytest.mark.claim("Riedi Eq. 73", verdict="holds if")
@thousand
def test_theorem_16_for_skips_that_are_not_negative_and_its_square_root_where_there_is_one(matrices):
    n, (low, high), before = matrices.shape[-1], taus(matrices), singular(matrices)
    for rho in RHOS:
        s, scale = singular(matrices + rho * identity(n)), before[:, :1] + rho
        below, above = (before**2 + rho * tau[:, None] + rho**2 for tau in (low, high))
        assert (below <= s**2 + ROUNDING * scale**2).all() and (s**2 <= above + ROUNDING * scale**2).all()
        slack = ROUNDING * scale + ROUNDING**0.5 * (below < 1e-9 * scale**2)
        assert ((below < 0) | (below.clamp_min(0).sqrt() <= s + slack)).all()
        assert (s <= above.clamp_min(0).sqrt() + slack).all() and (above.clamp_min(0).sqrt() <= scale + slack).all()


@pytest.mark.claim("Riedi Theorem 16", verdict="holds if")
@thousand
def test_the_library_swaps_the_two_tau_for_a_negative_skip(matrices):
    for m in matrices[::4]:
        for rho in (-2.0, -0.3, 0.7):
            lower, upper = shifted_singular_values(m, rho)
            s = singular(m + rho * identity(len(m)))
            slack = ROUNDING * (singular(m)[0] + abs(rho)) ** 2
            assert (lower**2 <= s**2 + slack).all() and (s**2 <= upper**2 + slack).all()


@pytest.mark.claim("Riedi Eq. 73", verdict="holds if")
def test_the_radicand_of_eq_73_can_be_negative():
    m = exact([[0, 0], [0, -1]])
    assert (singular(m)[-1] ** 2 + taus(m)[0] + 1).item() == -1


@pytest.mark.claim("Riedi, all singular values increase", verdict="holds if")
@thousand
def test_all_singular_values_have_grown_once_the_skip_is_as_large_as_minus_the_lower_tau(matrices):
    n, before = matrices.shape[-1], singular(matrices)
    for factor in (1.0, 1.5, 10.0):
        rho = factor * (-taus(matrices)[0]).clamp_min(0)
        after = singular(matrices + rho[:, None, None] * identity(n))
        assert (after >= before - 1e-7 * (before[:, :1] + rho[:, None])).all()
        assert factor == 1 or (after > before)[rho > 1e-3].all()


@pytest.mark.claim("Riedi, all singular values increase", verdict="holds if")
def test_a_number_below_zero_falls_for_any_smaller_skip_and_is_the_same_at_minus_the_lower_tau():
    m = exact([[-0.5]])
    assert -taus(m)[0] == 1 and all(singular(m + rho) < singular(m) for rho in (0.25, 0.5, 0.99))
    assert singular(m + 1) == singular(m) == 0.5 and singular(m + 1.01) > singular(m)


def both(seed, n, t):
    """Return a matrix with eigenvalue t whose eigenvector is a right singular vector too, and that vector."""
    q = orthogonal(seed, n)
    inner = gaussian(seed + 1, n, n)
    inner[0], inner[:, 0], inner[0, 0] = 0, 0, t
    return q @ inner @ q.mT, q[:, 0]


NILPOTENT = exact([[0, 1], [0, 0]])


@pytest.mark.claim("Riedi Lemma 18", verdict="fails")
def test_with_eigenvalue_zero_the_eigenvector_need_not_stay_a_singular_vector():
    w = exact([1, 0])
    assert (NILPOTENT @ w == 0).all() and (NILPOTENT.mT @ (NILPOTENT @ w) == 0).all()
    moved = NILPOTENT + identity(2)
    assert (moved.mT @ (moved @ w)).tolist() == [1, 1]


@pytest.mark.claim("Riedi Lemma 19", verdict="holds if")
@instances
@given(seeds, st.integers(1, 5), st.sampled_from([-2.0, -0.7, 0.3, 1.0]), st.floats(-3, 3))
def test_extreme_slopes_belong_to_vectors_that_are_both(seed, n, t, rho):
    m, _ = both(seed, n, t)
    s = singular(m)
    i = (s - abs(t)).abs().argmin()
    assume(min([s[-1].item(), *(s[:-1] - s[1:]).tolist(), 1.0]) > 1e-3)
    slope = derivatives(m)[i].item()
    assert slope == pytest.approx(math.copysign(1, t), abs=1e-12)
    u = torch.linalg.svd(m).Vh[i]
    value = slope * s[i] + rho  # t + rho of the lemma, t = s for slope 1 and -s for slope -1
    assert ((m + rho * identity(n)) @ u - value * u).norm() <= 1e-10
    assert (singular(m + rho * identity(n)) - value.abs()).abs().min() <= 1e-10


@pytest.mark.claim("Riedi Lemma 19", verdict="holds if")
def test_at_a_triple_singular_value_a_vector_of_slope_one_need_not_be_an_eigenvector_with_that_eigenvalue():
    m, w = torch.diag(exact([1, 1, -1])), exact([0, 0, 1])
    left, right = one_sided_derivatives(m)
    assert left[1] == right[1] == 1  # the second one is differentiable
    assert (m.mT @ (m @ w) == w).all() and (m @ w == -w).all()
    assert [singular(m + rho * identity(3))[1].item() for rho in (-0.25, 0.25)] == [0.75, 1.25]


def breaks_lemma_20(m, rho_0, rho):
    """Say whether a null vector at rho_0 is no singular vector at rho, or its singular value another one."""
    n = len(m)
    w = torch.linalg.svd(m + rho_0 * identity(n)).Vh[-1]
    moved = m + rho * identity(n)
    return bool((moved.mT @ (moved @ w) - (rho - rho_0) ** 2 * w).norm() > 1e-9)


@pytest.mark.claim("Riedi Lemma 20", verdict="fails")
def test_the_smallest_matrix_that_breaks_lemma_20_has_one_entry():
    assert not any(breaks_lemma_20(m, -m.item(), -m.item() + 1) for m in THOUSAND[0])
    broken = [e for e in itertools.product([0, 1], repeat=4) if breaks_at_a_zero(exact(e).view(2, 2))]
    fewest = min(map(sum, broken))
    assert fewest == 1 and [e for e in broken if sum(e) == fewest] == [(0, 0, 1, 0), (0, 1, 0, 0)]


def breaks_at_a_zero(m):
    return any(breaks_lemma_20(m, rho, rho + 1) for rho in zeros(m).tolist())


@pytest.mark.claim("Riedi Lemma 20, no zero without an eigenvector", verdict="holds")
@pytest.mark.claim("Zeros", verdict="holds")
@thousand
def test_a_singular_value_vanishes_where_there_is_a_real_eigenvalue_alone_and_leaves_no_faster_than_the_skip(matrices):
    for m in matrices[::4]:
        norm = singular(m)[0].item()
        for rho in zeros(m).tolist():
            assert singular(m + rho * identity(len(m)))[-1] <= 1e-13 * (norm + abs(rho))
            for change in (-1.0, -0.01, 0.01, 1.0):
                s = singular(m + (rho + change) * identity(len(m)))[-1]
                assert s <= abs(change) * (1 + 1e-9) + 1e-6 * EPS**0.5
        pairs = torch.linalg.eigvals(m)
        distinct = min([1.0, *((pairs[i] - pairs[j]).abs().item() for i in range(len(m)) for j in range(i))])
        if distinct > 1e-3 * max(norm, 1e-9) and norm > 0:
            assert len(zeros(m)) == (pairs.imag.abs() < 1e-9 * norm).sum()


@pytest.mark.claim("One-sided derivatives", verdict="holds")
@instances
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
@instances
@given(seeds, st.lists(st.integers(1, 2), min_size=1, max_size=3), st.integers(0, 2))
def test_at_a_repeated_eigenvalue_the_slope_is_zero_if_and_only_if_it_is_defective(seed, blocks, others):
    """Jordan blocks of eigenvalue 0 beside a regular matrix, in a basis of moderate condition."""
    parts = [NILPOTENT if size == 2 else exact([[0]]) for size in blocks]
    jordan = torch.block_diag(*parts, *[exact([[2.0 + i]]) for i in range(others)])
    n = len(jordan)
    basis = orthogonal(seed, n) @ torch.diag(torch.linspace(1, 2, n).double()) @ orthogonal(seed + 1, n)
    m = basis @ jordan @ torch.linalg.inv(basis)
    left, _, right = torch.linalg.svd(m)
    cosines = singular(left[:, -len(blocks) :].mT @ right[-len(blocks) :].mT)
    assert (cosines[-1] < 1e-12) == (2 in blocks)
    h = 1e-6
    for side in (h, -h):
        assert (singular(m + side * identity(n))[-1] / h).item() == pytest.approx(cosines[-1].item(), abs=1e-4)


@pytest.mark.claim("Riedi Figure 2", verdict="holds")
def test_even_the_largest_singular_value_can_fall_and_have_a_kink():
    paths = follow(torch.diag(exact([-0.4, -0.2, -0.1])), torch.linspace(0, 1, 101, dtype=torch.float64))
    assert paths.crossings.tolist() == pytest.approx([0.15, 0.25, 0.3], abs=1e-12)
    assert paths.zeros.tolist() == pytest.approx([0.1, 0.2, 0.4], abs=1e-12)
    assert (paths.ordered[:26, 0].diff() < 0).all()
    at_a_quarter = one_sided_derivatives(torch.diag(exact([-0.15, 0.05, 0.15])))
    assert at_a_quarter.left.tolist() == [-1, 1, 1] and at_a_quarter.right.tolist() == [1, -1, 1]
