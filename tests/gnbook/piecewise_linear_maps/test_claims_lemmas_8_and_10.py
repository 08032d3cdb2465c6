"""Riedi 2022, sections 3.4 to 3.6: Lemmas 8 and 10, Corollaries 9 and 11, and their repairs."""

import itertools
import math

import pytest
import torch
from gnbook.piecewise_linear_maps import landscape
from gnbook.piecewise_linear_maps.one_layer import layer_factors
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.gnbook.piecewise_linear_maps.helpers import (
    networks,
    pseudo_condition,
    quadratics,
    singular_values,
    squares_of,
    true_q,
)
from tests.strategies import a_hundred, attack, exact, gaussian, instances, orthogonal, seeds, sizes


def block_diagonal(products, z):
    """The matrix A of the proof of Lemma 10 (Eq. 59), for weights column by column."""
    blocks = [
        sum(row[j] ** 2 * x.mT @ x for x, row in zip(products, z, strict=True)) / len(z) for j in range(z.shape[1])
    ]
    return torch.block_diag(*blocks)


def squared_ends(products):
    """The smallest eigenvalue of each X_i^T X_i, m x m, and the largest."""
    values = torch.linalg.eigvalsh(products.mT @ products).clamp_min(0)
    return values[:, 0], values[:, -1]


def lemma_10(products, z):
    """Both sides of Eq. 58 and 57, for each input of the layer."""
    return [(z.square() * values[:, None]).mean(0) for values in squared_ends(products)]


def repaired(products, z):
    """Bounds of all md eigenvalues of the form, in descending order."""
    forms = ((z.mT * values) @ z / len(z) for values in squared_ends(products))
    return [torch.linalg.eigvalsh(form).clamp_min(0).flip(0).repeat_interleave(products.shape[2]) for form in forms]


def between(values, lower, upper, scale):
    tolerance = 1e-11 * float(scale) + 1e-300
    return bool((values >= lower - tolerance).all() and (values <= upper + tolerance).all())


@pytest.mark.claim("Riedi Lemma 8, Eq. 50", verdict="fails")
@pytest.mark.claim("Riedi Eq. 55", verdict="fails")
def test_the_smallest_counterexample_to_the_block_diagonal_form_alone_and_as_a_batch():
    md, z, w = torch.eye(2).double(), exact([1, 1]), exact([[1, -1], [0, 0]])
    assert (md @ w @ z).square().sum() == 0
    q = landscape.riedi_lemma_8(md, z)
    for flat in (w.flatten(), w.mT.flatten()):
        assert (q @ flat).square().sum() == 2
    for count in (1, 2):
        assert w.flatten() @ landscape.quadratic_form(md.expand(count, 2, 2), z.expand(count, 2)) @ w.flatten() == 0


@pytest.mark.claim("Riedi Lemma 8, Eq. 50", verdict="fails")
@a_hundred
@given(quadratics(), seeds)
def test_it_holds_if_no_more_than_one_input_is_not_zero(problem, seed):
    products, z = problem
    z = z[0].where(torch.arange(z.shape[1]) == z[0].abs().argmax(), 0)
    assume(z.any())
    w = gaussian(seed, products.shape[2], len(z))
    right = (landscape.riedi_lemma_8(products[0], z) @ w.mT.flatten()).square().sum()
    assert right == pytest.approx((products[0] @ w @ z).square().sum().item(), rel=1e-9, abs=1e-300)


@pytest.mark.claim("Riedi Lemma 8, Eq. 50", verdict="fails")
@a_hundred
@given(quadratics(), seeds)
def test_no_other_inputs_will_do_unless_md_is_zero(problem, seed):
    products, z = problem
    z = torch.cat([z[0], exact([1.0, -2.0])])
    assume(products[0].norm() > 1e-6)
    form = landscape.quadratic_form(products[:1], z[None])
    printed = landscape.riedi_lemma_8(products[0], z)
    m, d = products.shape[2], len(z)
    rows = (printed.mT @ printed).view(d, m, d, m).permute(1, 0, 3, 2).reshape(m * d, m * d)
    assert (form - rows).norm() > 1e-6 * form.norm()


