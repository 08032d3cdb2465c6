"""Riedi 2022, sections 3.4 to 3.6: the loss as a function of one layer's weights, Lemmas 8 and 10, their repairs."""

import math

import numpy as np
import pytest
import torch
from gnbook.piecewise_linear_maps import landscape
from gnbook.piecewise_linear_maps.one_layer import along_line, layer_factors
from gnbook.shared.piecewise_linear import affine_products
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.piecewise_linear_maps.helpers import as_module, forward, networks, pseudo_condition
from tests.oracles import identity, singular, spectrum
from tests.strategies import a_hundred, exact, gaussian, kron, matrices, orthogonal, samples, seeds, sizes

ONE_UNIT = torch.ones(1, 1, 1).double()


@st.composite
def quadratics(draw, same=False):
    """Draw matrices MD and inputs z of a few samples; if same, one MD for all of them."""
    n, k, m, d = (draw(st.integers(1, 4)) for _ in range(4))
    products = [draw(matrices(k, m)) for _ in range(1 if same else n)] * (n if same else 1)
    z = draw(samples(d))[:n]
    z = torch.cat([z, gaussian(draw(seeds), n - len(z), d)]) if len(z) < n else z
    assume(z.abs().max() > 0)
    return torch.stack(products), z


def true_q(products, z):
    """A matrix Q with |Q w|^2 the quadratic term of the loss, for weights row by row, from its definition."""
    rows = [kron(x, row[None]) for x, row in zip(products, z, strict=True)]
    return torch.cat(rows) / len(z) ** 0.5


def with_ones(z):
    return torch.cat([z, torch.ones(len(z), 1).double()], 1)


def loss(y, outputs):
    return (y - outputs).square().sum(1).mean()


@pytest.mark.claim("Riedi section 1, offsets", verdict="holds if")
@a_hundred
@given(quadratics())
def test_an_offset_adds_one_to_the_squares_of_one_sample_and_changes_the_condition_number_of_a_batch(problem):
    products, z = problem
    expected = singular(products[0]) * with_ones(z)[0].norm()
    found = singular(true_q(products[:1], with_ones(z[:1])))[: len(expected)]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    batch = exact([[1], [3]])
    assert pseudo_condition(true_q(ONE_UNIT.expand(2, 1, 1), batch)) == 1
    assert pseudo_condition(true_q(ONE_UNIT.expand(2, 1, 1), with_ones(batch))) > 5


@pytest.mark.claim("Riedi Eq. 46, piecewise quadratic", verdict="holds if")
@pytest.mark.claim("Riedi, borders along a line", verdict="holds")
@a_hundred
@given(networks(), seeds, st.data())
def test_along_a_line_of_weights_of_one_layer_the_loss_is_a_chain_of_quadratics_between_zeros(problem, seed, data):
    layers, x = problem
    index = data.draw(st.integers(0, len(layers) - 1))
    direction, y = gaussian(seed, *layers[index].weight.shape), gaussian(seed + 1, len(x), len(layers[-1].weight))

    def moved(t):
        here = layers[index]._replace(weight=layers[index].weight + t * direction)
        return [*layers[:index], here, *layers[index + 1 :]]

    def pre_activations(t):
        z, values = x, []
        for layer in moved(t):
            values.append((z @ layer.weight.mT + layer.bias)[:, : len(layer.weight) * (layer.slope != 1)].flatten())
            z = forward([layer], z)
        return torch.cat(values)

    stretches = along_line(layers, index, x, direction, 2.0)
    assert [*(s.start for s in stretches), 2] == [0, *(s.stop for s in stretches)]
    both_ends = torch.cat([pre_activations(0.0), pre_activations(2.0)])
    for stretch in stretches:
        (c0, c1, c2), start, stop = stretch.loss(y), stretch.start, stretch.stop
        for t in np.linspace(start, stop, 4):
            expected = loss(y, forward(moved(t), x)).item()
            assert c0 + c1 * t + c2 * t**2 == pytest.approx(expected, rel=1e-9, abs=1e-9 * (abs(c0) + abs(c1) + c2))
        signs = {tuple(pre_activations(start + f * (stop - start)).sign().tolist()) for f in (0.1, 0.5, 0.9)}
        assert len(signs) == 1 or stop - start < 1e-9
        assert stop == 2 or pre_activations(stop).abs().min() <= 1e-10 * (1 + both_ends.abs().max())


