"""Vision transformers: the published sizes, and agreement with the layers of torch."""

from functools import partial

import pytest
import torch
from gnbook.pruning.vision_transformer import VisionTransformer
from torch import nn
from torch.nn import functional

from tests.gnbook.pruning.cases import seeded, size


def test_vision_transformer_of_the_published_size():
    """Torchvision's vit_b_16 has 86,567,656 parameters, with a LayerNorm at the end."""
    with torch.device("meta"):
        net = VisionTransformer(224, 16, 768, 12, 12, 3072, 1000)
    assert size(net) == 86_567_656 - 2 * 768


def test_vision_transformer_of_the_papers_size():
    block = 4 * (48 * 48 + 48) + 2 * 2 * 48 + (48 * 192 + 192) + (192 * 48 + 48)
    assert size(VisionTransformer()) == (3 * 16 * 48 + 48) + 66 * 48 + 4 * block + 490


def torchs_encoder(net, heads, hidden):
    """Return torch's own transformer with the weights of ours."""
    width = net.token.shape[-1]
    layers = []
    for block in net.blocks:
        layer = nn.TransformerEncoderLayer(
            width, heads, hidden, 0.0, partial(functional.gelu, approximate="tanh"), batch_first=True, norm_first=True
        ).double()
        (norm1, attention), (norm2, first, _, second) = block.attention, block.mlp
        with torch.no_grad():
            for name in ("weight", "bias"):
                three = torch.cat([getattr(part, name) for part in (attention.query, attention.key, attention.value)])
                getattr(layer.self_attn, f"in_proj_{name}").copy_(three)
                pairs = zip(
                    (layer.self_attn.out_proj, layer.norm1, layer.norm2, layer.linear1, layer.linear2),
                    (attention.out, norm1, norm2, first, second),
                    strict=True,
                )
                for theirs, ours in pairs:
                    getattr(theirs, name).copy_(getattr(ours, name))
        layers.append(layer)
    return nn.Sequential(*layers)


@pytest.mark.parametrize("seed", range(30))
def test_vision_transformer_is_that_of_torch(seed):
    patch, heads, blocks, hidden = [1, 2, 4, 8][seed % 4], 1 + seed % 3, seed % 3, 5 + seed % 7
    width = heads * (2 + seed % 3)
    net, x = seeded(partial(VisionTransformer, 8, patch, width, blocks, heads, hidden, 3), seed)
    rows = [x[:, :, i : i + patch, j : j + patch].flatten(1) for i in range(0, 8, patch) for j in range(0, 8, patch)]
    tokens = torch.stack(rows, 1) @ net.embedding.weight.flatten(1).mT + net.embedding.bias
    tokens = torch.cat([net.token.expand(4, 1, width), tokens], 1) + net.position
    expected = torchs_encoder(net, heads, hidden)(tokens)[:, 0] @ net.head.weight.mT + net.head.bias
    torch.testing.assert_close(net(x), expected, rtol=1e-9, atol=1e-10)
