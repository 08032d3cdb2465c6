"""The law of waiting: bounds for every split of the goal, the examples that reach them, the worst residual."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnlib.laws import waiting
from tests.gnlib.laws.test_waiting import steps_to, trainings
from tests.strategies import instances

ALPHAS = st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9])


def no_later_than(training, alpha):
    eigenvalues, shares, rate, goal = training
    least = waiting(eigenvalues, shares, rate, alpha * goal).lower
    return max(1, math.ceil(least / (1 - alpha) * (1 - 1e-12))) if least < math.inf else math.inf


@pytest.mark.claim("Steps to a goal", verdict="holds")
@instances
@given(trainings(), ALPHAS)
def test_the_steps_are_within_the_bounds_for_every_alpha(training, alpha):
    found, steps, late = waiting(*training), steps_to(*training), no_later_than(training, alpha)
    assert found.lower * (1 - 1e-9) <= steps
    assert steps <= late or steps_to(*training[:3], training[3] * (1 + 1e-9)) <= late
    if alpha == 0.5:
        assert late == found.upper


@pytest.mark.claim("Both bounds are reached", verdict="holds")
@pytest.mark.parametrize("eigenvalue", [0.9, 0.03, 1.7])
@pytest.mark.parametrize("goal", [0.3, 1e-4])
def test_one_eigenvalue_reaches_the_lower_bound(eigenvalue, goal):
    found = waiting([eigenvalue], [1.0], rate=1.0, goal=goal)
    star = math.log(1 / goal) / (-2 * math.log(abs(1 - eigenvalue)))
    assert found.lower == pytest.approx(star, rel=1e-12)
    assert steps_to([eigenvalue], [1.0], 1.0, goal) == math.ceil(star)


@pytest.mark.claim("Both bounds are reached", verdict="holds")
@pytest.mark.parametrize("alpha", [0.25, 0.5, 0.75])
@pytest.mark.parametrize(("goal", "nearly"), [(1e-3, 0.9), (1e-8, 0.99)])
def test_shares_that_grow_like_an_exponential_reach_the_upper_bound(alpha, goal, nearly):
    """M(s) = alpha e exp(2 T s): all eigenvalues are waited for alike, the share alpha of the goal for ever."""
    kept, steps = alpha * goal, 2_000
    speeds = np.linspace(0, math.log(1 / kept) / (2 * steps), 3001)[1:]
    shares = np.concatenate([[kept * (1 - 1e-9)], np.diff(kept * np.exp(2 * steps * speeds), prepend=kept)])
    training = np.concatenate([[1e-12], -np.expm1(-speeds)]), shares, 1.0, goal
    late = no_later_than(training, alpha)
    assert late == pytest.approx(steps / (1 - alpha), rel=2e-3)
    assert nearly * late < steps_to(*training) <= late
    assert min(no_later_than(training, a) for a in (0.1, 0.2, 0.3, 0.6, 0.8, 0.9)) > nearly * late


@pytest.mark.claim("The worst residual", verdict="holds")
@instances
@given(st.lists(st.floats(-5, 0), min_size=2, max_size=6), st.floats(1e-6, 0.9), st.integers(0, 2**31))
def test_the_worst_residual_waits_for_the_smallest_eigenvalue(exponents, goal, seed):
    eigenvalues = 10.0 ** np.array(exponents)
    rate, kappa = 1 / eigenvalues.max(), eigenvalues.max() / eigenvalues.min()
    worst = waiting(eigenvalues, np.where(eigenvalues == eigenvalues.min(), 1.0, 0.0), rate, goal)
    found = waiting(eigenvalues, np.random.default_rng(seed).random(len(exponents)), rate, goal)
    assert found.lower <= worst.lower * (1 + 1e-9) and found.effective_condition_number <= kappa * (1 + 1e-12)
    if kappa > 1 + 1e-9:
        ends = [(kappa - 1) / 2 * math.log(1 / goal), kappa / 2 * math.log(1 / goal)]
        assert ends[0] * (1 - 1e-9) <= worst.lower <= ends[1] * (1 + 1e-9)
        assert worst.eigenvalue == eigenvalues.min()
        mixed = waiting(eigenvalues, np.where(eigenvalues == eigenvalues.min(), 1.0, 1e-9), rate, goal)
        assert mixed.effective_condition_number == pytest.approx(kappa)


@pytest.mark.claim("A goal that is never reached", verdict="holds")
@instances
@given(trainings(), st.floats(0.01, 0.98))
def test_a_goal_is_reached_just_if_less_than_it_stays(training, kept):
    eigenvalues, shares, rate, goal = training
    moving = np.append(np.abs(eigenvalues) + 1e-3 / rate, 0.0)
    moving = moving / max(moving.max() * rate, 1.0)
    parts = np.append(np.array(shares) / np.sum(shares) * (1 - kept), kept)
    found = waiting(moving, parts, rate, goal)
    if kept > goal:
        assert (found.lower, found.upper, found.eigenvalue) == (math.inf, math.inf, 0)
        assert steps_to(moving, parts, rate, goal) == math.inf
    elif kept < goal * (1 - 1e-9):
        assert found.lower < math.inf and steps_to(moving, parts, rate, goal) < math.inf
        assert (found.upper < math.inf) == (kept <= goal / 2)
