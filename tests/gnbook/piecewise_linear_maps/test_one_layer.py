"""One layer's weights: the factors around it, and the borders along a line of them."""

import pytest
import torch
from gnbook.piecewise_linear_maps.one_layer import along_line, layer_factors
from gnbook.shared.local_affine import local_affine_in_weights
from gnbook.shared.piecewise_linear import Layer, as_layers

from tests.gnbook.shared.cases import cases, close, network, seeds
from tests.oracles import normal


@cases
@seeds
def test_the_factors_around_each_layer_make_up_the_outputs(case, seed):
    net, x = network(case, seed), normal(5, case[0][0], seed=900 + seed)
    layers, y = as_layers(net), net(x).detach()
    for index, layer in enumerate(layers):
        f = layer_factors(layers, index, x)
        scale = 1 + y.abs().max() + f.offset.abs().max() + f.product.abs().max() * layer.weight.norm() * f.z.norm()
        close(torch.einsum("nkm,md,nd->nk", f.product, layer.weight, f.z) + f.offset, y, scale)
        name = f"{index}.weight"
        piece = local_affine_in_weights(net, name, x)
        rows = torch.einsum("nkm,nd->nkmd", f.product, f.z).flatten(0, 1).flatten(1)
        close(piece.matrix, rows, 10 * (1 + rows.abs().max()))
        close(piece.offset.view_as(y), f.offset, scale)


def test_a_line_through_a_border_by_hand():
    layers = [Layer(torch.eye(1).double(), torch.tensor([-0.5]).double(), 0.0)]
    one = torch.ones(1, 1).double()
    stretches = along_line(layers, 0, one, -one, 2.0)  # max(0, 1 - t - 1/2)
    assert [(s.start, s.stop) for s in stretches] == [(0, 0.5), (0.5, 2)]
    assert [s.loss(one) for s in stretches] == [(0.25, 1, 1), (1, 0, 0)]


def test_a_line_that_starts_on_a_border_goes_on_in_its_direction():
    layers = [Layer(torch.zeros(1, 1).double(), torch.zeros(1).double(), 0.1)]
    one = torch.ones(1, 1).double()
    for sign, slope in ((1, 1.0), (-1, -0.1)):
        (stretch,) = along_line(layers, 0, one, sign * one)
        assert stretch.slope.item() == pytest.approx(slope)


def test_two_units_that_vanish_together_make_one_border():
    layers = [Layer(torch.ones(2, 1).double(), torch.zeros(2).double(), 0.0)]
    one = torch.ones(1, 1).double()
    assert [s.stop for s in along_line(layers, 0, one, -torch.ones(2, 1).double(), 3.0)] == [1, 3]
