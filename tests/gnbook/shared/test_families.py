"""Small networks, and what their weights begin with."""

import pytest
import torch
from gnbook.shared.families import FAMILIES, INITIALISATIONS, build

from tests.strategies import gaussian

SIZES = [25994, 25994, 49866, 7322, 7434, 3058, 3122, 5658, 14378, 7434, 3060, 5530]
X = gaussian(0, 5, 3 * 16 * 16).view(5, 3, 16, 16)


@pytest.mark.parametrize("initialisation", INITIALISATIONS)
@pytest.mark.parametrize(("family", "size"), [*zip(FAMILIES, SIZES, strict=True)])
def test_every_family_with_every_initialisation(family, size, initialisation):
    network, again, other = (build(family, initialisation, seed=seed) for seed in (3, 3, 4))
    out = network(X)
    assert out.shape == (5, 10) and out.dtype == torch.float64 and out.isfinite().all()
    assert torch.equal(out, again(X)) and not torch.equal(out, other(X))
    assert sum(p.numel() for p in network.parameters()) == size and not list(network.buffers())