@pytest.mark.claim("Riedi Lemma 8, Eq. 51", verdict="holds")
@pytest.mark.claim("Riedi Corollary 9", verdict="holds")
@a_hundred
@given(quadratics())
def test_the_singular_values_of_the_printed_matrix_and_their_quotient_factor(problem):
    products, z = problem
    assume(z[0].any())
    s, entries, printed = singular_values(products[0]), z[0].abs(), landscape.riedi_lemma_8(products[0], z[0])
    expected = torch.outer(s, entries).flatten().sort(descending=True).values
    torch.testing.assert_close(singular_values(printed), expected, rtol=0, atol=1e-12 * (expected[0].item() + 1e-290))
    if all(v.max() > 1e-6 and not ((v > 0) & (v < 1e-3 * v.max())).any() for v in (s, entries)):
        kappa = pseudo_condition(products[0]) * (entries.max() / entries[entries > 0].min()).item()
        assert pseudo_condition(printed) == pytest.approx(kappa, rel=1e-6)


@pytest.mark.claim("Riedi Eq. 53", verdict="holds if")
@instances
@given(squares_of(), st.sampled_from([0.01, 7.0, -3.0]))
def test_the_pseudo_condition_number_is_free_of_scale_and_at_least_one(pair, scale):
    a, _ = pair
    s = singular_values(a)
    assume(s[0] > 0 and not ((s > 1e-13 * s[0]) & (s < 1e-7 * s[0])).any())
    assert pseudo_condition(scale * a) == pytest.approx(pseudo_condition(a), rel=1e-6)
    assert pseudo_condition(a) >= 1


@pytest.mark.claim("Riedi Eq. 53", verdict="holds if")
def test_of_zero_there_is_none_and_elsewhere_it_jumps():
    assert not (singular_values(torch.zeros(2, 2).double()) > 0).any()
    assert pseudo_condition(exact([[1, 0], [0, 0]])) == 1
    assert pseudo_condition(exact([[1, 0], [0, 1e-8]])) == pytest.approx(1e8)


@pytest.mark.claim("Riedi Eq. 8, data factor", verdict="fails")
@instances
@given(quadratics(), st.floats(1.5, 1e3))
def test_one_sample_has_no_data_factor(problem, ratio):
    products, _ = problem
    s = singular_values(products[0])
    assume(s[0] > 1e-6 and not ((s > 1e-13 * s[0]) & (s < 1e-7 * s[0])).any())
    z = exact([1.0, ratio])
    assert pseudo_condition(true_q(products[:1], z[None])) == pytest.approx(pseudo_condition(products[0]), rel=1e-6)


@pytest.mark.claim("Riedi Eq. 8, data factor", verdict="fails")
def test_the_smallest_counterexample_to_the_data_factor():
    products, z = torch.ones(1, 1, 1).double(), exact([[1, 2]])  # one unit, two inputs
    assert pseudo_condition(true_q(products, z)) == 1
    assert pseudo_condition(landscape.riedi_lemma_8(products[0], z[0])) == 2


@pytest.mark.claim("Riedi Eq. 55", verdict="fails")
@a_hundred
@given(networks(), st.data())
def test_the_form_of_a_batch_is_the_mean_of_those_of_its_samples(problem, data):
    layers, x = problem
    index = data.draw(st.integers(0, len(layers) - 1))
    f = layer_factors(layers, index, x)
    assume(f.z.any(1).all())
    each = [landscape.quadratic_form(a[None], b[None]) for a, b in zip(f.product, f.z, strict=True)]
    whole = landscape.quadratic_form(f.product, f.z)
    torch.testing.assert_close(whole, sum(each) / len(x), rtol=0, atol=1e-12 * whole.abs().max().item() + 1e-300)


@pytest.mark.claim("Riedi Lemma 10, Eq. 56", verdict="holds")
@a_hundred
@given(quadratics())
def test_the_form_has_a_symmetric_square_root(problem):
    form = landscape.quadratic_form(*problem)
    values, vectors = torch.linalg.eigh(form)
    assert values[0] >= -1e-12 * values[-1].clamp_min(1e-300)
    root = vectors * values.clamp_min(0).sqrt() @ vectors.mT
    torch.testing.assert_close(root.mT @ root, form, rtol=0, atol=1e-12 * values[-1].item() + 1e-300)


