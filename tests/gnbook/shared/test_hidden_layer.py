"""The Gram matrices of networks with one hidden layer, against autograd and the literal sum of Kronecker products."""

import pytest
import torch
from gnbook.batch_normalization.gauss_newton import batch_norm_gram
from gnbook.shared.hidden_layer import leaky_relu_gram
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from gnlib import linear_gauss_newton, second_moment
from tests.hidden_layers import GOOD, X, refused, shapes, special
from tests.oracles import (
    assert_same_nonzero_spectrum,
    autograd_gram,
    batch_norm_units,
    leaky_relu_units,
    literal_eq_10,
    network,
    normal,
    samples,
    spectrum,
)

SLOPES = [0.0, 0.01, 1.0, -0.5, 2.0]
slopes = pytest.mark.parametrize("slope", SLOPES)


def case(shape, kind="plain"):
    d, m, k, n = shape
    x = samples(n, d, rank=2 if kind == "low rank" else None, seed=2)
    if kind == "constant feature":
        x[:, 0] = 0.7
    elif kind == "repeated samples":
        x[n // 2] = x[0]
    elif kind == "a sample at zero":
        x[0] = 0
    elif kind == "off centre":
        x += 100
    return network((d, m, k), seed=1), x


def leaky_autograd(weights, x, slope):
    return autograd_gram(lambda v, w: functional.leaky_relu(x @ v.T, slope) @ w.T, weights, len(x))


def batch_norm(hidden):
    return functional.batch_norm(hidden, None, None, training=True, eps=1e-300)  # lost in the sum; torch refuses 0


def batch_norm_autograd(weights, x):
    return autograd_gram(lambda v, w: batch_norm(x @ v.T) @ w.T, weights, len(x))


def assert_equal_to(gram, expected, tolerance=1e-10):
    torch.testing.assert_close(gram, expected, rtol=0, atol=tolerance * expected.abs().max().item())


@shapes
@slopes
def test_leaky_relu_is_autograd(shape, slope):
    weights, x = case(shape)
    assert_equal_to(leaky_relu_gram(weights, x, slope), leaky_autograd(weights, x, slope))


@special
@slopes
def test_leaky_relu_is_autograd_on_special_data(kind, slope):
    weights, x = case((4, 6, 3, 9), kind)
    assert_equal_to(leaky_relu_gram(weights, x, slope), leaky_autograd(weights, x, slope))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 4, 2, 1), (2, 1, 3, 1)])
@slopes
def test_one_sample_is_enough_for_leaky_relu(shape, slope):
    weights, x = case(shape)
    assert_equal_to(leaky_relu_gram(weights, x, slope), leaky_autograd(weights, x, slope))


@shapes
def test_batch_norm_is_autograd(shape):
    weights, x = case(shape)
    assert_equal_to(batch_norm_gram(weights, x), batch_norm_autograd(weights, x))


@special
@pytest.mark.parametrize("shape", [(4, 6, 3, 9), (5, 3, 2, 4), (3, 1, 1, 6), (2, 8, 2, 5)])
def test_batch_norm_is_autograd_on_special_data(shape, kind):
    weights, x = case(shape, kind)
    assert_equal_to(batch_norm_gram(weights, x), batch_norm_autograd(weights, x))


# The matrix is built for 512 / k samples at a time.
@pytest.mark.parametrize("shape", [(3, 2, 1, 513), (3, 4, 1, 1100), (2, 3, 4, 300), (3, 2, 600, 3), (7, 5, 11, 46)])
def test_the_literal_sum_of_eq_10(shape):
    weights, x = case(shape)
    for gram, units in (
        (leaky_relu_gram(weights, x, 0.1), leaky_relu_units(weights, x, 0.1)),
        (batch_norm_gram(weights, x), batch_norm_units(weights, x)),
    ):
        assert_equal_to(gram, literal_eq_10(units, len(x)), 1e-12)
        assert torch.equal(gram, gram.T)


def integers(rows, columns):
    row = st.lists(st.integers(-3, 3), min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows).map(lambda entries: torch.tensor(entries, dtype=torch.float64))


@st.composite
def problems(draw):
    """Draw a network and data of small integers: zero, repeated and opposite hidden values are common."""
    d, m, k, n = (draw(st.integers(1, most)) for most in (3, 4, 3, 6))
    return [draw(integers(m, d)), draw(integers(k, m))], draw(integers(n, d))


@settings(deadline=None, max_examples=200)
@given(problems(), st.sampled_from(SLOPES))
def test_leaky_relu_is_autograd_where_hidden_values_are_zero(problem, slope):
    weights, x = problem
    gram = leaky_relu_gram(weights, x, slope)
    assert_equal_to(gram, leaky_autograd(weights, x, slope), 1e-13)
    assert torch.equal(gram, gram.T)
    assert spectrum(gram)[-1] >= -1e-13 * spectrum(gram)[0]


@settings(deadline=None, max_examples=200)
@given(problems())
def test_batch_norm_is_autograd_on_integers(problem):
    weights, x = problem
    hidden = x @ weights[0].T
    assume((hidden.amax(0) > hidden.amin(0)).all())
    gram = batch_norm_gram(weights, x)
    torch.testing.assert_close(gram, batch_norm_autograd(weights, x), rtol=1e-11, atol=1e-11)
    assert torch.equal(gram, gram.T)
    assert spectrum(gram)[-1] >= -1e-12 * max(1, spectrum(gram)[0])


