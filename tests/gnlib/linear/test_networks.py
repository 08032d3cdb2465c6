"""Linear networks, their data, Gauss-Newton matrices and bounds, against autograd, numpy and the Kronecker formula."""

import dataclasses
import math
from functools import reduce

import mpmath
import numpy as np
import pytest
import torch
from torch import nn

from gnlib import (
    SecondMoment,
    condition_number,
    linear_gauss_newton,
    linear_network,
    linear_weights,
    reduced_gauss_newton,
    second_moment,
    whiten,
)
from gnlib.linear.bounds import sharp_linear, zhao_lemma_1, zhao_lemma_2, zhao_lemma_2_terms
from tests.oracles import (
    assert_same_nonzero_spectrum,
    kronecker_formula,
    mp_spectrum,
    network,
    normal,
    orthogonal,
    products,
    samples,
    spectrum,
    with_skip,
)
from tests.strategies import jacobian

SHAPES = [  # widths, number of samples, rank of the data where it is not min(n, d)
    ((1, 1), 1, None),
    ((4, 3), 7, None),
    ((5, 1), 3, None),
    ((4, 6, 3), 9, None),
    ((3, 1, 3), 8, None),
    ((4, 3, 1), 6, 2),
    ((5, 4, 4, 3), 12, 2),
    ((6, 3, 5, 4, 2), 4, None),
    ((3, 2, 4, 1, 3, 2, 3), 7, None),
    ((4, 5, 4, 5, 4, 5, 4), 9, 3),
]


@pytest.mark.parametrize("widths, n, rank", SHAPES, ids=str)
@pytest.mark.parametrize("skip", [0.0, 0.3, 1.0])
def test_all_that_is_known_of_a_network_is_what_autograd_and_the_kronecker_formula_say(widths, n, rank, skip):
    """Its outputs; the operator, dense and by products; and the same spectrum by the matrix that it is."""
    weights, x = network(widths, seed=1), samples(n, widths[0], rank=rank, seed=2)
    layers = [with_skip(w, skip) for w in weights]
    torch.testing.assert_close(linear_network(weights, x, skip), reduce(nn.functional.linear, layers, x))
    expected, rows = kronecker_formula(weights, x, skip), jacobian(layers, x)
    v, close = normal(len(expected), 3, seed=3), dict(rtol=0, atol=1e-12 * expected.abs().max().item())
    for moment in (second_moment(x), SecondMoment.from_data(x)):
        operator = linear_gauss_newton(weights, moment, skip)
        torch.testing.assert_close(operator.dense(), expected, **close)
        torch.testing.assert_close(operator @ v, expected @ v, rtol=1e-11, atol=close["atol"])
    identity = torch.eye(widths[0], dtype=torch.float64)
    reduced = reduced_gauss_newton(lambda *w: linear_network(w, identity, skip).mT, weights, moment)
    assert len(reduced) == widths[-1] * (rank or min(n, widths[0]))
    for matrix in (expected, reduced):
        assert_same_nonzero_spectrum(spectrum(matrix), spectrum(rows @ rows.T / n), 1e-10)


@pytest.mark.parametrize("unevenness", [0, 1e-16, 1e-9, 0.1])
def test_white_data_need_no_basis_of_their_own_and_nearly_white_data_do(unevenness):
    weights, x = network((6, 8, 3), seed=3), whiten(samples(20, 6, seed=4))
    x = x + unevenness * samples(20, 6, seed=5)
    operator = linear_gauss_newton(weights, SecondMoment.from_data(x))
    expected = kronecker_formula(weights, x)
    torch.testing.assert_close(operator.dense(), expected, rtol=0, atol=1e-13 * expected.abs().max().item())
    assert torch.equal(operator.basis, torch.eye(6, dtype=torch.float64)) == (unevenness < 1e-12)


def test_single_precision_is_promoted():
    weights, x = [w.float() for w in network((4, 5, 3), seed=6)], normal(9, 4, seed=7)
    moment = second_moment(x).float()
    moment = (moment + moment.T) / 2
    op = linear_gauss_newton(weights, moment, 0.3)
    exact = linear_gauss_newton([w.double() for w in weights], moment.double(), 0.3)
    assert op.dtype == torch.float64 and torch.equal(op.dense(), exact.dense())
    found, expected = condition_number(op), condition_number(exact)
    assert dataclasses.replace(found, residual=0) == dataclasses.replace(expected, residual=0)
    assert found.residual >= torch.finfo(torch.float32).eps > expected.residual


