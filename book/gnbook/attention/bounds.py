"""How far a softmax of small scores is from uniform."""

import math


def distance_bound(spread: float) -> float:
    """Return the most by which a softmax of scores of this spread is away from uniform, in the sum of moduli."""
    return 2 * math.tanh(spread / 4)
