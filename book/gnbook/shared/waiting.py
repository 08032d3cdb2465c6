"""Steps of gradient descent on a quadratic model, from its eigenvalues and the shares of the loss on them."""

import math

import numpy as np
from jaxtyping import Float

MOST_STEPS = 2**60  # more than an eigenvalue of rounding takes; who is not at the goal by then never gets there


def steps_to(eigenvalues: Float[np.ndarray, " q"], shares: Float[np.ndarray, " q"], rate: float, goal: float) -> float:
    """Return the steps of the linear model to a share of the loss above its minimum, inf if it never gets there.

    The rate is no larger than one over the largest eigenvalue: the loss falls at each step.
    """
    with np.errstate(divide="ignore"):
        pace = -2 * np.log1p(-np.minimum(rate * eigenvalues, 1))  # of the loss, infinite if one step does all

    def left(steps: int) -> float:
        return float(shares @ np.exp(-pace * steps))

    high = 1
    while left(high) > goal:
        high *= 2
        if high > MOST_STEPS:
            return math.inf
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if left(middle) > goal else (low, middle)
    return high
