"""The outline of a histogram of a loss over eigenvalues, for figures that draw lines only."""

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " q"]

BINS_PER_DECADE = 8
FLOOR = 1e-9  # in place of nothing, on a logarithmic axis


def outline(eigenvalues: Vector, parts: Vector) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Return the points of a line along the tops and sides of bars, each of eigenvalues of nearly the same size.

    Parameters
    ----------
    eigenvalues
        positive
    parts
        of the loss on each; the bars are as high as their sums

    Examples
    --------
    >>> x, y = outline(np.array([1.0, 1.1, 10.0]), np.array([0.3, 0.2, 0.5]))
    >>> y[[1, -2]]  # the tops of the first bar, and of the last
    array([0.5, 0.5])
    """
    low, high = np.log10(eigenvalues.min()), np.log10(eigenvalues.max())
    count = round(BINS_PER_DECADE * (high - low))
    width = (high - low) / count if count else 1 / BINS_PER_DECADE
    edges = low + width * np.arange(-0.5, count + 1)
    tops, _ = np.histogram(np.log10(eigenvalues), edges, weights=parts)
    return 10 ** np.repeat(edges, 2), np.maximum(np.concatenate([[0], np.repeat(tops, 2), [0]]), FLOOR)
