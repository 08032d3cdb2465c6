"""Bounds on singular values of a layer with a skip and an activation: formulas of the paper, edges and refusals."""

import math

import pytest
import scipy
import torch
from gnbook.adding_the_identity.bounds import (
    activated_singular_values,
    hard_bound,
    riedi_lemma_29,
    riedi_theorem_22,
    riedi_theorem_31,
    riedi_theorem_32,
    shifted_singular_values,
)
from gnbook.shared.skips import skip_bounds

from tests.gnbook.adding_the_identity.cases import eye, tensor
from tests.oracles import normal

# Bounds
SIZES = range(1, 6)


def thousand(n):
    """Return 200 matrices: random of several sizes, symmetric, antisymmetric, of low rank, nilpotent."""
    g = torch.stack([normal(n, n, seed=seed) for seed in range(40)])
    return torch.cat([g / 4, 3 * g, (g + g.mT) / 2, g - g.mT, g[..., :1] @ g[..., :1, :] * (g > 0)])


def taus(m):
    values = torch.linalg.eigvalsh(m + m.mT)
    return values[..., 0], values[..., -1]


def four_bounds(m):
    """Theorem 22 as printed, for a batch."""
    s, (low, high) = torch.linalg.svdvals(m), taus(m)
    top, one = (1 + high + s[..., 0] ** 2).clamp_min(0).sqrt(), 1 - s[..., 0]
    root = (1 + low).clamp_min(0).sqrt()
    second = (1 + low + s[..., -1] ** 2).clamp_min(0).sqrt()
    bounds = (top / one, (1 + s[..., 0]) / one, top / second, (1 + s[..., 0]) / root)
    return [b.where(ok, math.inf) for b, ok in zip(bounds, (one > 0, one > 0, low > -1, low > -1), strict=True)]


@pytest.mark.parametrize("n", SIZES)
def test_theorem_22_is_evaluated_as_printed_and_bounds_a_thousand_condition_numbers(n):
    matrices = thousand(n)
    s = torch.linalg.svdvals(matrices + eye(n))
    for bound in four_bounds(matrices):
        assert (s[:, 0] <= bound * s[:, -1] * (1 + 1e-9) + 1e-9 * s[:, 0])[bound < math.inf].all()
        assert (bound < math.inf).sum() >= 10
    for m in matrices[::10]:
        expected = [b.item() for b in four_bounds(m)]
        assert list(riedi_theorem_22(m)) == pytest.approx(expected, rel=1e-9)


def ascend(ratio, start, steps=150, rate=0.03):
    """Return the largest ratio that gradient ascent finds."""
    theta, best = start.clone().requires_grad_(), -math.inf
    optimizer = torch.optim.Adam([theta], lr=rate)
    for _ in range(steps):
        values = ratio(theta)
        best = max(best, values.detach().nan_to_num(-math.inf, posinf=-math.inf).max().item())
        optimizer.zero_grad()
        (-values.nan_to_num(0.0, posinf=0.0, neginf=0.0).sum()).backward()
        theta.grad.nan_to_num_(0.0, posinf=0.0, neginf=0.0)
        optimizer.step()
    return best


def of_norm(theta, norm):
    return theta * (norm / torch.linalg.matrix_norm(theta, 2))[:, None, None]


@pytest.mark.parametrize("which", range(4))
def test_an_attack_attains_theorem_22_and_does_not_pass_it(which):
    def ratio(theta):
        m = of_norm(theta, 0.45)
        s = torch.linalg.svdvals(m + eye(2))
        return s[:, 0] / s[:, -1] / four_bounds(m)[which]

    best = ascend(ratio, torch.stack([normal(2, 2, seed=seed) for seed in range(48)]))
    assert (0.999 if which < 3 else 0.8) < best < 1 + 1e-9


def test_attacks_attain_lemmas_17_and_21_and_do_not_pass_them():
    start = torch.stack([normal(3, 3, seed=seed) for seed in range(48)])
    for rho in (0.5, 2.0):

        def ends(m, rho=rho):
            before, after, (low, high) = torch.linalg.svdvals(m), torch.linalg.svdvals(m + rho * eye(3)), taus(m)
            scale = (before[:, 0] + rho) ** 2
            yield (after[:, 0] - rho - before[:, 0]) / scale.sqrt()
            yield (rho - before[:, 0] - after[:, -1]) / scale.sqrt()
            yield (after[:, 0] ** 2 - before[:, 0] ** 2 - rho * high - rho**2) / scale
            yield (before[:, -1] ** 2 + rho * low + rho**2 - after[:, -1] ** 2) / scale

        for i in range(4):
            assert -1e-2 < ascend(lambda m, i=i, ends=ends: list(ends(m))[i], start) < 1e-12


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rho", [-1.5, 0.0, 0.8])
def test_bounds_of_every_singular_value_agree_with_those_of_the_extreme_ones(n, rho):
    for m in thousand(n)[::10]:
        lower, upper = shifted_singular_values(m, rho)
        extreme = skip_bounds(m, rho)
        assert upper[0].item() == pytest.approx(extreme.upper, rel=1e-9, abs=1e-7)
        assert lower[-1].item() <= extreme.lower + 1e-7
        squares = torch.linalg.svdvals(m) ** 2
        tau = min(rho * t.item() for t in taus(m))
        torch.testing.assert_close(lower**2, (squares + tau + rho**2).clamp_min(0), rtol=1e-9, atol=1e-12)