@pytest.mark.claim("Riedi Lemma 10, Eq. 57 and 58", verdict="fails")
def test_one_sample_with_two_equal_inputs_breaks_both_sides():
    products, z = torch.ones(1, 1, 1).double(), exact([[1, 1]])
    lower, upper = lemma_10(products, z)
    assert lower.tolist() == upper.tolist() == [1, 1]
    assert torch.linalg.eigvalsh(landscape.quadratic_form(products, z)).tolist() == pytest.approx([0, 2])


@pytest.mark.claim("Riedi Lemma 10, Eq. 57 and 58", verdict="fails")
@pytest.mark.claim("Riedi Corollary 11", verdict="fails")
def test_an_attack_on_the_block_diagonal_matrices_attains_them():
    def excesses(products, z):
        s, z = torch.linalg.svdvals(products), z**2
        blocks = torch.einsum("bnd,bnkm,bnkl->bdml", z, products, products) / z.shape[1]
        values = torch.linalg.eigvalsh(blocks)
        lower, upper = (torch.einsum("bnd,bn->bd", z, s[..., i] ** 2) / z.shape[1] for i in (-1, 0))
        scale, means = upper.amax(-1, keepdim=True), z.mean(1)
        bound = (s.amax((1, 2)) ** 2 * means.amax(-1) / (s.amin((1, 2)) ** 2 * means.amin(-1))).log()
        kappa = (values.amax((1, 2)) / values.amin((1, 2))).log()
        return ((values[..., -1] - upper) / scale).amax(-1), ((lower - values[..., 0]) / scale).amax(-1), kappa - bound

    for i in range(3):
        best = attack(lambda x, z, i=i: excesses(x, z)[i], gaussian(1, 40, 2, 3, 2), gaussian(2, 40, 2, 2))
        assert -1e-2 < best < 1e-9


@pytest.mark.claim("Riedi Eq. 59", verdict="fails")
@a_hundred
@given(quadratics())
def test_the_blocks_of_two_inputs_meet_in_the_mean_of_their_product(problem):
    products, z = problem
    m, d = products.shape[2], z.shape[1]
    blocks = landscape.quadratic_form(products, z).view(m, d, m, d).permute(1, 0, 3, 2)
    for i, j in itertools.product(range(d), repeat=2):
        expected = sum(row[i] * row[j] * x.mT @ x for x, row in zip(products, z, strict=True)) / len(z)
        torch.testing.assert_close(blocks[i, :, j], expected, rtol=0, atol=1e-11 * (1e-290 + blocks.abs().max().item()))


def by_columns(form, m, d):
    """The form for weights column by column, as Eq. 59 has it."""
    return form.view(m, d, m, d).permute(1, 0, 3, 2).reshape(m * d, m * d)


@pytest.mark.claim("Riedi Eq. 59", verdict="fails")
@a_hundred
@given(quadratics(same=True), seeds)
def test_it_holds_for_uncorrelated_inputs_if_all_samples_share_one_matrix(problem, seed):
    products, d = problem[0], min(problem[1].shape)
    z = orthogonal(seed, len(products))[:, :d] * torch.arange(1, d + 1)
    form = by_columns(landscape.quadratic_form(products, z), products.shape[2], d)
    torch.testing.assert_close(form, block_diagonal(products, z), rtol=0, atol=1e-12 * (form.norm().item() + 1e-290))


@pytest.mark.claim("Riedi Eq. 59", verdict="fails")
@a_hundred
@given(st.floats(1.5, 10), st.integers(1, 3), seeds)
def test_uncorrelated_inputs_alone_do_not_do(ratio, m, seed):
    z, x = exact([[1, 1], [1, -1]]), orthogonal(seed, m)
    assert z[:, 0] @ z[:, 1] == 0
    off = by_columns(landscape.quadratic_form(torch.stack([x, ratio * x]), z), m, 2)[:m, m:]
    torch.testing.assert_close(off, (1 - ratio**2) / 2 * torch.eye(m).double(), rtol=0, atol=1e-12 * ratio**2)


@pytest.mark.claim("Riedi Lemma 10, vanishing inputs", verdict="holds")
@a_hundred
@given(quadratics())
def test_an_input_that_is_always_zero_gives_m_zero_eigenvalues(problem):
    products, z = problem
    z = torch.cat([torch.zeros(len(z), 1).double(), z], 1)
    values = torch.linalg.eigvalsh(landscape.quadratic_form(products, z))
    assert (values[: products.shape[2]].abs() <= 1e-12 * values[-1] + 1e-300).all()


