"""The condition number of networks and of large matrices: what a practitioner hands over, and what comes back."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

from gnlib import GaussNewton, NotResolvedError, condition_number, linear_gauss_newton
from gnlib.eigen.gram import Gram
from gnlib.eigen.result import Limits
from gnlib.eigen.strategy import GRAM as GRAM_METHODS
from gnlib.eigen.strategy import always, find_ends
from tests.oracles import normal, orthogonal, with_spectrum


def net(*layers, seed=0):
    """Sequential layers with random weights, in double precision; each layer is made by a function."""
    torch.manual_seed(seed)
    return nn.Sequential(*(make() for make in layers)).double()


def mlp(d=5, hidden=7, k=3, seed=0):
    return net(lambda: nn.Linear(d, hidden), nn.Tanh, lambda: nn.Linear(hidden, k), seed=seed)


def cnn():
    return net(
        lambda: nn.Conv2d(2, 4, 3, padding=1),
        nn.SiLU,
        lambda: nn.Conv2d(4, 5, 3, stride=2),
        nn.Tanh,
        nn.Flatten,
        lambda: nn.Linear(20, 3),
    )


def batch_normalised():
    module = net(lambda: nn.Linear(5, 8), lambda: nn.BatchNorm1d(8), nn.Tanh, lambda: nn.Linear(8, 2))
    module(2 * normal(30, 5, seed=7) + 1)  # gives the running statistics something to say
    return module


def singular_values(module, x, mode=None):
    """Of the Jacobian over sqrt(n), from autograd and NumPy."""
    if mode is not None:
        module.train(mode == "train")
    parameters = [p for p in module.parameters() if p.requires_grad]
    rows = []
    for entry in module(x).flatten():
        parts = torch.autograd.grad(entry, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([part.flatten() for part in parts]))
    return np.linalg.svd(torch.stack(rows).numpy(), compute_uv=False) / len(x) ** 0.5


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


def test_a_convolutional_network_has_the_singular_values_of_autograd():
    module, x = cnn(), normal(6, 2, 6, 6, seed=2)
    result = condition_number(module, x)
    assert_singular_values(result, singular_values(module, x), 18)
    assert result.method.startswith(GRAM)


def test_more_outputs_than_parameters_leave_the_rank_of_the_parameters():
    module, x = net(lambda: nn.Linear(3, 2)), normal(50, 3, seed=3)
    result = condition_number(module, x)
    assert_singular_values(result, singular_values(module, x), 8)
    assert result.method.startswith(MATRIX)
    assert condition_number(module, x, method="jacobian").method == FACTOR


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


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_both_functions_of_batch_normalisation(mode):
    module, x = batch_normalised(), normal(6, 5, seed=8)
    values = singular_values(module, x, mode)
    module.train()
    result = condition_number(module, x, mode=mode)
    assert_singular_values(result, values, int((values > 1e-10 * values[0]).sum()))
    assert module.training


def test_an_output_is_chosen_by_a_function():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = mlp()

        def forward(self, x):
            return {"y": self.inner(x), "x": x}

    x = normal(4, 5, seed=9)
    result = condition_number(Pair(), x, output=lambda found: found["y"])
    assert result.value == pytest.approx(condition_number(mlp(), x).value, rel=1e-12)


def test_a_large_network_is_measured_by_the_iteration():
    module, x = mlp(d=30, hidden=200, k=5), normal(110, 30, seed=10)
    result = condition_number(GaussNewton(module, x).gram(), outputs=5, method="iteration")
    assert_singular_values(result, singular_values(module, x), 550)
    assert result.method.startswith("block iteration on the matrix")


def test_a_single_precision_network_is_measured_in_double_precision():
    x = normal(4, 5, seed=11)
    module = mlp().float()
    double = condition_number(mlp().float().double(), x.float().double())
    assert condition_number(module, x.float()).value == pytest.approx(double.value, rel=1e-12)
    assert next(module.parameters()).dtype == torch.float32


@pytest.mark.parametrize("outputs", [1, 2, 10])
def test_a_large_matrix_has_the_ends_that_it_was_given(outputs):
    values = np.linspace(1e-4, 1, 520)
    methods = [dataclasses.replace(GRAM_METHODS[0], pays=always), *GRAM_METHODS[1:]]  # as if it were larger
    result = find_ends(Gram(with_spectrum(values, seed=12), outputs), methods, Limits())
    assert result.largest == pytest.approx(1, rel=1e-8)
    assert result.smallest == pytest.approx(1e-4, rel=1e-8)
    assert result.rank == 520


def test_a_rank_given_below_the_size_of_a_large_matrix():
    values = np.append(np.zeros(20), np.linspace(1, 2, 500))
    matrix = with_spectrum(values, seed=13)
    for rank in (None, 500):
        result = condition_number(matrix, rank=rank)
        assert result.rank == 500
        assert float(result) == pytest.approx(2, rel=1e-10)


def test_a_rank_given_is_taken_though_the_matrix_has_more():
    result = condition_number(with_spectrum(np.linspace(1, 2, 520), seed=14), rank=500)
    assert result.rank == 500
    assert result.smallest == pytest.approx(1 + 20 / 519, rel=1e-8)


def test_a_given_full_rank_leaves_the_iteration_on():
    matrix = with_spectrum(np.linspace(1, 2, 520), seed=14)
    assert condition_number(matrix, rank=520, method="iteration").method.startswith("block iteration")
    with pytest.raises(ValueError, match="The method 'iteration' does not apply"):
        condition_number(matrix, rank=500, method="iteration")


# What a result says of itself


def test_seconds_are_told_and_of_no_part_in_comparisons():
    module, x = mlp(), normal(4, 5, seed=15)
    result = condition_number(module, x)
    assert result.seconds > 0
    assert result == condition_number(module, x) == dataclasses.replace(result, seconds=99.0)


def rows_of(html):
    """The rows of a table, after checking that each tag is closed where a browser would not have to guess."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "html.parser")
    assert str(soup).replace("'", '"') == html.replace("'", '"')
    (table,) = soup.find_all("table")
    assert [child.name for child in soup.children] == ["table"]
    cells = [row.find_all(["th", "td"]) for row in table.find_all("tr")]
    assert all([cell.name for cell in row] == ["th", "td"] for row in cells)
    return {head.text: cell.text for head, cell in cells}


