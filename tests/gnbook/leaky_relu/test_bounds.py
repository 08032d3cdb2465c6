"""Bounds for one hidden layer of leaky ReLUs, against their formulas in NumPy and against autograd."""

import itertools
import math

import numpy as np
import pytest
import scipy
import torch
from gnbook.leaky_relu.bounds import leaky_relu_ends, wide_leaky_relu_kernel, zhao_lemma_4
from torch.nn import functional

from gnlib import leaky_relu_gram, whiten
from tests.hidden_layers import GOOD, X, refused
from tests.oracles import autograd_gram, network, normal, orthogonal, samples, spectrum

SHAPES = [  # d, m, k, n: n below, at and above d; one of each; fewer units than outputs or samples
    (5, 9, 3, 4),
    (4, 6, 2, 4),
    (3, 12, 2, 8),
    (2, 30, 3, 7),
    (1, 1, 1, 1),
    (6, 1, 1, 3),
    (6, 2, 4, 5),
    (3, 1, 3, 6),
    (7, 5, 1, 6),
    (1, 8, 2, 5),
]
SLOPES = [0.0, 0.01, 0.5, 1.0]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(map(str, s)))
slopes = pytest.mark.parametrize("slope", SLOPES)
any_slopes = pytest.mark.parametrize("slope", [*SLOPES, -0.7, 2.0])


def case(shape, dead=False):
    d, m, k, n = shape
    (v, w), x = network((d, m, k), seed=1), samples(n, d, seed=2)
    if dead:  # the first unit is negative on all samples
        x, v[0] = x.abs(), -v[0].abs()
    return [v, w], x


def autograd(weights, x, slope):
    return autograd_gram(lambda v, w: functional.leaky_relu(x @ v.T, slope) @ w.T, weights, len(x))


def mean_block(gram, n):
    """The mean over the outputs of the diagonal blocks, each of the size of the samples."""
    k = len(gram) // n
    return gram.view(n, k, n, k).diagonal(dim1=1, dim2=3).mean(-1)


def ends(matrix):
    values = np.linalg.eigvalsh(np.asarray(matrix))
    return values[0], values[-1]


def close(value, expected, scale):
    return value == pytest.approx(expected, rel=1e-9, abs=1e-12 * scale)


def activations(weights, x, slope):
    linear = x.numpy() @ weights[0].numpy().T
    derivative = np.where(linear > 0, 1.0, slope)
    return linear, derivative * linear, derivative


@shapes
@slopes
@pytest.mark.parametrize("dead", [False, True], ids=["plain", "dead unit"])
def test_lemma_4_is_the_formula_of_the_paper(shape, slope, dead):
    weights, x = case(shape, dead)
    linear, hidden, _ = activations(weights, x, slope)
    x, w = x.numpy(), weights[1].numpy()
    data, output, gamma, plain = (ends(a @ a.T) for a in (x, w, hidden, linear))
    top, bottom = (data[end] * output[end] for end in (1, 0))
    expected = (
        (slope**2 * bottom + gamma[0], top + gamma[1]),
        (slope**2 * (bottom + plain[0]), top + plain[1]),
    )
    for value, (smallest, largest) in zip(zhao_lemma_4(weights, torch.from_numpy(x), slope), expected, strict=True):
        assert close(1 / value, smallest / largest, 1)


@shapes
@any_slopes
@pytest.mark.parametrize("dead", [False, True], ids=["plain", "dead unit"])
def test_the_ends_are_their_formulas(shape, slope, dead):
    weights, x = case(shape, dead)
    _, hidden, derivative = activations(weights, x, slope)
    w, n = weights[1].numpy(), len(x)
    data = ends(x.numpy() @ x.numpy().T)
    blocks = [ends(w * row**2 @ w.T) for row in derivative]
    found, gram = leaky_relu_ends(weights, x, slope), autograd(weights, x, slope)
    scale = spectrum(gram)[0].item()
    for end, value in ((0, found.smallest.lower), (1, found.largest.upper)):
        outer = hidden @ hidden.T + data[end] * np.diag([block[end] for block in blocks])
        assert close(value, ends(outer / n)[end], scale)
    for end, value in ((0, found.smallest.upper), (1, found.largest.lower)):
        assert close(value, ends(mean_block(gram, n))[end], scale)


