"""One layer's weights: the factors around it, borders along a line, the quadratic form and its bounds."""

import math

import pytest
import torch
from gnbook.piecewise_linear_maps import landscape
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


@pytest.mark.parametrize("n, k, m, d", [(1, 1, 1, 1), (2, 3, 2, 4), (5, 1, 2, 3)])
def test_the_matrices_and_ratios_of_the_paper_are_their_formulas(n, k, m, d):
    products, z = normal(n, k, m, seed=1), normal(n, d, seed=2)
    torch.testing.assert_close(landscape.riedi_lemma_8(products[0], z[0]), torch.kron(z[0].diag(), products[0].clone()))
    s, means = torch.linalg.svdvals(products), z.square().mean(0).sqrt()
    expected = (s.max() / s.min() * means.max() / means.min()).item() if k >= m else math.inf
    assert landscape.riedi_corollary_11(products, z) == pytest.approx(expected, rel=1e-6)


def test_a_layer_that_hands_nothing_on_has_a_form_of_zeros_and_one_number_a_square():
    products, z = torch.zeros(2, 3, 2), normal(2, 2, seed=1)
    assert not landscape.quadratic_form(products, z).any()
    assert landscape.landscape_condition(products, z) == landscape.riedi_corollary_11(products, z) == math.inf
    products, z = torch.full((1, 1, 1), -3.0), torch.full((1, 1), 2.0)
    assert landscape.quadratic_form(products, z).item() == landscape.quadratic_form_gram(products, z).item() == 36
    assert landscape.landscape_condition(products, z) == landscape.riedi_corollary_11(products, z) == 1


@pytest.mark.parametrize("row", [[1.0], [1.0, 0.0]])  # as many outputs as units, and fewer
def test_the_landscape_condition_compares_different_samples(row):
    """By hand: orthogonal inputs, X_1 = row and X_2 = 3 row, so that A has the eigenvalues 1/2 and 9/2."""
    products, z = torch.tensor([[row], [[3 * entry for entry in row]]]).double(), torch.eye(2).double()
    assert torch.linalg.eigvalsh(landscape.quadratic_form_gram(products, z)).tolist() == pytest.approx([0.5, 4.5])
    assert landscape.landscape_condition(products, z) == pytest.approx(3, rel=1e-14)


def test_inputs_that_are_always_zero_are_left_out_of_corollary_11():
    products, z = torch.ones(2, 1, 1), torch.tensor([[3.0, 0.0, 1.0], [3.0, 0.0, -1.0]])
    assert landscape.riedi_corollary_11(products, z) == pytest.approx(3)


def two(slope=0.0):
    return [Layer(torch.eye(2).double(), torch.ones(2).double(), slope)] * 2


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: layer_factors(two(), -1, torch.ones(1, 2)), "index is -1; there are layers 0 to 1"),
        (lambda: along_line(two(1.0), 0, torch.ones(1, 2), torch.ones(1, 2)), r"\(1, 2\); \(2, 2\) was expected"),
        (lambda: along_line(two(), 0, torch.ones(1, 2), torch.eye(2), -1.0), "stop is -1.0; a positive number"),
        (lambda: landscape.quadratic_form(torch.ones(1, 2, 2), torch.ones(2, 2)), r"\(n, k, m\) and \(n, d\)"),
        (lambda: landscape.landscape_condition(torch.ones(2, 1, 1), torch.zeros(2, 2)), "z is zero"),
        (lambda: landscape.riedi_corollary_11(torch.ones(2, 1, 1), torch.zeros(2, 2)), "z is zero"),
    ],
)
def test_other_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
