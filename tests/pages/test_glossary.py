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
