"""Riedi 2022, sections 3.1 to 3.3, figures 3 and 8: networks as piecewise affine maps, with skips and without."""

import pytest
import torch
from gnbook.piecewise_linear_maps.partition import partition
from gnbook.shared.local_affine import local_affine
from gnbook.shared.piecewise_linear import Layer, affine_products, as_layers
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from gnlib import GaussNewton
from tests.gnbook.piecewise_linear_maps.helpers import as_module, forward, networks, phi, pseudo_condition
from tests.oracles import identity, singular, with_skip
from tests.strategies import a_hundred, exact, gaussian, seeds


@pytest.mark.claim("Riedi Eq. 2", verdict="holds if")
@pytest.mark.claim("Riedi Eq. 34, activations", verdict="fails")
@given(st.floats(-3, 3), st.floats(1.01, 5), st.floats(0.1, 5), st.integers(0, 1), seeds)
def test_slopes_above_one_change_the_sides_and_max_pooling_has_none(slope, above, size, coordinate, seed):
    """Whatever the slope, an activation ignores the other coordinate, and max-pooling does not."""
    assert phi(exact(size), above) == above * size and phi(exact(-size), above) == -size
    t = gaussian(seed, 2)
    moved = t.clone()
    moved[1 - coordinate] = t.max() + 1
    assert phi(t, slope)[coordinate] == phi(moved, slope)[coordinate]
    pooled = [nn.functional.max_pool1d(points[None], 2).item() for points in (t, moved)]
    assert pooled == [t.max().item(), pytest.approx(t.max().item() + 1)]


@pytest.mark.claim("Riedi Figure 3, seven regions", verdict="holds")
@pytest.mark.parametrize("seed", range(3))
def test_three_lines_in_general_position_make_seven_regions(seed):
    layer = Layer(gaussian(seed, 3, 2), gaussian(seed + 100, 3), 0.1)
    assert len(partition([layer], (-1e4, 1e4, -1e4, 1e4))[0]) == 7


@pytest.mark.claim("Riedi Eq. 2", verdict="holds if")
@pytest.mark.claim("Riedi Eq. 36, regions", "Riedi Eq. 37", "Riedi Eq. 39 and 40", verdict="holds")
@pytest.mark.claim("Riedi, affine map of a network", verdict="holds")
@a_hundred
@given(st.booleans().flatmap(networks), st.floats(0, 1))
def test_products_with_skips_and_without_are_the_jacobian_and_the_rest_of_the_value_in_a_region(problem, weight):
    layers, points = problem
    try:
        (piece, *others), x = [affine_products(layers, point) for point in points[:2]], points[0]
    except ValueError:
        assume(False)

    net = as_module(layers)

    def outputs(p):
        return net(p[None])[0]

    (jacobian,) = torch.autograd.functional.jacobian(outputs, (x,))
    scale = 1e-12 * (1 + jacobian.abs().max().item() + piece.offset.abs().max().item())
    torch.testing.assert_close(piece.matrix, jacobian, rtol=1e-10, atol=scale)
    expected = forward(layers, x[None])[0]
    torch.testing.assert_close(piece(x), expected, rtol=1e-10, atol=100 * scale * (1 + x.norm().item()))
    for other in (affine_products(as_layers(net), x), local_affine(net, x)):  # from the module, and by its Jacobian
        torch.testing.assert_close(other, piece, rtol=1e-10, atol=100 * scale * (1 + x.norm().item()))
    product, offset = identity(len(x)), torch.zeros(len(x)).double()
    for layer, d in zip(layers, piece.slopes, strict=True):
        factor = with_skip(d.diag() @ layer.weight, layer.skip)
        product, offset = factor @ product, factor @ offset + d * layer.bias
    torch.testing.assert_close(piece.matrix, product, rtol=1e-10, atol=100 * scale)
    torch.testing.assert_close(piece.offset, offset, rtol=1e-10, atol=100 * scale)
    if len(expected) == len(x):  # a skip over all layers
        (skipped,) = torch.autograd.functional.jacobian(lambda p: outputs(p) + p, (x,))
        torch.testing.assert_close(product + identity(len(x)), skipped, rtol=1e-10, atol=100 * scale)
    for there in others:  # two inputs of one sign pattern share the map with all between, others up to the border
        alike = all(torch.equal(a, b) for a, b in zip(piece.slopes, there.slopes, strict=True))
        middle = x + weight * (1.0 if alike else min(piece.exit(x, points[1] - x), 1.0)) * (points[1] - x)
        scale = (
            1 + forward(layers, points[:2]).abs().max() + piece.offset.abs().max() + piece.matrix.norm() * points.norm()
        )
        assert (piece(middle) - forward(layers, middle[None])[0]).abs().max() <= 1e-11 * scale


@pytest.mark.claim("Riedi section 3.3, one layer at a time", verdict="fails")
@pytest.mark.parametrize("c", [0.1, 1.0, 10.0])
def test_the_blocks_keep_their_condition_numbers_while_that_of_the_whole_changes(c):
    """V = c I and W = diag(2, 1), white data: blocks W W^T kron I and I kron V^T V."""
    zeros, white = torch.zeros(2).double(), 2**0.5 * identity(2)
    net = as_module([Layer(c * identity(2), zeros), Layer(torch.diag(exact([2, 1])), zeros)])
    for trained, expected in (([0, 1], (c**2 + 4) / (c**2 + 1)), ([0], 4), ([1], 1)):
        for index, layer in enumerate(net):
            layer.requires_grad_(False).weight.requires_grad_(index in trained)
        values = torch.linalg.eigvalsh(GaussNewton(net, white).gram())
        assert (values[-1] / values[0]).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.claim("Riedi Eq. 38", "Riedi Eq. 6 and 44", "Riedi footnote 1, square weights", verdict="fails")
@pytest.mark.claim("Riedi Figure 8, singular values", "Riedi Figure 8, condition number", verdict="fails")
def test_the_smallest_counterexamples_have_one_unit_or_two():
    inactive = Layer(exact([[1]]), exact([-1]), 0.0)  # max(0, x - 1) at x = 0, where Eq. 38 has the bias itself
    assert forward([inactive], exact([[0]])).item() == affine_products([inactive], exact([0])).offset.item() == 0
    residual = [Layer(exact([[1]]), exact([0]), 0.0, 1.0)] * 2  # of which Eq. 44 makes 1 * 1 + 1 = 2
    assert forward(residual, exact([[1]])).item() == affine_products(residual, exact([1])).matrix.item() == 4
    for rho in (0.25, 1.0):  # with a skip the padding has singular values of its own
        assert pseudo_condition(exact([[3 + rho]])) == 1
        assert pseudo_condition(with_skip(exact([[3, 0], [0, 0]]), rho)) == pytest.approx((3 + rho) / rho)
    assert [singular(with_skip(exact([[-1]]), rho)).item() for rho in (0.0, 0.25, 0.5, 0.75)] == [1, 0.75, 0.5, 0.25]
    values = [pseudo_condition(with_skip(exact([[1, 0], [0, -1]]), rho)) for rho in (0.0, 0.5, 0.9)]
    assert values == pytest.approx([1, 3, 19])