@pytest.mark.claim("Riedi section 3.4, regions and the skip", verdict="holds if")
@a_hundred
@given(networks(skips=False, square=True), st.floats(-1, 1))
def test_a_skip_that_ends_at_the_output_changes_no_sign(problem, rho):
    layers, (x, *_) = problem
    try:
        plain, skipped = (affine_products([*layers[:-1], layers[-1]._replace(skip=skip)], x) for skip in (0.0, rho))
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
    y, q = gaussian(seed, 1, len(layers[-1].weight)), true_q(f.product, f.z)
    s = singular(q)
    assume(s[s > 1e-12 * s[0]][-1] > 1e-3 * s[0])
    inverse, flat = torch.linalg.pinv(q, rtol=1e-9), gaussian(seed + 1, q.shape[1])
    least, flat = inverse @ (y - f.offset)[0], flat - inverse @ (q @ flat)
    for minimum in (least, least + flat):
        right = loss(y, f.offset + (q @ minimum)[None]) + (q @ (w.flatten() - minimum)).square().sum()
        scale = 1 + y.norm() ** 2 + f.offset.norm() ** 2 + (q.norm() * (w.norm() + minimum.norm() + flat.norm())) ** 2
        assert abs(right - loss(y, forward(layers, x[:1]))) <= 1e-9 * scale


@pytest.mark.claim("Riedi, quadratic form of a layer", "Riedi Eq. 47", verdict="holds")
@pytest.mark.claim("Riedi section 3.4, ellipsoids", verdict="fails")
@a_hundred
@given(networks(), seeds, st.data())
def test_the_form_is_the_block_of_the_gauss_newton_matrix_half_of_the_hessian_and_the_quadratic_term(
    problem, seed, data
):
    layers, x = problem
    index = data.draw(st.integers(0, len(layers) - 1))
    f, w, y = layer_factors(layers, index, x), layers[index].weight, gaussian(seed, len(x), len(layers[-1].weight))
    inner = torch.einsum("nkm,md,nd->nk", f.product, w, f.z)
    scale = 1 + f.offset.abs().max() + f.product.abs().max() * w.norm() * f.z.norm()
    torch.testing.assert_close(inner + f.offset, forward(layers, x), rtol=1e-12, atol=1e-12 * scale.item())
    assume(f.z.any())
    module = as_module(layers).requires_grad_(False)
    module[index].weight.requires_grad_(True)
    gram, form, q = GaussNewton(module, x).gram(), landscape.quadratic_form(f.product, f.z), true_q(f.product, f.z)
    scale = 1e-11 * (gram.abs().max().item() + 1e-280)
    torch.testing.assert_close(landscape.quadratic_form_gram(f.product, f.z), gram, rtol=0, atol=scale)
    torch.testing.assert_close(form, q.mT @ q, rtol=0, atol=scale)
    size = min(len(form), len(gram))
    torch.testing.assert_close(spectrum(form)[:size], spectrum(gram)[:size], rtol=0, atol=scale * 10)

    def of_weights(flat):
        return loss(y, torch.func.functional_call(module, {f"{index}.weight": flat.view_as(w)}, x))

    hessian = torch.autograd.functional.hessian(of_weights, w.flatten())
    torch.testing.assert_close(hessian / 2, form, rtol=0, atol=1e-10 * (1e-280 + form.abs().max().item()))
    affine = (y - f.offset).square().sum(1).mean() - 2 * ((y - f.offset) * inner).sum(1).mean()
    total = 1 + y.square().mean() + f.offset.square().mean() + inner.square().mean()
    assert abs(affine + w.flatten() @ form @ w.flatten() - loss(y, forward(layers, x))) <= 1e-9 * total
    if f.z[0].any():  # for one sample it is flat in all but k directions
        s = spectrum(landscape.quadratic_form(f.product[:1], f.z[:1]))
        assert (s[min(f.product.shape[1:]) :] <= 1e-12 * s[0] + 1e-300).all() and len(s) == w.numel()