@pytest.mark.parametrize("fan_in, out", [(50, 2000), (1000, 100)])
def test_weights_have_variance_one_over_their_inputs_and_are_independent(fan_in, out):
    widths = [fan_in, out, fan_in, out]
    drawn, again = (linear_weights(widths, generator=torch.Generator().manual_seed(0)) for _ in range(2))
    torch.testing.assert_close(drawn, again, rtol=0, atol=0)
    assert [tuple(w.shape) for w in drawn] == [(out, fan_in), (fan_in, out), (out, fan_in)]
    assert not torch.equal(drawn[0], drawn[2])
    deviations = 5 * (2 / drawn[0].numel()) ** 0.5
    assert abs(drawn[0].var().item() * fan_in - 1) < deviations
    assert abs(drawn[0].mean().item()) * fan_in**0.5 < deviations


def test_badly_conditioned_data_keep_their_digits():
    """Weights that are zero leave the data alone: a network of one layer has their condition number."""
    x = normal(40, 6, seed=6) * 10.0 ** -torch.arange(6).double()
    matrix = reduced_gauss_newton(lambda w: w, [torch.zeros(2, 6)], SecondMoment.from_data(x))
    singular = torch.linalg.svdvals(x)
    assert condition_number(matrix).value == pytest.approx(float((singular[0] / singular[-1]) ** 2), rel=1e-6)


EYE, ONES = torch.eye(3), torch.ones(2, 3)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "function, given, message",
    [
        (linear_gauss_newton, ([ONES], torch.eye(2)), r"second_moment is of size 2 but weights\[0\] takes 3"),
        (linear_gauss_newton, ([ONES], SecondMoment(EYE, -EYE[0])), "second_moment has a basis and eigenvalues"),
        (linear_gauss_newton, ([ONES], SecondMoment(EYE, torch.ones(2))), "second_moment has a basis and eigenvalues"),
        (linear_gauss_newton, ([ONES, torch.ones(1, 4)], EYE), r"weights\[1\] takes 4 inputs but weights\[0\] gives 2"),
        (linear_gauss_newton, ([ONES, torch.full((1, 2), torch.nan)], EYE), r"weights\[1\] has 2 ent"),
        (linear_gauss_newton, ([ONES / 0, ONES[:, :2]], EYE), r"weights\[0\] has 6 entries that are NaN or infinite"),
        (linear_gauss_newton, ([], EYE), "weights is empty; a network needs at least one"),
        (linear_gauss_newton, ([ONES, torch.ones(1, 2, 4)], EYE), r"weights\[1\] has shape \(1, 2, 4\); a matrix"),
        (linear_gauss_newton, ([ONES[:0], torch.empty(4, 0)], EYE), r"weights\[0\] is empty \(shape \(0, 3\)\)"),
        (linear_gauss_newton, ([EYE, ONES.numpy()], EYE), r"weights\[1\] is of type ndarray; pass a torch tensor"),
        (linear_gauss_newton, ([EYE, ONES.cfloat()], EYE), r"weights\[1\] is complex \(torch.complex64\)"),
        (zhao_lemma_1, ([EYE], EYE), "two weight matrices, and 1 were given; zhao_lemma_2"),
        (reduced_gauss_newton, (lambda w: w[:, :2], [ONES], EYE), r"function returns \(2, 2\); a \(k, 3\) matrix was"),
        (reduced_gauss_newton, (lambda w: w.sum(), [ONES], EYE), r"function returns \(\); a \(k, 3\) matrix was expec"),
        *(
            (lambda widths: linear_weights(widths, generator=torch.Generator()), (widths,), "at least two integers")
            for widths in ([3], [3, 0], [3, 2.0], [None, 2])
        ),
    ],
)
def test_what_is_no_network_is_refused(function, given, message):
    with pytest.raises(TypeError if "of type" in message or "complex" in message else ValueError, match=message):
        function(*given)


# Second moments


def close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "n, d, rank", [(9, 4, None), (4, 9, None), (5, 5, None), (9, 4, 2), (4, 9, 2), (1, 3, None), (3, 1, None)]
)
def test_second_moments_their_factors_and_whitening_are_what_they_are_defined_as(n, d, rank):
    x, r = samples(n, d, rank=rank, seed=1), rank or min(n, d)
    expected = torch.stack([torch.outer(row, row) for row in x]).mean(0)
    close(second_moment(x), expected)
    close(second_moment(whiten(x)), torch.linalg.pinv(x, rtol=1e-10) @ x)
    for moment in (SecondMoment.from_data(x), SecondMoment.from_matrix(x.T @ x / n)):
        assert moment.basis.shape == (d, r) and moment.eigenvalues.shape == (r,)
        assert (moment.eigenvalues.diff() <= 0).all()
        close(moment.basis.T @ moment.basis, torch.eye(r, dtype=torch.float64))
        close(moment.basis * moment.eigenvalues @ moment.basis.T, expected)
    for function in (second_moment, whiten):
        close(function(x.float()), function(x.float().double()), 0)


