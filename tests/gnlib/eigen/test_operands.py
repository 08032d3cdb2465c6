"""What may be handed over as a matrix or an operator, which method is taken, what a result says, what is refused."""

import dataclasses

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
from gnlib.eigen.dense import singular_value_ends
from gnlib.operators import KroneckerSum
from tests.gnlib.eigen.helpers import eye
from tests.oracles import network, normal, orthogonal, with_spectrum

KINDS = {
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_of_any_real_kind(kind):
    given, single = KINDS[kind](with_spectrum(np.array([1.0, 2.0, 5.0]), seed=1)), "float32" in kind
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


def moment(d, least):
    return SecondMoment(eye(d), torch.linspace(1, least, d, dtype=torch.float64))


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
    operator = linear_gauss_newton(network(widths, seed=1), moment(widths[0], least))
    assert found in condition_number(operator).method


@pytest.mark.parametrize("name", ["dense", "blocks", "iteration"])
def test_the_methods_for_a_kronecker_sum_agree(name):
    op = linear_gauss_newton(network((20, 30, 5), seed=1), moment(20, 0.5))
    assert condition_number(op, method=name).value == pytest.approx(condition_number(op).value, rel=1e-7)


def test_a_result_is_a_number_and_a_line_or_a_lower_bound_and_no_number():
    assert SOME.value == float(SOME) == 4.0
    lost = dataclasses.replace(SOME, residual=3.0)
    assert dataclasses.replace(SOME, residual=1e-3).resolved and not lost.resolved
    assert lost.value == 8 / (2 * (1 + 3.0))
    assert "condition number at least 1.0e+00 (not resolved)" in str(lost)
    with pytest.raises(NotResolvedError, match=r"at least 1.0e\+00 .* relative error of 3e\+00"):
        float(lost)


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
    "wide": (lambda: torch.ones(3, 2), r"has shape \(3, 2\); a square matrix"),
    "not symmetric": (lambda: torch.ones(3, 3).tril(), r"is not symmetric: .* 1.0e\+00"),
    "not symmetric, NumPy": (lambda: np.tri(3), "is not symmetric"),
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
        (lambda: condition_number(-torch.eye(2)), r"has the negative eigenvalue -1.0e\+00"),
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
        (lambda: largest_eigenvalue(-torch.eye(9)), "relative error is inf|negative"),
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
