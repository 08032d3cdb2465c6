"""The numbers and findings of "A transformer at its start"."""

from itertools import product

import numpy as np
import pytest

from tests.pages.pages import kappas, parameters, rows

BLOCKS, NORMS = (1, 2, 8), ("before", "after", "none")


def draws(key, data, norm, blocks):
    factor = "depth" if norm == "before" else "norm"
    return kappas("attention", key, factor=factor, data=data, norm=norm, branch="plain", depth=blocks)


def kept(data, norm, blocks):
    return [float(np.median(draws(key, data, norm, blocks))) for key in ("kappa", "lower")]


def values():
    return {"small": 0.02}


def test_before_is_lowest():
    for data in ("images", "text"):
        for blocks in BLOCKS:
            before, after, none = (kept(data, norm, blocks) for norm in NORMS)
            assert all(one < min(others) for one, *others in zip(before, after, none, strict=True))


def test_before_wins_in_each_draw():
    ratios = []
    for where in product(("images", "text"), BLOCKS):
        seeds, waits = ([draws(key, where[0], norm, where[1]) for norm in NORMS] for key in ("seed", "lower"))
        assert seeds[0] == seeds[1] == seeds[2]
        ratios += [*np.min(waits[1:], axis=0) / waits[0]]
    assert min(ratios) == pytest.approx(1.2, abs=0.05)


def test_kappa_does_not_follow_the_weights():
    for data in ("images", "text"):
        base = np.median(kappas("attention", factor="base", data=data))
        straight = np.median(kappas("attention", factor="weights", data=data, weights="orthogonal"))
        uneven = np.median(kappas("attention", factor="weights", data=data, weights="uneven"))
        assert 1 / 2 < straight / base < 2 and 1 / 2 < uneven / base < 2


def test_frozen_queries_and_keys_take_as_long():
    """Of each size the wait, its upper bound and the steps, of the whole network and with queries and keys frozen."""
    sizes, found = parameters("attention")["sizes"], rows("attention", "size = ")
    assert [row[0] for row in found] == 2 * sizes
    for whole, frozen in zip(found[: len(sizes)], found[len(sizes) :], strict=True):
        assert np.divide(frozen[1:], whole[1:]) == pytest.approx(1, abs=0.15)
    assert found[-2][-1] < found[-3][-1] / 4  # frozen ones of twice the size are sooner as well
