"""Residual networks, VGG and the vision transformer: published sizes, and the same function written out in torch."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

import gnlib
from gnlib.chapters.pruning.vgg import VGG
from gnlib.chapters.pruning.vision_transformer import VisionTransformer
from gnlib.chapters.shared.residual_network import ResidualBlock, ResidualNetwork


def size(*modules):
    return sum(p.numel() for module in modules for p in module.parameters())


def seeded(make, seed=0):
    """Return a network in double precision whose normalisation has something to say, and four images for it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = make().double()
        with torch.no_grad():
            for name, tensor in (*net.named_parameters(), *net.named_buffers()):
                if tensor.is_floating_point() and tensor.ndim == 1:
                    tensor.uniform_(0.5, 2.0) if "running" in name else tensor.add_(0.3 * torch.randn_like(tensor))
        return net, torch.randn(4, 3, 8, 8).double()


# Sizes


@pytest.mark.parametrize(
    ("blocks", "millions"), [(3, "0.27"), (5, "0.46"), (7, "0.66"), (9, "0.85"), (18, "1.73")], ids=lambda v: str(v)
)
def test_residual_networks_have_the_published_numbers_of_parameters(blocks, millions):
    """He et al. 2016, table 6, for skips without weights, and 1.73 for its 1.7."""
    net = ResidualNetwork(blocks)
    skips = size(*(module.skip for module in net.layers if isinstance(module, ResidualBlock)))
    assert f"{(size(net) - skips) / 1e6:.2f}" == millions
    assert skips == 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) + 1 == 6 * blocks + 2


def test_residual_network_of_20_layers_to_the_last_parameter():
    assert size(ResidualNetwork(3)) == 269_722 + 2752


def test_vgg11_has_the_convolutions_of_the_published_one():
    """Torchvision's vgg11_bn has 132,868,840 parameters, of which three linear layers have 123,642,856."""
    layers = [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]
    net = VGG(layers)
    assert size(net) - size(net.layers[-1]) == 132_868_840 - 123_642_856
    assert net.layers[-1].in_features == 512


def test_vgg5_has_five_layers():
    layers = [m for m in VGG().layers if isinstance(m, nn.Conv2d | nn.Linear)]
    assert [tuple(m.weight.shape[:2]) for m in layers] == [(64, 3), (128, 64), (256, 128), (256, 256), (10, 4096)]


def test_vision_transformer_of_the_published_size():
    """Torchvision's vit_b_16 has 86,567,656 parameters, with a LayerNorm at the end."""
    with torch.device("meta"):
        net = VisionTransformer(224, 16, 768, 12, 12, 3072, 1000)
    assert size(net) == 86_567_656 - 2 * 768


def test_vision_transformer_of_the_papers_size():
    block = 4 * (48 * 48 + 48) + 2 * 2 * 48 + (48 * 192 + 192) + (192 * 48 + 48)
    assert size(VisionTransformer()) == (3 * 16 * 48 + 48) + 66 * 48 + 4 * block + 490


# Functions


def residual_by_hand(net, x):
    """Return the outputs of a residual network, from its tensors alone and in the order in which they were made."""
    tensors = list(net.state_dict().values())
    training = net.training

    def normalised(x, stride=1):
        weight, gain, shift, mean, variance, _ = (tensors.pop(0) for _ in range(6))
        y = functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        if training:
            mean, variance = y.mean((0, 2, 3)), y.var((0, 2, 3), correction=0)
        scale = gain / (variance + 1e-5).sqrt()
        return (y - mean[:, None, None]) * scale[:, None, None] + shift[:, None, None]

    x = normalised(x).clamp_min(0)
    while len(tensors) > 2:
        out, channels = tensors[0].shape[:2]
        stride = out // channels
        y = normalised(normalised(x, stride).clamp_min(0))
        x = (y + (normalised(x, stride) if stride == 2 else x)).clamp_min(0)
    weight, bias = tensors
    return x.mean((2, 3)) @ weight.mT + bias


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("training", [True, False])
def test_residual_network_is_its_formula(seed, training):
    make = partial(ResidualNetwork, 1 + seed % 3, 1 + seed % 5, 1 + seed % 4)
    net, x = seeded(make, seed)
    net.train(training)
    expected = residual_by_hand(net, x)
    torch.testing.assert_close(net(x), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("channels", "out", "stride"), [(2, 2, 1), (2, 3, 1), (2, 2, 2), (2, 4, 2)])
def test_a_skip_has_weights_where_the_shape_changes(channels, out, stride):
    block = ResidualBlock(channels, out, stride)
    assert block(torch.ones(2, channels, 8, 8)).shape == (2, out, 8 // stride, 8 // stride)
    assert (size(block.skip) > 0) == ((channels, 1) != (out, stride))


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


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("training", [True, False])
def test_vgg_is_its_formula(seed, training):
    layers = [[3, "M", 4, "M"], [2, 5, "M", 3, "M", 4, "M"], [4], ["M", 2, 2]][seed % 4]
    net, x = seeded(partial(VGG, layers, 8, 1 + seed % 3), seed)
    net.train(training)
    torch.testing.assert_close(net(x), vgg_by_hand(net, x, layers), rtol=1e-9, atol=1e-10)


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


@pytest.mark.parametrize(
    "make",
    [
        partial(ResidualNetwork, 1, 2, 2),
        partial(VGG, (2, "M", 3, "M"), 8, 2),
        partial(VisionTransformer, 8, 4, 4, 1, 2, 5, 2),
    ],
)
def test_gram_matrix_is_that_of_autograd(make):
    net, x = seeded(make)
    net.eval()
    gradients = [torch.autograd.grad(y, list(net.parameters()), retain_graph=True) for y in net(x).flatten()]
    jacobian = torch.stack([torch.cat([g.flatten() for g in row]) for row in gradients])
    torch.testing.assert_close(gnlib.gauss_newton_gram(net, x), jacobian @ jacobian.mT / len(x))


def test_weights_are_drawn_as_torch_does():
    """Uniform with variance 1 / (3 fan_in), not Kaiming normal."""
    net = ResidualNetwork(1, 64)
    weight = net.layers[3].branch[0].weight
    assert weight.abs().max().item() == pytest.approx(1 / (9 * 64) ** 0.5, rel=1e-3)
    assert weight.std().item() == pytest.approx(1 / (3 * 9 * 64) ** 0.5, rel=0.02)
    assert VisionTransformer().position.std().item() == pytest.approx(1, rel=0.1)


# Bad input


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(ResidualNetwork, 0), r"blocks is 0, width is 16 and outputs is 10; numbers from 1 on"),
        (partial(ResidualNetwork, 3, -1), r"width is -1"),
        (partial(VGG, side=20), r"side is 20; a multiple of 8 was expected, to be halved 3 times"),
        (partial(VGG, side=0), r"side is 0; a multiple of 8"),
        (partial(VisionTransformer, 32, 5), r"side is 32 and patch is 5; a patch that divides the side"),
        (partial(VisionTransformer, 32, 0), r"patch is 0; a patch"),
        (partial(VisionTransformer, heads=5), r"width is 48 and heads is 5; a number of heads that divides it"),
        (partial(VisionTransformer, heads=0), r"heads is 0; a number of heads"),
    ],
)
def test_sizes_that_do_not_fit(make, message):
    with pytest.raises(ValueError, match=message):
        make()
