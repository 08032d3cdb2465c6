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
@settings(max_examples=500, deadline=None, derandomize=True)
def test_the_steps_lie_between_the_bounds(training):
    found, steps = waiting(*training), steps_to(*training)
    assert found.lower * (1 - 1e-9) <= steps
    assert steps <= found.upper or steps_to(*training[:3], training[3] * (1 + 1e-9)) <= found.upper
    assert found.lower <= found.upper
    assert found.eigenvalue in training[0] and found.largest == training[0].max()


@given(trainings())
@settings(max_examples=200, deadline=None, derandomize=True)
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


@pytest.mark.parametrize(("goal", "nearly"), [(1e-2, 0.9), (1e-4, 0.99), (1e-8, 0.997)])
def test_shares_that_wait_everywhere_alike_reach_the_upper_bound(goal, nearly):
    """F(s) = goal / 2 exp(2 T s) for T = 10,000: all eigenvalues are waited for, half of the goal stays."""
    half, steps = goal / 2, 10_000
    speeds = np.linspace(0, math.log(1 / half) / (2 * steps), 4001)[1:]
    below = half * np.exp(2 * steps * speeds)
    eigenvalues = np.concatenate([[1e-12], -np.expm1(-speeds)])
    shares = np.concatenate([[half * (1 - 1e-9)], np.diff(below, prepend=half)])
    found = waiting(eigenvalues, shares, rate=1.0, goal=goal)
    assert found.upper == pytest.approx(2 * steps, rel=1e-3)
    assert nearly * found.upper < steps_to(eigenvalues, shares, 1.0, goal) <= found.upper


def test_a_residual_on_eigenvalues_zero_has_no_bound():
    shares = [0.5, 0.2, 0.3]
    never = waiting([1.0, 0.5, 0.0], shares, rate=1.0, goal=0.25)
    assert (never.lower, never.upper, never.eigenvalue) == (math.inf, math.inf, 0)
    assert never.effective_condition_number == math.inf
    assert str(never) == "never: more of the loss than the goal is on the eigenvalue 0, which stays"
    late = waiting([1.0, 0.5, 0.0], shares, rate=1.0, goal=0.4)  # reached, but half of it would not be
    assert late.lower < 2 and late.upper == math.inf
    assert str(late).startswith("at least 0.")


def test_an_eigenvalue_at_the_largest_stable_rate_stays():
    assert waiting([2.0, 1.0], [0.5, 0.5], rate=1.0, goal=0.1).lower == math.inf
    assert waiting([2.0, 1.0], [0.5, 0.5], rate=1.0, goal=0.1).eigenvalue == 2


def test_a_step_that_does_all_is_one_step():
    found = waiting([4.0, 4.0], [1.0, 2.0], rate=0.25, goal=1e-9)
    assert (found.lower, found.upper, found.eigenvalue) == (0, 1, 4)
    most = waiting([4.0, 1.0], [0.97, 0.03], rate=0.25, goal=0.1)  # what is left is less than half of the goal
    assert (most.lower, most.upper, most.eigenvalue) == (0, 1, 4)


def test_numbers_and_what_a_line_says():
    """Shares 0.4, 0.4, 0.2 at factors 1/2, 1/4, 0: log(4) / 2 log 2 = 1 for the first, log(8) / 2 log 4 for both."""
    found = waiting([0.5, 0.75, 1.0], [2.0, 2.0, 1.0], rate=1.0, goal=0.1)
    assert found.lower == pytest.approx(1) and found.upper == 3
    assert (
        str(found)
        == "between 1.0 and 3 steps; the training waits for the eigenvalue 0.5, 2 times smaller than the largest"
    )


def test_small_eigenvalues_keep_their_digits():
    assert waiting([1e-18], [1.0], rate=1.0, goal=0.5).lower == pytest.approx(math.log(2) / 2e-18, rel=1e-12)
    near = 2 - 2.0**-50
    assert waiting([near], [1.0], rate=1.0, goal=0.5).lower == pytest.approx(math.log(2) * 2.0**49, rel=1e-9)


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
        (dict(goal=1.0), "goal is 1.0"),
        (dict(goal=0.0), "goal is 0.0"),
        (dict(goal=math.nan), "goal is nan"),
        (dict(rate=2.01), r"rate is 2.01; .* at most 2 \(2 over the largest eigenvalue\)"),
        (dict(rate=0.0), "rate is 0.0"),
        (dict(rate=math.nan), "rate is nan"),
        (dict(rate=math.inf, eigenvalues=[0.0, 0.0]), "rate is inf"),
    ],
    ids=str,
)
def test_what_has_no_answer_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        waiting(**(dict(eigenvalues=[1.0, 0.5], shares=[0.5, 0.5], rate=1.0, goal=0.1) | change))
