"""Riedi 2022, sections 3.1 to 3.3, figures 3 and 8: networks as piecewise affine maps, with skips and without."""

import math

import pytest
import torch
from gnbook.piecewise_linear_maps.one_layer import layer_factors
from gnbook.piecewise_linear_maps.partition import partition
from gnbook.shared.piecewise_linear import Layer, affine_products
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from gnlib import GaussNewton
from tests.gnbook.piecewise_linear_maps.helpers import as_module, forward, networks, phi, pseudo_condition
from tests.oracles import singular
from tests.strategies import a_hundred, exact, gaussian, instances, seeds


@pytest.mark.claim("Riedi Eq. 2", verdict="holds if")
@a_hundred
@given(networks(deepest=1))
def test_one_layer_is_affine_with_slope_one_where_positive_and_eta_where_negative(problem):
    (layer,), z = problem
    t = z @ layer.weight.mT + layer.bias
    d = torch.ones_like(t).where(t > 0, layer.slope)
    affine = torch.stack([row.diag() @ (layer.weight @ point + layer.bias) for row, point in zip(d, z, strict=True)])
    expected = forward([layer], z)
    torch.testing.assert_close(affine + layer.skip * z if layer.skip else affine, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.claim("Riedi Eq. 2", verdict="holds if")
@instances
@given(st.floats(1.01, 5), st.floats(0.1, 5))
def test_for_slopes_above_one_the_two_sides_change_places(slope, t):
    assert phi(exact(t), slope) == slope * t and phi(exact(-t), slope) == -t


@pytest.mark.claim("Riedi Eq. 34, activations", verdict="fails")
@instances
@given(st.floats(-3, 3), st.integers(0, 1), seeds)
def test_max_pooling_is_not_an_activation_of_one_coordinate(slope, coordinate, seed):
    """Whatever the slope, it ignores the other coordinate, and max-pooling does not."""
    t = gaussian(seed, 2)
    moved = t.clone()
    moved[1 - coordinate] = t.max() + 1
    before, after = (phi(points, slope)[coordinate] for points in (t, moved))
    pooled = [nn.functional.max_pool1d(points[None], 2).item() for points in (t, moved)]
    assert before == after and pooled[1] == pytest.approx(t.max().item() + 1) and pooled[0] == t.max()


@pytest.mark.claim("Riedi Eq. 36, regions", verdict="holds")
@a_hundred
@given(networks(), st.floats(0, 1))
def test_two_inputs_of_one_sign_pattern_share_the_affine_map_with_all_between(problem, weight):
    layers, x = problem
    assume(len(x) > 1)
    try:
        pieces = [affine_products(layers, point) for point in x[:2]]
    except ValueError:
        assume(False)
    alike = all(torch.equal(a, b) for a, b in zip(pieces[0].slopes, pieces[1].slopes, strict=True))
    if not alike:  # then walk as far towards the other as the first region goes
        weight = min(pieces[0].exit(x[0], x[1] - x[0]), 1.0) * weight
    middle = x[0] + weight * (x[1] - x[0])
    scale = forward(layers, x[:2]).abs().max() + pieces[0].offset.abs().max() + pieces[0].matrix.norm() * x.norm()
    assert (pieces[0](middle) - forward(layers, middle[None])[0]).abs().max() <= 1e-11 * (1 + scale)


def printed_offset(layers, factors):
    """Eq. 38 as printed, D_k left out before b_k."""
    total = torch.zeros(len(layers[-1].weight)).double()
    for k, layer in enumerate(layers):
        term = layer.bias
        for d, later in list(zip(factors, layers, strict=True))[k + 1 :]:
            term = d.diag() @ later.weight @ term
        total = total + term
    return total


@pytest.mark.claim("Riedi Eq. 38", verdict="fails")
def test_the_smallest_network_with_an_inactive_unit_breaks_it():
    layer = Layer(exact([[1]]), exact([-1]), 0.0)  # max(0, x - 1) at x = 0
    assert forward([layer], exact([[0]])).item() == 0
    assert printed_offset([layer], [exact([0])]).item() == -1
    assert affine_products([layer], exact([0])).offset.item() == 0


@pytest.mark.claim("Riedi Figure 3, seven regions", verdict="holds")
@pytest.mark.parametrize("seed", range(3))
def test_three_lines_in_general_position_make_seven_regions(seed):
    layer = Layer(gaussian(seed, 3, 2), gaussian(seed + 100, 3), 0.1)
    assert len(partition([layer], (-1e4, 1e4, -1e4, 1e4))[0]) == 7


@pytest.mark.claim("Riedi Eq. 39 and 40", verdict="holds")
@a_hundred
@given(networks(skips=False, square=True))
def test_a_skip_over_one_layer_or_several_adds_the_identity(problem):
    layers, x = problem
    for some in (layers[:1], layers):
        factors = [layer_factors(some, i, x) for i in range(len(some))]
        for i, point in enumerate(x):
            product = torch.eye(len(point)).double()
            for layer, factor in zip(some, factors, strict=True):
                product = factor.slopes[i].diag() @ layer.weight @ product
            offset = forward(some, point[None])[0] - product @ point
            skipped = (product + torch.eye(len(point)).double()) @ point + offset
            expected = forward(some, point[None])[0] + point
            torch.testing.assert_close(skipped, expected, rtol=1e-9, atol=1e-9 * (1 + expected.abs().max().item()))


@pytest.mark.claim("Riedi footnote 1, square weights", verdict="fails")
def test_with_a_skip_the_padding_has_singular_values_of_its_own():
    for rho in (0.25, 1.0):
        padded = exact([[3, 0], [0, 0]]) + rho * torch.eye(2).double()
        assert pseudo_condition(exact([[3 + rho]])) == 1
        assert pseudo_condition(padded) == pytest.approx((3 + rho) / rho)


@pytest.mark.claim("Riedi Eq. 6 and 44", verdict="fails")
def test_two_residual_layers_of_one_unit():
    layers = [Layer(exact([[1]]), exact([0]), 0.0, 1.0)] * 2
    assert forward(layers, exact([[1]])).item() == 4  # Eq. 44 has 1 * 1 + 1 = 2
    assert affine_products(layers, exact([1])).matrix.item() == 4


@pytest.mark.claim("Riedi section 3.3, one layer at a time", verdict="fails")
@pytest.mark.parametrize("c", [0.1, 1.0, 10.0])
def test_the_blocks_keep_their_condition_numbers_while_that_of_the_whole_changes(c):
    """V = c I and W = diag(2, 1), white data: blocks W W^T kron I and I kron V^T V."""
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        net[0].weight.copy_(c * torch.eye(2).double())
        net[1].weight.copy_(torch.diag(exact([2, 1])))
    x = math.sqrt(2) * torch.eye(2).double()
    whole = torch.linalg.eigvalsh(GaussNewton(net, x).gram())
    assert (whole[-1] / whole[0]).item() == pytest.approx((c**2 + 4) / (c**2 + 1), rel=1e-9)
    for layer, expected in ((0, 4), (1, 1)):
        net.requires_grad_(False)[layer].requires_grad_(True)
        block = torch.linalg.eigvalsh(GaussNewton(net, x).gram())
        assert (block[-1] / block[0]).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.claim("Riedi Eq. 37", verdict="holds")
@pytest.mark.claim("Riedi, affine map of a network", verdict="holds")
@a_hundred
@given(st.booleans().flatmap(networks))
def test_products_with_skips_and_without_are_the_jacobian_and_the_rest_of_the_value(problem):
    layers, (x, *_) = problem
    try:
        piece = affine_products(layers, x)
    except ValueError:
        assume(False)
    (jacobian,) = torch.autograd.functional.jacobian(lambda p: as_module(layers)(p[None])[0], (x,))
    scale = 1e-12 * (1 + jacobian.abs().max().item() + piece.offset.abs().max().item())
    torch.testing.assert_close(piece.matrix, jacobian, rtol=1e-10, atol=scale)
    torch.testing.assert_close(
        piece(x), forward(layers, x[None])[0], rtol=1e-10, atol=100 * scale * (1 + x.norm().item())
    )
    product, offset = torch.eye(len(x)).double(), torch.zeros(len(x)).double()
    for layer, d in zip(layers, piece.slopes, strict=True):
        factor = d.diag() @ layer.weight
        factor = factor + layer.skip * torch.eye(len(factor)).double() if layer.skip else factor
        product, offset = factor @ product, factor @ offset + d * layer.bias
    torch.testing.assert_close(piece.matrix, product, rtol=1e-10, atol=100 * scale)
    torch.testing.assert_close(piece.offset, offset, rtol=1e-10, atol=100 * scale)


def network(seed):
    """Weights, biases and input of Eq. 158."""
    draw = iter(range(1000 * seed, 1000 * seed + 1000))
    weights = [gaussian(next(draw), 6, d) for d in (2, 6, 6, 6)]
    return weights, [gaussian(next(draw), 6) for _ in weights], gaussian(next(draw), 1, 2)


@pytest.mark.claim("Riedi Figure 8, singular values", verdict="fails")
def test_one_unit_of_negative_weight_loses_by_the_skip():
    values = [singular(exact([[-1]]) + rho * torch.eye(1).double()).item() for rho in (0.0, 0.25, 0.5, 0.75)]
    assert values == [1, 0.75, 0.5, 0.25]


@pytest.mark.claim("Riedi Figure 8, condition number", verdict="fails")
def test_two_units_where_the_skip_hurts():
    values = [pseudo_condition(exact([[1, 0], [0, -1]]) + rho * torch.eye(2).double()) for rho in (0.0, 0.5, 0.9)]
    assert values == pytest.approx([1, 3, 19])