@pytest.mark.claim("Riedi Lemma 8, Eq. 50", "Riedi Eq. 55", "Riedi Eq. 8, data factor", verdict="fails")
@pytest.mark.claim("Riedi Lemma 10, Eq. 57 and 58", verdict="fails")
@pytest.mark.claim("Riedi Eq. 53", verdict="holds if")
def test_the_smallest_counterexamples_have_two_inputs():
    md, z, w = identity(2), exact([1, 1]), exact([[1, -1], [0, 0]])  # the block diagonal form alone and as a batch
    assert (md @ w @ z).square().sum() == 0
    for flat in (w.flatten(), w.mT.flatten()):
        assert (landscape.riedi_lemma_8(md, z) @ flat).square().sum() == 2
    for count in (1, 2):
        assert w.flatten() @ landscape.quadratic_form(md.expand(count, 2, 2), z.expand(count, 2)) @ w.flatten() == 0
    assert pseudo_condition(true_q(ONE_UNIT, exact([[1, 2]]))) == 1  # the data factor
    assert pseudo_condition(landscape.riedi_lemma_8(ONE_UNIT[0], exact([1, 2]))) == 2
    equal = landscape.quadratic_form(ONE_UNIT, z[None])  # by both sides of Lemma 10 two eigenvalues are 1
    assert torch.linalg.eigvalsh(equal).tolist() == pytest.approx([0, 2])
    assert not (singular(0 * identity(2)) > 0).any()  # of zero there is no condition number, and elsewhere it jumps
    assert pseudo_condition(exact([[1, 0], [0, 0]])) == 1
    assert pseudo_condition(exact([[1, 0], [0, 1e-8]])) == pytest.approx(1e8)


@pytest.mark.claim("Riedi Lemma 8, Eq. 51", "Riedi Corollary 9", "Riedi, Lemma 8 against the form", verdict="holds")
@a_hundred
@given(quadratics(), seeds)
def test_the_printed_matrix_its_singular_values_their_quotient_and_the_form_that_exceeds_it(problem, seed):
    products, z = problem
    count, m = int(z[0].count_nonzero()), products.shape[2]
    assume(count)
    s, entries, printed = singular(products[0]), z[0].abs(), landscape.riedi_lemma_8(products[0], z[0])
    expected = torch.outer(s, entries).flatten().sort(descending=True).values
    torch.testing.assert_close(singular(printed), expected, rtol=0, atol=1e-12 * (expected[0].item() + 1e-290))
    if all(v.max() > 1e-6 and not ((v > 0) & (v < 1e-3 * v.max())).any() for v in (s, entries)):
        kappa = pseudo_condition(products[0]) * (entries.max() / entries[entries > 0].min()).item()
        assert pseudo_condition(printed) == pytest.approx(kappa, rel=1e-6)
    aligned = torch.outer(gaussian(seed, m), torch.where(z[0] != 0, 1 / z[0], 0.0))
    for w in (gaussian(seed, m, z.shape[1]), aligned):  # by the number of inputs at most
        form, most = (products[0] @ w @ z[0]).square().sum(), count * (printed @ w.mT.flatten()).square().sum().item()
        assert form <= most * (1 + 1e-9) + 1e-300
    assert form == pytest.approx(most, rel=1e-9, abs=1e-300)


@pytest.mark.claim("Riedi Eq. 59", verdict="fails")
@a_hundred
@given(st.floats(1.5, 10), st.integers(1, 3), seeds)
def test_uncorrelated_inputs_alone_do_not_do(ratio, m, seed):
    z, x = exact([[1, 1], [1, -1]]), orthogonal(seed, m)
    assert z[:, 0] @ z[:, 1] == 0
    form = landscape.quadratic_form(torch.stack([x, ratio * x]), z).view(m, 2, m, 2)
    expected = (1 - ratio**2) / 2 * torch.eye(m).double()  # off the diagonal blocks, for weights column by column
    torch.testing.assert_close(form[:, 0, :, 1], expected, rtol=0, atol=1e-12 * ratio**2)


