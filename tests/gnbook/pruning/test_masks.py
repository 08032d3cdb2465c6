"""Masks by magnitude: what they take, that they last through training, and what they do to the Gauss-Newton matrix."""

from functools import partial

import pytest
import torch
from gnbook.pruning.masks import apply_masks, magnitude_masks, masks_of_every_tensor
from gnbook.pruning.networks import VGG, VisionTransformer
from gnbook.shared.networks import FullyConnected, ResidualNetwork, xavier_weights
from torch import nn


def fully_connected():
    generator = torch.Generator().manual_seed(torch.randint(10**6, ()).item())
    weights = xavier_weights([192, 5, 4, 2], generator=generator)
    return nn.Sequential(nn.Flatten(), FullyConnected(weights, relu=True, dtype=torch.float64))


NETWORKS = {
    "fully connected": fully_connected,
    "residual": partial(ResidualNetwork, 1, 2, 2),
    "vgg": partial(VGG, (2, "M", 3, "M"), 8, 2),
    "transformer": partial(VisionTransformer, 8, 4, 4, 1, 2, 5, 2),
}


def network(name, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return NETWORKS[name]().double()


def images(n=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(n, *shape, generator=generator, dtype=torch.float64) for shape in ((3, 8, 8), (2,)))


def pruned(name, fraction, seed=0):
    net = network(name, seed)
    apply_masks(net, magnitude_masks(net, fraction))
    return net


def with_zeros(name, fraction, seed=0):
    """Return a network without parametrisations, whose pruned weights are zero, and the masks."""
    net = network(name, seed)
    masks = magnitude_masks(net, fraction)
    with torch.no_grad():
        for key, kept in masks.items():
            net.get_parameter(key).mul_(kept)
    return net, masks


def plain(net):
    """Return the tensors of a pruned network under the names that they had before, zeros and all."""
    found = {name: tensor for name, tensor in net.state_dict().items() if not name.endswith(".0.kept")}
    for name in list(found):
        if name.endswith(".original"):
            kept = net.state_dict()[name.removesuffix("original") + "0.kept"]
            found[name.removesuffix(".original").replace("parametrizations.", "")] = found.pop(name) * kept
    return found


# What is taken


@pytest.mark.parametrize("find, whole", [(magnitude_masks, round), (masks_of_every_tensor, int)])
@pytest.mark.parametrize("seed", range(10))
def test_the_smallest_entries_of_each_tensor_are_taken(seed, find, whole):
    net = network(list(NETWORKS)[seed % 4], seed)
    fraction = torch.rand((), generator=torch.Generator().manual_seed(seed)).item() * 0.8
    masks = find(net, fraction)
    assert find is magnitude_masks or list(masks) == [name for name, _ in net.named_parameters()]
    for name, kept in masks.items():
        sizes = net.get_parameter(name).abs()
        assert int((~kept).sum()) == whole(fraction * kept.numel())
        assert kept.all() or sizes[~kept].max() <= sizes[kept].min()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_masked_network_is_the_one_with_zeros(name):
    x, _ = images()
    net, (other, _) = pruned(name, 0.6), with_zeros(name, 0.6)
    torch.testing.assert_close(plain(net), dict(other.state_dict()), rtol=0, atol=0)
    torch.testing.assert_close(net(x), other(x), rtol=0, atol=0)
    assert not torch.equal(net(x), network(name)(x))


# Training


# The Gauss-Newton matrix
