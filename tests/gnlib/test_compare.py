"""Two results are compared by factors, and factors with the spread of several draws."""

import math

import pytest
import torch

import gnlib
from gnlib.compare import Difference, Noise
from tests.gnlib.networks import perceptron

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randn(12, 2, generator=torch.Generator().manual_seed(1))


def network(scale=1.0):
    net = perceptron(4, 2, width=12)
    with torch.no_grad():
        net[2].weight.mul_(scale)
    return net


def ends(*values):
    return gnlib.condition_number(torch.diag(torch.tensor(values)))


def test_ends_and_their_ratio_have_factors_in_words():
    found = gnlib.compare(ends(4.0, 2.0), ends(8.0, 1.0))
    assert [(d.name, d.before, d.after, d.factor, d.words) for d in found.differences] == [
        ("largest eigenvalue", 4.0, 8.0, 2.0, "2 times larger"),
        ("smallest eigenvalue", 2.0, 1.0, 0.5, "2 times smaller"),
        ("condition number", 2.0, 8.0, 4.0, "4 times larger"),
    ]
    assert "condition number" in str(found) and "4 times larger" in found._repr_html_()
    for before, after, words in (
        *((math.inf, math.inf, "the same"), (0.0, 0.0, "the same"), (1.0, math.inf, "no factor")),
        *((0.0, 1.0, "no factor"), (1.0, 1.0001, "the same to 1e-04"), (1.0, 1.006, "1.01 times larger")),
    ):
        assert Difference("a", before, after).words == words


def test_reports_have_all_that_their_parts_have_and_pages_of_two_kinds_what_both_know():
    a, b = (gnlib.report(network(scale=s), X, Y, budget=1e-3) for s in (1.0, 2.0))
    found = gnlib.compare(a, b)
    assert found["condition number"][1:3] == (a.condition.value, b.condition.value)
    assert found["effective condition number"].after == b.waiting.effective_condition_number
    assert found["steps, at most"][1:3] == (a.waiting.upper, b.waiting.upper)
    assert found["steps, at least"][1:3] == (a.waiting.lower, b.waiting.lower)
    assert found["stable rate, gradient descent"].factor == pytest.approx(b.rates[0].rate / a.rates[0].rate)
    assert found["stable rate, with momentum 0.9"].after == b.rates[1].rate
    assert found["share of 0 in the largest"][1:3] == (a.layers.layers[0].largest, b.layers.layers[0].largest)
    assert found.remarks == ("The same: dtype, inputs, targets. Different: parameters.",)
    assert {d.words for d in gnlib.compare(a, a).differences} == {"the same"}
    mixed = gnlib.compare(a, gnlib.report(network(), X, Y, dtype=torch.float64, budget=1e-3))
    for name in ("largest eigenvalue", "stable rate, with momentum 0.9", "share of 2 in the largest"):
        assert mixed[name].factor == pytest.approx(1, rel=1e-2 if "share" in name else 1e-3)
    assert "condition number" not in {d.name for d in mixed.differences}


def test_a_factor_is_measured_by_the_spread_of_the_draws():
    noise = gnlib.noise_of_draws(lambda seed: [2.0, 1.0, 4.0][seed], range(3))
    assert noise == Noise((0, 1, 2), {"number": (2.0, 1.0, 4.0)}) and noise.spread("number") == 4.0
    within, beyond = gnlib.compare(3.0, 1.0, noise=noise), gnlib.compare(1.0, 32.0, noise=noise)
    assert within["number"].times_the_spread == pytest.approx(math.log(3) / math.log(4))
    assert beyond["number"].times_the_spread == pytest.approx(2.5)
    assert "3 times smaller  within the spread" in str(within) and "2.5 times the spread" in str(beyond)


@pytest.mark.bad_input
def test_what_has_nothing_in_common_is_refused():
    with pytest.raises(ValueError, match="A ConditionNumber and a float have no number in common"):
        gnlib.compare(ends(2.0, 1.0), 3.0)
    with pytest.raises(TypeError, match="A Tensor is not compared; pass reports, condition numbers"):
        gnlib.compare(X, X)
    with pytest.raises(ValueError, match="seeds holds 1; at least two"):
        gnlib.noise_of_draws(float, [0])
    with pytest.raises(ValueError, match="All seeds have the same numbers; call torch"):
        gnlib.noise_of_draws(lambda seed: 1.0)
