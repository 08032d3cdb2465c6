"""The transformers, what their arguments change, and the measurements of one beside others of the same."""

import numpy as np
import pytest
import torch
from gnbook.attention.models import DATA, Attention, build, samples
from gnbook.attention.trial import law_of_depth, measure
from torch import nn

from tests.strategies import derivatives


@pytest.mark.parametrize("data", DATA)
def test_attention_is_the_one_of_torch_and_causal_for_text(data):
    layer = next(part for part in build(data, 0).modules() if isinstance(part, Attention))
    tokens = torch.randn(2, 5, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    heads = [part(tokens).unflatten(-1, (4, 8)).transpose(1, 2) for part in (layer.query, layer.key, layer.value)]
    mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=data == "text")
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


def trace_of(network, x, *ends):
    """The squares of the Jacobian by all parameters whose names end so."""
    some = [p for name, p in network.named_parameters() if name.endswith(ends)]
    return derivatives(network(x), some).square().sum().item()


@pytest.mark.parametrize("data", DATA)
def test_the_parts_are_those_of_the_jacobian(data):
    row, network, (x, y) = measure(data, 1, 4, SMALL), build(data, 1, **SMALL), samples(data, 4)
    assert row["initial_loss"] == pytest.approx((network(x) - y).square().sum().item() / 8)
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


def test_the_law_with_the_norm_before_is_that_of_linear_branches_on_normalised_tokens():
    """How much a branch counts is measured here, by tokens that go through the network."""
    width, rank, depth, rng = 300, 100, 4, np.random.default_rng(0)
    below = rng.standard_normal((width, rank)) / rank**0.5  # the embedding, and what is below each branch
    start, products, steps = np.linalg.norm(below), [], []
    for _ in range(2 * depth):
        share = start / np.linalg.norm(below)  # the norm takes the tokens back to the length they had
        branch = share * rng.standard_normal((width, width)) / width**0.5
        products, steps = [*products, below], [*steps, (share, branch)]
        below = below + branch @ below
    above = rng.standard_normal(width) / width**0.5
    G = below.T @ below  # the term of the head
    for (share, branch), part in zip(reversed(steps), reversed(products), strict=True):
        G += share**2 * above @ above * part.T @ part
        above = above + above @ branch
    G += above @ above * np.eye(rank)
    assert np.linalg.cond(G) == pytest.approx(law_of_depth(depth, width=width, rank=rank), rel=0.35)
