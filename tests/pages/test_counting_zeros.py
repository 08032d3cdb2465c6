"""The numbers in the text of the lesson "Which eigenvalues are zero?", and its findings."""

import re
from functools import cache

import pytest
from gnbook import results

from tests.pages.pages import checked_lines, parameters


def rows():
    return [row for row in results.kept("counting-zeros") if row["epoch"] == 100]


@cache
def lines():
    """By what is judged: rank, condition number and gap, as they are printed."""
    pattern = r"(.*?):? rank (\d+), kappa ([\d.e+]+), gap (.*)"
    found = [re.fullmatch(pattern, line) for line in checked_lines("counting-zeros")]
    return {line[1]: (int(line[2]), float(line[3]), line[4]) for line in found if line}


def values():
    given = parameters("counting-zeros")
    kept = [(row["rank"], row["kappa"]) for row in rows() if row["figure"] == "9 rules"]
    (width,) = {row["width"] for row in rows() if row["figure"] == "9 rules" and row["width"]} or {20}
    (images,) = {row["relu_images"] for row in rows()}
    rank, kappa, _ = lines()["after, singular values"]
    return {
        "kept_units": width,
        "kept_images": images,
        "kept_epochs": 100,
        "rules": len(kept),
        "answers": len({kappa for _, kappa in kept}),
        "on_the_cliff": sum(rank > 4600 for rank, _ in kept),
        "single": lines()["before, float32"][1],
        "rank": rank,
        "growth": round(kappa / lines()["before, singular values"][1], -2),
        "missed": float(lines()["after, above 1e-08"][2]),
        "images": given["relu_images"],
    }


def test_the_worst_matrix_gets_the_best_mark():
    two = {name: found for name, found in lines().items() if name.startswith("torch")}
    kappa = pytest.approx(4 / 2.0**-26, rel=0.01)
    assert [found[:2] for found in two.values()] == [(2, kappa), (2, kappa), (1, 1), (2, kappa)]
    assert two["torch.float32 J J'"][2] == "above 10,000"


def test_four_of_the_seven_rules_run_at_their_caps():
    """A rule of precision has its threshold by itself; the last that counts by an absolute one is the threshold."""
    found = {row["rule"]: row for row in rows() if row["figure"] == "9 rules"}
    ordered = sorted(found.values(), key=lambda row: row["kappa"])
    assert [row["gap"] < 2 for row in ordered] == [True] * 4 + [False] * 3 and ordered[-1]["gap"] > 1e14
    size = 10 * found["float32, relative"]["relu_images"]
    for rule, cap in (("float32", 2**23 / size), ("float64", 2**52 / size), ("singular values", (2**52 / size) ** 2)):
        row = found[f"{rule}, relative"]
        assert row["kappa"] < cap < 1.001 * row["kappa"] * row["gap"]
