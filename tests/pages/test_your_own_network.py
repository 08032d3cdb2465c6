"""The numbers and findings of "A network of your own: what do I change?"."""

import re

import pytest

from tests.pages.laboratory.test_your_own_network import in_vain
from tests.pages.pages import checked_lines, parameters, texts

PAGE = "your-own-network"


def factors():
    """Return the factors when tried by the report and in training, of the three networks."""
    lines = [line for line in checked_lines(PAGE) if "times when tried" in line]
    found = [map(int, re.findall(r"\d+", line)) for line in lines]
    return [(tried, before / after) for tried, before, after in found]


def values():
    quick = parameters("laboratory/quick-start")
    return {"right": 11, "samples": [quick["n"], quick["few"]]}


def test_it_is_worth_asking():
    """In the median of runs, with Adam; and what is suggested for networks that are well prepared gains a fifth."""
    lines = [line for line in checked_lines(PAGE) if "times in the median" in line]
    found = {line.split(":")[0]: [float(n) for n in re.findall(r"[\d.]+", line)] for line in lines}
    (engineer, *_), (first, slower, runs) = found["engineer"], found["first suggestion"]
    assert first > 1.5 * engineer > 1.5 and slower == 0 and runs >= 50 and in_vain()[0] == 0


def test_each_change_pays():
    assert len(factors()) == 3
    assert all(real > 1.5 and tried >= 1 for tried, real in factors())


def test_the_first_picture():
    """The run on standardised inputs, alone, ends after about an eighth of the steps."""
    (line,) = (line for line in checked_lines(PAGE) if line.startswith("steps:"))
    raw, standardised = map(int, re.findall(r"\d+", line))
    assert raw / standardised == pytest.approx(8, abs=1)


def test_the_rule_falls_silent():
    lines = checked_lines(PAGE)
    end = lines.index("nothing gains a fifth")
    chain = [float(line.split()[0]) for line in lines[:end] if re.match(r"[\d.]+ times: ", line)]
    assert 1 <= len(chain) <= 5 and min(chain) >= 1.2


def test_the_wait_is_mostly_in_the_first_layer():
    """By layer: shares of the largest eigenvalue and of the one to wait for; the first layer is the module 1."""
    lines = [line for text in texts(PAGE) for line in text.splitlines() if line.startswith(("largest,", "wait,"))]
    largest, wait = ({i: int(share) for share, i in re.findall(r"(\d+)% in (\d)", line)} for line in lines)
    assert len(largest) == 3 and min(largest.values()) > 20
    assert max(wait, key=wait.get) == "1" and wait["1"] > 50
