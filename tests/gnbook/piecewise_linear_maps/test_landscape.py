"""The quadratic form of a layer and its bounds: formulas of the paper, edges and refusals."""

import math

import pytest
import torch
from gnbook.piecewise_linear_maps import landscape
from gnbook.piecewise_linear_maps.one_layer import along_line, layer_factors
from gnbook.shared.local_affine import local_affine_in_weights
from gnbook.shared.piecewise_linear import Layer, SkipLayer, affine_products
from torch import nn

from gnlib import linear_gauss_newton, second_moment
from tests.gnbook.shared.cases import close
from tests.oracles import normal


def test_the_block_of_a_linear_network_is_a_term_of_the_kronecker_sum():
    """Part I: A_l A_l^T kron S^1/2 B_l^T B_l S^1/2."""
    weights, x = [normal(4, 3, seed=1), normal(5, 4, seed=2), normal(2, 5, seed=3)], normal(6, 3, seed=4)
    layers = [Layer(w, torch.zeros(len(w)).double()) for w in weights]
    operator = linear_gauss_newton(weights, second_moment(x))
    for index, (left, right) in enumerate(zip(operator.left, operator.right, strict=True)):
        f = layer_factors(layers, index, x)
        term = torch.linalg.eigvalsh(torch.kron(left.contiguous(), right.contiguous())).flip(0)
        form = torch.linalg.eigvalsh(landscape.quadratic_form(f.product, f.z)).flip(0)
        size = min(len(term), len(form))
        torch.testing.assert_close(form[:size], term[:size], rtol=0, atol=1e-11 * term[0].item())
        product, data = torch.linalg.svdvals(f.product[0]), torch.linalg.svdvals(f.z)
        product, data = (s[s > 1e-10 * s[0]] for s in (product, data))
        kappa = (product[0] / product[-1] * data[0] / data[-1]).item()
        if f.product.shape[1] >= f.product.shape[2]:
            assert landscape.landscape_condition(f.product, f.z) == pytest.approx(kappa, rel=1e-9)


def dense_form(products, z):
    n, _, m = products.shape
    d = z.shape[1]
    form = torch.zeros(m * d, m * d).double()
    for i in range(n):
        for a in range(m):
            for b in range(m):
                for p in range(d):
                    for q in range(d):
                        form[a * d + p, b * d + q] += (products[i, :, a] @ products[i, :, b]) * z[i, p] * z[i, q] / n
    return form


@pytest.mark.parametrize("n, k, m, d", [(1, 1, 1, 1), (3, 2, 3, 2), (2, 3, 2, 4), (5, 1, 2, 3)])
def test_the_landscape_functions_are_their_formulas(n, k, m, d):
    products, z = normal(n, k, m, seed=1), normal(n, d, seed=2)
    form = dense_form(products, z)
    close(landscape.quadratic_form(products, z), form, form.abs().max())
    w = normal(m, d, seed=3)
    expected = sum((products[i] @ w @ z[i]).square().sum() for i in range(n)) / n
    assert w.flatten() @ form @ w.flatten() == pytest.approx(expected.item(), rel=1e-12)
    printed = landscape.riedi_lemma_8(products[0], z[0])
    assert printed.shape == (d * k, d * m)
    close(printed, torch.kron(z[0].diag(), products[0].contiguous()))
    smallest = [torch.linalg.eigvalsh(p.mT @ p)[0].clamp_min(0) for p in products]
    largest = [torch.linalg.eigvalsh(p.mT @ p)[-1] for p in products]
    for found, values in zip(landscape.riedi_lemma_10(products, z), (smallest, largest), strict=True):
        by_hand = sum(row**2 * value for row, value in zip(z, values, strict=True)) / n
        torch.testing.assert_close(found, by_hand, rtol=1e-9, atol=1e-12)
    for found, values in zip(landscape.landscape_bounds(products, z), (smallest, largest), strict=True):
        by_hand = torch.linalg.eigvalsh(sum(v * torch.outer(r, r) for r, v in zip(z, values, strict=True)) / n)
        torch.testing.assert_close(found, by_hand.flip(0).repeat_interleave(m), rtol=1e-9, atol=1e-12)
    means = z.square().mean(0).sqrt()
    if k >= m:
        corollary = (max(largest) / min(smallest)).sqrt() * means.max() / means.min()
        assert landscape.riedi_corollary_11(products, z) == pytest.approx(corollary.item(), rel=1e-6)
    else:
        assert landscape.riedi_corollary_11(products, z) == math.inf


