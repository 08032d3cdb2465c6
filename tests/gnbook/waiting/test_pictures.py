"""The outline of a histogram."""

import numpy as np
import pytest
from gnbook.waiting.pictures import BINS_PER_DECADE, FLOOR, outline


def test_the_bars_hold_all_parts_and_each_is_where_its_eigenvalues_are():
    rng = np.random.default_rng(0)
    eigenvalues, parts = 10 ** rng.uniform(-3, 2, 200), rng.random(200)
    x, y = outline(eigenvalues, parts)
    left, right, tops = x[1:-1:2], x[2::2], y[1:-1:2]
    assert (y[2::2] == tops).all() and (left < right).all() and (right[:-1] == left[1:]).all()
    inside = [parts[(eigenvalues >= a) & (eigenvalues < b)].sum() for a, b in zip(left, right, strict=True)]
    assert tops == pytest.approx(np.maximum(inside, FLOOR)) and tops.sum() == pytest.approx(parts.sum())
    assert np.log10(right / left) == pytest.approx(1 / BINS_PER_DECADE, rel=0.05)
    assert (y[0], y[-1]) == (FLOOR, FLOOR)


def test_equal_eigenvalues_make_one_bar():
    x, y = outline(np.full(3, 2.0), np.ones(3))
    assert len(x) == len(y) == 4 and x[1] < 2 < x[2] and list(y[1:3]) == [3, 3]