@pytest.mark.claim("Riedi Corollary 11", verdict="fails")
def test_two_samples_of_two_inputs_break_it():
    products, z = torch.ones(2, 1, 1).double(), exact([[2, 1], [1, 2]])
    assert landscape.riedi_corollary_11(products, z) == pytest.approx(1)
    assert pseudo_condition(true_q(products, z)) == pytest.approx(3)


@pytest.mark.claim("Riedi Corollary 11", verdict="fails")
@instances
@given(st.floats(1e-6, 0.5))
def test_it_is_off_by_any_factor(angle):
    products, z = torch.ones(2, 1, 1).double(), exact([[1 + angle, 1 - angle], [1 - angle, 1 + angle]])
    assert landscape.riedi_corollary_11(products, z) == pytest.approx(1)
    assert pseudo_condition(true_q(products, z)) == pytest.approx(1 / angle, rel=1e-6)


@pytest.mark.claim("Riedi Lemma 10, Eq. 57 and 58", verdict="fails")
@pytest.mark.claim("Riedi Corollary 11", verdict="fails")
@a_hundred
@given(quadratics())
def test_both_are_bounds_for_one_input_and_for_the_block_diagonal_matrix(problem):
    products, z = problem
    (lower, upper), m, whole = lemma_10(products, z), products.shape[2], block_diagonal(products, z)
    for j in range(z.shape[1]):
        values = torch.linalg.eigvalsh(whole[j * m : (j + 1) * m, j * m : (j + 1) * m])
        assert between(values, lower[j], upper[j], upper.max())
    for inputs in (z[:, :1], z):
        bound = landscape.riedi_corollary_11(products, inputs) if inputs.any() else math.inf
        if bound < 1e6:
            values = torch.linalg.eigvalsh(block_diagonal(products, inputs))
            values = values[values > 1e-14 * values[-1]]
            assert (values[-1] / values[0]).sqrt() <= bound * (1 + 1e-6)


@pytest.mark.claim("Riedi section 7, mini-batches", verdict="fails")
@a_hundred
@given(quadratics(same=True))
def test_a_batch_has_the_data_factor_that_one_sample_has_not(problem):
    products, z = problem
    s, t = singular_values(products[0]), singular_values(z)
    for values in (s, t):
        assume(values[0] > 1e-6 and not ((values > 1e-13 * values[0]) & (values < 1e-4 * values[0])).any())
    assume(z[0].any())
    one, batch = true_q(products[:1], z[:1]), true_q(products, z)
    assert pseudo_condition(one) == pytest.approx(pseudo_condition(products[0]), rel=1e-6)
    assert pseudo_condition(batch) == pytest.approx(pseudo_condition(products[0]) * pseudo_condition(z), rel=1e-6)


@pytest.mark.claim("Riedi, Lemma 8 against the form", verdict="holds")
@a_hundred
@given(quadratics(), seeds)
def test_the_form_exceeds_the_printed_one_by_the_number_of_inputs_at_most(problem, seed):
    products, z = problem
    count = int(z[0].count_nonzero())
    assume(count)
    q = landscape.riedi_lemma_8(products[0], z[0])
    w = gaussian(seed, products.shape[2], z.shape[1])
    left, right = (products[0] @ w @ z[0]).square().sum(), (q @ w.mT.flatten()).square().sum()
    assert left <= count * right * (1 + 1e-9) + 1e-300
    aligned = torch.outer(gaussian(seed, products.shape[2]), torch.where(z[0] != 0, 1 / z[0], 0.0))
    left, right = (products[0] @ aligned @ z[0]).square().sum(), (q @ aligned.mT.flatten()).square().sum()
    assert left == pytest.approx(count * right.item(), rel=1e-9, abs=1e-300)


@pytest.mark.claim("Riedi Lemma 10, repaired", verdict="holds")
@pytest.mark.claim("Riedi Corollary 11, repaired", verdict="holds")
@a_hundred
@given(quadratics())
def test_every_eigenvalue_and_the_condition_number_are_within_the_repaired_bounds(problem):
    products, z = problem
    lower, upper = repaired(products, z)
    values = torch.linalg.eigvalsh(landscape.quadratic_form(products, z)).flip(0)
    assert len(lower) == len(upper) == len(values) and between(values, lower, upper, upper.max())
    bound = landscape.landscape_condition(products, z)
    if bound < 1e5:
        assert pseudo_condition(true_q(products, z)) <= bound * (1 + 1e-6)