def test_a_layer_that_hands_nothing_on_has_a_form_of_zeros():
    products, z = torch.zeros(2, 3, 2), normal(2, 2, seed=1)
    assert not landscape.quadratic_form(products, z).any()
    assert not torch.stack(landscape.landscape_bounds(products, z)).any()
    assert not torch.stack(landscape.riedi_lemma_10(products, z)).any()
    assert landscape.landscape_condition(products, z) == landscape.riedi_corollary_11(products, z) == math.inf


def test_one_sample_one_output_one_unit_and_one_input():
    products, z = torch.full((1, 1, 1), -3.0), torch.full((1, 1), 2.0)
    assert [bound.tolist() for bound in landscape.landscape_bounds(products, z)] == [[36], [36]]
    assert landscape.quadratic_form(products, z).item() == landscape.quadratic_form_gram(products, z).item() == 36
    assert landscape.landscape_condition(products, z) == landscape.riedi_corollary_11(products, z) == 1


@pytest.mark.parametrize("row", [[1.0], [1.0, 0.0]])  # as many outputs as units, and fewer
def test_the_landscape_condition_compares_different_samples(row):
    """By hand: orthogonal inputs, X_1 = row and X_2 = 3 row, so that A has the eigenvalues 1/2 and 9/2."""
    products, z = torch.tensor([[row], [[3 * entry for entry in row]]]).double(), torch.eye(2).double()
    assert torch.linalg.eigvalsh(dense_form(products, z))[-2:].tolist() == [0.5, 4.5]
    assert landscape.landscape_condition(products, z) == pytest.approx(3, rel=1e-14)


def test_inputs_that_are_always_zero_are_left_out_of_corollary_11():
    products, z = torch.ones(2, 1, 1), torch.tensor([[3.0, 0.0, 1.0], [3.0, 0.0, -1.0]])
    assert landscape.riedi_corollary_11(products, z) == pytest.approx(3)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: SkipLayer(torch.ones(2, 3), torch.ones(3)), r"\(2, 3\) and \(3,\); \(out, in\) and \(out,\)"),
        (lambda: SkipLayer(torch.ones(2, 3), torch.ones(2), 0.0, 1.0), "a skip needs a square weight"),
        (lambda: SkipLayer(torch.eye(2), torch.ones(2), 0.0, math.nan), "skip is nan"),
        (lambda: affine_products(two(), torch.ones(3)), r"x has shape \(3,\); one point of shape \(2,\)"),
        (lambda: layer_factors(two(), 2, torch.ones(1, 2)), "index is 2; there are layers 0 to 1"),
        (lambda: layer_factors(two(), -1, torch.ones(1, 2)), "index is -1"),
        (lambda: layer_factors(two(), 0, torch.ones(1, 3)), "x has 3 features but the first layer takes 2"),
        (lambda: along_line(two(), 0, torch.ones(1, 2), torch.ones(2, 3)), r"\(2, 3\); \(2, 2\) was expected"),
        (lambda: along_line(two(), 0, torch.ones(1, 2), torch.eye(2), -1.0), "stop is -1.0; a positive number"),
        (lambda: landscape.quadratic_form(torch.ones(2, 2), torch.ones(2, 2)), r"\(n, k, m\) and \(n, d\)"),
        (lambda: landscape.quadratic_form(torch.ones(3, 2, 2), torch.ones(2, 2)), r"\(n, k, m\) and \(n, d\)"),
        (lambda: landscape.riedi_lemma_8(torch.ones(2), torch.ones(2)), r"\(n, k, m\) and \(n, d\)"),
        *(
            (lambda call=call: call(torch.ones(2, 1, 1), torch.zeros(2, 2)), "z is zero")
            for call in (
                landscape.landscape_bounds,
                landscape.landscape_condition,
                landscape.riedi_lemma_10,
                landscape.riedi_corollary_11,
            )
        ),
        *(
            (lambda call=call: call(torch.ones(3, 2, 2), torch.ones(2, 2)), r"\(3, 2, 2\) and \(2, 2\); \(n, k, m\)")
            for call in (
                landscape.landscape_bounds,
                landscape.landscape_condition,
                landscape.riedi_lemma_10,
                landscape.riedi_corollary_11,
            )
        ),
        (
            lambda: affine_products([Layer(torch.ones(2, 3), torch.ones(2), 0.0, 1.0)], torch.ones(3)),
            "a skip needs a square",
        ),
        (lambda: local_affine_in_weights(nn.Linear(2, 2), "w", torch.ones(1, 2)), "name is 'w'; the parameters that"),
    ],
)
def test_other_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def two():
    return [Layer(torch.eye(2).double(), torch.ones(2).double(), 0.0)] * 2
