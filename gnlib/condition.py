"""The condition number of an operator, a matrix or a network: one name, and methods for each kind of operand."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.checks import as_symmetric
from gnlib.eigen.gram import Gram
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.result import ConditionNumber, Limits
from gnlib.eigen.strategy import GRAM, KRONECKER_SUM, Method, find_ends
from gnlib.operators import KroneckerSum, SymmetricOperator

if TYPE_CHECKING:
    from gnlib.jacobian.ends import Batches


@overload
def condition_number(
    operand: KroneckerSum, *, method: str | None = None, tolerance: float = 1e-8, max_steps: int = 200
) -> ConditionNumber: ...
@overload
def condition_number(
    operand: Float[Tensor, "p p"] | np.ndarray,
    *,
    outputs: int = 1,
    rank: int | None = None,
    method: str | None = None,
    tolerance: float = 1e-8,
    max_steps: int = 200,
) -> ConditionNumber: ...
@overload
def condition_number(
    operand: nn.Module,
    x: Tensor | Sequence[Tensor],
    *,
    output: Callable[[Any], Tensor] | None = None,
    mode: Literal["eval", "train"] | None = None,
    memory: float = 4.0,
    method: str | None = None,
    tolerance: float = 1e-8,
    max_steps: int = 200,
) -> ConditionNumber: ...
def condition_number(
    operand: object,
    x: Tensor | Sequence[Tensor] | None = None,
    *,
    method: str | None = None,
    tolerance: float = 1e-8,
    max_steps: int = 200,
    **options: Any,
) -> ConditionNumber:
    """Return the pseudo-condition number: the largest eigenvalue over the smallest one that is not zero.

    A Kronecker sum is never formed: one or two terms are reduced exactly to blocks of the size of the data, more are
    treated by an iteration at both ends, preconditioned by the inverses of such blocks. So is a large matrix; one that
    is small, singular, or whose outputs are strongly coupled is diagonalised. For a network and a batch the Gram form
    of the Gauss-Newton matrix is built; where that is singular or does not resolve the smallest eigenvalue, the
    singular values of the Jacobian take its place.

    Parameters
    ----------
    operand
        a Kronecker sum, a symmetric positive semi-definite matrix, or a network
    x, output, mode, memory
        for a network: the samples, and as for :func:`gnlib.jacobian.gauss_newton_gram`
    outputs
        for a matrix: number k of outputs of a Gram matrix whose row `i k + a` belongs to output a of sample i;
        giving it helps where the outputs are weakly coupled, because their blocks then precondition the iteration
    rank
        for a matrix: number of non-zero eigenvalues where theory gives it; otherwise eigenvalues up to `p * eps` times
        the largest count as zero. The rank of a Kronecker sum or a network is found from its factors.
    method
        the method to use, even where another would be faster: for a Kronecker sum `"first layer"`, `"layers"`,
        `"blocks"`, `"iteration"` or `"dense"`, for a matrix `"iteration"` or `"dense"`, for a network `"gram"` or
        `"jacobian"` (:mod:`gnlib.eigen.strategy`)
    tolerance
        relative error at which an iteration may stop
    max_steps
        steps after which it gives up

    Raises
    ------
    TypeError
        An operand of another kind, or an argument that is not meant for its kind.
    ValueError
        A matrix that is empty, not square, not symmetric, not positive semi-definite, not finite, or zero; a method
        that does not apply; what :func:`gnlib.jacobian.gauss_newton_gram` refuses.
    NotConvergedError
        An iteration that did not reach the tolerance.

    References
    ----------
    J. Zhao, S. P. Singh, A. Lucchi (2024), Theoretical characterisation of the Gauss-Newton conditioning in neural
    networks, NeurIPS 37, section 2 (the pseudo-condition number).

    Examples
    --------
    >>> import torch
    >>> c = condition_number(torch.diag(torch.tensor([4.0, 2.0, 0.0])))
    >>> float(c), c.rank, c.method
    (2.0, 2, 'dense eigenvalues, relative threshold')
    """
    kind = next((kind for kind in KINDS if isinstance(operand, kind)), None)
    if kind is None and isinstance(operand, SymmetricOperator):
        raise TypeError(
            "The operand is known by its products with vectors, which its smallest eigenvalue cannot be had from; its "
            "largest eigenvalue is gnlib.largest_eigenvalue(operand). For both pass a matrix, or a module and samples."
        )
    if kind is None:
        why = "; a function has no parameters to differentiate by" if callable(operand) else ""
        raise TypeError(
            f"The operand is of type {type(operand).__name__}{why}; pass a torch module and its samples, a symmetric "
            "matrix, or what linear_gauss_newton returns."
        )
    if max_steps < 1:
        raise ValueError(f"max_steps is {max_steps}; at least one step is needed.")
    prepare, methods = KINDS[kind]
    if x is not None:
        options["x"] = x
    elif kind is nn.Module:
        raise TypeError(
            "x is missing; a network is measured on samples: pass a tensor with samples along its first axis."
        )
    takes = [*inspect.signature(prepare).parameters][1:]
    for name in options:
        if name not in takes:
            takes += ["method", "tolerance", "max_steps"]
            raise TypeError(f"{name} is not for a {type(operand).__name__}, which takes {', '.join(takes)}.")
    start = perf_counter()
    found = find_ends(prepare(operand, **options), methods(), Limits(tolerance, max_steps), method)
    return replace(found, seconds=perf_counter() - start)


def _gram(matrix: Float[Tensor, "p p"] | np.ndarray, *, outputs: int = 1, rank: int | None = None) -> Gram:
    matrix = as_symmetric(torch.as_tensor(matrix) if isinstance(matrix, np.ndarray) else matrix, "The matrix")
    if outputs < 1 or len(matrix) % outputs:
        raise ValueError(f"outputs is {outputs}; it must divide the size of the matrix, {len(matrix)}.")
    return Gram(matrix, outputs, rank)


def _network(
    module: nn.Module,
    x: Tensor | Sequence[Tensor],
    output: Callable[[Any], Tensor] | None = None,
    mode: Literal["eval", "train"] | None = None,
    memory: float = 4.0,
) -> "Batches":
    from gnlib.jacobian.ends import Batches  # which linear networks and matrices do without

    return Batches(module, x, output, mode, memory)


def _network_methods() -> "tuple[Method[Batches], ...]":
    from gnlib.jacobian.ends import NETWORK

    return NETWORK


KINDS: dict[Any, tuple[Callable[..., Any], Callable[[], tuple[Method[Any], ...]]]] = {  # to make it ready, and methods
    KroneckerSum: (Terms, lambda: KRONECKER_SUM),
    nn.Module: (_network, _network_methods),
    (Tensor, np.ndarray): (_gram, lambda: GRAM),
}
