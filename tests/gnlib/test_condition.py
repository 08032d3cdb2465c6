"""The condition number of networks and of large matrices: what a practitioner hands over, and what comes back."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from gnlib import GaussNewton, condition_number, linear_gauss_newton
from tests.gnlib.derivatives import rows_of
from tests.gnlib.networks import Whole, perceptron
from tests.oracles import normal, orthogonal


def mlp(d=5, hidden=7, k=3, activation=nn.Tanh):
    return perceptron(d, k, activation, hidden).double()


def dead(units, **options):
    """Dead units."""
    module = mlp(activation=nn.ReLU, **options)
    with torch.no_grad():
        module[0].bias[:units] = -100
        module[0].bias[units:] = 100
    return module


GRAM, MATRIX = "Gram matrix: ", "Gauss-Newton matrix: "
FACTOR = "singular values of the Jacobian, by QR"


@pytest.mark.parametrize(
    ("module", "n", "rank", "method"),
    [
        *((mlp(), n, 3 * n, GRAM) for n in (1, 4, 22)),
        *((mlp(), n, 66, MATRIX) for n in (23, 60)),  # it has 66 parameters: fewer than its outputs
        (nn.Sequential(mlp(), Whole(lambda self, y: y.exp())), 4, 12, GRAM),
        (dead(39, hidden=40), 8, None, FACTOR),
        (dead(6), 40, None, FACTOR),  # fewer parameters than outputs, and a matrix of them that is singular
    ],
)
def test_a_network_has_the_singular_values_of_autograd(module, n, rank, method):
    x = normal(n, 5, seed=1)
    values = np.linalg.svd(rows_of(module, x).numpy(), compute_uv=False) / n**0.5
    result = condition_number(module, x)
    assert result.rank == int((values > 1e-10 * values[0]).sum()) == (rank or result.rank)
    assert rank is not None or result.rank < 24
    tolerance = max(1e-8, 4 * result.residual)
    assert result.largest == pytest.approx(values[0] ** 2, rel=1e-10) and result.resolved
    assert result.smallest == pytest.approx(values[result.rank - 1] ** 2, rel=tolerance)
    assert float(result) == pytest.approx((values[0] / values[result.rank - 1]) ** 2, rel=tolerance)
    assert result.method.startswith(method)
    if method == GRAM and rank != 12:
        assert result.residual > 66**0.5 * 2.0**-52 * result.value  # the rounding of sums over 66 parameters
    assert result == dataclasses.replace(result, seconds=99.0) and result.seconds > 0


def test_a_function_of_the_outputs_is_a_part_of_the_network():
    whole = condition_number(nn.Sequential(mlp(), Whole(lambda self, y: y.exp())), X)
    assert condition_number(mlp(), X, output=lambda y: y.exp()).value == pytest.approx(whole.value, rel=1e-9)


@pytest.mark.parametrize("repeated", [2, 3, 4])
@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("hidden", [10, 20000])
def test_samples_that_repeat_leave_the_rank_of_those_that_do_not(hidden, outputs, repeated):
    module, x = mlp(hidden=hidden, k=outputs), normal(1, 5, seed=5)
    result = condition_number(module, x.repeat(repeated, 1))
    assert (result.rank, result.method) == (outputs, FACTOR)
    assert float(result) == pytest.approx(condition_number(module, x).value, rel=1e-8)


@pytest.mark.parametrize("decades", [6.6, 11])
def test_condition_numbers_up_to_1e_22_by_construction(decades):
    """A layer without bias has the singular values of the data, once an output."""
    values = np.logspace(0, -decades, 6)
    x = (orthogonal(6, 6, seed=6) * torch.as_tensor(values)) @ orthogonal(30, 6, seed=7).T
    module = nn.Linear(30, 2, bias=False).double()
    result = condition_number(module, x)
    assert (result.rank, result.method, result.resolved) == (12, FACTOR, True)
    assert float(result) == pytest.approx(100.0**decades, rel=4 * result.residual)
    gram = condition_number(GaussNewton(module, x).gram())
    assert not gram.resolved and gram.value < 100.0**decades


KRONECKER = linear_gauss_newton([torch.eye(2), torch.eye(2)], torch.eye(2))
X, REPEATED = normal(4, 5, seed=1), normal(1, 5, seed=3).repeat(400, 1)
OF_NETWORKS = {"x": torch.ones(2, 5), "output": lambda y: y, "mode": "eval"}
ZERO, LITTLE = r"is zero.*no eigenvalue to divide by", r"memory is 1e-06 GiB but .* allow more, or pass fewer samples"
REFUSED = [
    *(
        (TypeError, (operator,), {name: value}, f"{name} is not for a {type(operator).__name__}, which takes .*method")
        for operator in (torch.eye(3), np.eye(3), KRONECKER)
        for name, value in OF_NETWORKS.items()
    ),
    (TypeError, (mlp(), X), dict(rank=3), "rank is not for a Sequential, which takes x, y, loss, output"),
    (TypeError, (KRONECKER,), dict(rank=3), "rank is not for a LayeredSum"),
    *(
        (ValueError, (torch.eye(6),), dict(outputs=k), f"outputs is {k}; it must divide the size of the matrix, 6")
        for k in (-1, 0, 4, 511)
    ),
    *((ValueError, (mlp(), normal(n, 5, seed=2)), dict(memory=1e-6), LITTLE) for n in (4, 40)),
    # the Gram matrix fits but is singular, since all samples are the same
    (ValueError, (mlp(k=2), REPEATED), dict(memory=2e-4), "are needed for the singular values of the Jacobian"),
    *((ValueError, (nn.Sequential(dead(7)[:2], mlp()[2].requires_grad_(False)), x), {}, ZERO) for x in (X, REPEATED)),
    *((ValueError, of, dict(max_steps=0), "max_steps is 0; at least") for of in ((mlp(), X), (X,), (KRONECKER,))),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("error", "operands", "options", "says"), REFUSED)
def test_what_has_no_condition_number_is_refused(error, operands, options, says):
    with pytest.raises(error, match=says):
        condition_number(*operands, **options)


def test_memory_that_is_enough_changes_nothing():
    assert condition_number(mlp(), X, memory=0.01) == condition_number(mlp(), X)
