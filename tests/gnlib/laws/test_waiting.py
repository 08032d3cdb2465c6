"""The law of waiting against the steps that gradient descent takes, and the examples that nearly reach its bounds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnlib.laws import waiting


def steps_to(eigenvalues, shares, rate, goal):
    """Steps until the loss is at most the goal, by bisection of what remains after T steps."""
    factors = np.abs(1 - (rate * np.asarray(eigenvalues)).astype(np.longdouble))
    shares = np.asarray(shares) / np.sum(shares)
    loss = lambda t: np.sum(shares * factors ** (2.0 * t))  # noqa: E731
    low, high = 0, 1
    while loss(high) > goal:
        low, high = high, 2 * high
        if high > 2**60:
            return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if loss(middle) > goal else (low, middle)
    return high


@st.composite
def trainings(draw):
    size = draw(st.integers(1, 12))
    exponents = st.floats(-4, 2)
    eigenvalues = 10.0 ** np.array(draw(st.lists(exponents, min_size=size, max_size=size)))
    for special in draw(st.lists(st.integers(0, size - 1), max_size=3)):  # ties, and zeros
        eigenvalues[special] = draw(st.sampled_from([0.0, eigenvalues[0]]))
    shares = 10.0 ** np.array(draw(st.lists(st.floats(-9, 0), min_size=size, max_size=size)))
    largest = eigenvalues.max() or 1.0
    rate = draw(st.one_of(st.floats(0.01, 2), st.sampled_from([1.0, 2.0, 1.5]))) / largest
    rate = min(rate, 2 / largest)
    return eigenvalues, shares, rate if rate * largest <= 2 else rate * (1 - 1e-15), draw(st.floats(1e-6, 0.999))


@given(trainings())
@settings(max_examples=200)
def test_the_lower_bound_is_the_supremum(training):
    """Over all speeds s, not those of the eigenvalues alone; at the speed of the eigenvalue it is attained."""
    eigenvalues, shares, rate, goal = training
    with np.errstate(divide="ignore"):
        speeds = -np.log(np.abs(1 - rate * eigenvalues))
    shares = shares / shares.sum()
    found = waiting(*training)
    if 1e-12 < found.lower < math.inf and (speeds > 1e-12).all():
        tried = np.concatenate([speeds * (1 + 1e-9), np.geomspace(1e-8, 40, 200)])
        at = [math.log(max(shares[speeds <= s].sum(), 1e-300) / goal) / (2 * s) for s in tried[np.isfinite(tried)]]
        assert max(at) == pytest.approx(found.lower, rel=1e-3)
        assert max(at) <= found.lower * (1 + 1e-6)
        own = speeds[np.flatnonzero(eigenvalues == found.eigenvalue)[0]]
        there = math.log(shares[speeds <= own * (1 + 1e-9)].sum() / goal) / (2 * own)
        assert there == pytest.approx(found.lower, rel=1e-3)


TABLE = [  # of eigenvalues, shares and a goal: lower, upper, eigenvalue, the largest
    ([0.5, 0.75, 1.0], [2.0, 2.0, 1.0], 0.1, (1, 3, 0.5, 1.0)),  # log(4) / 2 log 2 for the first, log(8) / 2 log 4
    ([1.0, 0.5, 0.0], [0.5, 0.2, 0.3], 0.25, (math.inf, math.inf, 0, 1.0)),
    ([1.0, 0.5, 0.0], [0.5, 0.2, 0.3], 0.4, (0.160964, math.inf, 0.5, 1.0)),  # reached, but half of it would not be
    ([2.0, 1.0], [0.5, 0.5], 0.1, (math.inf, math.inf, 2.0, 2.0)),  # at the largest stable rate
    ([1.0, 1.0], [1.0, 2.0], 1e-9, (0, 1, 1.0, 1.0)),  # a step does all
    ([1.0, 0.25], [0.97, 0.03], 0.1, (0, 1, 1.0, 1.0)),  # what is left is less than half of the goal
    ([1e-18], [1.0], 0.5, (math.log(2) / 2e-18, math.ceil(2 * math.log(4) / 2e-18), 1e-18, 1e-18)),  # to all digits
    ([2 - 2.0**-50], [1.0], 0.5, (math.log(2) * 2.0**49, 2.0**51 * math.log(2), 2.0, 2.0)),
]


@pytest.mark.parametrize(("eigenvalues", "shares", "goal", "expected"), TABLE)
def test_bounds_that_are_known(eigenvalues, shares, goal, expected):
    found = waiting(eigenvalues, shares, rate=1.0, goal=goal)
    numbers = found.lower, found.upper, found.eigenvalue, found.largest
    assert numbers == pytest.approx(expected, rel=1e-6 if goal == 0.4 else 1e-9)


def test_what_a_line_says():
    said = [str(waiting(*row[:2], rate=1.0, goal=row[2])) for row in TABLE[:3]]
    waits = "the training waits for the eigenvalue 0.5, 2 times smaller than the largest"
    assert said[0] == f"between 1.0 and 3 steps; {waits}" and said[2] == f"at least 0.2 steps; {waits}"
    assert said[1] == "never: more of the loss than the goal is on the eigenvalue 0, which stays"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(shares=[0.0, 0.0]), "there is no residual"),
        (dict(shares=[1.0]), "2 eigenvalues have 1 shares"),
        (dict(shares=[1.0, -1.0]), "shares has shape"),
        (dict(eigenvalues=[1.0, math.nan]), "eigenvalues has shape"),
        (dict(eigenvalues=[], shares=[]), "eigenvalues has shape"),
        (dict(eigenvalues=[[1.0, 1.0]]), "eigenvalues has shape"),
        *((dict(goal=goal), f"goal is {goal}") for goal in (1.0, 0.0, math.nan)),
        (dict(rate=2.01), r"rate is 2.01; .* at most 2 \(2 over the largest eigenvalue\)"),
        *((dict(rate=rate), f"rate is {rate}") for rate in (0.0, math.nan)),
        (dict(rate=math.inf, eigenvalues=[0.0, 0.0]), "rate is inf"),
    ],
    ids=str,
)
def test_what_has_no_answer_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        waiting(**(dict(eigenvalues=[1.0, 0.5], shares=[0.5, 0.5], rate=1.0, goal=0.1) | change))
