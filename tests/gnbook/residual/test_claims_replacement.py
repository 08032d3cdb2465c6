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
from tests.gnbook.residual.helpers import layers, shifted, skips
from tests.oracles import singular, with_skip
from tests.strategies import exact, gaussian, problems, true_condition, up_to_rounding


def taus(weight):
    """Return the extreme eigenvalues of W + W^T for the leading square block."""
    size = min(weight.shape)
    values = torch.linalg.eigvalsh(weight[:size, :size] + weight[:size, :size].mT)
    return values[0].item(), values[-1].item()


def slack(weight, skip):
    """Return a bound on the rounding of squared singular values."""
    return 1e-12 * (torch.linalg.matrix_norm(weight) + abs(skip)) ** 2 + 1e-280


@pytest.mark.claim("Skip across one layer", verdict="holds")
@pytest.mark.claim("Riedi Lemma 17", "Riedi Lemma 21", verdict="holds if")
@pytest.mark.claim("Riedi Lemma 21 against Lemma 17", verdict="fails")
@given(layers(), skips, st.sampled_from([1, -1]))
def test_every_singular_value_moves_between_the_bounds_and_those_of_riedis_lemmas(weight, size, sign):
    skip = sign * size
    lower, upper = skip_bounds(weight, skip)
    moved, before = singular(with_skip(weight, skip)) ** 2, singular(weight) ** 2
    tolerance, s = slack(weight, skip), before.sqrt()
    assert lower**2 <= moved[-1] + tolerance and moved[0] <= upper**2 + tolerance
    least, most = sorted(skip * tau for tau in taus(weight))  # Lemma 21 is about skips that are not negative
    assert (before + least + skip**2 <= moved + tolerance).all()
    assert (moved <= before + most + skip**2 + tolerance).all()
    assert ((moved.sqrt() - size).abs() <= s[0] + 1e-12 * (s[0] + size)).all()  # Lemma 17, with |rho| for any skip
    assert before[0] + size * taus(weight)[1] + size**2 <= (size + s[0]) ** 2 + tolerance
    lower = skip_bounds(weight, size).lower  # below neither lemma
    assert lower**2 >= before[-1] + size * taus(weight)[0] + size**2 - tolerance
    assert lower >= size - s[0] - tolerance.sqrt() and lower >= s[-1] - size - tolerance.sqrt()


@pytest.mark.claim("Skip across one layer", verdict="holds")
@given(st.floats(0, 5), st.floats(-5, 5), st.floats(-1, 1), skips)
def test_no_better_bounds_follow_from_the_same_numbers(s, t, cosine, skip):
    sine = (1 - cosine**2) ** 0.5
    weight = s * exact([[cosine, -sine], [sine, cosine]])
    assert skip_bounds(weight, skip).upper == pytest.approx(singular(with_skip(weight, skip))[0].item(), rel=1e-9)
    assume(t <= s)  # since t <= x^T W x <= |W x| for all unit vectors x
    sine = max(s**2 - t**2, 0) ** 0.5
    weight = exact([[t, -sine], [sine, t]])
    if t < -s:  # an eigenvalue between t and -s, as close to -skip as can be
        weight = torch.diag(exact([t, -min(max(s, skip), -t), s]))
    assert singular(weight)[-1].item() == pytest.approx(s, abs=1e-9)
    assert taus(weight)[0] == pytest.approx(2 * t, abs=1e-9)
    smallest = singular(with_skip(weight, skip))[-1].item()
    assert skip_bounds(weight, skip).lower == pytest.approx(smallest, abs=1e-5 * (1 + skip))


@pytest.mark.claim("Residual networks from symmetric parts", verdict="holds")
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


