"""Riedi 2022, sections 2 and 3, up to Corollary 13, and figures 3 and 8."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from gnlib import gauss_newton_gram
from gnlib.chapters.piecewise_linear_maps import landscape
from gnlib.chapters.piecewise_linear_maps.one_layer import along_line, layer_factors
from gnlib.chapters.piecewise_linear_maps.partition import partition
from gnlib.chapters.shared.piecewise_linear import Layer, SkipLayer, affine_products
from tests.strategies import (
    a_hundred,
    attack,
    diagonal,
    exact,
    gaussian,
    hundreds,
    kron,
    matrices,
    orthogonal,
    pairs,
    samples,
    seeds,
    sizes,
)

SLOPES = [-1.0, -0.3, 0.0, 0.1, 1.0]
slopes = st.sampled_from(SLOPES)


@st.composite
def squares_of(draw):
    """Draw two square matrices of one size, hostile ones among them."""
    n = draw(sizes)
    return draw(matrices(n, n)), draw(matrices(n, n))


@st.composite
def networks(draw, skips=True, square=False, deepest=3):
    """Draw layers, dead, linear and residual ones among them, and samples."""
    d, n = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    layers, width = [], d
    for _ in range(draw(st.integers(1, deepest))):
        skip = draw(st.sampled_from([0.0, 0.0, 1.0, -0.5])) if skips else 0.0
        out = width if skip or square else draw(st.integers(1, 4))
        weight = draw(matrices(out, width)) if draw(st.booleans()) else gaussian(draw(seeds), out, width)
        bias = gaussian(draw(seeds), out) * draw(st.sampled_from([0, 1, 1]))
        layers.append(Layer(weight, bias, draw(slopes), skip))
        width = out
    return layers, gaussian(draw(seeds), n, d)


@st.composite
def quadratics(draw, same=False, most=4):
    """Draw matrices MD and inputs z of a few samples; if same, one MD for all of them."""
    n, k, m, d = (draw(st.integers(1, most)) for _ in range(4))
    products = [draw(matrices(k, m)) for _ in range(1 if same else n)] * (n if same else 1)
    z = draw(samples(d))[:n]
    z = torch.cat([z, gaussian(draw(seeds), n - len(z), d)]) if len(z) < n else z
    assume(z.abs().max() > 0)
    return torch.stack(products), z


def a_thousand_quadratics():
    """Yield a thousand of all shapes up to 3: regular, of low rank, of integers, badly scaled, or all alike."""
    for seed in range(1000):
        n, k, m, d = (1 + seed // 3**i % 3 for i in range(4))
        products, z = gaussian(seed, n, k, m), gaussian(seed + 1, n, d)
        kind = seed // 81 % 5
        if kind == 1:
            products = products[..., :1] * products[:, :1]
        elif kind == 2:
            products, z = (2 * products).round(), (2 * z).round()
            z[0, 0] = 2
        elif kind == 3:
            products = products * torch.logspace(-2, 2, n, dtype=torch.float64)[:, None, None]
        elif kind == 4:
            products = products[:1].expand(n, k, m)
        yield products, z


def phi(t, slope):
    return torch.maximum(t, slope * t)


def forward(layers, z):
    """The network as Riedi 2022, Eq. 1, has it, with samples in rows."""
    for weight, bias, slope, skip in layers:
        t = phi(z @ weight.mT + bias, slope)
        z = t + skip * z if skip else t
    return z


def as_module(layers):
    return nn.Sequential(*(SkipLayer(*layer) for layer in layers))


def singular_values(matrix):
    return torch.linalg.svdvals(matrix)


def pseudo_condition(matrix):
    """Ratio of singular values, the zeros left out."""
    s = singular_values(matrix)
    s = s[s > 1e-9 * s[0]]
    return (s[0] / s[-1]).item()


def true_q(products, z):
    """A matrix Q with |Q w|^2 the quadratic term of the loss, for weights row by row, from its definition."""
    rows = [kron(x, row[None]) for x, row in zip(products, z, strict=True)]
    return torch.cat(rows) / len(z) ** 0.5


def block_diagonal(products, z):
    """The matrix A of the proof of Lemma 10 (Eq. 59), for weights column by column."""
    blocks = [
        sum(row[j] ** 2 * x.mT @ x for x, row in zip(products, z, strict=True)) / len(z) for j in range(z.shape[1])
    ]
    return torch.block_diag(*blocks)


def between(values, lower, upper, scale):
    tolerance = 1e-11 * float(scale) + 1e-300
    return bool((values >= lower - tolerance).all() and (values <= upper + tolerance).all())


# Section 2: singular values


@pytest.mark.claim("Riedi Proposition 1", verdict="holds")
@hundreds
@given(pairs())
def test_eigenvalues_in_order_move_by_no_more_than_the_frobenius_norm(pair):
    a, b = pair
    left = (torch.linalg.eigvalsh(a) - torch.linalg.eigvalsh(b)).square().sum()
    assert left <= (a - b).square().sum() * (1 + 1e-9) + 1e-24 * (a.norm() + b.norm()) ** 2


@pytest.mark.claim("Riedi Proposition 1", verdict="holds")
@hundreds
@given(sizes, seeds, st.data())
def test_commuting_matrices_of_the_same_order_attain_it(n, seed, data):
    q = orthogonal(seed, n)
    a, b = (gaussian(seed + i, n).sort().values for i in (1, 2))
    left = (torch.linalg.eigvalsh(q * a @ q.mT) - torch.linalg.eigvalsh(q * b @ q.mT)).square().sum()
    assert left == pytest.approx(((q * (a - b) @ q.mT).square().sum()).item(), rel=1e-9)


@pytest.mark.claim("Riedi Corollary 2", verdict="holds")
@hundreds
@given(squares_of())
def test_singular_values_in_order_move_by_no_more_than_the_frobenius_norm(pair):
    a, b = pair
    left = (singular_values(a) - singular_values(b)).square().sum()
    assert left <= (a - b).square().sum() * (1 + 1e-9) + 1e-24 * (a.norm() + b.norm()) ** 2


@pytest.mark.claim("Riedi Corollary 2", verdict="holds")
@hundreds
@given(sizes, sizes, seeds)
def test_rectangular_matrices_and_the_symmetric_matrix_of_the_proof(rows, columns, seed):
    a, b = gaussian(seed, rows, columns), gaussian(seed + 1, rows, columns)
    assert (singular_values(a) - singular_values(b)).square().sum() <= (a - b).square().sum()
    whole = torch.zeros(rows + columns, rows + columns).double()
    whole[:rows, rows:], whole[rows:, :rows] = a, a.mT
    s = singular_values(a)
    zeros = torch.zeros(abs(rows - columns)).double()
    expected = torch.cat([s, -s, zeros]).sort().values
    torch.testing.assert_close(torch.linalg.eigvalsh(whole), expected, rtol=0, atol=1e-12)


@pytest.mark.claim("Riedi Lemma 3", verdict="holds if")
@hundreds
@given(squares_of(), st.floats(0, 1), st.floats(-1e-3, 1e-3))
def test_simple_singular_values_stay_simple_nearby_and_all_are_continuous(pair, at, step):
    a, b = pair
    here, there = singular_values(a + at * b), singular_values(a + (at + step) * b)
    moved = abs(step) * b.norm() * (1 + 1e-9) + 1e-12 * (a.norm() + b.norm())
    assert (here - there).abs().max() <= moved
    gaps = here.diff().abs()
    for i in range(len(here)):
        near = torch.cat([gaps[max(i - 1, 0) : i], gaps[i : i + 1]])
        if len(near) and near.min() > 2 * moved:  # in S_i, and so is all within that distance
            others = torch.cat([there[:i], there[i + 1 :]])
            assert (others - there[i]).abs().min() > 0


@pytest.mark.claim("Riedi Lemma 3", verdict="holds if")
def test_on_a_closed_interval_the_set_may_be_closed():
    grid = torch.linspace(0, 1, 5)
    values = torch.stack([singular_values(exact([[2.0, 0.0], [0.0, rho.item()]])) for rho in grid])
    assert (values[:, 0] > values[:, 1]).all()  # S_1 is the whole of [0, 1], open in [0, 1] but not in the line


@pytest.mark.claim("Riedi Proposition 4", verdict="holds")
@hundreds
@given(squares_of(), seeds)
def test_the_largest_singular_value_the_operator_norm_and_the_frobenius_norm(pair, seed):
    a, b = pair
    s, frobenius = singular_values(a), a.norm()
    rank = int((s > 1e-12 * s[0].clamp_min(1e-300)).sum())
    u = gaussian(seed, len(a))
    assert (a @ u).norm() <= s[0] * u.norm() * (1 + 1e-9)
    right = torch.linalg.svd(a).Vh[0]
    assert (a @ right).norm() == pytest.approx(s[0].item(), rel=1e-9, abs=1e-300)
    assert s[0] <= frobenius * (1 + 1e-9) and frobenius <= rank**0.5 * s[0] * (1 + 1e-9) + 1e-300
    assert singular_values(a + b)[0] <= (s[0] + singular_values(b)[0]) * (1 + 1e-9)


@pytest.mark.claim("Riedi Proposition 4", verdict="holds")
@hundreds
@given(sizes, seeds)
def test_both_norms_coincide_for_rank_one_and_only_there(n, seed):
    a = torch.outer(gaussian(seed, n), gaussian(seed + 1, n))
    assert a.norm() == pytest.approx(singular_values(a)[0].item(), rel=1e-9)
    if n > 1:
        b = a + gaussian(seed + 2, n, n)
        assert b.norm() > singular_values(b)[0]


@pytest.mark.claim("Riedi Proposition 5", verdict="holds")
@hundreds
@given(squares_of())
def test_weyl_for_singular_values(pair):
    a, b = pair
    n, (left, right, difference) = len(a), map(singular_values, (a, b, a - b))
    tolerance = 1e-12 * (left[0] + right[0])
    for i, j in itertools.product(range(n), repeat=2):
        if i + j < n:
            assert left[i + j] <= right[i] + difference[j] + tolerance
    assert (left - right).abs().max() <= difference[0] + tolerance
    assert difference[0] <= (a - b).norm() * (1 + 1e-9)


@pytest.mark.claim("Riedi Proposition 5", verdict="holds")
@hundreds
@given(squares_of(), st.data())
def test_cauchy_interlacing_by_deletion_and_by_zeroing(pair, data):
    a, n = pair[0], len(pair[0])
    gone = data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1))
    kept = [i for i in range(n) if i not in gone]
    zeroed = a.clone()
    zeroed[:, list(gone)] = 0
    whole, tolerance = singular_values(a), 1e-12 * a.norm()
    padded = torch.cat([whole, torch.zeros(n).double()])
    for part in (singular_values(a[kept]), singular_values(a[:, kept]), singular_values(zeroed)):
        for i, value in enumerate(part):
            assert padded[i] + tolerance >= value >= padded[i + len(gone)] - tolerance


@pytest.mark.claim("Riedi Proposition 5", verdict="holds")
def test_rows_and_columns_deleted_together_count_twice():
    a = exact([[0, 1], [1, 0]])
    assert singular_values(a[:1, :1])[0] < singular_values(a)[1]  # one of each deleted, and i + m = 2


def family(seed, n):
    """A polynomial family of matrices and its derivative."""
    parts = [gaussian(seed + i, n, n) for i in range(3)]
    return (
        lambda rho: parts[0] + rho * parts[1] + rho**2 * parts[2],
        lambda rho: parts[1] + 2 * rho * parts[2],
    )


@pytest.mark.claim("Riedi Theorem 6", verdict="holds")
@a_hundred
@given(st.integers(1, 4), seeds, st.floats(-1, 1))
def test_hellmann_feynman_and_a_smooth_eigenvector(n, seed, rho):
    matrix, derivative = family(seed, n)

    def symmetric_part(rho):
        return matrix(rho) + matrix(rho).mT

    values, vectors = torch.linalg.eigh(symmetric_part(rho))
    assume(n == 1 or values.diff().min() > 0.3)
    h, slope = 1e-6, derivative(rho) + derivative(rho).mT
    low, high = torch.linalg.eigh(symmetric_part(rho - h)), torch.linalg.eigh(symmetric_part(rho + h))
    formula = vectors.mT @ slope @ vectors
    torch.testing.assert_close((high[0] - low[0]) / (2 * h), formula.diagonal(), rtol=0, atol=1e-6)
    for i in range(n):
        aligned = [pair[1][:, i] * torch.sign(pair[1][:, i] @ vectors[:, i]) for pair in (low, high)]
        weights = torch.tensor([formula[j, i] / (values[i] - values[j]) if j != i else 0.0 for j in range(n)])
        torch.testing.assert_close((aligned[1] - aligned[0]) / (2 * h), vectors @ weights.double(), rtol=0, atol=1e-5)


@pytest.mark.claim("Riedi Theorem 6", verdict="holds")
def test_where_eigenvalues_coincide_the_formula_may_fail():
    largest = [torch.linalg.eigvalsh(exact([[rho, 0], [0, -rho]]))[1].item() for rho in (-1e-3, 0.0, 1e-3)]
    assert largest == pytest.approx([1e-3, 0, 1e-3])  # |rho| has no derivative at 0


@pytest.mark.claim("Riedi Corollary 7", verdict="holds")
@hundreds
@given(st.integers(1, 4), seeds, st.floats(-1, 1))
def test_the_derivative_of_a_simple_singular_value_needs_no_assumption_on_the_others(n, seed, rho):
    matrix, derivative = family(seed, n)
    left, s, right = torch.linalg.svd(matrix(rho))
    h = 1e-6
    for i in range(n):
        gaps = [abs(s[i] - s[j]).item() for j in range(n) if j != i]
        if s[i] > 0.1 and min(gaps, default=1) > 0.1:
            quotient = (singular_values(matrix(rho + h))[i] - singular_values(matrix(rho - h))[i]) / (2 * h)
            assert quotient.item() == pytest.approx((right[i] @ derivative(rho).mT @ left[:, i]).item(), abs=1e-5)


@pytest.mark.claim("Riedi Corollary 7", verdict="holds")
@hundreds
@given(st.integers(1, 4), seeds, st.floats(-1, 1))
def test_simple_positive_singular_values_are_never_so_at_isolated_points(n, seed, rho):
    """S_i^* is open: its points are not isolated, and the assumption as printed leaves the empty set only."""
    matrix, _ = family(seed, n)
    s, near = singular_values(matrix(rho)), singular_values(matrix(rho + 1e-9))
    for i in range(n):
        gaps = [abs(s[i] - s[j]).item() for j in range(n) if j != i]
        if s[i] > 1e-6 and min(gaps, default=1) > 1e-6:
            assert near[i] > 0 and all(near[i] != near[j] for j in range(n) if j != i)


@pytest.mark.claim("Riedi Example 1", verdict="holds")
@hundreds
@given(st.floats(-1, 7))
def test_the_singular_values_of_the_example(rho):
    s = singular_values(diagonal([-4, -2], 2, 2) + rho * torch.eye(2).double())
    expected = sorted([abs(rho - 4), abs(rho - 2)], reverse=True)
    assert s.tolist() == pytest.approx(expected, abs=1e-12)
    assert s[0] >= 1 - 1e-12  # the largest has no zero; the smallest has two, 2 and 4


@pytest.mark.claim("Riedi Example 1", verdict="holds")
@pytest.mark.parametrize("rho, order", [(2, 1), (4, 1), (3, 0), (3, 1)])
def test_where_the_singular_values_of_the_example_have_a_kink(rho, order):
    left, here, right = (
        singular_values(diagonal([-4, -2], 2, 2) + (rho + h) * torch.eye(2).double())[order] for h in (-1e-3, 0, 1e-3)
    )
    assert abs((right - here) - (here - left)).item() == pytest.approx(2e-3, rel=1e-9)


# Section 3: piecewise affine maps


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
@hundreds
@given(st.floats(1.01, 5), st.floats(0.1, 5))
def test_for_slopes_above_one_the_two_sides_change_places(slope, t):
    assert phi(exact(t), slope) == slope * t and phi(exact(-t), slope) == -t


@pytest.mark.claim("Riedi Eq. 34, activations", verdict="fails")
@hundreds
@given(st.floats(-3, 3), st.integers(0, 1), seeds)
def test_max_pooling_is_not_an_activation_of_one_coordinate(slope, coordinate, seed):
    """Whatever the slope, it ignores the other coordinate, and max-pooling does not."""
    t = gaussian(seed, 2)
    moved = t.clone()
    moved[1 - coordinate] = t.max() + 1
    before, after = (phi(points, slope)[coordinate] for points in (t, moved))
    pooled = [nn.functional.max_pool1d(points[None], 2).item() for points in (t, moved)]
    assert before == after and pooled[1] == pytest.approx(t.max().item() + 1) and pooled[0] == t.max()


@pytest.mark.claim("Riedi Eq. 34, activations", verdict="fails")
@hundreds
@given(st.floats(-5, 5), st.floats(-5, 5))
def test_max_pooling_is_two_layers_of_that_form(first, second):
    layers = [
        Layer(exact([[1, -1], [0, 1], [0, -1]]), torch.zeros(3).double(), 0.0),
        Layer(exact([[1, 1, -1]]), torch.zeros(1).double()),
    ]
    assert forward(layers, exact([[first, second]])).item() == pytest.approx(max(first, second), abs=1e-12)


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


@pytest.mark.claim("Riedi Eq. 37", verdict="holds")
@a_hundred
@given(networks(skips=False))
def test_the_product_of_the_factors_is_the_matrix_of_the_network(problem):
    layers, (x, *_) = problem
    try:
        piece = affine_products(layers, x)
    except ValueError:
        assume(False)
    product = torch.eye(len(x)).double()
    for d, layer in zip(piece.slopes, layers, strict=True):
        product = d.diag() @ layer.weight @ product
    torch.testing.assert_close(piece.matrix, product, rtol=1e-10, atol=1e-12)
    (jacobian,) = torch.autograd.functional.jacobian(lambda p: forward(layers, p[None])[0], (x,))
    torch.testing.assert_close(product, jacobian, rtol=1e-10, atol=1e-10 * (1e-3 + jacobian.abs().max().item()))


@pytest.mark.claim("Riedi Eq. 38", verdict="fails")
def test_the_smallest_network_with_an_inactive_unit_breaks_it():
    layer = Layer(exact([[1]]), exact([-1]), 0.0)  # max(0, x - 1) at x = 0
    assert forward([layer], exact([[0]])).item() == 0
    assert printed_offset([layer], [exact([0])]).item() == -1
    assert affine_products([layer], exact([0])).offset.item() == 0


@pytest.mark.claim("Riedi Eq. 38", verdict="fails")
@a_hundred
@given(networks(skips=False))
def test_it_holds_where_all_units_are_active(problem):
    layers, (x, *_) = problem
    layers = [layer._replace(slope=1.0) for layer in layers]
    piece = affine_products(layers, x)
    torch.testing.assert_close(printed_offset(layers, piece.slopes), piece.offset, rtol=1e-10, atol=1e-10)


@pytest.mark.claim("Riedi Figure 3, seven regions", verdict="holds")
@pytest.mark.parametrize("seed", range(10))
def test_three_lines_in_general_position_make_seven_regions(seed):
    layer = Layer(gaussian(seed, 3, 2), gaussian(seed + 100, 3), 0.1)
    assert len(partition([layer], (-1e4, 1e4, -1e4, 1e4))[0]) == 7


@pytest.mark.claim("Riedi Figure 3, seven regions", verdict="holds")
@pytest.mark.parametrize(
    "weight, bias, regions",
    [
        ([[1, 0], [0, 1], [1, 1]], [0, 0, 0], 6),  # through one point
        ([[1, 0], [1, 0], [0, 1]], [0, 1, 0], 6),  # two of them parallel
        ([[1, 0], [1, 0], [1, 0]], [0, 1, 2], 4),
        ([[1, 0], [2, 0], [0, 0]], [0, 0, 1], 2),
    ],
)
def test_in_special_position_there_are_fewer(weight, bias, regions):
    assert len(partition([Layer(exact(weight), exact(bias), 0.0)], (-5, 5, -5, 5))[0]) == regions


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


@pytest.mark.claim("Riedi footnote 1, square weights", verdict="fails")
@a_hundred
@given(networks(skips=False))
def test_without_a_skip_zeros_do_no_harm(problem):
    layers, x = problem
    assume(len(layers) > 1)  # outputs that are zero for all weights are added, and none that the weights move
    n = max(max(layer.weight.shape) for layer in layers)
    padded = []
    for weight, bias, slope, _ in layers:
        w, b = torch.zeros(n, n).double(), torch.zeros(n).double()
        w[: weight.shape[0], : weight.shape[1]], b[: len(bias)] = weight, bias
        padded.append(Layer(w, b, slope))
    wide = torch.zeros(len(x), n).double()
    wide[:, : x.shape[1]] = x
    factors, larger = layer_factors(layers, 0, x), layer_factors(padded, 0, wide)
    for a, b in zip(factors.product, larger.product, strict=True):
        s, t = singular_values(a), singular_values(b)
        s, t = s[s > 1e-9 * s[0]], t[t > 1e-9 * t[0]]
        torch.testing.assert_close(s, t, rtol=1e-6, atol=1e-12)


@pytest.mark.claim("Riedi footnote 1, square weights", verdict="fails")
def test_a_padded_output_of_the_trained_layer_itself_counts():
    alone = layer_factors([Layer(exact([[3, 1]]), exact([0]), 0.1)], 0, exact([[1, 1]]))
    padded = layer_factors([Layer(exact([[3, 1], [0, 0]]), exact([0, 0]), 0.1)], 0, exact([[1, 1]]))
    assert singular_values(alone.product[0]).tolist() == pytest.approx([1])
    assert singular_values(padded.product[0]).tolist() == pytest.approx([1, 0.1])


@pytest.mark.claim("Riedi Eq. 6 and 44", verdict="fails")
def test_two_residual_layers_of_one_unit():
    layers = [Layer(exact([[1]]), exact([0]), 0.0, 1.0)] * 2
    assert forward(layers, exact([[1]])).item() == 4  # Eq. 44 has 1 * 1 + 1 = 2
    assert affine_products(layers, exact([1])).matrix.item() == 4


@pytest.mark.claim("Riedi Eq. 6 and 44", verdict="fails")
@a_hundred
@given(networks(skips=False, square=True, deepest=1), st.sampled_from([0.5, 1.0, -1.0]))
def test_for_one_layer_it_holds(problem, rho):
    (layer,), x = problem
    for point in x:
        t = layer.weight @ point + layer.bias
        d = torch.ones_like(t).where(t > 0, layer.slope)
        expected = phi(t, layer.slope) + rho * point
        m = d.diag() @ layer.weight + rho * torch.eye(len(point)).double()
        torch.testing.assert_close(m @ point + d * layer.bias, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.claim("Riedi section 3.3, one layer at a time", verdict="fails")
@a_hundred
@given(st.floats(0.1, 10))
def test_the_blocks_keep_their_condition_numbers_while_that_of_the_whole_changes(c):
    """V = c I and W = diag(2, 1), white data: blocks W W^T kron I and I kron V^T V."""
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        net[0].weight.copy_(c * torch.eye(2).double())
        net[1].weight.copy_(torch.diag(exact([2, 1])))
    x = math.sqrt(2) * torch.eye(2).double()
    whole = torch.linalg.eigvalsh(gauss_newton_gram(net, x))
    assert (whole[-1] / whole[0]).item() == pytest.approx((c**2 + 4) / (c**2 + 1), rel=1e-9)
    for layer, expected in ((0, 4), (1, 1)):
        net.requires_grad_(False)[layer].requires_grad_(True)
        block = torch.linalg.eigvalsh(gauss_newton_gram(net, x))
        assert (block[-1] / block[0]).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.claim("Riedi section 1, offsets", verdict="holds if")
@a_hundred
@given(quadratics(most=3))
def test_training_the_offset_too_adds_one_to_the_second_moment_of_the_inputs(problem):
    products, z = problem
    with_ones = torch.cat([z, torch.ones(len(z), 1).double()], 1)
    one = true_q(products[:1], with_ones[:1])
    expected = singular_values(products[0]) * with_ones[0].norm()
    found = singular_values(one)[: len(expected)]
    torch.testing.assert_close(found, expected[: len(found)], rtol=1e-9, atol=1e-11)


@pytest.mark.claim("Riedi section 1, offsets", verdict="holds if")
def test_for_a_batch_the_offset_changes_the_condition_number():
    products, z = torch.ones(2, 1, 1).double(), exact([[1], [3]])
    assert pseudo_condition(true_q(products, z)) == 1
    assert pseudo_condition(true_q(products, torch.cat([z, torch.ones(2, 1).double()], 1))) > 5


def loss(y, outputs):
    return (y - outputs).square().sum(1).mean()


@pytest.mark.claim("Riedi Eq. 46, piecewise quadratic", verdict="holds if")
@a_hundred
@given(networks(), seeds, st.data())
def test_along_a_line_of_weights_of_one_layer_the_loss_is_a_chain_of_quadratics(problem, seed, data):
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


@pytest.mark.claim("Riedi Eq. 46, piecewise quadratic", verdict="holds if")
def test_in_the_weights_of_two_layers_it_is_of_degree_four():
    layers = [Layer(exact([[1]]), exact([0]), 0.0)] * 2
    values = []
    for t in range(6):
        moved = [layer._replace(weight=layer.weight + t) for layer in layers]
        values.append(loss(exact([[0]]), forward(moved, exact([[1]]))).item())
    assert np.diff(values, 4).tolist() == [24, 24]  # (1 + t)^4


@pytest.mark.claim("Riedi Eq. 47", verdict="holds")
@a_hundred
@given(networks(), seeds, st.data())
def test_the_loss_is_an_affine_term_and_the_quadratic_one(problem, seed, data):
    layers, x = problem
    index = data.draw(st.integers(0, len(layers) - 1))
    y, w = gaussian(seed, len(x), len(layers[-1].weight)), layers[index].weight
    f = layer_factors(layers, index, x)
    inner = torch.einsum("nkm,md,nd->nk", f.product, w, f.z)
    affine = (y - f.offset).square().sum(1).mean() - 2 * ((y - f.offset) * inner).sum(1).mean()
    quadratic = w.flatten() @ landscape.quadratic_form(f.product, f.z) @ w.flatten() if f.z.any() else 0.0
    scale = 1 + y.square().mean() + f.offset.square().mean() + inner.square().mean()
    assert abs(affine + quadratic - loss(y, forward(layers, x))) <= 1e-9 * scale


@pytest.mark.claim("Riedi section 3.4, regions and the skip", verdict="holds if")
def test_a_layer_after_the_end_of_the_skip_changes_sides():
    def signs(rho):
        layers = [
            Layer(exact([[1]]), exact([0]), 0.0),
            Layer(exact([[1]]), exact([0]), 0.0, rho),
            Layer(exact([[1]]), exact([-1.5]), 0.0),
        ]
        return affine_products(layers, exact([1])).slopes[2].item()

    assert (signs(0.0), signs(0.4), signs(0.6), signs(1.0)) == (0, 0, 1, 1)


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
    s = singular_values(q)
    assume(s[s > 1e-12 * s[0]][-1] > 1e-3 * s[0])
    least = torch.linalg.pinv(q, rtol=1e-9) @ (y - f.offset)[0]
    flat = gaussian(seed + 1, q.shape[1])
    flat = flat - torch.linalg.pinv(q, rtol=1e-9) @ (q @ flat)
    for minimum in (least, least + flat):
        step = w.flatten() - minimum
        right = loss(y, f.offset + (q @ minimum)[None]) + (q @ step).square().sum()
        scale = 1 + y.norm() ** 2 + f.offset.norm() ** 2 + (q.norm() * (w.norm() + minimum.norm() + flat.norm())) ** 2
        assert abs(right - loss(y, forward(layers, x[:1]))) <= 1e-9 * scale


@pytest.mark.claim("Riedi section 3.4, ellipsoids", verdict="fails")
@a_hundred
@given(networks(), st.data())
def test_for_one_sample_the_form_is_flat_in_all_but_k_directions(problem, data):
    layers, x = problem
    index = data.draw(st.integers(0, len(layers) - 1))
    f = layer_factors(layers, index, x[:1])
    assume(f.z.any())
    s = torch.linalg.eigvalsh(landscape.quadratic_form(f.product, f.z)).flip(0)
    k, m = f.product.shape[1:]
    assert (s[min(k, m) :] <= 1e-12 * s[0] + 1e-300).all()
    assert len(s) == m * f.z.shape[1]


# Section 3.4 to 3.6: Lemmas 8 and 10, Corollaries 9 and 11


@pytest.mark.claim("Riedi Lemma 8, Eq. 50", verdict="fails")
def test_the_smallest_counterexample_to_the_block_diagonal_form():
    md, z, w = torch.eye(2).double(), exact([1, 1]), exact([[1, -1], [0, 0]])
    assert (md @ w @ z).square().sum() == 0
    q = landscape.riedi_lemma_8(md, z)
    for flat in (w.flatten(), w.mT.flatten()):
        assert (q @ flat).square().sum() == 2


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
@a_hundred
@given(quadratics())
def test_the_singular_values_of_the_printed_matrix_factor(problem):
    products, z = problem
    assume(z[0].any())
    found = singular_values(landscape.riedi_lemma_8(products[0], z[0]))
    expected = torch.outer(singular_values(products[0]), z[0].abs()).flatten().sort(descending=True).values
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * (expected[0].item() + 1e-290))


@pytest.mark.claim("Riedi Eq. 53", verdict="holds if")
@hundreds
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


@pytest.mark.claim("Riedi Corollary 9", verdict="holds")
@hundreds
@given(quadratics())
def test_the_condition_number_of_the_printed_matrix_factors(problem):
    products, z = problem
    s, entries = singular_values(products[0]), z[0].abs()
    for values in (s, entries):
        assume(values.max() > 1e-6 and not ((values > 0) & (values < 1e-3 * values.max())).any())
    expected = pseudo_condition(products[0]) * (entries.max() / entries[entries > 0].min()).item()
    assert pseudo_condition(landscape.riedi_lemma_8(products[0], z[0])) == pytest.approx(expected, rel=1e-6)


@pytest.mark.claim("Riedi Eq. 8, data factor", verdict="fails")
@hundreds
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
@pytest.mark.parametrize("count", [1, 2])
def test_the_smallest_counterexample_repeated_is_a_batch(count):
    md, z, w = torch.eye(2).double(), exact([1, 1]), exact([[1, -1], [0, 0]])
    form = landscape.quadratic_form(md.expand(count, 2, 2), z.expand(count, 2))
    printed = sum((landscape.riedi_lemma_8(md, z) @ w.mT.flatten()).square().sum() for _ in range(count)) / count
    assert w.flatten() @ form @ w.flatten() == 0 and printed == 2


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
    lower, upper = landscape.riedi_lemma_10(products, z)
    assert lower.tolist() == upper.tolist() == [1, 1]
    assert torch.linalg.eigvalsh(landscape.quadratic_form(products, z)).tolist() == pytest.approx([0, 2])


@pytest.mark.claim("Riedi Lemma 10, Eq. 57 and 58", verdict="fails")
@a_hundred
@given(quadratics())
def test_of_the_block_diagonal_matrix_they_are_bounds(problem):
    products, z = problem
    lower, upper = landscape.riedi_lemma_10(products, z)
    blocks = block_diagonal(products, z)
    m = products.shape[2]
    for j in range(z.shape[1]):
        values = torch.linalg.eigvalsh(blocks[j * m : (j + 1) * m, j * m : (j + 1) * m])
        assert between(values, lower[j], upper[j], upper.max())


@pytest.mark.claim("Riedi Lemma 10, Eq. 57 and 58", verdict="fails")
@pytest.mark.claim("Riedi Corollary 11", verdict="fails")
def test_of_a_thousand_block_diagonal_matrices_they_are_bounds():
    for products, z in a_thousand_quadratics():
        lower, upper = landscape.riedi_lemma_10(products, z)
        m, bound, whole = products.shape[2], landscape.riedi_corollary_11(products, z), block_diagonal(products, z)
        for j in range(z.shape[1]):
            values = torch.linalg.eigvalsh(whole[j * m : (j + 1) * m, j * m : (j + 1) * m])
            assert between(values, lower[j], upper[j], upper.max())
        if bound < 1e5:
            values = torch.linalg.eigvalsh(whole)
            values = values[values > 1e-13 * values[-1]]
            assert (values[-1] / values[0]).sqrt() <= bound * (1 + 1e-6)


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
@hundreds
@given(st.floats(1e-6, 0.5))
def test_it_is_off_by_any_factor(angle):
    products, z = torch.ones(2, 1, 1).double(), exact([[1 + angle, 1 - angle], [1 - angle, 1 + angle]])
    assert landscape.riedi_corollary_11(products, z) == pytest.approx(1)
    assert pseudo_condition(true_q(products, z)) == pytest.approx(1 / angle, rel=1e-6)


@pytest.mark.claim("Riedi Corollary 11", verdict="fails")
@a_hundred
@given(quadratics())
def test_it_holds_for_one_input_and_for_the_block_diagonal_matrix(problem):
    products, z = problem
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


# Lemma 12 and Corollary 13


def multiple(matrix):
    """Whether a symmetric matrix has a multiple eigenvalue, up to rounding."""
    values = torch.linalg.eigvalsh(matrix)
    return len(values) > 1 and bool(values.diff().min() < 1e-9 * (1 + values.abs().max()))


@pytest.mark.claim("Riedi Lemma 12", verdict="holds")
@hundreds
@given(st.lists(st.integers(-3, 3), min_size=6, max_size=6))
def test_two_by_two_families_have_two_multiple_points_at_most_or_all(entries):
    a, b, c, d, e, f = entries  # N = [[a + d rho, b + e rho], [., c + f rho]]; the discriminant is a sum of two squares
    first, second = np.poly1d([d - f, a - c]), np.poly1d([e, b])
    discriminant = first * first + 4 * second * second
    roots = [r.real for r in discriminant.roots if abs(r.imag) < 1e-6] if discriminant.order else []

    def family(rho):
        return exact([[a + d * rho, b + e * rho], [b + e * rho, c + f * rho]])

    everywhere = not np.any(discriminant.coeffs)
    assert len(roots) <= 2
    for rho in np.linspace(-4.05, 3.95, 41):
        if all(abs(rho - r) > 1e-3 for r in roots):
            assert multiple(family(rho)) == everywhere
    for root in {round(r, 3) for r in roots}:
        values = torch.linalg.eigvalsh(family(root))
        assert values.diff().min() < 0.05


@pytest.mark.claim("Riedi Lemma 12", verdict="holds")
def test_smooth_families_that_are_not_analytic_need_not_obey_it():
    rho = [1 / (math.pi * k) for k in range(1, 6)]
    wave = [math.exp(-1 / r**2) * math.sin(1 / r) for r in rho]
    middle = [1 / (math.pi * (k + 0.5)) for k in range(1, 4)]
    assert max(map(abs, wave)) < 1e-15  # equal eigenvalues of diag(0, wave) at infinitely many points
    assert all(abs(math.exp(-1 / r**2) * math.sin(1 / r)) > 1e-60 for r in middle)


@pytest.mark.claim("Riedi Corollary 13", verdict="holds if")
@a_hundred
@given(st.integers(1, 4), seeds, st.floats(0.1, 1))
def test_eigenvalues_grow_by_the_integral_of_their_derivative(n, seed, end):
    first, second = (gaussian(seed + i, n, n) for i in range(2))
    first, second = first + first.mT, second + second.mT
    steps = 4000
    middle = (torch.arange(steps).double() + 0.5) * end / steps
    _, vectors = torch.linalg.eigh(first + middle[:, None, None] * second)
    integral = torch.einsum("sai,ab,sbi->i", vectors, second, vectors) * end / steps
    change = torch.linalg.eigvalsh(first + end * second) - torch.linalg.eigvalsh(first)
    variation = 2 * n * second.norm()
    torch.testing.assert_close(integral, change, rtol=0, atol=(variation * end / steps).item())


@pytest.mark.claim("Riedi Corollary 13", verdict="holds if")
def test_simple_eigenvalues_may_be_multiple_singular_values():
    n = exact([[1, 0], [0, -1]])
    assert torch.linalg.eigvalsh(n).diff() > 0 and singular_values(n).diff() == 0  # S_i of Eq. 13 is empty


# Figure 8


def toy(seed, rhos):
    """The network of Eq. 158: singular values of MD for each weight of the skip."""
    draw = iter(range(1000 * seed, 1000 * seed + 1000))
    weights = [gaussian(next(draw), 6, d) for d in (2, 6, 6, 6)]
    biases, x = [gaussian(next(draw), 6) for _ in weights], gaussian(next(draw), 1, 2)
    rows = []
    for rho in rhos:
        layers = [
            Layer(w, b, 0.1, rho if i == 2 else 0.0) for i, (w, b) in enumerate(zip(weights, biases, strict=True))
        ]
        rows.append(singular_values(layer_factors(layers, 1, x).product[0]))
    return torch.stack(rows)


@pytest.mark.claim("Riedi Figure 8, singular values", verdict="fails")
def test_one_unit_of_negative_weight_loses_by_the_skip():
    values = [singular_values(exact([[-1]]) + rho * torch.eye(1).double()).item() for rho in (0.0, 0.25, 0.5, 0.75)]
    assert values == [1, 0.75, 0.5, 0.25]


@pytest.mark.claim("Riedi Figure 8, singular values", verdict="fails")
def test_of_forty_toys_few_have_a_smallest_singular_value_that_always_grows():
    runs = [toy(seed, np.linspace(0, 1, 51).tolist()) for seed in range(40)]
    always = sum(bool((run[:, -1].diff() >= 0).all()) for run in runs)
    more = sum(bool(run[-1, -1] > run[0, -1]) for run in runs)
    assert always <= 8 and more >= 28


@pytest.mark.claim("Riedi Figure 8, condition number", verdict="fails")
def test_two_units_where_the_skip_hurts():
    values = [pseudo_condition(exact([[1, 0], [0, -1]]) + rho * torch.eye(2).double()) for rho in (0.0, 0.5, 0.9)]
    assert values == pytest.approx([1, 3, 19])


@pytest.mark.claim("Riedi Figure 8, condition number", verdict="fails")
def test_of_forty_toys_few_have_a_condition_number_that_always_falls():
    runs = [toy(seed, np.linspace(0, 1, 51).tolist()) for seed in range(40)]
    kappas = [run[:, 0] / run[:, -1] for run in runs]
    assert sum(bool((k.diff() <= 0).all()) for k in kappas) <= 8
    assert sum(bool(k[-1] < k[0]) for k in kappas) >= 28


# Our own


@pytest.mark.claim("Riedi, affine map of a network", verdict="holds")
@a_hundred
@given(networks())
def test_products_with_skips_are_the_jacobian_and_the_rest_of_the_value(problem):
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
    expected = torch.zeros(len(layers[-1].weight)).double()
    for k, (layer, d) in enumerate(zip(layers, piece.slopes, strict=True)):
        term = d * layer.bias
        for later, e in list(zip(layers, piece.slopes, strict=True))[k + 1 :]:
            matrix = e[:, None] * later.weight
            term = (matrix + later.skip * torch.eye(len(matrix)).double() if later.skip else matrix) @ term
        expected = expected + term
    torch.testing.assert_close(piece.offset, expected, rtol=1e-10, atol=100 * scale)


@pytest.mark.claim("Riedi, quadratic form of a layer", verdict="holds")
@a_hundred
@given(networks(), st.data())
def test_the_form_is_the_block_of_the_gauss_newton_matrix_of_that_layer(problem, data):
    layers, x = problem
    index = data.draw(st.integers(0, len(layers) - 1))
    f = layer_factors(layers, index, x)
    assume(f.z.any())
    module = as_module(layers).requires_grad_(False)
    module[index].weight.requires_grad_(True)
    gram = gauss_newton_gram(module, x)
    scale = 1e-11 * (gram.abs().max().item() + 1e-280)
    torch.testing.assert_close(landscape.quadratic_form_gram(f.product, f.z), gram, rtol=0, atol=scale)
    form = landscape.quadratic_form(f.product, f.z)
    ours, theirs = torch.linalg.eigvalsh(form).flip(0), torch.linalg.eigvalsh(gram).flip(0)
    size = min(len(ours), len(theirs))
    torch.testing.assert_close(ours[:size], theirs[:size], rtol=0, atol=scale * 10)
    q = true_q(f.product, f.z)
    torch.testing.assert_close(form, q.mT @ q, rtol=0, atol=scale)


@pytest.mark.claim("Riedi, quadratic form of a layer", verdict="holds")
@a_hundred
@given(networks(), seeds, st.data())
def test_it_is_half_of_the_hessian_with_respect_to_these_weights(problem, seed, data):
    layers, x = problem
    index = data.draw(st.integers(0, len(layers) - 1))
    f, y = layer_factors(layers, index, x), gaussian(seed, len(x), len(layers[-1].weight))
    assume(f.z.any())

    def of_weights(w):
        moved = list(layers)
        moved[index] = layers[index]._replace(weight=w.view_as(layers[index].weight))
        return loss(y, as_module_free(moved, x))

    hessian = torch.autograd.functional.hessian(of_weights, layers[index].weight.flatten())
    form = landscape.quadratic_form(f.product, f.z)
    torch.testing.assert_close(hessian / 2, form, rtol=0, atol=1e-10 * (1e-280 + form.abs().max().item()))


def as_module_free(layers, z):
    """The forward pass with the derivative at zero that torch takes, so that both agree on borders."""
    for weight, bias, slope, skip in layers:
        t = nn.functional.linear(z, weight, bias)
        t = t.where(t > 0, slope * t)
        z = t + skip * z if skip else t
    return z


@pytest.mark.claim("Riedi, quadratic form of a layer", verdict="holds")
@hundreds
@given(quadratics())
def test_one_sample_has_the_singular_values_of_md_times_the_norm_of_z(problem):
    products, z = problem
    assume(z[0].any())
    values = torch.linalg.eigvalsh(landscape.quadratic_form(products[:1], z[:1])).flip(0)
    expected = singular_values(products[0]).square() * z[0].square().sum()
    expected = torch.cat([expected, torch.zeros(len(values)).double()])[: len(values)]
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-12 * expected[0].item() + 1e-300)


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
@a_hundred
@given(quadratics())
def test_every_eigenvalue_is_within_the_repaired_bounds(problem):
    products, z = problem
    lower, upper = landscape.landscape_bounds(products, z)
    values = torch.linalg.eigvalsh(landscape.quadratic_form(products, z)).flip(0)
    assert len(lower) == len(upper) == len(values)
    assert between(values, lower, upper, upper.max())


@pytest.mark.claim("Riedi Lemma 10, repaired", verdict="holds")
@a_hundred
@given(sizes, sizes, seeds, seeds)
def test_orthogonal_matrices_attain_both_bounds(n, m, seed, other):
    products = torch.stack([orthogonal(seed + i, m) * (i + 1) for i in range(n)])
    z = gaussian(other, n, 3)
    lower, upper = landscape.landscape_bounds(products, z)
    values = torch.linalg.eigvalsh(landscape.quadratic_form(products, z)).flip(0)
    scale = 1e-12 * upper[0].item()
    torch.testing.assert_close(lower, values, rtol=0, atol=scale)
    torch.testing.assert_close(upper, values, rtol=0, atol=scale)


@pytest.mark.claim("Riedi Corollary 11, repaired", verdict="holds")
@a_hundred
@given(quadratics())
def test_the_repaired_bound_of_the_condition_number(problem):
    products, z = problem
    bound = landscape.landscape_condition(products, z)
    if bound < 1e5:
        assert pseudo_condition(true_q(products, z)) <= bound * (1 + 1e-6)


@pytest.mark.claim("Riedi Lemma 10, repaired", verdict="holds")
@pytest.mark.claim("Riedi Corollary 11, repaired", verdict="holds")
def test_a_thousand_forms_are_within_the_repaired_bounds():
    finite = 0
    for products, z in a_thousand_quadratics():
        lower, upper = landscape.landscape_bounds(products, z)
        values = torch.linalg.eigvalsh(landscape.quadratic_form(products, z)).flip(0)
        assert between(values, lower, upper, upper.max())
        bound = landscape.landscape_condition(products, z)
        if bound < 1e5:
            finite += 1
            assert pseudo_condition(true_q(products, z)) <= bound * (1 + 1e-6)
    assert finite > 400


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
        ours = landscape.landscape_bounds(products[0].detach(), z[0].detach())[end == "upper"]
        torch.testing.assert_close(ours, bound[0].detach().flip(0), rtol=1e-9, atol=1e-12)
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
@hundreds
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), seeds)
def test_with_fewer_outputs_than_units_it_takes_independent_samples(n, k, more, seed):
    products, z = gaussian(seed, n, k, k + more), gaussian(seed + 1, n, n + more)
    bound = landscape.landscape_condition(products, z)
    true = pseudo_condition(true_q(products, z))
    assert true <= bound * (1 + 1e-6) and bound < math.inf
    if more:
        assert landscape.landscape_condition(products, z[:, :1].expand(n, 2)) == math.inf or n == 1


@pytest.mark.claim("Riedi, borders along a line", verdict="holds")
@a_hundred
@given(networks(), seeds, st.data())
def test_at_each_border_a_pre_activation_vanishes_and_between_borders_none(problem, seed, data):
    layers, x = problem
    index = data.draw(st.integers(0, len(layers) - 1))
    direction = gaussian(seed, *layers[index].weight.shape)

    def pre_activations(t):
        z, values = x, []
        for i, (weight, bias, slope, skip) in enumerate(layers):
            w = weight + t * direction if i == index else weight
            values.append((z @ w.mT + bias)[:, : len(w) * (slope != 1)].flatten())
            z = forward([Layer(w, bias, slope, skip)], z)
        return torch.cat(values)

    stretches = along_line(layers, index, x, direction, 2.0)
    for stretch in stretches[:-1]:
        values = pre_activations(stretch.stop)
        scale = 1 + pre_activations(0.0).abs().max() + pre_activations(2.0).abs().max()
        assert values.abs().min() <= 1e-10 * scale
    for stretch in stretches:
        signs = {
            tuple(torch.sign(pre_activations(stretch.start + f * (stretch.stop - stretch.start))).tolist())
            for f in (0.1, 0.5, 0.9)
        }
        assert len(signs) == 1 or stretch.stop - stretch.start < 1e-9
