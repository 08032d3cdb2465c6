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


@pytest.mark.parametrize("n, k, m, d", [(1, 1, 1, 1), (2, 3, 2, 4), (5, 1, 2, 3)])
def test_the_matrices_and_ratios_of_the_paper_are_their_formulas(n, k, m, d):
    products, z = normal(n, k, m, seed=1), normal(n, d, seed=2)
    torch.testing.assert_close(landscape.riedi_lemma_8(products[0], z[0]), torch.kron(z[0].diag(), products[0].clone()))
    s, means = torch.linalg.svdvals(products), z.square().mean(0).sqrt()
    expected = (s.max() / s.min() * means.max() / means.min()).item() if k >= m else math.inf
    assert landscape.riedi_corollary_11(products, z) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("row", [[1.0], [1.0, 0.0]])  # as many outputs as units, and fewer
def test_the_landscape_condition_compares_different_samples(row):
    """By hand: orthogonal inputs, X_1 = row and X_2 = 3 row, so that A has the eigenvalues 1/2 and 9/2."""
    products, z = torch.tensor([[row], [[3 * entry for entry in row]]]).double(), torch.eye(2).double()
    assert torch.linalg.eigvalsh(landscape.quadratic_form_gram(products, z)).tolist() == pytest.approx([0.5, 4.5])
    assert landscape.landscape_condition(products, z) == pytest.approx(3, rel=1e-14)
