"""Linear networks, and their Gauss-Newton matrices, against autograd, torch layers and the Kronecker formula."""

import dataclasses
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d

import gnlib
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
from tests.oracles import (
    assert_same_nonzero_spectrum,
    autograd_jacobian,
    kronecker_formula,
    network,
    normal,
    samples,
    spectrum,
    with_skip,
)

SHAPES = [  # widths, number of samples, rank of the data where it is not min(n, d)
    ((1, 1), 1, None),
    ((4, 3), 7, None),
    ((1, 3), 5, None),
    ((5, 1), 3, None),
    ((4, 6, 3), 9, None),
    ((6, 2, 4), 3, None),
    ((3, 1, 3), 8, None),
    ((4, 3, 1), 6, 2),
    ((5, 4, 4, 3), 12, 2),
    ((3, 5, 2, 4), 9, None),
    ((6, 3, 5, 4, 2), 4, None),
    ((2, 3, 4, 3, 3, 2), 6, None),
    ((3, 2, 4, 1, 3, 2, 3), 7, None),
    ((4, 5, 4, 5, 4, 5, 4), 9, 3),
]


@pytest.mark.parametrize("widths, n, rank", SHAPES, ids=str)
@pytest.mark.parametrize("skip", [0.0, 0.3, 1.0])
def test_all_that_is_known_of_a_network_is_what_autograd_and_the_kronecker_formula_say(widths, n, rank, skip):
    """Its outputs; the operator, dense and by products; and the same spectrum by the matrix that it is."""
    weights, x = network(widths, seed=1), samples(n, widths[0], rank=rank, seed=2)
    layers = [nn.Linear(i, o, bias=False) for i, o in pairwise(widths)]
    for layer, w in zip(layers, weights, strict=True):
        layer.weight.data = with_skip(w, skip)
    torch.testing.assert_close(linear_network(weights, x, skip), nn.Sequential(*layers)(x))

    expected, jacobian = kronecker_formula(weights, x, skip), autograd_jacobian(weights, x, skip)
    v, close = normal(len(expected), 3, seed=3), dict(rtol=0, atol=1e-12 * expected.abs().max().item())
    for moment in (second_moment(x), SecondMoment.from_data(x)):
        operator = linear_gauss_newton(weights, moment, skip)
        torch.testing.assert_close(operator.dense(), expected, **close)
        torch.testing.assert_close(operator @ v, expected @ v, rtol=1e-11, atol=close["atol"])
    identity = torch.eye(widths[0], dtype=torch.float64)
    reduced = reduced_gauss_newton(lambda *w: linear_network(w, identity, skip).mT, weights, moment)
    assert len(reduced) == widths[-1] * (rank or min(n, widths[0]))
    for matrix in (expected, reduced):
        assert_same_nonzero_spectrum(spectrum(matrix), spectrum(jacobian @ jacobian.T / n), 1e-10)


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


# What is linear in its inputs, and no product of layers


def assert_spectrum(matrix, module, x, **options):
    values = spectrum(matrix)
    torch.testing.assert_close(
        values, spectrum(gnlib.GaussNewton(module, x, **options).gram())[: len(values)], rtol=1e-7, atol=1e-8
    )


def test_two_convolutions():
    """On images of the size of the window, each of which is one output."""
    v, w, x = normal(4, 1, 3, 3, seed=1), normal(2, 4, 2, 2, seed=2), normal(20, 1, 4, 4, seed=3)

    def effective(v, w):
        return torch.cat([conv2d(v.transpose(0, 1), one[None].flip(2, 3), padding=1)[0].flatten(1) for one in w])

    layers = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.Conv2d(4, 2, 2, bias=False), nn.Flatten()).double()
    layers[0].weight.data, layers[1].weight.data = v, w
    torch.testing.assert_close(layers(x), x.flatten(1) @ effective(v, w).mT)
    assert_spectrum(reduced_gauss_newton(effective, [v, w], second_moment(x.flatten(1))), layers, x)


def test_batch_normalisation():
    """Of centred data it is linear in its inputs, and by autograd through the batch the spectrum is the same."""
    x = normal(30, 5, seed=4)
    moment = second_moment(x - x.mean(0))
    v, w = network((5, 7, 2), seed=5)
    layers = nn.Linear(5, 7, bias=False), nn.BatchNorm1d(7, eps=1e-300, affine=False), nn.Linear(7, 2, bias=False)
    module = nn.Sequential(*layers).double()
    module[0].weight.data, module[2].weight.data = v, w
    matrix = reduced_gauss_newton(lambda v, w: w @ (v / ((v @ moment) * v).sum(1, keepdim=True).sqrt()), [v, w], moment)
    assert_spectrum(matrix, module, x, mode="train")


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
        (linear_gauss_newton, ([ONES, torch.ones(1, 4)], EYE), r"weights\[1\] takes 4 inputs but"),
        (linear_gauss_newton, ([ONES, torch.full((1, 2), torch.nan)], EYE), r"weights\[1\] has 2 ent"),
        (reduced_gauss_newton, (lambda w: w[:, :2], [ONES], EYE), r"function returns \(2, 2\); a \(k, 3\) matrix was"),
        (reduced_gauss_newton, (lambda w: w.sum(), [ONES], EYE), r"function returns \(\); a \(k, 3\) matrix was expec"),
        *(
            (lambda widths: linear_weights(widths, generator=torch.Generator()), (widths,), "at least two integers")
            for widths in ([3], [3, 0], [3, 2.0], [None, 2])
        ),
    ],
)
def test_what_is_no_network_is_refused(function, given, message):
    with pytest.raises(ValueError, match=message):
        function(*given)
