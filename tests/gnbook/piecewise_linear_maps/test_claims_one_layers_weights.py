"""Riedi 2022, section 3.4: the loss as a function of one layer's weights, and its quadratic form."""

import itertools

import numpy as np
import pytest
import torch
from gnbook.piecewise_linear_maps import landscape
from gnbook.piecewise_linear_maps.one_layer import along_line, layer_factors
from gnbook.shared.piecewise_linear import Layer, affine_products
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.piecewise_linear_maps.helpers import (
    as_module,
    forward,
    networks,
    pseudo_condition,
    quadratics,
    true_q,
)
from tests.oracles import singular
from tests.strategies import a_hundred, exact, gaussian, seeds


@pytest.mark.claim("Riedi section 1, offsets", verdict="holds if")
@a_hundred
@given(quadratics(most=3))
def test_training_the_offset_too_adds_one_to_the_second_moment_of_the_inputs(problem):
    products, z = problem
    with_ones = torch.cat([z, torch.ones(len(z), 1).double()], 1)
    one = true_q(products[:1], with_ones[:1])
    expected = singular(products[0]) * with_ones[0].norm()
    found = singular(one)[: len(expected)]
    torch.testing.assert_close(found, expected[: len(found)], rtol=1e-9, atol=1e-11)


@pytest.mark.claim("Riedi section 1, offsets", verdict="holds if")
def test_for_a_batch_the_offset_changes_the_condition_number():
    products, z = torch.ones(2, 1, 1).double(), exact([[1], [3]])
    assert pseudo_condition(true_q(products, z)) == 1
    assert pseudo_condition(true_q(products, torch.cat([z, torch.ones(2, 1).double()], 1))) > 5


def loss(y, outputs):
    return (y - outputs).square().sum(1).mean()


@pytest.mark.claim("Riedi Eq. 46, piecewise quadratic", verdict="holds if")
@pytest.mark.claim("Riedi, borders along a line", verdict="holds")
@a_hundred
@given(networks(), seeds, st.data())
def test_along_a_line_of_weights_of_one_layer_the_loss_is_a_chain_of_quadratics_between_zeros(problem, seed, data):
    layers, x = problem
    index = data.draw(st.integers(0, len(layers) - 1))
    direction, y = gaussian(seed, *layers[index].weight.shape), gaussian(seed + 1, len(x), len(layers[-1].weight))
    stretches = along_line(layers, index, x, direction, 2.0)
    assert stretches[0].start == 0 and stretches[-1].stop == 2
    for stretch in stretches:
        c0, c1, c2 = stretch.loss(y)
        for t in np.linspace(stretch.start, stretch.stop, 4):
            moved = list(layers)
            moved[index] = layers[index]._replace(weight=layers[index].weight + t * direction)
            expected = loss(y, forward(moved, x)).item()
            assert c0 + c1 * t + c2 * t**2 == pytest.approx(expected, rel=1e-9, abs=1e-9 * (abs(c0) + abs(c1) + c2))
    assert all(a.stop == b.start for a, b in itertools.pairwise(stretches))

    def pre_activations(t):
        z, values = x, []
        for i, (weight, bias, slope, skip) in enumerate(layers):
            w = weight + t * direction if i == index else weight
            values.append((z @ w.mT + bias)[:, : len(w) * (slope != 1)].flatten())
            z = forward([Layer(w, bias, slope, skip)], z)
        return torch.cat(values)

    for stretch in stretches[:-1]:
        scale = 1 + torch.cat([pre_activations(0.0), pre_activations(2.0)]).abs().max()
        assert pre_activations(stretch.stop).abs().min() <= 1e-10 * scale
    for stretch in stretches:
        width = stretch.stop - stretch.start
        signs = {tuple(pre_activations(stretch.start + f * width).sign().tolist()) for f in (0.1, 0.5, 0.9)}
        assert len(signs) == 1 or width < 1e-9


@pytest.mark.claim("Riedi section 3.4, regions and the skip", verdict="holds if")
@a_hundred
@given(networks(skips=False, square=True), st.floats(-1, 1))
def test_a_skip_that_ends_at_the_output_changes_no_sign(problem, rho):
    layers, (x, *_) = problem
    residual = [*layers[:-1], layers[-1]._replace(skip=rho)]
    try:
        plain, skipped = affine_products(layers, x), affine_products(residual, x)
    except ValueError:
        assume(False)
    torch.testing.assert_close(plain.normals, skipped.normals)
    assert all(torch.equal(a, b) for a, b in zip(plain.slopes, skipped.slopes, strict=True))


