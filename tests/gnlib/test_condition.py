"""The condition number of networks and of large matrices: what a practitioner hands over, and what comes back."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from gnlib import GaussNewton, NotResolvedError, condition_number, largest_eigenvalue, linear_gauss_newton
from tests.gnlib.derivatives import rows_of
from tests.gnlib.networks import Whole
from tests.oracles import normal, orthogonal


def net(*layers, seed=0):
    """Sequential layers with random weights, in double precision; each layer is made by a function."""
    torch.manual_seed(seed)
    return nn.Sequential(*(make() for make in layers)).double()


def mlp(d=5, hidden=7, k=3, seed=0):
    return net(lambda: nn.Linear(d, hidden), nn.Tanh, lambda: nn.Linear(hidden, k), seed=seed)


def singular_values(module, x, mode=None):
    """Of the Jacobian over sqrt(n), from autograd and NumPy."""
    if mode is not None:
        module.train(mode == "train")
    return np.linalg.svd(rows_of(module, x).numpy(), compute_uv=False) / len(x) ** 0.5


def assert_singular_values(result, values, rank):
    assert result.rank == rank
    assert result.largest == pytest.approx(values[0] ** 2, rel=1e-10)
    assert result.smallest == pytest.approx(values[rank - 1] ** 2, rel=max(1e-8, 4 * result.residual))
    assert result.resolved
    assert float(result) == pytest.approx((values[0] / values[rank - 1]) ** 2, rel=max(1e-8, 4 * result.residual))


GRAM, MATRIX = "Gram matrix: ", "Gauss-Newton matrix: "
FACTOR = "singular values of the Jacobian, by QR"


@pytest.mark.parametrize("n, method", [(1, GRAM), (4, GRAM), (22, GRAM), (23, MATRIX), (60, MATRIX)])
def test_an_mlp_has_the_singular_values_of_autograd(n, method):
    """It has 66 parameters: fewer than its outputs from 23 samples on."""
    module, x = mlp(), normal(n, 5, seed=1)
    values = singular_values(module, x)
    result = condition_number(module, x)
    assert_singular_values(result, values, int((values > 1e-10 * values[0]).sum()))
    assert result.rank == min(3 * n, 66)
    assert result.method.startswith(method)
    if method == GRAM:
        assert result.residual > 66**0.5 * 2.0**-52 * result.value  # the rounding of sums over 66 parameters


def test_units_that_are_dead_leave_the_singular_values_to_tell_the_rank():
    module = net(lambda: nn.Linear(5, 40), nn.ReLU, lambda: nn.Linear(40, 3))
    with torch.no_grad():
        module[0].bias[1:] = -100
        module[0].bias[0] = 100
    x = normal(8, 5, seed=4)
    values = singular_values(module, x)
    result = condition_number(module, x)
    assert_singular_values(result, values, int((values > 1e-10 * values[0]).sum()))
    assert result.rank < 24
    assert result.method == FACTOR


@pytest.mark.parametrize("repeated", [2, 3, 4])
@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("hidden", [10, 20000])
def test_samples_that_repeat_leave_the_rank_of_those_that_do_not(hidden, outputs, repeated):
    module, x = mlp(hidden=hidden, k=outputs), normal(1, 5, seed=5)
    result = condition_number(module, x.repeat(repeated, 1))
    assert result.rank == outputs
    assert result.method == FACTOR
    assert float(result) == pytest.approx(condition_number(module, x).value, rel=1e-8)


@pytest.mark.parametrize("decades", [6.6, 11])
def test_condition_numbers_up_to_1e_22_by_construction(decades):
    """A layer without bias has the singular values of the data, once an output."""
    values = np.logspace(0, -decades, 6)
    x = (orthogonal(6, 6, seed=6) * torch.as_tensor(values)) @ orthogonal(30, 6, seed=7).T
    module = net(lambda: nn.Linear(30, 2, bias=False))
    result = condition_number(module, x)
    assert result.rank == 12
    assert result.method == FACTOR
    assert result.resolved
    assert float(result) == pytest.approx(100.0**decades, rel=4 * result.residual)
    gram = condition_number(GaussNewton(module, x).gram())
    assert not gram.resolved
    assert gram.value < 100.0**decades


def test_outputs_may_be_changed_by_a_function():
    module, x = mlp(), normal(4, 5, seed=9)
    result = condition_number(module, x, output=lambda y: y.exp())
    assert_singular_values(result, singular_values(nn.Sequential(module, Whole(lambda self, y: y.exp())), x), 12)


# What a result says of itself


def test_seconds_are_told_and_of_no_part_in_comparisons():
    module, x = mlp(), normal(4, 5, seed=15)
    result = condition_number(module, x)
    assert result.seconds > 0
    assert result == condition_number(module, x) == dataclasses.replace(result, seconds=99.0)


def cells_of(html):
    """The rows of a table, after checking that each tag is closed where a browser would not have to guess."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "html.parser")
    assert str(soup).replace("'", '"') == html.replace("'", '"')
    (table,) = soup.find_all("table")
    assert [child.name for child in soup.children] == ["table"]
    cells = [row.find_all(["th", "td"]) for row in table.find_all("tr")]
    assert all([cell.name for cell in row] == ["th", "td"] for row in cells)
    return {head.text: cell.text for head, cell in cells}


