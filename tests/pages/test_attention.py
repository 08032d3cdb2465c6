"""The numbers and findings of "A transformer at its start"."""

import re

import numpy as np
import pytest
from gnbook.attention.trial import law_of_depth

from tests.pages.pages import checked_lines, kappas

PAGE = "attention"
BLOCKS = (1, 2, 8)


def kept(data, norm, blocks, seed=None):
    where = {"factor": "depth" if norm == "before" else "norm", "data": data, "norm": norm, "branch": "plain"}
    where |= {} if seed is None else {"seed": seed}
    return float(np.median(kappas("attention", depth=blocks, **where)))


def of_scores():
    """Return what is printed for each size of queries and keys: size, kappa, both bounds, steps."""
    lines = [line.replace("over ", "") for line in checked_lines(PAGE) if "; network" in line]
    return [[float(number.replace(",", "")) for number in re.findall(r"[\d,.]*\d", line)] for line in lines]


def values():
    return {"small": 0.02}


def test_before_is_lowest():
    for data in ("images", "text"):
        for blocks in BLOCKS:
            before, after, none = (kept(data, norm, blocks) for norm in ("before", "after", "none"))
            assert before < after and before < none


def test_the_law_of_depth_orders_images_and_not_text():
    lines = {line.split(":")[0]: line for line in checked_lines(PAGE) if ": law " in line}
    found = {norm: [float(number) for number in re.findall(r"\d+\.\d+", line)] for norm, line in lines.items()}
    for norm in ("before", "after"):
        law = law_of_depth(8, norm=norm) / law_of_depth(1, norm=norm)
        grown = []
        for data in ("images", "text"):
            ratios = [kept(data, norm, 8, seed) / kept(data, norm, 1, seed) for seed in range(3)]
            grown.append(float(np.median(ratios)))
        assert found[norm] == pytest.approx([law, *grown], abs=0.06)
        assert 1 / 2 < grown[0] / law < 2
    assert found["before"][:2] < found["after"][:2] and found["before"][1] < found["after"][1]
    assert found["after"][2] < 1 < found["before"][2]  # the law has it the other way round


def test_scores_lower_kappa():
    kappa = [row[1] for row in of_scores()]
    assert len(kappa) == 3 and kappa[0] > 2 * kappa[1] > 4 * kappa[2]
    uniform = kappas("attention", factor="scores", data="images", scores=0.0, seed=0)
    assert kappa[0] == pytest.approx(uniform[0], rel=1e-3)


def test_freezing_queries_and_keys_changes_little():
    frozen = [line.split()[4].replace(",", "") for line in checked_lines(PAGE) if line.endswith("keys frozen")]
    for (_, kappa, *_), found in zip(of_scores(), frozen, strict=True):
        assert kappa <= 1.001 * float(found) < 1.3 * kappa


def test_kappa_does_not_follow_the_weights():
    for data in ("images", "text"):
        base = np.median(kappas("attention", factor="base", data=data))
        straight = np.median(kappas("attention", factor="weights", data=data, weights="orthogonal"))
        uneven = np.median(kappas("attention", factor="weights", data=data, weights="uneven"))
        assert 1 / 2 < straight / base < 2 and 1 / 2 < uneven / base < 2
