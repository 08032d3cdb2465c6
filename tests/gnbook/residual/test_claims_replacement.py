"""In the place of Eq. 8: networks bounded by symmetric parts, and a skip across one layer, as Riedi 2022 has it too."""

import math

import pytest
import torch
from gnbook.adding_the_identity.bounds import riedi_theorem_22
from gnbook.shared.skips import kaiming_skip_limits, residual_bound, skip_bounds
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import SecondMoment
from gnlib.linear.bounds import zhao_lemma_2
from tests.gnbook.residual.helpers import block_eigenvalues, layers, shifted, skips, slack
from tests.oracles import singular, with_skip
from tests.strategies import exact, gaussian, instances, problems, true_condition, up_to_rounding


@pytest.mark.claim("Skip across one layer", verdict="holds")
@instances
@given(layers(), skips, st.sampled_from([1, -1]))
def test_every_singular_value_moves_between_the_bounds_and_the_lower_one_is_below_neither_lemma_of_riedi(
    weight, size, sign
):
    skip = sign * size
    lower, upper = skip_bounds(weight, skip)
    moved, before = singular(with_skip(weight, skip)) ** 2, singular(weight) ** 2
    tolerance = slack(weight, skip)
    assert lower**2 <= moved[-1] + tolerance and moved[0] <= upper**2 + tolerance
    least, most = sorted((skip * block_eigenvalues(weight)[0].item(), skip * block_eigenvalues(weight)[-1].item()))
    assert (before + least + skip**2 <= moved + tolerance).all()
    assert (moved <= before + most + skip**2 + tolerance).all()
    s, lower = before.sqrt(), skip_bounds(weight, size).lower
    assert lower**2 >= before[-1] + size * block_eigenvalues(weight)[0] + size**2 - tolerance
    assert lower >= size - s[0] - tolerance.sqrt() and lower >= s[-1] - size - tolerance.sqrt()


def attains_the_lower_bound(s, t, skip):
    """Return a layer with smallest singular value s and least eigenvalue t of its symmetric part, 0 <= s, |t|."""
    if abs(t) <= s:
        sine = (s**2 - t**2) ** 0.5
        return exact([[t, -sine], [sine, t]])
    middle = -min(max(s, skip), -t)  # t < -s: an eigenvalue between t and -s, as close to -skip as can be
    return torch.diag(exact([t, middle, s]))


@pytest.mark.claim("Skip across one layer", verdict="holds")
@instances
@given(st.floats(0, 5), st.floats(-5, 5), skips)
def test_no_better_lower_bound_follows_from_the_same_numbers(s, t, skip):
    assume(t <= s)  # since t <= x^T W x <= |W x| for all unit vectors x
    weight = attains_the_lower_bound(s, t, skip)
    assert singular(weight)[-1].item() == pytest.approx(s, abs=1e-9)
    assert block_eigenvalues(weight)[0].item() == pytest.approx(2 * t, abs=1e-9)
    smallest = singular(with_skip(weight, skip))[-1].item()
    assert skip_bounds(weight, skip).lower == pytest.approx(smallest, abs=1e-5 * (1 + skip))


@pytest.mark.claim("Skip across one layer", verdict="holds")
@instances
@given(st.floats(0, 5), st.floats(-1, 1), skips)
def test_no_better_upper_bound_follows_from_the_same_numbers(s, cosine, skip):
    sine = (1 - cosine**2) ** 0.5
    weight = s * exact([[cosine, -sine], [sine, cosine]])
    largest = singular(with_skip(weight, skip))[0].item()
    assert skip_bounds(weight, skip).upper == pytest.approx(largest, rel=1e-9)


@pytest.mark.claim("Residual networks from symmetric parts", verdict="holds")
@instances
@given(problems(1, 4), skips, st.sampled_from([1, -1]))
def test_the_bound_from_symmetric_parts_is_above_eq_7_and_the_truth(problem, size, sign):
    weights, x = problem
    assume(x.any())
    moment, skip = SecondMoment.from_data(x), sign * size
    bound, first = residual_bound(weights, moment, skip), zhao_lemma_2(weights, moment, skip).first
    assert first <= bound * (1 + 1e-6) or bound > 1e20
    true = true_condition(shifted(weights, skip), x)
    assume(true is not None)
    assert true <= bound * up_to_rounding(true)


@pytest.mark.claim("Kaiming layer with a skip", verdict="holds")
@pytest.mark.parametrize("skip", [0.0, 1.0, 1.25, 4.0])
def test_the_extreme_singular_values_approach_the_limits_as_the_width_grows(skip):
    errors = []
    for m in (30, 400):
        worst = torch.zeros(2)
        for seed in range(4):
            s = singular(with_skip(gaussian(seed, m, m) / m**0.5, skip))
            lower, upper = kaiming_skip_limits(skip)
            worst += torch.tensor([abs(s[-1] - lower), abs(s[0] - upper)]) / 4
        errors.append(worst)
    assert (errors[1] < 0.5 * errors[0]).all() and (errors[1] < 0.05).all()


