"""Features and derivatives of chains, against autograd's Jacobian and the library's own Gram matrix."""

import torch
from gnbook.deep_nonlinear.chain import Skip, kernel, layers_of
from torch import nn

import gnlib
from tests.gnbook.deep_nonlinear.chains import chain, linear
from tests.strategies import gaussian

X = gaussian(1, 4, 3)
NESTED = nn.Sequential(
    linear(3, 5, 0, bias=True),
    nn.Sequential(nn.GELU(), nn.LayerNorm(5, elementwise_affine=False)),
    Skip(
        nn.Sequential(nn.ReLU(inplace=True), linear(5, 5, 1), Skip(nn.Sequential(nn.Tanh(), linear(5, 5, 2)), -2.0)),
        0.3,
    ),
    nn.ReLU(),
    linear(5, 2, 3, bias=True),
)


def test_layers_come_in_order_with_a_feature_of_ones_for_a_bias_and_make_the_kernel_of_the_library():
    layers = layers_of(NESTED, X)
    torch.testing.assert_close(kernel(layers), gnlib.GaussNewton(NESTED, X).gram(), rtol=1e-12, atol=1e-12)
    assert [tuple(f.shape) for f, _ in layers] == [(4, 4), (4, 5), (4, 5), (4, 6)]
    assert [tuple(g.shape) for _, g in layers] == [(4, 2, 5)] * 3 + [(4, 2, 2)]
    torch.testing.assert_close(layers[0].features, torch.cat([X, X.new_ones(4, 1)], 1))
    torch.testing.assert_close(layers[-1].derivatives, torch.eye(2, dtype=torch.float64).expand(4, 2, 2))
    torch.testing.assert_close(layers[-1].blocks, torch.eye(2, dtype=torch.float64).expand(4, 2, 2))


TIED = chain([3, 3, 3], nn.ReLU)
TIED[2].weight = TIED[0].weight