def test_data_resolve_eigenvalues_that_the_matrix_rounds_away():
    s = torch.tensor([1.0, 1e-5, 1e-10], dtype=torch.float64)
    x = orthogonal(8, 3, seed=8) * s @ orthogonal(3, 3, seed=9).T * 8**0.5
    torch.testing.assert_close(SecondMoment.from_data(x).eigenvalues, s**2, rtol=1e-4, atol=0)
    assert len(SecondMoment.from_matrix(second_moment(x)).eigenvalues) == 2


@pytest.mark.parametrize("shape", [(500, 2), (2, 500)])
@pytest.mark.parametrize(("size", "rank"), [(250, 1), (1000, 2)])
def test_a_direction_counts_from_the_larger_dimension_times_eps_on(shape, size, rank):
    x = torch.zeros(shape, dtype=torch.float64)
    x[0, 0], x[1, 1] = 1.0, size * torch.finfo(x.dtype).eps
    assert len(SecondMoment.from_data(x).eigenvalues) == rank
    assert torch.linalg.matrix_rank(whiten(x)) == rank


DATA = [second_moment, whiten, SecondMoment.from_data]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "functions, given, message",
    [
        (DATA, torch.ones(3), r"x has shape \(3,\); samples in rows"),
        (DATA, torch.ones(2, 3, 4), r"x has shape \(2, 3, 4\); samples in rows"),
        (DATA, torch.empty(0, 3), r"x is empty \(shape \(0, 3\)\)"),
        (DATA, torch.tensor([[1.0, torch.nan]]), "x has 1 entries that are NaN or infinite"),
        (DATA, torch.ones(2, 3).numpy(), "x is of type ndarray; pass a torch tensor"),
        (DATA, torch.ones(2, 3, dtype=torch.complex128), r"x is complex \(torch.complex128\)"),
        (DATA[1:], torch.zeros(4, 3), "x is zero: it spans no direction"),
        ([SecondMoment.from_matrix], torch.ones(2, 3), r"second_moment has shape \(2, 3\); a square matrix"),
        ([SecondMoment.from_matrix], torch.ones(2, 2).tril(), r"second_moment is not symmetric: .* 1.0e\+00"),
        ([SecondMoment.from_matrix], torch.diag(torch.tensor([1.0, -0.1])), "the negative eigenvalue -1.0e-01"),
        ([SecondMoment.from_matrix], torch.zeros(2, 2), "second_moment is zero"),
        ([SecondMoment.from_matrix], -torch.eye(2), "second_moment is zero|negative eigenvalue -1.0e"),
        ([SecondMoment.from_matrix], torch.full((2, 2), torch.inf), "second_moment has 4 entries"),
        ([SecondMoment.from_matrix], torch.empty(0, 0), "second_moment is empty"),
    ],
)
def test_what_is_no_data_and_no_second_moment_is_refused(functions, given, message):
    for function in functions:
        with pytest.raises((ValueError, TypeError), match=message):
            function(given)


@pytest.mark.parametrize("decades", [0, 4, 8, 11, 13])
def test_the_error_of_the_singular_values_of_data_is_in_the_residual(decades):
    """One layer has the eigenvalues of the second moment, once an output."""
    spread = torch.logspace(0, -decades, 4, dtype=torch.float64)
    for seed in range(6):
        x = (orthogonal(9, 4, seed=seed) * spread) @ orthogonal(4, 4, seed=seed + 7).T
        with mpmath.workdps(60):
            rows = mpmath.matrix(x.tolist())
            largest, *_, smallest = map(float, mp_spectrum(rows.T * rows / 9, 60))
        found = condition_number(linear_gauss_newton([samples(2, 4, seed=1)], SecondMoment.from_data(x)))
        assert found.rank == 8
        assert abs(found.smallest / smallest - 1) <= 4 * found.residual
        assert abs(found.largest / largest - 1) <= 4 * found.residual
        assert found.resolved == (decades < 12)


# Bounds, whose order the claims of `deep_linear` have


