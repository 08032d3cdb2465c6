"""Small networks, and what their weights begin with."""

import pytest
import torch
from gnbook.shared.families import FAMILIES, INITIALISATIONS, build
from torch import nn

PARAMETERS = {
    "MLP, ReLU": 769 * 32 + 33 * 32 + 33 * 10,
    "MLP, tanh": 769 * 32 + 33 * 32 + 33 * 10,
    "wide and shallow": 769 * 64 + 65 * 10,
    "deep and narrow": 769 * 16 + 7 * 17 * 16 + 17 * 10,
    "CNN": 28 * 8 + 73 * 16 + 145 * 32 + 129 * 10,
    "CNN, GroupNorm": 28 * 8 + 73 * 16 + 145 * 32 + 129 * 10 + 2 * (8 + 16 + 32),
    "CNN, BatchNorm": 28 * 8 + 73 * 16 + 145 * 32 + 129 * 10 + 2 * (8 + 16 + 32),
    "ResNet": 49 * 8 + 4 * 73 * 8 + 33 * 10,
    "ResNet, GroupNorm": 49 * 8 + 4 * (73 * 8 + 2 * 8) + 33 * 10,
    "ResNet, SkipInit": 49 * 8 + 4 * 73 * 8 + 2 + 33 * 10,
    "ViT": 49 * 16 + 16**2 + 2 * (4 * 17 * 16 + 17 * 32 + 33 * 16 + 4 * 16) + 17 * 10,
    "ViT, no LayerNorm": 49 * 16 + 16**2 + 2 * (4 * 17 * 16 + 17 * 32 + 33 * 16) + 17 * 10,
}
X = torch.randn(5, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def matrices(network):
    return [layer.weight.detach().flatten(1) for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]


@pytest.mark.parametrize("initialisation", INITIALISATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_with_every_initialisation(family, initialisation):
    network, again, other = (build(family, initialisation, seed=seed) for seed in (3, 3, 4))
    out = network(X)
    assert out.shape == (5, 10) and out.dtype == torch.float64 and out.isfinite().all()
    assert torch.equal(out, again(X)) and not torch.equal(out, other(X))
    assert sum(p.numel() for p in network.parameters()) == PARAMETERS[family]
    assert not list(network.buffers())


@pytest.mark.parametrize(("family", "couple"), [("CNN, BatchNorm", True), ("CNN, GroupNorm", False), ("ViT", False)])
def test_only_batch_norm_couples_the_samples_of_a_batch(family, couple):
    network = build(family, "Kaiming", seed=0)
    assert torch.allclose(network(X)[:2], network(X[:2])) is not couple
    assert torch.equal(network.eval()(X), network.train()(X))


@pytest.mark.parametrize("name", ["Kaiming", "half", "double", "uneven"])
def test_kaimings_variance(name):
    scales = [w.std().item() * (w.shape[1] / 2) ** 0.5 for w in matrices(build("deep and narrow", name, seed=1))]
    if name == "uneven":
        assert all(1 / 3.5 < s < 3.5 for s in scales) and max(scales) > 2.5 * min(scales)
    else:
        assert scales == pytest.approx([{"Kaiming": 1.0, "half": 0.5, "double": 2.0}[name]] * 9, rel=0.25)
