"""Matrices and Jacobians, of any kind: both ends, their errors, the method that is taken, and what is refused."""

import dataclasses

import mpmath
import numpy as np
import pytest
import scipy.sparse
import torch
from torch import nn

from gnlib import (
    ConditionNumber,
    NotConvergedError,
    NotResolvedError,
    SecondMoment,
    condition_number,
    largest_eigenvalue,
    linear_gauss_newton,
)
from gnlib.eigen.dense import ends_of, graded_ends, singular_value_ends
from gnlib.operators import KroneckerSum
from tests.gnlib.eigen.helpers import EPS, assert_right, double, eye
from tests.oracles import mp_spectrum, network, normal, orthogonal, with_spectrum

KINDS = {
    "log-uniform to 1e-12": lambda r, n: 10 ** r.uniform(-12, 0, n),
    "log-uniform to 1e-22": lambda r, n: 10 ** r.uniform(-22, 0, n),
    "two clusters": lambda r, n: np.where(r.random(n) < 0.5, 1, 10 ** -r.uniform(8, 15)) * (1 + 1e-3 * r.random(n)),
    "rank deficient": lambda r, n: np.append(1, np.where(r.random(n) < 0.4, 0, 10 ** r.uniform(-10, 0, n))),
    "even steps": lambda r, n: 10 ** -np.linspace(0, r.uniform(5, 18), n),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_dense_eigenvalues_are_right_to_the_residual_stated(kind, seed):
    random = np.random.default_rng(seed)
    matrix = with_spectrum(KINDS[kind](random, int(random.integers(4, 16))), seed=seed)
    result, truth = condition_number(matrix), mp_spectrum(matrix)
    smallest = float(truth[result.rank - 1])
    assert result.largest == pytest.approx(float(truth[0]), rel=1e-13)
    assert result.smallest == pytest.approx(smallest, rel=2 * result.residual + 1e-13)
    assert all(abs(v) <= 2 * result.residual * smallest for v in truth[result.rank :])
    assert not result.resolved or float(result) == pytest.approx(float(truth[0]) / smallest, rel=2e-3)


@pytest.mark.parametrize("seed", range(6))
def test_graded_ends_down_to_1e_22(seed):
    """D H D in fifty digits, where all eigenvalues of H are close to one."""
    n, scale = 9, double(10.0 ** -np.random.default_rng(seed).uniform(0, 11, 9))
    scale[:2] = double([1, 1e-11])
    factor = normal(n, 3 * n, seed=seed) / (3 * n) ** 0.5
    matrix = scale[:, None] * (factor @ factor.T) * scale
    matrix = (matrix + matrix.T) / 2
    result, truth = graded_ends(matrix), mp_spectrum(matrix)
    assert truth[-1] < 1e-20 * truth[0]
    assert result.resolved
    assert_right(result, truth[0], truth[-1], n)
    assert result.gap == pytest.approx(result.smallest / (EPS * result.largest))


def test_the_error_of_graded_ends_is_that_of_the_matrix_scaled_to_a_unit_diagonal():
    near, scale = 2.0**-20, double([1.0, 1e-6])  # near a singular one
    result = graded_ends(scale[:, None] * double([[1.0, 1 - near], [1 - near, 1.0]]) * scale)
    assert result.residual == pytest.approx(2 * EPS / near, rel=1e-6, abs=0)


def test_a_value_counts_as_zero_up_to_the_larger_dimension_times_the_rounding():
    for factor, rank in ((0.9, 1), (1.1, 2)):
        diagonal = double([3.0] + [0.0] * 48 + [3.0 * factor * 50 * EPS])
        assert condition_number(torch.diag(diagonal)).rank == rank
        jacobian = torch.zeros(2, 50, dtype=torch.float64)
        jacobian[0, 0], jacobian[1, 1] = 1.0, factor * 50 * EPS
        for blocks in ([jacobian], jacobian.split(10, 1), [jacobian.T]):
            assert singular_value_ends(blocks).rank == rank


def test_the_rounding_of_a_matrix_moves_its_smallest_eigenvalue_by_as_much_as_the_error_says():
    """Weyl: every eigenvalue moves by at most the norm of what is added; a multiple of the identity moves all by it."""
    matrix, rounding = torch.diag(double([1e-6, 1e-3, 1.0])), 1e-12
    plain, exact, rounded = (
        ends_of(torch.linalg.eigvalsh(m), rounding=error, method="by hand")
        for m, error in ((matrix, 0.0), (matrix, rounding), (matrix - rounding * eye(3), rounding))
    )
    moved = 1 - rounded.smallest / exact.smallest
    assert exact.residual - plain.residual == pytest.approx(moved, rel=1e-3) == pytest.approx(1e-6, rel=1e-3)


# Singular values of a Jacobian in blocks, of which the square keeps no digit


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("rows, columns", [(9, 4), (9, 9), (9, 40), (1, 7), (7, 1), (1, 1)])
@pytest.mark.parametrize("kind", ["1 to 1e-11", "random", "clusters", "deficient", "rank one"])
def test_factor_ends_are_those_of_fifty_digits(kind, rows, columns, zeros):
    size = min(rows, columns)
    random = np.random.default_rng(size)
    values = {
        "1 to 1e-11": np.logspace(0, -11, size),
        "random": 10 ** -random.uniform(0, 9, size),
        "clusters": np.where(np.arange(size) < size / 2, 1, 1e-9) * (1 + 1e-8 * random.random(size)),
        "deficient": np.where(np.arange(size) < (size + 1) // 2, 1.5, 0),
        "rank one": np.where(np.arange(size) < 1, 1e-3, 0),
    }[kind]
    jacobian = orthogonal(rows, size, seed=1) * double(values) @ orthogonal(columns, size, seed=2).T
    nothing = [torch.zeros(rows, 3).double()] * zeros
    blocks = jacobian.split(3, 1)
    result = singular_value_ends(iter([*nothing, *blocks[:2], *nothing, *blocks[2:]]))
    with mpmath.workdps(60):
        exact = mpmath.matrix((jacobian if rows <= columns else jacobian.T).tolist())
        truth = mp_spectrum(exact * exact.T, 60)
    assert result.rank == np.count_nonzero(values)
    assert result.largest == pytest.approx(float(truth[0]), rel=1e-13)
    assert result.smallest == pytest.approx(float(truth[result.rank - 1]), rel=2 * result.residual)
    assert result.resolved


# What may be handed over


OPERANDS = {
    "float64": lambda m: m,
    "float32": torch.Tensor.float,
    "NumPy": torch.Tensor.numpy,
    "NumPy, float32": lambda m: m.float().numpy(),
    "NumPy, long double": lambda m: m.numpy().astype(np.longdouble),
    "NumPy matrix": lambda m: np.asmatrix(m.numpy()),
    "no entry masked": lambda m: np.ma.masked_array(m.numpy(), mask=False),
    "parameter": nn.Parameter,
    "not contiguous": lambda m: m.repeat_interleave(2, 0).repeat_interleave(2, 1)[::2, ::2],
}


@pytest.mark.parametrize("kind", OPERANDS)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_of_any_real_kind(kind):
    given, single = OPERANDS[kind](with_spectrum(np.array([1.0, 2.0, 5.0]), seed=1)), "float32" in kind
    found, ends = largest_eigenvalue(given), condition_number(given)
    for value, error, margin in ((found.value, found.error, 5), (ends.value, ends.residual, 10)):
        assert value == pytest.approx(5, rel=1e-6 if single else 1e-8)
        assert abs(value - 5) <= margin * error + 1e-12 and (error > 1e-7) == single


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("decades", [0.5, 1, 2, 3, 4])
def test_a_gram_matrix_that_was_computed_in_a_coarse_type_is_as_far_off_as_it_says(dtype, decades):
    """By singular values of the factor in double precision."""
    for seed in range(8):
        spread = torch.logspace(0, -decades, 24).double()
        factor = orthogonal(24, 24, seed=seed) * spread @ normal(24, 60, seed=seed) / 8
        values = torch.linalg.svdvals(factor)
        low = factor.to(dtype) if dtype == torch.float32 else factor.float()
        gram = (low @ low.mT).to(dtype)
        try:
            found = condition_number((gram + gram.mT) / 2)
        except ValueError:  # one that is not positive semi-definite by more than its rounding
            assert dtype != torch.float32
            continue
        true = (values[0] / values[-1]).square().item()
        assert found.resolved == (found.residual <= 1e-3)
        assert found.value <= 1.05 * true  # a lower bound, where it is not resolved
        assert not found.resolved or found.value == pytest.approx(true, rel=4 * found.residual)


def test_a_kronecker_sum_in_single_precision():
    left, right = (with_spectrum(np.linspace(1, 4, size), seed=size).float()[None] for size in (3, 5))
    sum_ = KroneckerSum(left, right, torch.eye(5))
    for found in (condition_number(sum_), condition_number(sum_, method="dense")):
        assert found.value == pytest.approx(16, rel=1e-5) and found.residual > 1e-6
    top = largest_eigenvalue(sum_)
    assert top.value == pytest.approx(16, rel=1e-5) and top.error > 1e-7


# Which method is taken, and what a result says


SOME = ConditionNumber(largest=8.0, smallest=2.0, rank=3, gap=1e9, residual=1e-9, method="some method")


@pytest.mark.parametrize(
    "found, widths, least",
    [
        ("on the range of the first layer", (40, 12, 30), 1),
        ("eigenvalues of the matrix", (6, 8, 7, 3), 0.5),
        ("exact blocks", (40, 60, 12), 0.5),
        ("block iteration", (40, 60, 50, 12), 0.5),
    ],
)
def test_a_kronecker_sum_goes_to_the_method_that_it_is_for(found, widths, least):
    moment = SecondMoment(eye(widths[0]), torch.linspace(1, least, widths[0], dtype=torch.float64))
    operator = linear_gauss_newton(network(widths, seed=1), moment)
    assert found in condition_number(operator).method


def test_a_result_is_a_number_and_a_line_or_a_lower_bound_and_no_number():
    assert SOME.value == float(SOME) == 4.0
    lost = dataclasses.replace(SOME, residual=3.0)
    assert dataclasses.replace(SOME, residual=1e-3).resolved and not lost.resolved
    assert lost.value == 8 / (2 * (1 + 3.0))
    assert "condition number at least 1.0e+00 (not resolved)" in str(lost)
    with pytest.raises(NotResolvedError, match=r"at least 1.0e\+00 .* relative error of 3e\+00"):
        float(lost)
    page = lost._repr_html_()
    assert ">at least " in page and "lower bound" in page and "not resolved" in page


# What is refused


REFUSED = {
    "masked": (lambda: np.ma.masked_array(np.diag([1.0, 9.0]), mask=np.diag([0, 1])), "masked array, and its mask"),
    "masked in torch": (lambda: torch.masked.masked_tensor(torch.eye(2), torch.eye(2) > 0), "is masked, and its mask"),
    "sparse": (lambda: torch.eye(3).double().to_sparse(), "is sparse; pass a dense tensor"),
    "sparse, SciPy": (lambda: scipy.sparse.eye(3), "of type dia_matrix; pass"),
    "nested": (lambda: torch.nested.nested_tensor([torch.eye(2)] * 2, layout=torch.jagged), "is nested; pass a dense"),
    "meta": (lambda: torch.eye(3, device="meta"), "on the meta device, without values"),
    "complex": (lambda: torch.eye(3).cdouble(), "is complex"),
    "complex, NumPy": (lambda: np.eye(3) + 0j, "is complex"),
    "text": (lambda: np.array([["a"]]), "can't convert np.ndarray of type numpy.str_"),
    "list": (lambda: [[1.0]], "of type list; pass"),
    "module": (lambda: nn.Linear(3, 3), "of type Linear; pass|x is missing"),
    "function": (lambda: lambda v: v, "of type function"),
    "vector": (lambda: torch.ones(3), r"has shape \(3,\); a square matrix"),
    "not symmetric": (lambda: torch.ones(3, 3).tril(), r"is not symmetric: .* 1.0e\+00"),
    "NaN": (lambda: torch.full((2, 2), torch.nan), "4 entries that are NaN"),
    "empty": (lambda: np.zeros((0, 0)), "is empty"),
}


@pytest.mark.bad_input
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("function", [condition_number, largest_eigenvalue])
def test_what_is_no_matrix_is_refused_in_one_sentence(function, kind):
    make, message = REFUSED[kind]
    with pytest.raises((TypeError, ValueError), match=message):
        function(make())


def sum_of(left, right, **options):
    return condition_number(KroneckerSum(left[None].double(), right[None].double(), eye(3)), **options)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: condition_number(torch.diag(torch.tensor([1.0, -1.0]))), r"has the negative eigenvalue -1.0e\+00"),
        (lambda: condition_number(torch.zeros(2, 2)), "The matrix is zero"),
        *(
            (lambda rank=rank: condition_number(torch.eye(3), rank=rank), f"rank is {rank}; it must be a whole .* 3")
            for rank in (-1, 0, 4, 2.5)
        ),
        (lambda: condition_number(torch.diag(torch.tensor([1.0, 0])), rank=2), r"number 2 is 0.0e\+00, not positive"),
        (lambda: condition_number(torch.eye(3), method="bad"), r"^method is 'bad'; .* 'iteration', 'factor', 'dense'"),
        (lambda: condition_number(torch.ones(9, 9), method="factor"), "^The method 'factor' does not work here; leave"),
        (lambda: sum_of(eye(2), eye(3), method="layers"), "^The method 'layers' does not apply to this operand; leave"),
        (lambda: largest_eigenvalue(torch.diag(torch.arange(9.0)), max_steps=2), "largest .* after 2 steps its"),
        (lambda: largest_eigenvalue(torch.eye(3), max_steps=-3), "max_steps is -3; at least one step"),
        (lambda: singular_value_ends([]), "no block"),
        (lambda: singular_value_ends([torch.zeros(3, 2)] * 2), "The Jacobian is zero"),
        (lambda: sum_of(torch.zeros(2, 2), eye(3)), "is zero: it has no eigenvalue to divide by"),
        (lambda: sum_of(torch.full((2, 2), torch.inf), eye(3)), "left has 4 entries that are NaN or infinite"),
        (lambda: sum_of(eye(2), torch.full((3, 3), torch.nan)), "right has 9 entries that are NaN or infinite"),
        (lambda: sum_of(torch.ones(2, 2).triu(), eye(3)), r"left\[0\] is not symmetric"),
        (lambda: sum_of(eye(2), torch.ones(3, 3).tril()), r"right\[0\] is not symmetric"),
    ],
)
def test_what_has_no_two_ends_is_refused(call, message):
    with pytest.raises((ValueError, NotConvergedError), match=message):
        call()


def test_the_largest_eigenvalue_of_a_negative_matrix_is_the_least_negative():
    assert largest_eigenvalue(-torch.diag(torch.arange(2.0, 11.0))).value == pytest.approx(-2.0)