@pytest.mark.claim("Riedi Eq. 48", verdict="holds")
@a_hundred
@given(networks(), seeds, st.data())
def test_the_loss_around_any_of_its_minima(problem, seed, data):
    layers, x = problem
    index = data.draw(st.integers(0, len(layers) - 1))
    f, w = layer_factors(layers, index, x[:1]), layers[index].weight
    assume(f.z.any() and f.product.norm() > 1e-6)
    y = gaussian(seed, 1, len(layers[-1].weight))
    q = true_q(f.product, f.z)
    s = singular(q)
    assume(s[s > 1e-12 * s[0]][-1] > 1e-3 * s[0])
    least = torch.linalg.pinv(q, rtol=1e-9) @ (y - f.offset)[0]
    flat = gaussian(seed + 1, q.shape[1])
    flat = flat - torch.linalg.pinv(q, rtol=1e-9) @ (q @ flat)
    for minimum in (least, least + flat):
        step = w.flatten() - minimum
        right = loss(y, f.offset + (q @ minimum)[None]) + (q @ step).square().sum()
        scale = 1 + y.norm() ** 2 + f.offset.norm() ** 2 + (q.norm() * (w.norm() + minimum.norm() + flat.norm())) ** 2
        assert abs(right - loss(y, forward(layers, x[:1]))) <= 1e-9 * scale


@pytest.mark.claim("Riedi, quadratic form of a layer", verdict="holds")
@pytest.mark.claim("Riedi Eq. 47", verdict="holds")
@pytest.mark.claim("Riedi section 3.4, ellipsoids", verdict="fails")
@a_hundred
@given(networks(), seeds, st.data())
def test_the_form_is_the_block_of_the_gauss_newton_matrix_half_of_the_hessian_and_the_quadratic_term(
    problem, seed, data
):
    layers, x = problem
    index = data.draw(st.integers(0, len(layers) - 1))
    f, w, y = layer_factors(layers, index, x), layers[index].weight, gaussian(seed, len(x), len(layers[-1].weight))
    assume(f.z.any())
    module = as_module(layers).requires_grad_(False)
    module[index].weight.requires_grad_(True)
    gram = GaussNewton(module, x).gram()
    scale = 1e-11 * (gram.abs().max().item() + 1e-280)
    torch.testing.assert_close(landscape.quadratic_form_gram(f.product, f.z), gram, rtol=0, atol=scale)
    form = landscape.quadratic_form(f.product, f.z)
    ours, theirs = torch.linalg.eigvalsh(form).flip(0), torch.linalg.eigvalsh(gram).flip(0)
    size = min(len(ours), len(theirs))
    torch.testing.assert_close(ours[:size], theirs[:size], rtol=0, atol=scale * 10)
    q = true_q(f.product, f.z)
    torch.testing.assert_close(form, q.mT @ q, rtol=0, atol=scale)

    def of_weights(flat):
        return loss(y, torch.func.functional_call(module, {f"{index}.weight": flat.view_as(w)}, x))

    hessian = torch.autograd.functional.hessian(of_weights, w.flatten())
    torch.testing.assert_close(hessian / 2, form, rtol=0, atol=1e-10 * (1e-280 + form.abs().max().item()))
    inner = torch.einsum("nkm,md,nd->nk", f.product, w, f.z)
    affine = (y - f.offset).square().sum(1).mean() - 2 * ((y - f.offset) * inner).sum(1).mean()
    total = 1 + y.square().mean() + f.offset.square().mean() + inner.square().mean()
    assert abs(affine + w.flatten() @ form @ w.flatten() - loss(y, forward(layers, x))) <= 1e-9 * total
    k, m = f.product.shape[1:]
    if f.z[0].any():  # for one sample it is flat in all but k directions
        s = torch.linalg.eigvalsh(landscape.quadratic_form(f.product[:1], f.z[:1])).flip(0)
        assert (s[min(k, m) :] <= 1e-12 * s[0] + 1e-300).all() and len(s) == m * f.z.shape[1]