def relative_variance(seed, m, skip):
    squares = singular(with_skip(gaussian(seed, m, m) / m**0.5, skip)) ** 2
    return (squares.var(correction=0) / squares.mean() ** 2).item()


def limit_of_the_relative_variance(skip):
    return 1 - (skip**2 / (1 + skip**2)) ** 2


@pytest.mark.claim("Evenness of a Kaiming layer with a skip", verdict="holds")
@pytest.mark.parametrize("skip", [0.0, 0.5, 1.0, 2.0, 4.0])
def test_the_relative_variance_approaches_its_limit_as_the_width_grows(skip):
    limit = limit_of_the_relative_variance(skip)
    errors = [max(abs(relative_variance(seed, m, skip) - limit) for seed in range(8)) for m in (20, 200)]
    assert errors[1] < 0.25 * errors[0]


@pytest.mark.claim("Riedi Lemma 17", verdict="holds if")
def test_a_negative_skip_breaks_riedi_lemma_17_as_printed():
    weight, rho = exact([[0]]), -1.0
    assert singular(with_skip(weight, rho)).item() == 1 > rho + singular(weight).item()


def printed_lemma_21(weight, rho):
    s, tau = singular(weight) ** 2, block_eigenvalues(weight)
    return (s[-1] + rho * tau[0] + rho**2).item(), (s[0] + rho * tau[-1] + rho**2).item()


@pytest.mark.claim("Riedi Lemma 17", verdict="holds if")
@pytest.mark.claim("Riedi Lemma 21", verdict="holds if")
@pytest.mark.claim("Riedi Lemma 21 against Lemma 17", verdict="fails")
@instances
@given(layers(square=True), skips)
def test_riedi_lemmas_17_and_21_for_skips_that_are_not_negative_where_the_upper_bound_of_21_is_sharper(weight, rho):
    s, largest = singular(with_skip(weight, rho)), singular(weight)[0]
    rounding = 1e-12 * (largest + rho)
    assert (rho - largest <= s + rounding).all() and (s <= rho + largest + rounding).all()
    assert ((singular(with_skip(weight, -rho)) - rho).abs() <= largest + rounding).all()  # with |rho| for any skip
    lower, upper = printed_lemma_21(weight, rho)
    assert lower <= s[-1] ** 2 + slack(weight, rho) and s[0] ** 2 <= upper + slack(weight, rho)
    assert upper <= (rho + largest) ** 2 + slack(weight, rho)


@pytest.mark.claim("Riedi Lemma 21", verdict="holds if")
def test_a_negative_skip_breaks_riedi_lemma_21_as_printed():
    weight, rho = exact([[1, 0], [0, -1]]), -1.0
    assert printed_lemma_21(weight, rho) == (4, 0)
    assert singular(with_skip(weight, rho)).tolist() == [2, 0]


@pytest.mark.claim("Riedi Lemma 21 against Lemma 17", verdict="fails")
def test_the_lower_bound_of_riedi_lemma_21_can_be_the_weaker_one():
    weight, rho = exact([[0, 0], [0, -0.5]]), 1.0
    assert singular(with_skip(weight, rho)).tolist() == [1, 0.5]
    assert printed_lemma_21(weight, rho)[0] == 0 < (rho - singular(weight)[0]) ** 2


@pytest.mark.claim("Riedi Theorem 22", verdict="holds")
@pytest.mark.claim("Riedi Theorem 22, which bound is tightest", verdict="holds if")
@instances
@given(layers(square=True), st.one_of(st.none(), st.floats(0.01, 0.999)))
def test_each_bound_of_riedi_theorem_22_and_the_exact_condition_for_77_to_be_tighter_than_76(weight, size):
    largest = singular(weight)[0]
    if size is not None and largest > 0:
        weight = weight * (size / largest)
    bounds, s = riedi_theorem_22(weight), singular(with_skip(weight, 1.0))
    assume(min(bounds) < math.inf)
    for one, simple in (bounds[:2], bounds[2:]):
        if one < math.inf:
            assert one <= simple * (1 + 1e-9)
            assert s[0] <= one * s[-1] * (1 + 1e-9) + 1e-9 * s[0]
    if max(bounds) < math.inf:
        s, tau = singular(weight), block_eigenvalues(weight)
        margin = (1 + tau[0] + s[-1] ** 2 - (1 - s[0]) ** 2).item()
        assert abs(margin) < 1e-9 or (bounds.eq_77 < bounds.eq_76) == (margin > 0)


@pytest.mark.claim("Riedi Theorem 22, which bound is tightest", verdict="holds if")
@pytest.mark.parametrize(("r", "tighter"), [(1.1, 76), (1.15, 76), (1.3, 77), (3.0, 77)])
def test_for_gaussian_layers_it_is_77_from_r_of_one_and_a_fifth_on(r, tighter):
    n = 400
    for seed in range(2):
        bounds = riedi_theorem_22(gaussian(seed, n, n) / (r * (8 * n) ** 0.5))
        assert (bounds.eq_77 < bounds.eq_76) == (tighter == 77)
