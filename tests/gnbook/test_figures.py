"""Figures of several chapters."""

import numpy as np
from gnbook import figures


def test_a_band_of_rows_is_the_band_of_their_runs():
    values = np.random.default_rng(0).random((5, 3))
    rows = [{"x": x, "y": values[i, j]} for j, x in enumerate((3, 1, 2)) for i in range(5)]
    _, (axis, other) = figures.panels(2)
    figures.band_of_rows(axis, rows, "x", "y", "label", "black")
    figures.band(other, [1, 2, 3], values[:, [1, 2, 0]], "label", "black")
    for ours, theirs in zip(axis.lines, other.lines, strict=True):
        np.testing.assert_allclose(ours.get_xydata(), theirs.get_xydata())
    (ours,), (theirs,) = (a.collections for a in (axis, other))
    np.testing.assert_allclose(ours.get_paths()[0].vertices, theirs.get_paths()[0].vertices)