@shapes
@any_slopes
def test_the_ends_enclose_those_of_autograd(shape, slope):
    weights, x = case(shape)
    values, found = spectrum(autograd(weights, x, slope)), leaky_relu_ends(weights, x, slope)
    rounding = 1e-12 * values[0]
    assert found.smallest.lower - rounding <= values[-1] <= found.smallest.upper + rounding
    assert found.largest.lower - rounding <= values[0] <= found.largest.upper + rounding


@pytest.mark.parametrize("d, m, n", [(4, 6, 4), (7, 5, 3), (5, 1, 5), (3, 40, 2), (1, 2, 1)])
@any_slopes
def test_with_one_output_and_white_samples_all_bounds_are_the_value(d, m, n, slope):
    """Rows of x that are orthogonal and of one norm."""
    weights, x = network((d, m, 1), seed=1), 3 * orthogonal(d, n, seed=2).T
    values, found = spectrum(autograd(weights, x, slope)), leaky_relu_ends(weights, x, slope)
    for value, interval in ((values[-1], found.smallest), (values[0], found.largest)):
        assert close(interval.lower, value.item(), values[0].item())
        assert close(interval.upper, value.item(), values[0].item())


@pytest.mark.parametrize("d, m, k, n", [(4, 6, 2, 4), (7, 5, 3, 3), (6, 1, 2, 5), (9, 30, 4, 6), (2, 2, 5, 2)])
@any_slopes
def test_white_samples_are_coupled_by_the_second_layer_only(d, m, k, n, slope):
    """The closed form that makes whitened data easy, against autograd."""
    weights, x = network((d, m, k), seed=1), whiten(samples(n, d, seed=2))
    _, hidden, derivative = (torch.from_numpy(a) for a in activations(weights, x, slope))
    blocks = torch.block_diag(*(weights[1] * row**2 @ weights[1].T for row in derivative))
    closed = blocks + torch.kron(hidden @ hidden.T / n, torch.eye(k, dtype=torch.float64))
    expected = autograd(weights, x, slope)
    torch.testing.assert_close(closed, expected, rtol=0, atol=1e-10 * expected.abs().max().item())


def test_the_bounds_of_the_condition_number_are_ratios_of_the_ends():
    found = leaky_relu_ends(*case((4, 20, 2, 4)), 0.0)
    assert found.condition.lower == found.largest.lower / found.smallest.upper > 1
    assert found.condition.upper == found.largest.upper / found.smallest.lower < math.inf
    nothing = leaky_relu_ends([torch.ones(2, 2), torch.ones(1, 2)], torch.eye(2) - 1, 0.0)  # no unit is active
    assert nothing == ((0, 0), (0, 0)) and nothing.condition == (math.inf, math.inf)


@any_slopes
def test_the_derivative_at_zero_is_the_slope(slope):
    """As in torch; the hidden value of x = (1, 1) is zero, its derivative by V is slope * x."""
    found = leaky_relu_ends([torch.tensor([[1, -1]]), torch.tensor([[3], [1]])], torch.ones(1, 2), slope)
    assert found.largest.upper == pytest.approx(20 * slope**2, rel=1e-12, abs=1e-14)
    assert found.largest.lower == pytest.approx(10 * slope**2, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("slope", [0.01, 0.5, 1.0])
def test_an_eigenvalue_lost_in_rounding_counts_as_zero(slope):
    """With more samples than inputs the linear units have a singular matrix, whatever their number."""
    assert zhao_lemma_4(*case((3, 12, 2, 8)), slope).second == math.inf
    (v, w), x = case((4, 9, 2, 3))
    x[2] = x[1]
    assert zhao_lemma_4([v, w], x, slope) == (math.inf, math.inf)
    assert leaky_relu_ends([v, w], x, slope).condition.upper == math.inf


@shapes
def test_lemma_4_for_the_linear_network_gives_one_bound_twice(shape):
    first, second = zhao_lemma_4(*case(shape), 1.0)
    assert 1 / first == pytest.approx(1 / second, abs=1e-14)


def circle(x, y, slope):
    """Integrate over the circle, with corners where either unit changes sign, for x and y in the plane."""
    corners = sorted({(math.atan2(a[1], a[0]) + s * math.pi / 2) % (2 * math.pi) for a in (x, y) for s in (1, -1)})

    def value(t):
        products = (a[0] * math.cos(t) + a[1] * math.sin(t) for a in (x, y))
        return math.prod(p if p > 0 else slope * p for p in products)

    pieces = itertools.pairwise([0, *corners, 2 * math.pi])
    return sum(scipy.integrate.quad(value, a, b, epsabs=1e-13, epsrel=1e-13)[0] for a, b in pieces) / math.pi


@any_slopes
def test_the_wide_kernel_is_the_expectation_over_a_gaussian_unit(slope):
    """In the plane a Gaussian vector is a radius of mean square two times a direction, uniform on the circle."""
    x = torch.cat([normal(6, 2, seed=3), torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 3.0]], dtype=torch.float64)])
    kernel = wide_leaky_relu_kernel(x, slope)
    for i, j in itertools.product(range(len(x)), repeat=2):
        assert kernel[i, j].item() == pytest.approx(circle(x[i].tolist(), x[j].tolist(), slope), rel=1e-10, abs=1e-12)


