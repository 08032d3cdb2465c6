"""VGG networks: the published sizes, and their formula."""

from functools import partial

import pytest
import torch
from gnbook.pruning.vgg import VGG
from torch import nn
from torch.nn import functional

from tests.gnbook.pruning.cases import seeded, size


def test_vgg11_has_the_convolutions_of_the_published_one():
    """Torchvision's vgg11_bn has 132,868,840 parameters, of which three linear layers have 123,642,856."""
    layers = [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]
    net = VGG(layers)
    assert size(net) - size(net.layers[-1]) == 132_868_840 - 123_642_856
    assert net.layers[-1].in_features == 512


def test_vgg5_has_five_layers():
    layers = [m for m in VGG().layers if isinstance(m, nn.Conv2d | nn.Linear)]
    assert [tuple(m.weight.shape[:2]) for m in layers] == [(64, 3), (128, 64), (256, 128), (256, 256), (10, 4096)]


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
