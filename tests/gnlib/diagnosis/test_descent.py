"""The recurrences of optimisers, against closed forms in many digits and against their own matrices."""

from itertools import islice

import mpmath
import numpy as np
import pytest
import torch

from gnlib.diagnosis.descent import Rule, descend

RULES = [
    Rule(0.3),
    Rule(0.3, 0.9),
    Rule(0.3, 0.9, nesterov=True),
    Rule(0.3, 0.9, averaged=True),
    Rule(0.3, 0.5, averaged=True, taken=7),
    Rule(0.3, 0.9, dampening=0.6),
]
VALUES = torch.tensor([0.0, 1e-6, 0.1, 1.0, 2.5, 6.0], dtype=torch.float64)


def change(sums):
    """What the sums of one part of the parameters make of the outputs: nothing decays, nor was there momentum."""
    return VALUES * sums[0, :-2]


def course(rule, steps):
    """Residuals of one mode for each of the values, all of which start at one."""
    ones = torch.ones_like(VALUES)
    return torch.stack([e for _, e in islice(descend(ones, change, lambda e: e, [rule]), steps + 1)])


def test_descent_is_a_power_of_what_a_step_leaves():
    steps = 500
    exact = [[float((1 - mpmath.mpf(0.3) * mpmath.mpf(v)) ** t) for v in VALUES.tolist()] for t in range(steps + 1)]
    np.testing.assert_allclose(course(Rule(0.3), steps).numpy(), exact, rtol=1e-9, atol=1e-13)


def test_momentum_goes_by_the_roots_of_its_polynomial():
    steps, b = 300, mpmath.mpf(0.9)
    found = course(Rule(0.3, 0.9), steps)
    with mpmath.workdps(50):
        for index, value in enumerate(VALUES.tolist()):
            trace = 1 + b - mpmath.mpf(0.3) * mpmath.mpf(value)
            z, w = ((trace + sign * mpmath.sqrt(trace**2 - 4 * b)) / 2 for sign in (1, -1))
            second = 1 - mpmath.mpf(0.3) * mpmath.mpf(value)
            p = (second - w) / (z - w)
            exact = np.array([float(mpmath.re(p * z**t + (1 - p) * w**t)) for t in range(steps + 1)])
            np.testing.assert_allclose(found[:, index].numpy(), exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_limit_is_where_a_quadratic_ceases_to_be_stable(rule):
    """The spectral radius of one step, taken from what the recurrence itself does to its state."""

    def radius(rate):
        b, w = rule.momentum, 1 - (rule.momentum if rule.averaged else rule.dampening)
        gradient, velocity = np.array([1.0, 0.0]), np.array([w, b])  # of a state (residual, velocity)
        step = gradient + b * velocity if rule.nesterov else velocity
        return max(abs(np.linalg.eigvals(np.stack([np.array([1.0, 0.0]) - rate * step, velocity]))))

    assert radius(0.999 * rule.limit) < 1 < radius(1.001 * rule.limit)


def test_momentum_from_before_goes_on():
    """Two halves of a course, the second of which inherits the velocity of the first, are the whole."""
    rule, steps = Rule(0.2, 0.8), 20
    whole = course(rule, 2 * steps)
    velocity, e = torch.zeros_like(VALUES), torch.ones_like(VALUES)
    for _ in range(steps):
        velocity = 0.8 * velocity + e
        e = e - 0.2 * VALUES * velocity
    moved = VALUES * velocity

    def both(sums):
        return change(sums) + moved * sums[0, -1]

    rest = [e for _, e in islice(descend(e, both, lambda e: e, [rule]), steps + 1)]
    torch.testing.assert_close(torch.stack(rest), whole[steps:], rtol=1e-10, atol=1e-12)