@any_slopes
def test_the_wide_kernel_in_more_dimensions(slope):
    x = samples(5, 7, seed=4)
    hidden = functional.leaky_relu(x @ normal(7, 400_000, seed=5), slope)
    torch.testing.assert_close(hidden @ hidden.T / 400_000, wide_leaky_relu_kernel(x, slope), rtol=0.02, atol=0.15)


def test_the_wide_kernel_takes_samples_at_zero_and_their_multiples():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0], [-3.0, -4.0]])
    relu = wide_leaky_relu_kernel(x, 0.0)
    expected = 25 / 2 * torch.tensor([[0, 0, 0, 0], [0, 1, 2, 0], [0, 2, 4, 0], [0, 0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(relu, expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(wide_leaky_relu_kernel(x, 1.0), (x @ x.T).double(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("function", [zhao_lemma_4, leaky_relu_ends], ids=["lemma 4", "ends"])
def test_single_precision_and_parameters_are_taken(function):
    weights, x = case((4, 6, 2, 4))
    single = [w.float() for w in weights]
    expected = function([w.double() for w in single], x.float().double(), 0.1)
    assert function([torch.nn.Parameter(w) for w in single], x.float(), 0.1) == expected


def test_slopes_beyond_those_of_lemma_4_have_a_gram_matrix_and_ends():
    """What zhao_lemma_4 refuses, and still works."""
    weights, x = case((5, 9, 3, 4))
    for slope in (-0.5, 3.0):
        values, found = spectrum(leaky_relu_gram(weights, x, slope)), leaky_relu_ends(weights, x, slope)
        assert found.condition.lower <= values[0] / values[-1] <= found.condition.upper


@pytest.mark.bad_input
@refused
def test_what_is_no_network_or_no_data_for_it_is_refused(weights, x, message):
    for function in (zhao_lemma_4, leaky_relu_ends):
        with pytest.raises(ValueError, match=message):
            function(weights, x, 0.1)


@pytest.mark.bad_input
@pytest.mark.parametrize("slope", [-0.01, 1.01, math.nan, math.inf])
def test_lemma_4_is_refused_slopes_that_it_is_not_about(slope):
    with pytest.raises(ValueError, match=rf"slope is {slope}; Lemma 4 is about slopes from 0 to 1 \(leaky_relu_ends"):
        zhao_lemma_4(GOOD, X, slope)


@pytest.mark.bad_input
@pytest.mark.parametrize("slope", [math.nan, -math.inf])
def test_a_slope_that_is_not_finite_is_refused(slope):
    for function in (lambda: leaky_relu_ends(GOOD, X, slope), lambda: wide_leaky_relu_kernel(X, slope)):
        with pytest.raises(ValueError, match=f"slope is {slope}; a finite number was expected, such as 0 for the ReLU"):
            function()


@pytest.mark.bad_input
@pytest.mark.parametrize("x, message", [(torch.ones(3), "samples in rows"), (X / 0, "NaN or infinite")])
def test_the_wide_kernel_refuses_what_are_no_samples(x, message):
    with pytest.raises(ValueError, match=message):
        wide_leaky_relu_kernel(x, 0.1)