def test_the_table_of_a_result_that_is_not_resolved():
    result = condition_number(torch.diag(torch.tensor([1.0, 0.5, 1e-14], dtype=torch.float64)))
    assert not result.resolved
    rows = cells_of(result._repr_html_())
    assert rows["condition number"].startswith("at least ")
    assert "lower bound" in rows["not resolved"]
    assert float(rows["smallest non-zero eigenvalue"]) == pytest.approx(1e-14, rel=0.5)
    with pytest.raises(NotResolvedError):
        float(result)


# Bad input


KRONECKER = linear_gauss_newton([torch.eye(2), torch.eye(2)], torch.eye(2))


@pytest.mark.bad_input
@pytest.mark.parametrize("operator", [torch.eye(3), np.eye(3), KRONECKER], ids=["matrix", "array", "Kronecker sum"])
@pytest.mark.parametrize("name, value", [("x", torch.ones(2, 5)), ("output", lambda y: y), ("mode", "eval")])
def test_what_is_meant_for_a_network_is_refused_for_a_matrix(operator, name, value):
    with pytest.raises(TypeError, match=f"{name} is not for a {type(operator).__name__}, which takes .*method"):
        condition_number(operator, **{name: value})


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "operands, takes",
    [((mlp(), normal(4, 5, seed=1)), "a Sequential, which takes x, y, loss, output"), ((KRONECKER,), "a LayeredSum")],
)
def test_only_a_matrix_takes_a_rank(operands, takes):
    with pytest.raises(TypeError, match=f"rank is not for {takes}"):
        condition_number(*operands, rank=3)


@pytest.mark.bad_input
@pytest.mark.parametrize("size", [6, 510])
@pytest.mark.parametrize("outputs", [-1, 0, 4, 511])
def test_a_number_of_outputs_that_does_not_divide_the_size_is_refused(size, outputs):
    with pytest.raises(ValueError, match=f"outputs is {outputs}; it must divide the size of the matrix, {size}"):
        condition_number(torch.eye(size), outputs=outputs)


@pytest.mark.bad_input
@pytest.mark.parametrize("n", [4, 40])
def test_too_little_memory_is_told_with_what_is_needed(n):
    x = normal(n, 5, seed=2)
    with pytest.raises(ValueError, match=r"memory is 1e-06 GiB but .* allow more, or pass fewer samples"):
        condition_number(mlp(), x, memory=1e-6)
    assert condition_number(mlp(), x, memory=0.01) == condition_number(mlp(), x)


@pytest.mark.bad_input
def test_too_little_memory_for_the_singular_values_says_so():
    """The Gram matrix fits but is singular, since all samples are the same."""
    module, x = mlp(k=2), normal(1, 5, seed=3).repeat(400, 1)
    with pytest.raises(ValueError, match=r"memory is .* GiB but .* are needed for the singular values of the Jacobian"):
        condition_number(module, x, memory=2e-4)


@pytest.mark.bad_input
@pytest.mark.parametrize("n", [2, 40])
def test_a_network_whose_jacobian_is_zero_is_refused(n):
    """Dead units, and a last layer that is frozen."""
    module = net(lambda: nn.Linear(5, 7), nn.ReLU, lambda: nn.Linear(7, 3))
    module[2].requires_grad_(False)
    with torch.no_grad():
        module[0].bias.fill_(-100)
    with pytest.raises(ValueError, match=r"is zero.*no eigenvalue to divide by"):
        condition_number(module, normal(n, 5, seed=4))


@pytest.mark.bad_input
@pytest.mark.parametrize("max_steps", [0, -3])
def test_no_steps_are_refused_whatever_is_measured(max_steps):
    calls = [partial(condition_number, *of) for of in ((mlp(), normal(4, 5, seed=8)), (torch.eye(3),), (KRONECKER,))]
    for call in (*calls, partial(largest_eigenvalue, torch.eye(3))):
        with pytest.raises(ValueError, match=f"max_steps is {max_steps}; at least one step"):
            call(max_steps=max_steps)