def test_the_table_of_a_result_that_is_resolved():
    result = condition_number(mlp(), normal(4, 5, seed=16))
    rows = rows_of(result._repr_html_())
    assert rows["condition number"] == f"{result.value:.6g}"
    assert rows["largest eigenvalue"] == f"{result.largest:.6g}"
    assert rows["smallest non-zero eigenvalue"] == f"{result.smallest:.6g}"
    assert rows["rank"].startswith("12, at a gap of ")
    assert rows["obtained by"] == result.method
    assert rows["time"].endswith(" s")
    assert "not resolved" not in rows


def test_the_table_of_a_result_that_is_not_resolved():
    result = condition_number(torch.diag(torch.tensor([1.0, 0.5, 1e-14], dtype=torch.float64)))
    assert not result.resolved
    rows = rows_of(result._repr_html_())
    assert rows["condition number"].startswith("at least ")
    assert "lower bound" in rows["not resolved"]
    assert float(rows["smallest non-zero eigenvalue"]) == pytest.approx(1e-14, rel=0.5)
    with pytest.raises(NotResolvedError):
        float(result)


# Bad input


@pytest.mark.bad_input
@pytest.mark.parametrize("operator", ["matrix", "array", "Kronecker sum"])
@pytest.mark.parametrize("name, value", [("x", torch.ones(2, 5)), ("output", lambda y: y), ("mode", "eval")])
def test_what_is_meant_for_a_network_is_refused_for_a_matrix(operator, name, value):
    operator = {
        "matrix": torch.eye(3),
        "array": np.eye(3),
        "Kronecker sum": linear_gauss_newton([torch.eye(2)], torch.eye(2)),
    }[operator]
    with pytest.raises(TypeError, match=f"{name} is not for a {type(operator).__name__}, which takes .*method"):
        condition_number(operator, **{name: value})


@pytest.mark.bad_input
def test_a_network_takes_no_rank():
    with pytest.raises(TypeError, match="rank is not for a Sequential, which takes x, y, loss, output"):
        condition_number(mlp(), normal(4, 5, seed=1), rank=3)


@pytest.mark.bad_input
@pytest.mark.parametrize("size", [6, 510])
@pytest.mark.parametrize("outputs", [-1, 0, 4, 511])
def test_a_number_of_outputs_that_does_not_divide_the_size_is_refused(size, outputs):
    with pytest.raises(ValueError, match=f"outputs is {outputs}; it must divide the size of the matrix, {size}"):
        condition_number(torch.eye(size), outputs=outputs)


@pytest.mark.bad_input
def test_a_network_without_data_is_refused():
    with pytest.raises(TypeError, match="x is missing; a network is measured on samples"):
        condition_number(mlp())


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
@pytest.mark.parametrize("memory", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("n", [4, 40])
def test_memory_that_is_no_amount_is_refused(memory, n):
    with pytest.raises(ValueError, match=f"memory is {memory}; a positive number"):
        condition_number(mlp(), normal(n, 5, seed=3), memory=memory)


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
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(value):
    module = mlp()
    with torch.no_grad():
        module[0].weight[0, 0] = value
    with pytest.raises(ValueError, match=r"The parameter 0\.weight has 1 entries that are NaN or infinite"):
        condition_number(module, normal(4, 5, seed=5))


@pytest.mark.bad_input
def test_complex_samples_and_weights_are_refused():
    with pytest.raises(TypeError, match="x is complex"):
        condition_number(mlp(), normal(4, 5, seed=6).to(torch.complex128))
    with pytest.raises((TypeError, ValueError), match="complex"):
        condition_number(nn.Linear(5, 3, dtype=torch.complex128), normal(4, 5, seed=6))


@pytest.mark.bad_input
def test_a_mode_has_to_be_said_where_it_matters():
    with pytest.raises(ValueError, match="is in training mode; say which function is meant"):
        condition_number(batch_normalised(), normal(6, 5, seed=7))


@pytest.mark.bad_input
@pytest.mark.parametrize("max_steps", [0, -3])
def test_no_steps_are_refused_whatever_is_measured(max_steps):
    for operands in ((mlp(), normal(4, 5, seed=8)), (torch.eye(3),)):
        with pytest.raises(ValueError, match=f"max_steps is {max_steps}; at least one step"):
            condition_number(*operands, max_steps=max_steps)


@pytest.mark.bad_input
@pytest.mark.parametrize("lowest", [-1e-6, -2.0])
def test_a_large_matrix_that_is_indefinite_is_refused(lowest):
    values = np.linspace(1, 2, 520)
    values[0] = lowest
    with pytest.raises(ValueError, match="The matrix has the negative eigenvalue"):
        condition_number(with_spectrum(values, seed=9), outputs=2)