def test_the_products_with_the_slopes_contain_the_propositions_of_the_paper():
    s = tensor([3, 2, 1, 0.5])
    lower, upper = activated_singular_values(s, tensor([1, -1, 1, -1]))
    assert (lower == s).all() and (upper == s).all()
    lower, upper = activated_singular_values(s, tensor([0, 1, 1, 0]))  # Cauchy: two columns deleted
    assert upper.tolist() == [3, 2, 0, 0] and lower.tolist() == [1, 0.5, 0, 0]
    lower, upper = activated_singular_values(s.flip(0), tensor([0.1, 1, 0.1, 0.1]))
    assert upper.tolist() == pytest.approx([3, 0.3, 0.2, 0.1]) and lower.tolist() == pytest.approx(
        [0.5, 0.2, 0.1, 0.05]
    )


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


def test_the_hard_bounds_of_the_paper_as_printed():
    c, n, m, eta = 0.004, 8, 3, 0.97
    assert riedi_lemma_29(c, n) == (1 - 0.032, 1 + 0.032)
    expected = (1.032 / 0.424**0.5, 1.032 / (0.968 - 0.375**0.5), 1.032 / 0.552**0.5)
    assert riedi_theorem_31(c, n, m) == pytest.approx(expected)
    expected = (1.032 / (0.968**2 - 0.12 * 3**0.5) ** 0.5, 1.032 / (0.968 - 0.09 * 1.012))
    assert riedi_theorem_32(c, n, m, eta) == pytest.approx(expected)
    assert riedi_theorem_31(0.1, 8, 7) == (math.inf,) * 3 and riedi_theorem_32(0.1, 8, 7, 0.1) == (math.inf,) * 2


def test_a_width_of_one():
    assert hard_bound(0.9, 1) == hard_bound(0.9, 1, 1, 0.1) == 1
    assert riedi_theorem_22(tensor([[0.5]])).eq_77 == pytest.approx(1)
    assert riedi_lemma_29(0.5, 1) == (0.5, 1.5)
    lower, upper = shifted_singular_values(tensor([[-0.5]]), 2.0)
    assert lower.item() == upper.item() == 1.5


def test_the_bounds_of_a_layer_of_zeros():
    zero = torch.zeros(3, 3, dtype=torch.float64)
    assert riedi_theorem_22(zero) == (1, 1, 1, 1)
    lower, upper = shifted_singular_values(zero, -2.0)
    assert lower.tolist() == upper.tolist() == [2, 2, 2]
    for bounds in (
        activated_singular_values(tensor([0, 0]), tensor([1, 0])),
        activated_singular_values(zero[0], zero[0]),
    ):
        assert not torch.stack(bounds).any()
    assert riedi_theorem_31(0.0, 4, 0) == (1, 1, 1) and riedi_theorem_32(0.0, 4, 0, 0.5) == (1, 1) == riedi_lemma_29(
        0.0, 4
    )
    assert hard_bound(0.0, 4) == 1


@pytest.mark.bad_input
@pytest.mark.parametrize("slope", [-1.01, 1.5, math.nan])
def test_slopes_outside_of_minus_one_to_one_are_refused(slope):
    with pytest.raises(ValueError, match=r"slope is .*; a number from -1 \(absolute value\) to 1 \(linear\)"):
        hard_bound(0.1, 3, 1, slope)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("slope", "message"), [(-0.5, "Theorem 32 is about slopes from 0 to 1"), (2.0, "a number from")]
)
def test_slopes_that_theorem_32_is_not_about_are_refused(slope, message):
    with pytest.raises(ValueError, match=message):
        riedi_theorem_32(0.1, 3, 1, slope)


@pytest.mark.bad_input
@pytest.mark.parametrize("entry", [1 / 3, -0.1, math.nan])
def test_weights_that_are_too_large_are_refused(entry):
    for call in (riedi_lemma_29, hard_bound, lambda c, n: riedi_theorem_31(c, n, 1)):
        with pytest.raises(ValueError, match=r"for n = 3 the bounds are about weights below 1/n = 0\.333"):
            call(entry, 3)


@pytest.mark.bad_input
@pytest.mark.parametrize(("n", "inactive"), [(0, 0), (3, 4), (3, -1)])
def test_counts_that_make_no_sense_are_refused(n, inactive):
    with pytest.raises(ValueError, match="a width of at least 1 and a part of it were expected"):
        hard_bound(0.01, n, inactive)


@pytest.mark.bad_input
def test_a_relu_that_leaves_nothing_and_a_skip_around_no_layer_are_refused():
    for call in (lambda: hard_bound(0.1, 3, 3, 0.0), lambda: riedi_theorem_31(0.1, 3, 3)):
        with pytest.raises(ValueError, match="All 3 units are inactive and have slope 0; nothing is left"):
            call()
    with pytest.raises(ValueError, match="depth is 0; the skip goes around at least 1 layer"):
        hard_bound(0.1, 3, depth=0)


@pytest.mark.bad_input
@pytest.mark.parametrize(("s", "d"), [([1.0, 2.0], [1.0]), ([-1.0], [1.0]), ([[1.0]], [[1.0]])])
def test_singular_values_and_slopes_that_do_not_fit_are_refused(s, d):
    with pytest.raises(ValueError, match="n singular values, none of them negative, and n slopes were expected"):
        activated_singular_values(torch.tensor(s), torch.tensor(d))
