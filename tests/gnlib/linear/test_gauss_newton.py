"""The Gauss-Newton matrix of a linear network, against autograd and the Kronecker formula."""

import dataclasses

import pytest
import torch

from gnlib import SecondMoment, condition_number, linear_gauss_newton, second_moment, whiten
from tests.oracles import (
    assert_same_nonzero_spectrum,
    autograd_jacobian,
    kronecker_formula,
    network,
    normal,
    samples,
    spectrum,
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
networks = pytest.mark.parametrize(
    "widths, n, rank", SHAPES, ids=lambda v: "-".join(map(str, v)) if isinstance(v, tuple) else None
)
skips = pytest.mark.parametrize("skip", [0.0, 0.3, 1.0])


def case(widths, n, rank):
    return network(widths, seed=1), samples(n, widths[0], rank=rank, seed=2)


@networks
@skips
def test_the_operator_is_the_kronecker_formula(widths, n, rank, skip):
    weights, x = case(widths, n, rank)
    expected = kronecker_formula(weights, x, skip)
    tolerance = 1e-12 * expected.abs().max().item()
    for moment in (second_moment(x), SecondMoment.from_data(x)):
        dense = linear_gauss_newton(weights, moment, skip).dense()
        torch.testing.assert_close(dense, expected, rtol=0, atol=tolerance)


@networks
@skips
def test_the_nonzero_spectrum_is_that_of_autograd(widths, n, rank, skip):
    weights, x = case(widths, n, rank)
    values = spectrum(linear_gauss_newton(weights, second_moment(x), skip).dense())
    jacobian = autograd_jacobian(weights, x, skip)
    assert_same_nonzero_spectrum(values, spectrum(jacobian.T @ jacobian / n), 1e-10)
    assert_same_nonzero_spectrum(values, spectrum(jacobian @ jacobian.T / n), 1e-10)


@networks
def test_the_product_with_the_operator_is_that_with_the_matrix(widths, n, rank):
    weights, x = case(widths, n, rank)
    v = normal(widths[-1] * widths[0], 3, seed=3)
    product = linear_gauss_newton(weights, second_moment(x)) @ v
    torch.testing.assert_close(product, kronecker_formula(weights, x) @ v, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("unevenness", [0, 1e-16, 1e-9, 0.1])
def test_white_data_need_no_basis_of_their_own_and_nearly_white_data_do(unevenness):
    weights, x = network((6, 8, 3), seed=3), whiten(samples(20, 6, seed=4))
    x = x + unevenness * samples(20, 6, seed=5)
    operator = linear_gauss_newton(weights, SecondMoment.from_data(x))
    expected = kronecker_formula(weights, x)
    torch.testing.assert_close(operator.dense(), expected, rtol=0, atol=1e-13 * expected.abs().max().item())
    assert torch.equal(operator.basis, torch.eye(6, dtype=torch.float64)) == (unevenness < 1e-12)


def test_single_precision_is_promoted():
    weights, x = network((4, 5, 3), seed=6), normal(9, 4, seed=7)
    single = [w.float() for w in weights]
    moment = second_moment(x).float()
    moment = (moment + moment.T) / 2
    op = linear_gauss_newton(single, moment, 0.3)
    exact = linear_gauss_newton([w.double() for w in single], moment.double(), 0.3)
    assert op.dtype == torch.float64
    assert torch.equal(op.dense(), exact.dense())
    found, expected = condition_number(op), condition_number(exact)
    assert dataclasses.replace(found, residual=0) == dataclasses.replace(expected, residual=0)
    assert found.residual >= torch.finfo(torch.float32).eps > expected.residual


@pytest.mark.bad_input
@pytest.mark.parametrize("moment", [torch.eye(3), SecondMoment(torch.eye(3), torch.ones(3))])
def test_a_second_moment_of_another_size_is_refused(moment):
    with pytest.raises(ValueError, match=r"second_moment is of size 3 but weights\[0\] takes 2"):
        linear_gauss_newton([torch.ones(3, 2), torch.ones(4, 3)], moment)
