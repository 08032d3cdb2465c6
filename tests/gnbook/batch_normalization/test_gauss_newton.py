"""Both exact forms of a batch-normalised layer, against autograd, sums of Kronecker products and mpmath."""

import itertools
import math

import mpmath
import pytest
import torch
from gnbook.batch_normalization.gauss_newton import batch_norm_gauss_newton, batch_norm_gram
from hypothesis import assume, given, settings
from torch.nn import functional

from gnlib import condition_number
from tests.gnbook.hidden_layers import (
    GOOD,
    assert_equal_to,
    assert_follows_the_order_of_samples_outputs_and_units,
    assert_takes_single_precision_and_parameters,
    case,
    large,
    problems,
)
from tests.oracles import autograd_gram, batch_norm_units, literal_eq_10, network, normal, orthogonal, spectrum


@pytest.mark.parametrize("seed", range(2))
def test_badly_conditioned_data_cost_about_the_root_of_the_condition_number(seed):
    """With 60 digits; the eigenvalues spread over 10 decades, so a squared error would leave 6 digits."""
    d, m, k, n = 3, 4, 2, 6
    x = orthogonal(n, d, seed=seed) * torch.tensor([1, 1e-2, 1e-5]).double() @ orthogonal(d, d, seed=seed + 10).T
    weights = network((d, m, k), seed=seed)
    with mpmath.workdps(60):
        jacobian = mpmath_jacobian(weights, x)
        exact = sorted(mpmath.eigsy(jacobian * jacobian.T / n, eigvals_only=True), reverse=True)[: k * d]
        wanted = float(exact[0] / exact[-1])
    found = float(condition_number(batch_norm_gauss_newton(weights, x)))
    assert wanted > 1e8
    assert found == pytest.approx(wanted, rel=1e-15 * wanted**0.5 * 100 + 1e-15 * wanted)


def mpmath_jacobian(weights, x):
    """Derivatives of the outputs by V and W, in the working precision, from the quotient rule."""
    (v, w), n = (mpmath.matrix(a.tolist()) for a in weights), len(x)
    x = mpmath.matrix(x.tolist())
    for j in range(x.cols):
        mean = mpmath.fsum(x[:, j]) / n
        for i in range(n):
            x[i, j] -= mean
    hidden = x * v.T
    rows = []
    deviation = [mpmath.sqrt(mpmath.fsum(h**2 for h in hidden[:, u]) / n) for u in range(v.rows)]
    slope = [[mpmath.fsum(hidden[i, u] * x[i, j] for i in range(n)) / n for j in range(x.cols)] for u in range(v.rows)]
    for i, a in itertools.product(range(n), range(w.rows)):
        row = [
            w[a, u] * (x[i, j] / deviation[u] - hidden[i, u] * slope[u][j] / deviation[u] ** 3)
            for u in range(v.rows)
            for j in range(x.cols)
        ]
        row += [hidden[i, u] / deviation[u] if a == b else 0 for b in range(w.rows) for u in range(v.rows)]
        rows.append(row)
    return mpmath.matrix(rows)


def test_one_input_is_normalised_away():
    """The derivative of a unit by its only weight vanishes, and every unit is the same up to its sign."""
    (v, w), x = case((1, 5, 3, 7))
    expected = 5 * torch.eye(3).double()
    torch.testing.assert_close(batch_norm_gauss_newton([v, w], x), expected, rtol=0, atol=5e-13)


def test_the_coordinate_of_the_constant_is_there_only_where_something_reaches_it():
    weights, x = case((4, 6, 3, 9))
    assert len(batch_norm_gauss_newton(weights, x)) == 3 * 4
    assert len(batch_norm_gauss_newton(weights, x, shift=torch.zeros(6))) == 3 * 4
    assert len(batch_norm_gauss_newton(weights, x, shift=torch.ones(6))) == 3 * 5
    assert len(batch_norm_gauss_newton(weights, x, affine=True)) == 3 * 5
    assert len(batch_norm_gauss_newton(weights, x, mode="eval")) == 3 * 5


@pytest.mark.parametrize("value", [0.7, 1e6 + 0.7])
def test_a_constant_feature_is_no_direction_whatever_rounding_centring_leaves_of_it(value):
    weights, x = case((4, 6, 3, 9))
    x[:, 0] = value
    assert len(batch_norm_gauss_newton(weights, x)) == 3 * 3