@pytest.mark.claim("Kaiming layer with a skip", "Evenness of a Kaiming layer with a skip", verdict="holds")
@pytest.mark.parametrize("skip", [0.0, 0.5, 1.0, 1.25, 2.0, 4.0])
def test_the_extreme_singular_values_and_the_relative_variance_approach_their_limits_as_the_width_grows(skip):
    limits, evenness, errors = exact(kaiming_skip_limits(skip)), 1 - (skip**2 / (1 + skip**2)) ** 2, {}
    for m, count in ((30, 4), (400, 4), (20, 8), (200, 8)):
        s = [singular(with_skip(gaussian(seed, m, m) / m**0.5, skip)) for seed in range(count)]
        squares = torch.stack(s) ** 2
        uneven = (squares.var(1, correction=0) / squares.mean(1) ** 2 - evenness).abs().max()
        errors[m] = torch.stack([(some[[-1, 0]] - limits).abs() for some in s]).mean(0), uneven
    assert (errors[400][0] < 0.5 * errors[30][0]).all() and (errors[400][0] < 0.05).all()
    assert errors[200][1] < 0.25 * errors[20][1]


@pytest.mark.claim("Riedi Lemma 17", "Riedi Lemma 21", verdict="holds if")
@pytest.mark.claim("Riedi Lemma 21 against Lemma 17", verdict="fails")
def test_a_negative_skip_breaks_riedi_lemmas_17_and_21_and_the_lower_bound_of_21_can_be_the_weaker_one():
    assert singular(with_skip(exact([[0]]), -1.0)).item() == 1  # Lemma 17: at most -1 + 0
    weight = exact([[1, 0], [0, -1]])
    assert taus(weight) == (-2, 2)  # Lemma 21: between 1 + 2 + 1 and 1 - 2 + 1
    assert singular(with_skip(weight, -1.0)).tolist() == [2, 0]
    weight = exact([[0, 0], [0, -0.5]])
    assert singular(with_skip(weight, 1.0)).tolist() == [1, 0.5]
    assert taus(weight)[0] == -1 and singular(weight).tolist() == [0.5, 0]  # Lemma 21: from 0 on; Lemma 17: from 1/2


@pytest.mark.claim("Riedi Theorem 22", verdict="holds")
@pytest.mark.claim("Riedi Theorem 22, which bound is tightest", verdict="holds if")
@given(layers(square=True), st.one_of(st.none(), st.floats(0.01, 0.999)))
def test_each_bound_of_riedi_theorem_22_and_the_exact_condition_for_77_to_be_tighter_than_76(weight, size):
    largest = singular(weight)[0]
    if size is not None and largest > 0:
        weight = weight * (size / largest)
    bounds, moved = riedi_theorem_22(weight), singular(with_skip(weight, 1.0))
    s, (low, high) = singular(weight).tolist(), taus(weight)
    tops = max(1 + high + s[0] ** 2, 0) ** 0.5, 1 + s[0]
    bottoms = 1 - s[0], 1 - s[0], *(max(1 + low + least, 0) ** 0.5 if low > -1 else 0 for least in (s[-1] ** 2, 0))
    for bound, top, bottom in zip(bounds, 2 * tops, bottoms, strict=True):
        assert bound == pytest.approx(top / bottom if bottom > 0 else math.inf, rel=1e-9)
    assume(min(bounds) < math.inf)
    for one, simple in (bounds[:2], bounds[2:]):
        if one < math.inf:
            assert one <= simple * (1 + 1e-9)
            assert moved[0] <= one * moved[-1] * (1 + 1e-9) + 1e-9 * moved[0]
    if max(bounds) < math.inf:
        margin = 1 + low + s[-1] ** 2 - (1 - s[0]) ** 2
        assert abs(margin) < 1e-9 or (bounds[2] < bounds[0]) == (margin > 0)


@pytest.mark.claim("Riedi Theorem 22, which bound is tightest", verdict="holds if")
@pytest.mark.parametrize(("r", "tighter"), [(1.1, 76), (1.15, 76), (1.3, 77), (3.0, 77)])
def test_for_gaussian_layers_it_is_77_from_r_of_one_and_a_fifth_on(r, tighter):
    n = 400
    for seed in range(2):
        bounds = riedi_theorem_22(gaussian(seed, n, n) / (r * (8 * n) ** 0.5))
        assert (bounds[2] < bounds[0]) == (tighter == 77)
