"""The transformers: what their arguments change, and what a token sees."""

import pytest
import torch
from gnbook.attention.models import Attention, build, samples
from torch import nn


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


def deviation(network, name):
    weight = network.get_parameter(f"{name}.weight")
    return (weight.std() * weight.shape[1] ** 0.5).item()


def test_each_argument_changes_its_own_matrices():
    base = build("text", 0, width=64)
    assert deviation(base, "branches.0.1.query") == pytest.approx(1, rel=0.1)
    assert base.embedding.weight.std().item() == pytest.approx(1 / 8, rel=0.1)
    small = build("text", 0, width=64, embedding=0.02, scores=0.5, gain=2.0)
    assert small.embedding.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert small.position.std().item() == pytest.approx(0.02, rel=0.1)
    sizes = [deviation(small, f"branches.0.1.{name}") for name in ("query", "key", "value", "out")]
    assert sizes == pytest.approx([1, 1, 2, 2], rel=0.1)


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
