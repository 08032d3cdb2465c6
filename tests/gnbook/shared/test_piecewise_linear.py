"""Piecewise linear networks: local affine maps by products of layers, and refusals of other layers."""

import math

import mpmath
import pytest
import torch
from gnbook.shared.local_affine import local_affine, local_affine_in_weights
from gnbook.shared.piecewise_linear import Kink, SkipLayer, affine_products, as_layers
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
def test_the_products_in_fifty_digits(case):
    net, x = network(case, 0), normal(case[0][0], seed=7)
    piece = affine_products(as_layers(net), x)
    with mpmath.workdps(50):
        h, matrix = mpmath.matrix(x.tolist()), mpmath.eye(len(x))
        for weight, bias, slope, skip in as_layers(net):
            w = mpmath.matrix(weight.tolist())
            t = w * h + mpmath.matrix(bias.tolist())
            d = mpmath.diag([1 if value > 0 else mpmath.mpf(slope) for value in t])
            factor = d * w + skip * mpmath.eye(w.rows) if skip else d * w
            h, matrix = d * t + (skip * h if skip else 0 * t), factor * matrix
        rows = [[float(matrix[i, j]) for j in range(matrix.cols)] for i in range(matrix.rows)]
        exact = torch.tensor(rows, dtype=torch.float64)
        values = torch.tensor([float(v) for v in h], dtype=torch.float64)
    close(piece.matrix, exact, 10 * (1 + exact.abs().max()))
    close(piece(x), values, 10 * (1 + exact.abs().max()) * (1 + x.norm()))


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


def test_layers_of_a_torch_module():
    net = nn.Sequential(
        nn.Flatten(),
        nn.Linear(4, 3),
        nn.Dropout(0.0),
        nn.LeakyReLU(0.2),
        nn.Sequential(nn.Linear(3, 3, bias=False), nn.Identity(), Kink(-1.0)),
        nn.Linear(3, 2),
        nn.ReLU(),
        nn.Linear(2, 2),
    ).double()
    layers = as_layers(net)
    assert [layer.slope for layer in layers] == [0.2, -1, 0, 1]
    assert [tuple(layer.weight.shape) for layer in layers] == [(3, 4), (3, 3), (2, 3), (2, 2)]
    assert not layers[1].bias.any() and not any(layer.skip for layer in layers)
    x = normal(4, seed=1)
    close(affine_products(layers, x)(x), net(x[None])[0].detach())
    close(local_affine(net, x).matrix, affine_products(layers, x).matrix)


BAD_LAYERS = [
    (nn.Sequential(nn.Linear(2, 2), nn.Tanh()), "Tanh"),
    (nn.Sequential(nn.Linear(2, 2), nn.GELU()), "GELU"),
    (nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), "Dropout"),
    (nn.Sequential(nn.ReLU(), nn.Linear(2, 2)), "does not follow a Linear layer"),
    (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.ReLU()), "does not follow a Linear layer"),
    (nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(2.0)), "slope is 2.0"),
    (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(2, 2)), "layer 1 takes 2 inputs but layer 0 gives 3"),
    (nn.Sequential(), "there is no layer"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize("module, message", BAD_LAYERS, ids=lambda v: v if isinstance(v, str) else "")
def test_modules_that_are_no_list_of_layers_are_refused(module, message):
    with pytest.raises(ValueError, match=message):
        as_layers(module)


@pytest.mark.bad_input
@pytest.mark.parametrize("slope", [-1.01, 1.5, math.nan, math.inf])
def test_slopes_outside_minus_one_to_one_are_refused(slope):
    for make in (Kink, lambda slope: SkipLayer(torch.eye(2), torch.ones(2), slope)):
        with pytest.raises(ValueError, match=r"one from -1 \(absolute value\) over 0 \(ReLU\) to 1"):
            make(slope)


@pytest.mark.bad_input
@pytest.mark.parametrize("shape", [(2,), (3, 1), (3, 3)], ids=str)
def test_what_is_not_one_point_is_refused(shape):
    with pytest.raises(ValueError, match=r"one point of shape \(3,\) was expected"):
        affine_products(as_layers(nn.Sequential(nn.Linear(3, 2))), torch.ones(shape))


@pytest.mark.bad_input
def test_points_on_a_border_are_said_to_be():
    net = nn.Sequential(SkipLayer(torch.eye(2), torch.zeros(2), 0.0))
    on_border = torch.tensor([1.0, 0.0])
    for find in (lambda: affine_products(as_layers(net), on_border), lambda: local_affine(net, on_border)):
        with pytest.raises(ValueError, match=r"lies on the border of a region.*1 of the pre-activations.*number 1\)"):
            find()
    with pytest.raises(ValueError, match="lies on the border"):
        zero = nn.Sequential(SkipLayer(torch.zeros(2, 2), torch.zeros(2), 0.0))
        local_affine_in_weights(zero, "0.weight", torch.ones(1, 2))


def test_a_unit_that_vanishes_in_the_whole_region_makes_no_border():
    net = nn.Sequential(SkipLayer(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.zeros(2), 0.0))
    piece = affine_products(as_layers(net), torch.tensor([1.0, 0.0]).double())
    assert piece.exit(torch.tensor([1.0, 0.0]).double(), torch.tensor([-1.0, 5.0]).double()) == 1
    assert local_affine(net, torch.tensor([1.0, 0.0])).contains(torch.tensor([0.5, -7.0]).double())


@pytest.mark.bad_input
def test_what_is_not_a_module_is_refused():
    for call in (lambda: as_layers([nn.ReLU()]), lambda: local_affine(torch.relu, torch.ones(2))):
        with pytest.raises(TypeError, match=r"pass a torch\.nn\.Module"):
            call()
