"""Small networks: their formulas, the published sizes, and what they are filled with."""

import pytest
import torch
from gnbook.shared import networks
from gnbook.shared.hidden_layer import leaky_relu_gram
from gnbook.shared.networks import FullyConnected, ResidualNetwork, xavier_weights
from torch import nn

import gnlib
from tests.gnbook.shared.network_cases import size
from tests.strategies import gaussian


def test_attention_is_that_of_torch():
    torch.manual_seed(0)
    ours, theirs = networks.Attention(6, 2).double(), nn.MultiheadAttention(6, 2, batch_first=True).double()
    with torch.no_grad():
        parts = ours.query, ours.key, ours.value
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    tokens = gaussian(1, 3, 4, 6)
    torch.testing.assert_close(ours(tokens), theirs(tokens, tokens, tokens)[0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("blocks", "millions"), [(3, "0.27"), (18, "1.73")])
def test_residual_networks_have_the_published_numbers_of_parameters(blocks, millions):
    """He et al. 2016, table 6, for skips without weights, and 1.73 for its 1.7."""
    net = ResidualNetwork(blocks)
    skips = size(*(module.skip for module in net.layers if isinstance(module, networks.ResidualBlock)))
    assert f"{(size(net) - skips) / 1e6:.2f}" == millions
    assert skips == 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) + 1 == 6 * blocks + 2


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("relu", [True, False])
def test_the_module_is_the_product_of_its_weights(seed, relu):
    generator = torch.Generator().manual_seed(seed)
    widths = torch.randint(1, 6, (2 + seed % 4,), generator=generator).tolist()
    weights = xavier_weights(widths, generator=generator)
    x = torch.randn(7, widths[0], generator=generator, dtype=torch.float64)
    h = x
    for w in weights[:-1]:
        h = (h @ w.mT).relu() if relu else h @ w.mT
    net = FullyConnected(weights, relu=relu, dtype=torch.float64)
    torch.testing.assert_close(net(x), h @ weights[-1].mT, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(net.weights(), weights, rtol=0, atol=0)
    if relu and len(weights) == 2:
        gram = leaky_relu_gram(weights, x, 0.0)
        torch.testing.assert_close(gnlib.GaussNewton(net, x).gram(), gram, rtol=1e-10, atol=1e-10)
