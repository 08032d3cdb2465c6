"""VGG and vision transformers: the published sizes, their formulas, and their Gram matrices."""

import torch
from gnbook.pruning.networks import VGG, VisionTransformer

from tests.gnbook.shared.network_cases import size


# VGG
def test_vgg11_has_the_convolutions_of_the_published_one():
    """Torchvision's vgg11_bn has 132,868,840 parameters, of which three linear layers have 123,642,856."""
    layers = [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]
    net = VGG(layers)
    assert size(net) - size(net.layers[-1]) == 132_868_840 - 123_642_856
    assert net.layers[-1].in_features == 512


# Vision transformers
def test_vision_transformers_of_the_published_size_and_of_the_papers():
    """Torchvision's vit_b_16 has 86,567,656 parameters, with a LayerNorm at the end."""
    with torch.device("meta"):
        assert size(VisionTransformer(224, 16, 768, 12, 12, 3072, 1000)) == 86_567_656 - 2 * 768
    block = 4 * (48 * 48 + 48) + 2 * 2 * 48 + (48 * 192 + 192) + (192 * 48 + 48)
    assert size(VisionTransformer()) == (3 * 16 * 48 + 48) + 66 * 48 + 4 * block + 490