@pytest.mark.claim("Riedi Corollary 11", verdict="fails")
@given(st.floats(1e-6, 0.5))
def test_it_is_off_by_any_factor(angle):
    products, z = torch.ones(2, 1, 1).double(), exact([[1 + angle, 1 - angle], [1 - angle, 1 + angle]])
    assert landscape.riedi_corollary_11(products, z) == pytest.approx(1)
    assert pseudo_condition(true_q(products, z)) == pytest.approx(1 / angle, rel=1e-6)


@pytest.mark.claim("Riedi section 7, mini-batches", verdict="fails")
@a_hundred
@given(quadratics(same=True))
def test_a_batch_has_the_data_factor_that_one_sample_has_not(problem):
    products, z = problem
    for values in (singular(products[0]), singular(z)):
        assume(values[0] > 1e-6 and not ((values > 1e-13 * values[0]) & (values < 1e-4 * values[0])).any())
    assume(z[0].any())
    one, batch = pseudo_condition(products[0]), pseudo_condition(products[0]) * pseudo_condition(z)
    assert pseudo_condition(true_q(products[:1], z[:1])) == pytest.approx(one, rel=1e-6)
    assert pseudo_condition(true_q(products, z)) == pytest.approx(batch, rel=1e-6)
    bound = landscape.landscape_condition(products, z)  # an equality for such samples
    assert bound == pytest.approx(batch, rel=1e-6) or bound == math.inf


def repaired(products, z):
    """Bounds of all md eigenvalues of the form, in descending order."""
    values = torch.linalg.eigvalsh(products.mT @ products).clamp_min(0)
    forms = ((z.mT * values[:, end]) @ z / len(z) for end in (0, -1))
    return [spectrum(form).clamp_min(0).repeat_interleave(products.shape[2]) for form in forms]


@pytest.mark.claim("Riedi Lemma 10, Eq. 56", "Riedi Lemma 10, vanishing inputs", verdict="holds")
@pytest.mark.claim("Riedi Lemma 10, repaired", "Riedi Corollary 11, repaired", verdict="holds")
@a_hundred
@given(quadratics())
def test_every_eigenvalue_and_the_condition_number_are_within_the_repaired_bounds(problem):
    products, inputs = problem
    m = products.shape[2]
    for z in (inputs, torch.cat([torch.zeros(len(inputs), 1).double(), inputs], 1)):
        (lower, upper), values = repaired(products, z), spectrum(landscape.quadratic_form(products, z))
        tolerance = 1e-11 * upper[0] + 1e-300
        assert (lower - tolerance <= values).all() and (values <= upper + tolerance).all()
        assert values[-1] >= -1e-12 * values[0] - 1e-300  # so that there is a symmetric square root
    assert (values[-m:] <= 1e-12 * values[0] + 1e-300).all()  # of an input that is always zero
    bound = landscape.landscape_condition(products, inputs)
    assert bound >= 1e5 or pseudo_condition(true_q(products, inputs)) <= bound * (1 + 1e-6)
    s, means = torch.linalg.svdvals(products), inputs.square().mean(0).sqrt()
    if products.shape[1] >= m and s.min() > 1e-9 * s.max():  # Corollary 11 as printed
        expected = (s.max() / s.min() * means.max() / means[means > 0].min()).item()
        assert landscape.riedi_corollary_11(products, inputs) == pytest.approx(expected, rel=1e-6)


@pytest.mark.claim("Riedi Lemma 10, repaired", verdict="holds")
@a_hundred
@given(sizes, sizes, seeds, seeds)
def test_orthogonal_matrices_attain_both_bounds(n, m, seed, other):
    products, z = torch.stack([orthogonal(seed + i, m) * (i + 1) for i in range(n)]), gaussian(other, n, 3)
    values = spectrum(landscape.quadratic_form(products, z))
    for bounds in repaired(products, z):
        torch.testing.assert_close(bounds, values, rtol=0, atol=1e-12 * values[0].item())
