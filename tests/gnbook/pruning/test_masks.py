"""Masks by magnitude, the networks that are masked, and the augmentation of their images."""

from functools import partial

import pytest
import torch
from gnbook.pruning.augmentation import shifted, zoomed
from gnbook.pruning.masks import apply_masks, magnitude_masks, masks_of_every_tensor
from gnbook.pruning.networks import VGG, VisionTransformer
from gnbook.shared.networks import FullyConnected, ResidualNetwork, xavier_weights
from torch import nn

from tests.gnbook.shared.network_cases import size


def fully_connected():
    weights = xavier_weights([192, 5, 4, 2], generator=seeded())
    return nn.Sequential(nn.Flatten(), FullyConnected(weights, relu=True, dtype=torch.float64))


NETWORKS = {"fully connected": fully_connected, "residual": partial(ResidualNetwork, 1, 2, 2)}
NETWORKS |= {"vgg": partial(VGG, (2, "M", 3, "M"), 8, 2)}
NETWORKS |= {"transformer": partial(VisionTransformer, 8, 4, 4, 1, 2, 5, 2)}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network(name, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return NETWORKS[name]().double()


@pytest.mark.parametrize("find, whole", [(magnitude_masks, round), (masks_of_every_tensor, int)])
@pytest.mark.parametrize("seed", range(10))
def test_the_smallest_entries_of_each_tensor_are_taken(seed, find, whole):
    net = network(list(NETWORKS)[seed % 4], seed)
    fraction = torch.rand((), generator=seeded(seed)).item() * 0.8
    masks = find(net, fraction)
    assert find is magnitude_masks or list(masks) == [name for name, _ in net.named_parameters()]
    for name, kept in masks.items():
        sizes = net.get_parameter(name).abs()
        assert int((~kept).sum()) == whole(fraction * kept.numel())
        assert kept.all() or sizes[~kept].max() <= sizes[kept].min()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_masked_network_is_the_one_with_zeros(name):
    x = torch.randn(6, 3, 8, 8, generator=seeded(), dtype=torch.float64)
    whole, net, other = (network(name) for _ in range(3))
    masks = magnitude_masks(net, 0.6)
    apply_masks(net, masks)
    with torch.no_grad():
        for key, kept in masks.items():
            other.get_parameter(key).mul_(kept)
    torch.testing.assert_close(net(x), other(x), rtol=0, atol=0)
    assert not torch.equal(net(x), whole(x))


def test_networks_have_the_published_sizes():
    """Torchvision's vgg11_bn but its linear layers, vit_b_16 but its last LayerNorm; and the paper's ViT."""
    layers = [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]
    block = 4 * (48 * 48 + 48) + 2 * 2 * 48 + (48 * 192 + 192) + (192 * 48 + 48)
    with torch.device("meta"):
        assert size(VGG(layers)) - (10 * 512 + 10) == 132_868_840 - 123_642_856
        assert size(VisionTransformer(224, 16, 768, 12, 12, 3072, 1000)) == 86_567_656 - 2 * 768
        assert size(VisionTransformer()) == (3 * 16 * 48 + 48) + 66 * 48 + 4 * block + 490


@pytest.mark.parametrize("padding", [1, 4])
def test_an_image_is_moved_and_perhaps_flipped(padding):
    x = torch.rand(64, 3, 8, 8, generator=seeded()) + 1  # black is not among them
    wide, places = nn.functional.pad(x, (padding,) * 4), set()
    for image, moved in zip(wide, shifted(x, seeded(1), padding), strict=True):
        found = [
            (row, column, flip)
            for row in range(2 * padding + 1)
            for column in range(2 * padding + 1)
            for flip, candidate in enumerate((moved, moved.flip(-1)))
            if torch.equal(image[:, row : row + 8, column : column + 8], candidate)
        ]
        assert len(found) == 1
        places.update(found)
    assert len(places) > 8
    assert {place[0] for place in places} >= {0, 2 * padding}
    assert 20 < sum(torch.equal(a, b) for a, b in zip(shifted(x, seeded(2), 0), x, strict=True)) < 44


@pytest.mark.parametrize("seed", range(2))
def test_a_part_is_enlarged(seed):
    ramp = torch.arange(32).float().expand(200, 1, 32, 32)
    found = zoomed(torch.cat([ramp, ramp.mT], 1), seeded(seed))
    steps = found.diff(dim=3)[:, 0, :, 4:-4].abs().mean((1, 2)), found.diff(dim=2)[:, 1, 4:-4].mean((1, 2))
    for step in steps:  # a share of the side of the image
        assert step.min() > (0.8 * 3 / 4) ** 0.5 - 1e-3
        assert step.max() <= 1 + 1e-4
    area = steps[0] * steps[1]
    assert area.min() < 0.83 < 0.97 < area.max() < 1 + 1e-3
    assert found[:, 0, 15, 15:17].mean(-1).std() > 0.5  # not always the part in the middle
    assert 0.4 < (found[:, 0, 0, -1] < found[:, 0, 0, 0]).float().mean() < 0.6
