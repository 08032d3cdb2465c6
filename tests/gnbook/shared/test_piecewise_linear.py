"""Piecewise linear networks: local affine maps by products of layers and from Jacobians."""

import pytest
import torch
from gnbook.shared.local_affine import local_affine
from gnbook.shared.piecewise_linear import SkipLayer, affine_products, as_layers
from torch import nn

from tests.gnbook.shared.cases import cases, close, network, seeds
from tests.oracles import normal


@cases
@seeds
def test_products_and_jacobian_give_the_same_piece(case, seed):
    net, x = network(case, seed), normal(case[0][0], seed=900 + seed)
    a, b = affine_products(as_layers(net), x), local_affine(net, x)
    scale = 1 + a.matrix.abs().max() + a.offset.abs().max() + a.normals.abs().sum() / max(a.normals.numel(), 1)
    for found, expected in ((a.matrix, b.matrix), (a.offset, b.offset), (a.normals, b.normals), (a.levels, b.levels)):
        close(found, expected, scale)
    assert all(torch.equal(s, t) for s, t in zip(a.slopes, b.slopes, strict=True))
    close(a(x), net(x[None])[0].detach(), scale * (1 + x.norm()))


@cases
@seeds
def test_the_piece_is_the_network_in_its_region_and_another_one_beyond_the_border(case, seed):
    net, x = network(case, seed), normal(case[0][0], seed=900 + seed)
    piece = affine_products(as_layers(net), x)
    for direction in normal(6, len(x), seed=seed):
        far = min(piece.exit(x, direction), 10.0)
        inside, beyond = x + 0.999 * far * direction, x + 1.001 * far * direction
        scale = 1 + piece.matrix.abs().max() * (1 + inside.norm()) + piece.offset.abs().max()
        assert piece.contains(inside)
        close(piece(inside), net(inside[None])[0].detach(), 10 * scale)
        if far < 10:
            assert not piece.contains(beyond)
            other = affine_products(as_layers(net), beyond)
            changed = sum((a != b).sum() for a, b in zip(piece.slopes, other.slopes, strict=True))
            assert changed >= 1
            border = x + far * direction  # continuous: both pieces agree there
            torch.testing.assert_close(piece(border), other(border), rtol=1e-9, atol=1e-9 * scale.item())


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
    close(piece.matrix, jacobian.flatten(1), jacobian.abs().max())
    assert piece.normals.shape == (3 * 16 + 16, 16) and [len(s) for s in piece.slopes] == [48, 16]
    walls = torch.autograd.functional.jacobian(lambda p: double.first(p[None]).flatten(), x).flatten(1)
    close(piece.normals[:48].abs(), walls.abs(), walls.abs().max())
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
