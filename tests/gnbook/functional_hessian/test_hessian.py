"""The other half of the Hessian of linear networks, against automatic differentiation."""

import math

import pytest
import torch
from gnbook.functional_hessian.bounds import functional_hessian_norm
from gnbook.functional_hessian.hessian import (
    functional_hessian,
    functional_hessian_eigenvalues,
    linear_hessian,
    linear_hessian_product,
    residual_moment,
)

from gnlib import SecondMoment, second_moment
from tests.gnbook.functional_hessian.cases import WIDTHS, problem, seeds
from tests.oracles import autograd_jacobian, network, normal, samples

RESIDUALS = ["any", "low rank", "zero"]
widths = pytest.mark.parametrize("widths", WIDTHS, ids=lambda w: "-".join(map(str, w)))
residuals = pytest.mark.parametrize("residual", RESIDUALS)


def autograd_hessian(weights, x, y):
    sizes = [w.numel() for w in weights]

    def loss(theta):
        h = x
        for part, w in zip(theta.split(sizes), weights, strict=True):
            h = h @ part.view_as(w).T
        return (h - y).square().sum() / (2 * len(x))

    return torch.autograd.functional.hessian(loss, torch.cat([w.flatten() for w in weights]))


def autograd_halves(weights, x, y):
    jacobian = autograd_jacobian(weights, x)
    outer = jacobian.T @ jacobian / len(x)
    return outer, autograd_hessian(weights, x, y) - outer


@widths
@residuals
@seeds
def test_both_halves_are_those_of_automatic_differentiation(widths, residual, seed):
    weights, x, y = problem(widths, residual, seed)
    outer, functional = autograd_halves(weights, x, y)
    omega = residual_moment(weights, x, y)
    assert (functional_hessian(weights, omega) - functional).abs().max() <= 1e-10
    assert (linear_hessian(weights, second_moment(x), omega) - outer - functional).abs().max() <= 1e-10


@widths
@residuals
@seeds
def test_products_are_those_with_the_hessian_of_automatic_differentiation(widths, residual, seed):
    weights, x, y = problem(widths, residual, seed)
    direction = [normal(*w.shape, seed=seed + 80 + i) for i, w in enumerate(weights)]
    product = linear_hessian_product(weights, second_moment(x), residual_moment(weights, x, y), direction)
    assert [p.shape for p in product] == [w.shape for w in weights]
    expected = autograd_hessian(weights, x, y) @ torch.cat([w.flatten() for w in direction])
    assert (torch.cat([p.flatten() for p in product]) - expected).abs().max() <= 1e-10


@pytest.mark.parametrize("widths", [w for w in WIDTHS if len(w) == 3], ids=lambda w: "-".join(map(str, w)))
@residuals
@seeds
def test_the_eigenvalues_are_those_of_automatic_differentiation(widths, residual, seed):
    weights, x, y = problem(widths, residual, seed)
    expected = torch.linalg.eigvalsh(autograd_halves(weights, x, y)[1]).flip(0)
    omega = residual_moment(weights, x, y)
    eigenvalues = functional_hessian_eigenvalues(omega, widths[1])
    assert eigenvalues.shape == expected.shape and (eigenvalues - expected).abs().max() <= 1e-10
    assert functional_hessian_norm(weights, omega) == pytest.approx(expected[0].item(), abs=1e-10)


@seeds
def test_data_that_miss_directions_by_matrix_and_by_factors(seed):
    weights, x = network((5, 4, 2), seed=seed), samples(9, 5, rank=3, seed=seed)
    y = normal(9, 2, seed=seed + 1)
    omega, expected = residual_moment(weights, x, y), autograd_hessian(weights, x, y)
    for moment in (second_moment(x), SecondMoment.from_data(x)):
        assert (linear_hessian(weights, moment, omega) - expected).abs().max() <= 1e-10


@pytest.mark.bad_input
def test_samples_and_targets_fit_the_network():
    weights, x = network((3, 4, 2), seed=1), normal(5, 3, seed=2)
    with pytest.raises(ValueError, match=r"y has shape \(5, 3\); one row of targets a sample, \(5, 2\), was expected"):
        residual_moment(weights, x, normal(5, 3, seed=3))
    with pytest.raises(ValueError, match=r"y has shape \(4, 2\)"):
        residual_moment(weights, x, normal(4, 2, seed=3))
    with pytest.raises(ValueError, match=r"x has 2 features but weights\[0\] takes 3 inputs"):
        residual_moment(weights, x[:, :2], normal(5, 2, seed=3))
    with pytest.raises(ValueError, match=r"y has 2 entries that are NaN or infinite"):
        residual_moment(weights, x, normal(5, 2, seed=3).index_fill(0, torch.tensor(4), math.nan))


@pytest.mark.bad_input
def test_a_residual_moment_is_of_the_size_of_the_network():
    weights, wrong = network((3, 4, 2), seed=1), torch.ones(3, 2)
    for refused in (
        lambda: functional_hessian(weights, wrong),
        lambda: linear_hessian(weights, torch.eye(3), wrong),
        lambda: linear_hessian_product(weights, torch.eye(3), wrong, weights),
        lambda: functional_hessian_norm(weights, wrong),
    ):
        with pytest.raises(ValueError, match=r"residual_moment has shape \(3, 2\); \(2, 3\), .* was expected"):
            refused()


@pytest.mark.bad_input
def test_a_second_moment_is_of_the_size_of_the_network():
    weights, omega = network((3, 4, 2), seed=1), torch.ones(2, 3)
    for refused in (
        lambda: linear_hessian(weights, torch.eye(4), omega),
        lambda: linear_hessian_product(weights, torch.eye(4), omega, weights),
    ):
        with pytest.raises(ValueError, match=r"second_moment is of size 4 but weights\[0\] takes 3 inputs"):
            refused()


@pytest.mark.bad_input
def test_a_direction_is_a_change_of_each_weight():
    weights, omega = network((3, 4, 2), seed=1), torch.ones(2, 3)
    for direction in (weights[:1], weights[::-1]):
        with pytest.raises(ValueError, match=r"those of the weights, \[\(4, 3\), \(2, 4\)\], were expected"):
            linear_hessian_product(weights, torch.eye(3), omega, direction)


@pytest.mark.bad_input
@pytest.mark.parametrize("width", [0, -1, 2.0])
def test_a_width_is_a_positive_integer(width):
    with pytest.raises(ValueError, match=f"width is {width}; the number of hidden units"):
        functional_hessian_eigenvalues(torch.ones(2, 3), width)


@pytest.mark.bad_input
def test_eigenvalues_are_those_of_a_matrix():
    with pytest.raises(ValueError, match=r"residual_moment has shape \(3,\); a matrix of shape \(k, d\) was expected"):
        functional_hessian_eigenvalues(torch.ones(3), 2)
