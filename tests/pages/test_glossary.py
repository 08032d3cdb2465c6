"""What the glossary says in numbers."""

import numpy as np


def steps(kappa, share, rate=None):
    """Steps until both directions of a quadratic, of curvatures 1 and 1 / kappa, are at a tenth."""
    rate = 1 + share if rate is None else rate  # half of the largest stable one
    curvatures, at, step, count = np.array([1, 1 / kappa]), np.ones(2), np.zeros(2), 0
    while np.abs(at).max() > 0.1:
        step = share * step - rate * curvatures * at
        at, count = at + step, count + 1
    return count


def tuned(kappa):
    """The same with the share and the rate that are best for this condition number."""
    root = kappa**0.5
    return steps(kappa, ((root - 1) / (root + 1)) ** 2, 4 / (1 + 1 / root) ** 2)


def test_what_momentum_gains():
    assert round(steps(2e4, 0) / steps(2e4, 0.9)) == round(steps(8e4, 0) / steps(8e4, 0.9))
    assert steps(8e4, 0.9) > 3.5 * steps(2e4, 0.9)  # still with the condition number
    assert tuned(8e4) < 2.2 * tuned(2e4)  # with its root