WIDTHS = [(3, 4), (4, 6, 3), (3, 5, 5), (4, 7, 6, 3), (2, 3, 4, 5, 2), (3, 8, 7, 6, 5, 4), (1, 1, 1)]
some = pytest.mark.parametrize("widths", WIDTHS, ids=lambda widths: "-".join(map(str, widths)))


def case(widths):
    return network(widths, seed=1), second_moment(normal(12, widths[0], seed=2))


def squares(matrix, size):
    """Largest and smallest of `size` squared singular values, continued by zeros."""
    s = np.linalg.svd(matrix.numpy(), compute_uv=False) ** 2
    return s[0], s[-1] if len(s) >= size else 0.0


def extremes(weights, skip=0.0):
    """Largest and smallest eigenvalues of each A_l A_l^T, then of each B_l^T B_l."""
    d, k = weights[0].shape[1], weights[-1].shape[0]
    return np.array([squares(a, k) + squares(b, d) for a, b in products(weights, skip)]).T


@some
@pytest.mark.parametrize("skip", [0.0, 0.3, 1.0])
def test_bounds_and_their_terms_are_the_formulas_of_the_paper(widths, skip):
    weights, moment = case(widths)
    terms, data = zhao_lemma_2_terms(weights, moment, skip), np.linalg.cond(moment.numpy())
    a_max, a_min, b_max, b_min = extremes(weights, skip)
    alpha = a_min * b_min
    expected = dict(above_largest=a_max, above_smallest=a_min, below_largest=b_max, below_smallest=b_min)
    expected |= dict(alpha=alpha, gamma=alpha / alpha.sum(), kappa_above=a_max / a_min, kappa_below=b_max / b_min)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(terms, name).numpy(), value, rtol=1e-9, err_msg=name)
    assert terms.data == pytest.approx(data, rel=1e-9)
    first, second = zhao_lemma_2(weights, moment, skip)
    assert first == pytest.approx(data * (alpha / alpha.sum() * a_max * b_max / alpha).sum(), rel=1e-9)
    assert second == pytest.approx(data * (a_max * b_max / alpha).max(), rel=1e-9)
    values, vectors = np.linalg.eigh(moment.numpy())
    root = vectors * np.sqrt(values) @ vectors.T
    factors = np.stack([root @ b.numpy().T @ b.numpy() @ root for _, b in products(weights, skip)])
    top, bottom = (np.linalg.eigvalsh(np.einsum("l,lij->ij", c, factors)) for c in (a_max, a_min))
    assert sharp_linear(weights, moment, skip) == pytest.approx(top[-1] / bottom[0], rel=1e-8)


@some
def test_bounds_see_the_range_of_the_data_only(widths):
    """Inputs Q z with orthonormal columns Q have the bounds of the network that takes z."""
    weights, z = network((widths[0] + 2, *widths[1:]), seed=5), normal(12, widths[0], seed=6)
    q = orthogonal(widths[0] + 2, widths[0], seed=7)
    reduced, x = [weights[0] @ q, *weights[1:]], z @ q.T
    for moment in (second_moment(x), SecondMoment.from_data(x)):
        for bound in (zhao_lemma_2, sharp_linear):
            assert bound(weights, moment) == pytest.approx(bound(reduced, second_moment(z)), rel=1e-8)


@pytest.mark.parametrize("widths", [(2, 3, 4), (4, 3, 2), (3, 4, 2, 3, 2)])
def test_a_layer_narrower_than_inputs_or_outputs_makes_the_second_bound_infinite_alone(widths):
    weights, moment = case(widths)
    first, second = zhao_lemma_2(weights, moment)
    a_max, a_min, b_max, b_min = extremes(weights)
    expected = np.linalg.cond(moment.numpy()) * (a_max * b_max).sum() / (a_min * b_min).sum()
    assert first == pytest.approx(expected, rel=1e-9)
    assert second > 1e12  # singular up to rounding where it is a product
    assert sharp_linear(weights, moment) <= first * (1 + 1e-9)
    hidden = network((3, 2, 3), seed=1)
    assert zhao_lemma_1(hidden, EYE) == math.inf == sharp_linear(hidden, EYE)


@some
@pytest.mark.parametrize("power", [2.0**-600, 2.0**-250, 2.0**600])
def test_no_bound_knows_the_scale_of_all_weights_or_of_the_data(widths, power):
    weights, moment = case(widths)
    for bound in (zhao_lemma_2, sharp_linear):
        expected = bound(weights, moment)
        assert bound([w * power for w in weights], moment) == pytest.approx(expected, rel=1e-12)
        assert bound(weights, moment * power) == pytest.approx(expected, rel=1e-9)
