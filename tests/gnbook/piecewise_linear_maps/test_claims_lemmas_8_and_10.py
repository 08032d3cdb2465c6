"""Riedi 2022, sections 3.4 to 3.6: Lemmas 8 and 10, Corollaries 9 and 11, and their repairs."""

import pytest
import torch
from gnbook.piecewise_linear_maps import landscape
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.gnbook.piecewise_linear_maps.helpers import pseudo_condition, quadratics, true_q
from tests.oracles import singular
from tests.strategies import a_hundred, exact, gaussian, instances, orthogonal, seeds, sizes


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


@pytest.mark.claim("Riedi Lemma 8, Eq. 51", verdict="holds")
@pytest.mark.claim("Riedi Corollary 9", verdict="holds")
@a_hundred
@given(quadratics())
def test_the_singular_values_of_the_printed_matrix_and_their_quotient_factor(problem):
    products, z = problem
    assume(z[0].any())
    s, entries, printed = singular(products[0]), z[0].abs(), landscape.riedi_lemma_8(products[0], z[0])
    expected = torch.outer(s, entries).flatten().sort(descending=True).values
    torch.testing.assert_close(singular(printed), expected, rtol=0, atol=1e-12 * (expected[0].item() + 1e-290))
    if all(v.max() > 1e-6 and not ((v > 0) & (v < 1e-3 * v.max())).any() for v in (s, entries)):
        kappa = pseudo_condition(products[0]) * (entries.max() / entries[entries > 0].min()).item()
        assert pseudo_condition(printed) == pytest.approx(kappa, rel=1e-6)


@pytest.mark.claim("Riedi Eq. 53", verdict="holds if")
def test_of_zero_there_is_none_and_elsewhere_it_jumps():
    assert not (singular(torch.zeros(2, 2).double()) > 0).any()
    assert pseudo_condition(exact([[1, 0], [0, 0]])) == 1
    assert pseudo_condition(exact([[1, 0], [0, 1e-8]])) == pytest.approx(1e8)


@pytest.mark.claim("Riedi Eq. 8, data factor", verdict="fails")
def test_the_smallest_counterexample_to_the_data_factor():
    products, z = torch.ones(1, 1, 1).double(), exact([[1, 2]])  # one unit, two inputs
    assert pseudo_condition(true_q(products, z)) == 1
    assert pseudo_condition(landscape.riedi_lemma_8(products[0], z[0])) == 2


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


def by_columns(form, m, d):
    """The form for weights column by column, as Eq. 59 has it."""
    return form.view(m, d, m, d).permute(1, 0, 3, 2).reshape(m * d, m * d)


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
@instances
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
    s, t = singular(products[0]), singular(z)
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
