"""The transformers, what their arguments change, and the measurements of one beside others of the same."""

import pytest
import torch
from gnbook.attention import trial
from gnbook.attention.models import DATA, Attention, build, samples
from gnbook.attention.trial import measure
from gnbook.shared.tuning import constant_loss
from torch import nn

import gnlib


@pytest.mark.parametrize(("data", "sees"), [("images", True), ("text", False)])
def test_text_is_causal(data, sees):
    layer = next(part for part in build(data, 0).modules() if isinstance(part, Attention))
    tokens = torch.randn(1, 5, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    later = tokens.clone()
    later[:, 3:] += 1
    assert torch.allclose(layer(tokens)[:, :3], layer(later)[:, :3]) != sees
    assert layer.weights(tokens).sum(-1).flatten().tolist() == pytest.approx([1] * 20)


def test_attention_is_the_one_of_torch():
    layer = Attention(12, 3, causal=True).double()
    tokens = torch.randn(2, 5, 12, dtype=torch.float64)
    heads = [part(tokens).unflatten(-1, (3, 4)).transpose(1, 2) for part in (layer.query, layer.key, layer.value)]
    mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
    assert torch.allclose(layer(tokens), layer.out(mixed.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("norm", ["before", "after", "none"])
def test_drawn_branches_have_a_small_last_matrix_and_multiplied_ones_the_outputs_of_small_ones(norm):
    x, _ = samples("text", 2)
    plain, drawn, multiplied = (
        build("text", 0, depth=3, norm=norm, branch=b) for b in ("plain", "drawn", "multiplier")
    )
    assert torch.allclose(drawn(x), multiplied(x)) and not torch.allclose(drawn(x), plain(x))
    for (name, one), other in zip(drawn.named_parameters(), plain.parameters(), strict=True):
        last = name.endswith(("out.weight", "3.weight" if norm == "before" else "2.weight"))
        assert torch.allclose(one, other / 6**0.5 if last else other)


def test_a_shift_is_added_to_the_matrices():
    shifted, plain = build("text", 0, shift=0.5), build("text", 0)
    with torch.no_grad():
        for layer in plain.modules():
            if isinstance(layer, Attention):
                for part in (layer.query, layer.key, layer.value):
                    part.weight += 0.5 * torch.eye(32, dtype=torch.float64)
    x, _ = samples("text", 2)
    assert torch.allclose(shifted(x), plain(x))


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
