"""The numbers in the text of "Attention, before it has learned" are those of its kept table, and its findings hold."""

import numpy as np
import pytest
from gnbook.attention.bounds import distance_bound
from gnbook.attention.models import DATA
from gnbook.attention.trial import GOAL, MOST, RATE, law_of_depth

from tests.pages.pages import checked_lines, kept, named, parameters

PAGE = "attention"
UNIFORM = {"scores": 0.0}


def column(factor, data, name="kappa", **where):
    """A column of the kept table by seed."""
    found = [row for row in kept(PAGE) if {"factor": factor, "data": data, **where}.items() <= row.items()]
    assert found
    return {row["seed"]: row[name] for row in found}


def over(factor, data, other="base", name="kappa", where=(), than=()):
    """The median over seeds of a column over the same of another case."""
    first, second = column(factor, data, name, **dict(where)), column(other, data, name, **dict(than))
    return float(np.median([first[seed] / second[seed] for seed in first.keys() & second.keys()]))


def uniform_over_double(data):
    return over("scores", data, "scores", where=UNIFORM, than={"scores": 2.0})


def near_the_law():
    """Measured over law of all transformers that have scores."""
    return np.array([row["last_ratio"] / row["law_ratio"] for row in kept(PAGE) if row["last_ratio"]])


def growth(data, norm, branch):
    factor = "depth" if norm == "before" else "norm"
    ends = [{"depth": depth, "norm": norm, "branch": branch} for depth in (8, 1)]
    return over(factor, data, factor, where=ends[0], than=ends[1])


def shifted(data, shift):
    return over("shift", data, where={"shift": shift})