@shapes
def test_slope_one_is_the_linear_network(shape):
    weights, x = case(shape)
    linear = linear_gauss_newton(weights, second_moment(x)).dense()
    assert_same_nonzero_spectrum(spectrum(leaky_relu_gram(weights, x, 1.0)), spectrum(linear), 1e-12)


@slopes
def test_the_derivative_at_zero_is_the_slope(slope):
    """As in torch; the hidden value of x = (1, 1) is zero, its derivative by V is slope * x."""
    gram = leaky_relu_gram([torch.tensor([[1, -1]]), torch.tensor([[3], [1]])], torch.ones(1, 2), slope)
    assert_equal_to(gram, 2 * slope**2 * torch.tensor([[9, 3], [3, 1]], dtype=torch.float64), 1e-14)


@slopes
def test_doubling_the_weights_of_leaky_relu_quadruples_the_matrix(slope):
    (v, w), x = case((4, 6, 3, 9))
    gram = leaky_relu_gram([v, w], x, slope)
    assert torch.equal(leaky_relu_gram([2 * v, 2 * w], x, slope), 4 * gram)
    assert torch.equal(leaky_relu_gram([v, w], 2 * x, slope), 4 * gram)


def test_a_dead_unit_contributes_nothing():
    (v, w), x = case((4, 6, 3, 9))
    x, v[0] = x.abs(), -v[0].abs()  # unit 0 is negative on every sample
    assert_equal_to(leaky_relu_gram([v, w], x, 0.0), leaky_relu_gram([v[1:], w[:, 1:]], x, 0.0), 1e-14)
    v[1:] = v[0]
    assert not leaky_relu_gram([v, w], x, 0.0).any()


def test_batch_norm_takes_the_mean_of_the_samples_away():
    """The mean of each output is zero whatever the weights, and a common shift of the samples does nothing."""
    weights, x = case((4, 6, 3, 9))
    gram = batch_norm_gram(weights, x)
    assert gram.view(9, 3, 27).sum(0).abs().max() < 1e-13 * gram.abs().max()
    assert_equal_to(batch_norm_gram(weights, x + 1000 * normal(4, seed=3)), gram, 1e-11)


def test_batch_norm_divides_by_the_scale_of_the_input_weights():
    """Only the part of the input weights depends on their scale, and as its inverse square."""
    (v, w), x = case((4, 6, 3, 9))
    one, two, four = (batch_norm_gram([scale * v, w], x) for scale in (1, 2, 4))
    assert_equal_to(4 * (two - four), one - two, 1e-13)
    assert torch.equal(batch_norm_gram([v, w], 2 * x), one)
    signs = torch.tensor([1, -1, 1, 1, -1, -1])
    assert_equal_to(batch_norm_gram([signs[:, None] * v, signs * w], x), one, 1e-14)


@pytest.mark.parametrize("k", [1, 3])
def test_the_normalised_unit_is_an_eigenvector(k):
    """The derivative of a normalised unit is orthogonal to the unit, which leaves the part of the output weights."""
    (v, w), x = case((4, 1, k, 9))
    z = batch_norm(x @ v.T)
    vectors = torch.kron(z, torch.eye(k, dtype=torch.float64))
    assert_equal_to(batch_norm_gram([v, w], x) @ vectors, vectors, 1e-13)


@pytest.mark.parametrize("gram", [lambda w, x: leaky_relu_gram(w, x, 0.2), batch_norm_gram], ids=["leaky", "norm"])
def test_the_order_of_samples_outputs_and_units(gram):
    (v, w), x = case((4, 6, 3, 9))
    sample, output, unit = (normal(size, seed=size).argsort() for size in (9, 3, 6))
    rows = (sample[:, None] * 3 + output).flatten()
    expected = gram([v, w], x)[rows][:, rows]
    assert_equal_to(gram([v[unit], w[output][:, unit]], x[sample]), expected, 1e-14)


@pytest.mark.parametrize("gram", [lambda w, x: leaky_relu_gram(w, x, 0.2), batch_norm_gram], ids=["leaky", "norm"])
def test_single_precision_and_parameters_are_taken(gram):
    weights, x = case((4, 6, 3, 9))
    single = [w.float() for w in weights]
    expected = gram([w.double() for w in single], x.float().double())
    result = gram([torch.nn.Parameter(w) for w in single], x.float())
    assert result.dtype == torch.float64
    assert torch.equal(result, expected)


@pytest.mark.bad_input
@refused
def test_what_is_no_network_or_no_data_for_it_is_refused(weights, x, message):
    for gram in (lambda w, x: leaky_relu_gram(w, x, 0.1), batch_norm_gram):
        with pytest.raises(ValueError, match=message):
            gram(weights, x)


@pytest.mark.bad_input
def test_complex_numbers_are_refused():
    with pytest.raises(TypeError, match=r"x is complex \(torch.complex64\)"):
        leaky_relu_gram(GOOD, X.to(torch.complex64), 0.1)


@pytest.mark.bad_input
@pytest.mark.parametrize("slope", [float("nan"), float("inf")])
def test_a_slope_that_is_not_finite_is_refused(slope):
    with pytest.raises(ValueError, match=f"slope is {slope}; a finite number was expected"):
        leaky_relu_gram(GOOD, X, slope)


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
