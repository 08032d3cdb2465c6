"""What may be handed over as a matrix or an operator, what it is rounded to, and what is refused."""

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import nn

from gnlib import condition_number, largest_eigenvalue
from gnlib.operators import KroneckerSum
from tests.oracles import normal, orthogonal, with_spectrum

KINDS = {
    "float64": lambda m: m,
    "float32": torch.Tensor.float,
    "NumPy": torch.Tensor.numpy,
    "NumPy, float32": lambda m: m.float().numpy(),
    "NumPy, long double": lambda m: m.numpy().astype(np.longdouble),
    "NumPy matrix": lambda m: np.asmatrix(m.numpy()),
    "no entry masked": lambda m: np.ma.masked_array(m.numpy(), mask=False),
    "parameter": nn.Parameter,
    "not contiguous": lambda m: m.repeat(2, 2)[::2, ::2].mT,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_of_any_real_kind(kind):
    matrix = with_spectrum(np.array([1.0, 2.0, 5.0]), seed=1)
    given = KINDS[kind](matrix if kind != "not contiguous" else torch.diag(torch.tensor([1.0, 2.0, 5.0])).double())
    single = "float32" in kind
    found, ends = largest_eigenvalue(given), condition_number(given)
    assert found.value == pytest.approx(5, rel=1e-6 if single else 1e-8)
    assert abs(found.value - 5) <= 5 * found.error + 1e-12 and (found.error > 1e-7) == single
    assert ends.value == pytest.approx(5, rel=1e-6 if single else 1e-8)
    assert abs(ends.value - 5) <= 10 * ends.residual and (ends.residual > 1e-7) == single


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("decades", [0.5, 1, 2, 3, 4])
def test_a_gram_matrix_that_was_computed_in_a_coarse_type_is_as_far_off_as_it_says(dtype, decades):
    """By singular values of the factor in double precision."""
    wrong = 0
    for seed in range(8):
        factor = (
            orthogonal(24, 24, seed=seed) * torch.logspace(0, -decades, 24).double() @ normal(24, 60, seed=seed) / 8
        )
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
        if found.resolved:
            assert found.value == pytest.approx(true, rel=4 * found.residual)
        else:
            wrong += found.value > 1.05 * true  # a lower bound
    assert not wrong


def test_a_kronecker_sum_in_single_precision():
    left, right = (with_spectrum(np.linspace(1, 4, size), seed=size).float()[None] for size in (3, 5))
    sum_ = KroneckerSum(left, right, torch.eye(5))
    for found in (condition_number(sum_), condition_number(sum_, method="dense")):
        assert found.value == pytest.approx(16, rel=1e-5) and found.residual > 1e-6
    top = largest_eigenvalue(sum_)
    assert top.value == pytest.approx(16, rel=1e-5) and top.error > 1e-7


REFUSED = {
    "masked": (lambda: np.ma.masked_array(np.diag([1.0, 9.0]), mask=np.diag([0, 1])), "masked array, and its mask"),
    "masked in torch": (
        lambda: torch.masked.masked_tensor(torch.eye(2), torch.tensor([[True, False]] * 2)),
        "is masked, and its mask would be ignored",
    ),
    "sparse": (lambda: torch.eye(3).double().to_sparse(), "is sparse; pass a dense tensor"),
    "sparse rows": (lambda: torch.eye(3).double().to_sparse_csr(), "is sparse; pass a dense tensor"),
    "sparse, SciPy": (lambda: scipy.sparse.eye(3), "of type dia_matrix; pass"),
    "nested": (lambda: torch.nested.nested_tensor([torch.eye(2)] * 2, layout=torch.jagged), "is nested; pass a dense"),
    "meta": (lambda: torch.eye(3, device="meta"), "on the meta device, without values"),
    "complex": (lambda: torch.eye(3).cdouble(), "is complex"),
    "complex, NumPy": (lambda: np.eye(3) + 0j, "is complex"),
    "text": (lambda: np.array([["a"]]), "can't convert np.ndarray of type numpy.str_"),
    "list": (lambda: [[1.0]], "of type list; pass"),
    "module": (lambda: nn.Linear(3, 3), "of type Linear; pass|x is missing"),
    "function": (lambda: lambda v: v, "of type function"),
    "wide": (lambda: torch.ones(3, 2), r"has shape \(3, 2\); a square matrix"),
    "cube": (lambda: torch.ones(2, 2, 2), r"has shape \(2, 2, 2\); a square matrix"),
    "not symmetric": (lambda: torch.ones(3, 3).tril(), "is not symmetric"),
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


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "left, right", [(torch.ones(2, 2).triu(), torch.eye(3)), (torch.eye(2), torch.ones(3, 3).tril())]
)
def test_a_kronecker_sum_of_factors_that_are_not_symmetric_is_refused(left, right):
    with pytest.raises(ValueError, match=r"(left|right)\[0\] is not symmetric"):
        condition_number(KroneckerSum(left.double()[None], right.double()[None], torch.eye(3).double()))