@pytest.mark.claim("Riedi Lemma 10, repaired", verdict="holds")
@a_hundred
@given(sizes, sizes, seeds, seeds)
def test_orthogonal_matrices_attain_both_bounds(n, m, seed, other):
    products = torch.stack([orthogonal(seed + i, m) * (i + 1) for i in range(n)])
    z = gaussian(other, n, 3)
    lower, upper = repaired(products, z)
    values = torch.linalg.eigvalsh(landscape.quadratic_form(products, z)).flip(0)
    scale = 1e-12 * upper[0].item()
    torch.testing.assert_close(lower, values, rtol=0, atol=scale)
    torch.testing.assert_close(upper, values, rtol=0, atol=scale)


def batch_of_forms(products, z):
    """Eigenvalues of the form, ascending, and extreme singular values of MD, for a batch."""
    factor = torch.einsum("bnkm,bnd->bnkmd", products, z).flatten(1, 2).flatten(2)
    s = torch.linalg.svdvals(products)
    return torch.linalg.eigvalsh(factor.mT @ factor / z.shape[1]), s[..., 0], s[..., -1]


@pytest.mark.claim("Riedi Lemma 10, repaired", verdict="holds")
@pytest.mark.parametrize("end", ["lower", "upper"])
def test_an_attack_attains_the_repaired_bounds_and_does_not_pass_them(end):
    def excess(products, z):
        values, *ends = batch_of_forms(products, z)
        weights = ends[end == "lower"] ** 2
        bound = torch.linalg.eigvalsh((z.mT * weights[:, None]) @ z / z.shape[1]).repeat_interleave(2, -1)
        scale = values[:, -1:].detach()
        return ((values - bound if end == "upper" else bound - values) / scale).amax(-1)

    assert -1e-3 < attack(excess, gaussian(3, 40, 3, 2, 2), gaussian(4, 40, 3, 2)) < 1e-11


@pytest.mark.claim("Riedi Corollary 11, repaired", verdict="holds")
@pytest.mark.parametrize("n, k, m, d", [(3, 2, 2, 2), (2, 3, 2, 2), (2, 1, 2, 3), (2, 2, 3, 2)])
def test_an_attack_on_the_repaired_condition_number_does_not_pass_it(n, k, m, d):
    rank = min(n * k, m * d)

    def excess(products, z):
        values, largest, smallest = batch_of_forms(products, z)
        data = torch.linalg.svdvals(z)
        bound = largest.amax(-1) / smallest.amin(-1) * data[:, 0] / data[:, -1]
        ours = landscape.landscape_condition(products[0].detach(), z[0].detach())
        assert ours == pytest.approx(bound[0].item(), rel=1e-6)
        return (values[:, -1] / values[:, -rank]).log() / 2 - bound.log()

    best = attack(excess, gaussian(5, 40, n, k, m), gaussian(6, 40, n, d))
    assert -0.1 < best < 1e-6


@pytest.mark.claim("Riedi Corollary 11, repaired", verdict="holds")
@a_hundred
@given(quadratics(same=True))
def test_it_is_exact_if_all_samples_share_md_and_that_is_of_full_rank(problem):
    products, z = problem
    s, t = singular_values(products[0]), singular_values(z)
    assume(s[-1] > 1e-4 * s[0] > 0 and not ((t > 1e-13 * t[0]) & (t < 1e-4 * t[0])).any())
    k, m = products.shape[1:]
    independent = len(z) <= z.shape[1] and t[-1] > 1e-4 * t[0]
    if k >= m or independent:
        bound = landscape.landscape_condition(products, z)
        assert bound == pytest.approx(pseudo_condition(true_q(products, z)), rel=1e-6)


@pytest.mark.claim("Riedi Corollary 11, repaired", verdict="holds")
@instances
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), seeds)
def test_with_fewer_outputs_than_units_it_takes_independent_samples(n, k, more, seed):
    products, z = gaussian(seed, n, k, k + more), gaussian(seed + 1, n, n + more)
    bound = landscape.landscape_condition(products, z)
    true = pseudo_condition(true_q(products, z))
    assert true <= bound * (1 + 1e-6) and bound < math.inf
    if more:
        assert landscape.landscape_condition(products, z[:, :1].expand(n, 2)) == math.inf or n == 1
