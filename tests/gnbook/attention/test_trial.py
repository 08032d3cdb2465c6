"""The measurements of a transformer, beside others of the same."""

import pytest
import torch
from gnbook.attention import trial
from gnbook.attention.models import DATA, Attention, build, samples
from gnbook.attention.trial import measure
from gnbook.shared.tuning import constant_loss

import gnlib

SMALL = {"width": 8, "heads": 2, "depth": 2}


@pytest.mark.parametrize("data", DATA)
def test_a_row_is_what_the_library_says(data):
    row, network, (x, y) = measure(data, 0, 6, SMALL), build(data, 0, **SMALL), samples(data, 6)
    eigenvalues = gnlib.GaussNewton(network, x).eigenvalues()
    assert row["kappa"] == pytest.approx((eigenvalues.max() / eigenvalues.min()).item(), rel=1e-6)
    start = (network(x) - y).square().sum().item() / 12
    assert row["initial_loss"] == pytest.approx(start)
    waits = gnlib.GaussNewton(network, x, y, "mse").waiting(trial.GOAL * constant_loss(y, "mse") / start)
    assert row["effective"] == pytest.approx(waits.effective_condition_number, rel=1e-6) or row["lower"] > waits.lower
    assert row["lower"] <= row["upper"]


def trace_of(network, x, *ends):
    """The squares of the Jacobian by all parameters whose names end so."""
    names = {name: p.detach() for name, p in network.named_parameters()}
    blocks = torch.func.jacrev(lambda some: torch.func.functional_call(network, names | some, (x,)))(
        {name: p for name, p in names.items() if name.endswith(ends)}
    )
    return sum(block.square().sum().item() for block in blocks.values())


@pytest.mark.parametrize("data", DATA)
def test_the_parts_are_those_of_the_jacobian(data):
    row, network, (x, _) = measure(data, 1, 4, SMALL), build(data, 1, **SMALL), samples(data, 4)
    whole = trace_of(network, x, "")
    queries, values = ("query.weight", "key.weight"), ("value.weight", "out.weight")
    assert row["queries"] == pytest.approx(trace_of(network, x, *queries) / whole)
    assert row["values"] == pytest.approx(trace_of(network, x, *values) / whole)
    last = [[f"branches.2.1.{name}" for name in names] for names in (queries, values)]
    assert row["last_ratio"] == pytest.approx(trace_of(network, x, *last[0]) / trace_of(network, x, *last[1]))


def test_spread_and_distance_are_those_of_the_weights():
    network, (x, _) = build("text", 0, **SMALL), samples("text", 3)
    row = measure("text", 0, 3, SMALL)
    found, spreads, distances = [], [], []
    for layer in network.modules():
        if isinstance(layer, Attention):
            layer.register_forward_pre_hook(lambda layer, tokens: found.append(layer.weights(*tokens).detach()))
    network(x)
    for weights in found:
        for i in range(weights.shape[-1]):
            seen = weights[..., i, : i + 1]
            spreads += (seen.amax(-1) / seen.amin(-1)).log().flatten().tolist()
            distances += (seen - 1 / (i + 1)).abs().sum(-1).flatten().tolist()
    assert row["spread"] == pytest.approx(sum(spreads) / len(spreads))
    assert row["apart"] == pytest.approx(sum(distances) / len(distances))


def test_the_law_knows_gains_and_scores():
    """By the fourth power of the gain and the square of the scores, on tokens that neither changes: of one block."""
    one = {"width": 8, "heads": 2, "depth": 1}
    rows = [measure("text", 0, 4, one | more) for more in ({}, {"gain": 0.5}, {"scores": 0.1})]
    first, *others = (row["law_ratio"] for row in rows)
    assert [other / first for other in others] == pytest.approx([0.5**4, 0.1**2])
    assert rows[2]["last_ratio"] / rows[0]["last_ratio"] == pytest.approx(0.01, rel=0.7)
