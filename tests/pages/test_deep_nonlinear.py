"""The numbers in the text of "Deep networks that are not linear" are those of its own tables."""

import re
from itertools import pairwise

import pytest
import torch
from gnbook.deep_nonlinear.chain import kernel, layers_of
from gnbook.deep_nonlinear.experiment import LESS, draw, prepared, widths_of
from gnbook.shared.descent import steps_to
from gnbook.shared.training import one_hot

import gnlib
from tests.pages.pages import prose, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/deep-nonlinear")


def numbers(words):
    return [float(word.replace(",", "")) for word in words]


def test_late_layers_spoil_the_sum(text):
    first, whole = (numbers(line.split()[-4:]) for line in table("deep-nonlinear", "ReLU networks of width 800, raw"))
    assert f"the best, {first[-1]:.0f}, and all together have {whole[-1]:.0f}" in text
    assert first == sorted(first, reverse=True) and whole == sorted(whole, reverse=True)
    assert all(alone < together for alone, together in zip(first[1:], whole[1:], strict=True))
    raw, standard, less = (
        numbers(line.split()[-4:]) for line in table("deep-nonlinear", "κ of ReLU networks of width")
    )
    assert raw == whole and all(a > b > c for a, b, c in zip(raw, standard, less, strict=True))


def test_what_depth_gains_in_training_comes_late(text):
    shallow, deep = (numbers(line.split()[1:]) for line in table("deep-nonlinear", "steps until that share"))
    assert 4.5 < shallow[0] / deep[0] < 5
    assert all(many >= few for few, many in zip(shallow[1:3], deep[1:3], strict=True))
    assert (
        f"At a ten-thousandth the deeper network is ahead, by {1 - deep[3] / shallow[3]:.0%}.".replace("%", " %")
        in text
    )


def test_steps_do_not_follow_kappa(text):
    """By the tables of three seeds, whose first column is what the figure shows."""
    found = {}
    for what in ("κ at the start, three", "steps down to a loss", "loss at the start, three"):
        lines = [re.split(r"\s{2,}", line.strip()) for line in table("deep-nonlinear-further", what)]
        first = {(name, kind): numbers([word])[0] for name, kind, word, *_ in lines}
        found[what[0]] = [[value for (_, which), value in first.items() if which == kind] for kind in ("raw", "less")]
    (kappa_raw, kappa_less), (raw, less), (loss, _) = (found[letter] for letter in "κsl")
    assert kappa_raw[4] < kappa_raw[1] < min(kappa_raw[2:4])
    assert f"they need {less[0]:.0f} steps in place of {raw[0]:.0f}." in text
    assert max(before / after for before, after in zip(raw, less, strict=True)) == raw[0] / less[0]
    assert f"raw images, {less[1]:.0f} in place of {raw[1]:.0f}, though their" in text
    assert less[1] > raw[1] and kappa_less[1] < kappa_raw[1]
    assert "branches of $1 / L$ have" in text
    assert kappa_less[3] == max(kappa_less)
    assert f"with {less[3]:.0f} steps they" in text and less[3] == min(less[1:])
    for shape in (2, 4):
        assert raw[shape] > raw[0] and less[shape] > less[0]
        assert kappa_raw[shape] < kappa_raw[0] and kappa_less[shape] < kappa_less[0]
    assert f"is ahead**: {raw[1]:.0f} steps, and {raw[0]:.0f} for two" in text and raw[1] == min(raw)
    assert f"starts at {loss[2]:.0f} on raw images, where two layers start at {loss[0]:.1f}." in text
    assert less[0] == min(raw + less)


def test_at_a_stable_rate(text):
    """Again, for the networks that the text names: what is in the middle of the figure."""
    photos, labels = gnlib.load("mnist", 60, stride=2)
    inputs, digits, steps = prepared(photos), one_hot(labels, 10), {}
    for depth, shape in ((2, "chain"), (8, "chain"), (8, "skips / L")):
        net = draw("ReLU", widths_of(photos.shape[1], depth, 200, 10), shape, seed=0)
        for kind in ("raw", LESS):
            largest = torch.linalg.eigvalsh(kernel(layers_of(net, inputs[kind])))[-1].item()
            steps[depth, shape, kind] = steps_to(net, inputs[kind], digits, 1.8 / largest, 0.005, 400)
    said = f"behind, with {steps[8, 'chain', 'raw']} steps and {steps[2, 'chain', 'raw']}."
    assert said in text and steps[8, "chain", "raw"] > steps[2, "chain", "raw"]
    assert steps[2, "chain", LESS] == steps[8, "skips / L", LESS] + 1


def test_a_step_of_a_deeper_network_costs_more(text):
    shallow, deep = (
        sum(one * other for one, other in pairwise([196, *[200] * (depth - 1), 10]))  # without biases
        for depth in (2, 8)
    )
    assert 6.5 < deep / shallow < 7
    steps = [numbers(line.split()[2:]) for line in table("deep-nonlinear", "steps until that share")]
    assert all(few < 6.5 * many for few, many in zip(*steps, strict=True))
