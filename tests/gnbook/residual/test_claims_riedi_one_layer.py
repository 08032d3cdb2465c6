"""Riedi 2022, Lemmas 17 and 21 and Theorem 22: one layer with a skip."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.gnbook.residual.helpers import block_eigenvalues, layers, singular, skips, slack, with_skip
from tests.strategies import a_hundred, exact, gaussian, instances


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


@pytest.mark.claim("Riedi Lemma 21 against Lemma 17", verdict="fails")
@a_hundred
@given(st.floats(-5, 5), skips)
def test_no_single_number_makes_it_weaker(w, rho):
    lower = printed_lemma_21(exact([[w]]), rho)[0]
    assert lower >= (rho - abs(w)) ** 2 - slack(exact([[w]]), rho)


def four_bounds(weight):
    """Return the bounds of Theorem 22 on the condition number of W + I: two of (76), two of (77), or None."""
    s, tau = singular(weight), block_eigenvalues(weight)
    top = (1 + tau[-1] + s[0] ** 2).clamp_min(0).sqrt()
    first = (top / (1 - s[0]), (1 + s[0]) / (1 - s[0])) if s[0] < 1 else None
    root = (1 + tau[0]).clamp_min(0).sqrt()
    second = (top / (1 + tau[0] + s[-1] ** 2).sqrt(), (1 + s[0]) / root) if tau[0] > -1 else None
    return first, second


@pytest.mark.claim("Riedi Theorem 22", verdict="holds")
@pytest.mark.claim("Riedi Theorem 22, which bound is tightest", verdict="holds if")
@instances
@given(layers(square=True), st.one_of(st.none(), st.floats(0.01, 0.999)))
def test_each_bound_of_riedi_theorem_22_and_the_exact_condition_for_77_to_be_tighter_than_76(weight, size):
    largest = singular(weight)[0]
    if size is not None and largest > 0:
        weight = weight * (size / largest)
    first, second = four_bounds(weight)
    assume(first or second)
    s = singular(with_skip(weight, 1.0))
    for pair in filter(None, (first, second)):
        assert pair[0] <= pair[1] * (1 + 1e-9)
        assert s[0] <= pair[0] * s[-1] * (1 + 1e-9) + 1e-9 * s[0]
    if first and second:
        s, tau = singular(weight), block_eigenvalues(weight)
        margin = (1 + tau[0] + s[-1] ** 2 - (1 - s[0]) ** 2).item()
        assert abs(margin) < 1e-9 or (second[0] < first[0]) == (margin > 0)


@pytest.mark.claim("Riedi Theorem 22, which bound is tightest", verdict="holds if")
@pytest.mark.parametrize(("r", "tighter"), [(1.1, 76), (1.15, 76), (1.3, 77), (3.0, 77)])
def test_for_gaussian_layers_it_is_77_from_r_of_one_and_a_fifth_on(r, tighter):
    n = 400
    for seed in range(2):
        first, second = four_bounds(gaussian(seed, n, n) / (r * (8 * n) ** 0.5))
        assert (second[0] < first[0]) == (tighter == 77)