# ---- bad input
X = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])


@pytest.mark.bad_input
@pytest.mark.parametrize("n", [1, 5])
def test_a_batch_of_one_sample_is_refused(n):
    with pytest.raises(ValueError, match=f"x holds the same sample {n} times, of which centring leaves nothing"):
        batch_norm_gauss_newton(GOOD, X[:1].expand(n, 2))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "v, x, unit",
    [
        (torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), normal(5, 2, seed=1), 2),
        (torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), torch.tensor([[1, 1e6 + 0.7], [2, 1e6 + 0.7]]), 1),
    ],
    ids=["zero weights", "a large constant"],
)
def test_a_unit_that_is_constant_over_the_batch_needs_eps(v, x, unit):
    with pytest.raises(ValueError, match=rf"Hidden unit {unit} is constant over the batch \(n = {len(x)}\).*eps > 0"):
        batch_norm_gauss_newton([v.double(), torch.ones(4, 3)], x.double())
    batch_norm_gauss_newton([v.double(), torch.ones(4, 3)], x.double(), eps=1e-5)


def batch_norm(hidden):
    return functional.batch_norm(hidden, None, None, training=True, eps=1e-300)  # lost in the sum; torch refuses 0


def autograd(weights, x):
    return autograd_gram(lambda v, w: batch_norm(x @ v.T) @ w.T, weights, len(x))


@large
def test_the_literal_sum_of_eq_10(shape):
    weights, x = case(shape)
    gram = batch_norm_gram(weights, x)
    assert_equal_to(gram, literal_eq_10(batch_norm_units(weights, x), len(x)), 1e-12)
    assert torch.equal(gram, gram.T)


@settings(deadline=None, max_examples=50)
@given(problems())
def test_batch_norm_is_autograd_on_integers(problem):
    weights, x = problem
    hidden = x @ weights[0].T
    assume((hidden.amax(0) > hidden.amin(0)).all())
    gram = batch_norm_gram(weights, x)
    torch.testing.assert_close(gram, autograd(weights, x), rtol=1e-11, atol=1e-11)
    assert torch.equal(gram, gram.T)
    assert spectrum(gram)[-1] >= -1e-12 * max(1, spectrum(gram)[0])


def test_samples_outputs_units_and_types_of_tensors():
    assert_follows_the_order_of_samples_outputs_and_units(batch_norm_gram)
    assert_takes_single_precision_and_parameters(batch_norm_gram)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "v, x, unit",
    [
        (torch.ones(3, 2), torch.tensor([[0.3, 0.7]]), 0),
        (torch.ones(3, 2), torch.full((7, 2), 0.1), 0),
        (torch.tensor([[1.0, 1.0], [0.0, 0.3], [0.0, 1.0]]), torch.tensor([[0.3, 0.7], [0.5, 0.7], [0.1, 0.7]]), 1),
        (torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), normal(5, 2, seed=1), 2),
        (torch.tensor([[1.0, 0.0], [0.3, -0.1], [1.0, 1.0]]), normal(5, 1, seed=1) * torch.tensor([0.1, 0.3]), 1),
    ],
    ids=["one sample", "equal samples", "constant feature", "zero weights", "orthogonal weights"],
)
def test_a_unit_that_is_constant_over_the_batch_is_refused(v, x, unit):
    with pytest.raises(ValueError, match=rf"Hidden unit {unit} is constant over the batch \(n = {len(x)}\)"):
        batch_norm_gram([v.double(), torch.ones(4, 3)], x.double())


@pytest.mark.bad_input
@pytest.mark.parametrize("eps", [-1e-5, math.nan])
def test_an_eps_that_is_negative_or_not_finite_is_refused(eps):
    with pytest.raises(ValueError, match=f"eps is {eps}; a finite number from 0 on was expected"):
        batch_norm_gauss_newton(GOOD, X, eps=eps)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["scale", "shift"])
def test_a_scale_or_shift_of_another_shape_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name} has shape \(1,\); one number for each of the 3 units"):
        batch_norm_gauss_newton(GOOD, X, **{name: torch.ones(1)})


@pytest.mark.bad_input
def test_another_mode_is_refused():
    with pytest.raises(ValueError, match="mode is 'test'; 'train' or 'eval' was expected"):
        batch_norm_gauss_newton(GOOD, X, mode="test", affine=True)
