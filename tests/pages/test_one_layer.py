"""The numbers in the text of "One layer in a network", and its findings."""

from functools import cache

import numpy as np
import pytest
from gnbook import results

from tests.pages.pages import parameters, rows

PAGE = "one-layer"


@cache
def layers():
    """The layers of the page, drawn as its cells draw them."""
    given = parameters(PAGE)
    rng = np.random.default_rng(given["seed"])
    return given["deviation"] * rng.standard_normal((given["count"], given["m"], given["m"]))


def by_share():
    """By share of Kaiming's weights: norm, ratio with a skip, bound if there is one."""
    return {row[0]: row[1:] for row in rows(PAGE, r"(?=[\d.]+ of Kaiming's)")}


def steps():
    """By start of the branches: steps by SGD and by Adam."""
    starts = "zero", "a quarter", "one", "zero, normalised", "one, normalised"
    found = {start: rows(PAGE, rf"{start} +(?=\d)")[0] for start in starts}
    return found | {"no skip": [np.inf, *rows(PAGE, "no skip +never")[0]]}


def values():
    given = parameters(PAGE)
    (most,) = {row["most_steps"] for row in results.kept("adding-the-identity-further")}
    printed = {"worse": rows(PAGE, "b = 0.6:")[0][1], "few": rows(PAGE, "steps at an eighth")[0][1]}
    return printed | {"most": most, "typical": given["deviation"] * given["m"] ** 0.5, "kaiming": by_share()[1][0]}


def test_the_steps_fall_with_kappa():
    """By gradient descent on the weights before the layer, with white inputs and labels that want all directions."""
    shown = dict(rows(PAGE, "steps at b ="))
    for b, steps in shown.items():
        layer = layers()[1] + b * np.eye(layers().shape[1])
        rate, error, taken = 1 / np.linalg.norm(layer, 2) ** 2, np.eye(len(layer)), 0
        while np.sum(error**2) > 1e-3 * len(error):
            error, taken = error - rate * layer @ layer.T @ error, taken + 1
        assert taken <= steps <= 1.15 * taken + 1
    assert [*shown] == [0, 1, 4] and shown[0] > shown[1] > shown[4] and shown[0] > 20 * shown[4]
    kappas = [row[1] for row in rows(PAGE, "b =")[5:]]
    assert kappas == sorted(kappas, reverse=True)


def test_at_kaimings_size_a_skip_gains_nothing():
    without, found = rows(PAGE, "without a skip: ratio")[0][0], by_share()
    assert without / found[1][1] < 1.5 and without / found[0.5][1] > 20
    assert found[0.125][1] < 2 and without / found[0.125][1] > 200
    for share, (s, ratio, *bound) in found.items():
        assert s == pytest.approx(8**0.5 * share, rel=0.03)
        assert len(bound) == (s < 1) and all(ratio < each for each in bound)


def test_strong_branches_take_twice_the_steps():
    found, trained = steps(), results.kept("adding-the-identity-further")
    assert all(1.9 < strong / zero for strong, zero in zip(found["one"], found["zero"], strict=True))
    assert all(found["a quarter"][i] < 1.3 * found["zero"][i] for i in (0, 1))
    normal = [found[f"{start}, normalised"] for start in ("zero", "one")]
    assert all(0.9 < a / b < 1.1 for a, b in zip(*normal, strict=True))
    for name, taken in found.items():
        for way, shown in zip(("SGD", "Adam"), taken, strict=True):
            of = [row for row in trained if (row["network"], row["optimizer"]) == (name, way)]
            best = [min(row["tenth"] or np.inf for row in of if row["seed"] == each) for each in range(3)]
            assert np.median(best) == shown
