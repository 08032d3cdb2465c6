"""Small networks, and what their weights begin with."""

import pytest
import torch
from gnbook.shared.families import FAMILIES, INITIALISATIONS, build

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


@pytest.mark.parametrize("initialisation", INITIALISATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_with_every_initialisation(family, initialisation):
    network, again, other = (build(family, initialisation, seed=seed) for seed in (3, 3, 4))
    out = network(X)
    assert out.shape == (5, 10) and out.dtype == torch.float64 and out.isfinite().all()
    assert torch.equal(out, again(X)) and not torch.equal(out, other(X))
    assert sum(p.numel() for p in network.parameters()) == PARAMETERS[family]
    assert not list(network.buffers())
