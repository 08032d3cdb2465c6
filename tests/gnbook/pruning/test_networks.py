"""VGG and vision transformers: the published sizes, their formulas, and their Gram matrices."""

from functools import partial

import pytest
import torch
from gnbook.pruning.networks import VGG, VisionTransformer
from torch import nn
from torch.nn import functional

from tests.gnbook.shared.network_cases import seeded, size


# VGG
def test_vgg11_has_the_convolutions_of_the_published_one():
    """Torchvision's vgg11_bn has 132,868,840 parameters, of which three linear layers have 123,642,856."""
    layers = [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]
    net = VGG(layers)
    assert size(net) - size(net.layers[-1]) == 132_868_840 - 123_642_856
    assert net.layers[-1].in_features == 512


def vgg_by_hand(net, x, layers):
    tensors = list(net.state_dict().values())
    for layer in layers:
        if layer == "M":
            x = torch.stack([x[..., i::2, j::2] for i in (0, 1) for j in (0, 1)]).amax(0)
            continue
        weight, bias, gain, shift, mean, variance, _ = (tensors.pop(0) for _ in range(7))
        y = functional.conv2d(functional.pad(x, (1, 1, 1, 1)), weight) + bias[:, None, None]
        if net.training:
            mean, variance = y.mean((0, 2, 3)), y.var((0, 2, 3), correction=0)
        y = (y - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
        x = (y * gain[:, None, None] + shift[:, None, None]).clamp_min(0)
    weight, bias = tensors
    return x.reshape(len(x), -1) @ weight.mT + bias


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("training", [True, False])
def test_vgg_is_its_formula(seed, training):
    layers = [[3, "M", 4, "M"], [2, 5, "M", 3, "M", 4, "M"], [4], ["M", 2, 2]][seed % 4]
    net, x = seeded(partial(VGG, layers, 8, 1 + seed % 3), seed)
    net.train(training)
    torch.testing.assert_close(net(x), vgg_by_hand(net, x, layers), rtol=1e-9, atol=1e-10)


# Vision transformers
def test_vision_transformers_of_the_published_size_and_of_the_papers():
    """Torchvision's vit_b_16 has 86,567,656 parameters, with a LayerNorm at the end."""
    with torch.device("meta"):
        assert size(VisionTransformer(224, 16, 768, 12, 12, 3072, 1000)) == 86_567_656 - 2 * 768
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


@pytest.mark.parametrize("seed", range(6))
def test_blocks_of_a_vision_transformer_are_those_of_torch(seed):
    heads, blocks, hidden = 1 + seed % 3, seed % 3, 5 + seed % 7
    net, x = seeded(partial(VisionTransformer, 8, 4, heads * (2 + seed % 3), blocks, heads, hidden, 3), seed)
    tokens = net.embedding(x).flatten(2).mT
    tokens = torch.cat([net.token.expand(4, 1, -1), tokens], 1) + net.position
    expected = net.head(torchs_encoder(net, heads, hidden)(tokens)[:, 0])
    torch.testing.assert_close(net(x), expected, rtol=1e-9, atol=1e-10)
