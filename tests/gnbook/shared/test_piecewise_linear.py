"""Piecewise linear networks: local affine maps of modules of any shape, and what has none."""

import pytest
import torch
from gnbook.shared.local_affine import local_affine
from gnbook.shared.piecewise_linear import SkipLayer, affine_products, as_layers
from torch import nn

from tests.oracles import normal


@pytest.mark.bad_input
def test_points_on_a_border_are_refused():
    net, on_border = nn.Sequential(SkipLayer(torch.eye(2), torch.zeros(2), 0.0)), torch.tensor([1.0, 0.0])
    for find in (lambda: affine_products(as_layers(net), on_border), lambda: local_affine(net, on_border)):
        with pytest.raises(ValueError, match="lies on the border"):
            find()


class Residual(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 1, 3, padding=1)
        self.activation = nn.ReLU(inplace=inplace)  # used twice

    def forward(self, x):
        return self.activation(x + self.second(self.activation(self.first(x)))).flatten(1)


@pytest.mark.parametrize("inplace", [False, True])
def test_a_module_of_any_shape(inplace):
    torch.manual_seed(0)
    net, x = Residual(inplace), normal(1, 4, 4, seed=2)
    state = {name: p.clone() for name, p in net.named_parameters()}
    piece = local_affine(net, x)
    double = Residual(False).double()
    double.load_state_dict(net.state_dict())
    (jacobian,) = torch.autograd.functional.jacobian(lambda p: double(p[None])[0], (x,))
    torch.testing.assert_close(piece.matrix, jacobian.flatten(1), rtol=1e-12, atol=1e-12)
    assert piece.normals.shape == (3 * 16 + 16, 16) and [len(s) for s in piece.slopes] == [48, 16]
    walls = torch.autograd.functional.jacobian(lambda p: double.first(p[None]).flatten(), x).flatten(1)
    torch.testing.assert_close(piece.normals[:48].abs(), walls.abs(), rtol=1e-12, atol=1e-12)
    assert all(torch.equal(p, state[name]) and p.dtype == torch.float32 for name, p in net.named_parameters())
    assert not any(len(m._forward_pre_hooks) for m in net.modules())


class Hidden(nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()


@pytest.mark.bad_input
def test_an_activation_that_is_hidden_in_the_forward_pass_is_noticed():
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="not affine in the region"):
        local_affine(Hidden(3, 3), 3 * torch.ones(3))
