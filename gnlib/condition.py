"""The condition number of a network, a matrix or an operator: one name, and methods for each kind of operand."""

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.checks import as_matrix, rounding_of
from gnlib.diagnosis.overview import Overview
from gnlib.diagnosis.report import Report
from gnlib.eigen.gram import Gram
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.result import ConditionNumber, Limits
from gnlib.eigen.strategy import GRAM, KRONECKER_SUM, find_ends
from gnlib.gauss_newton import GaussNewton
from gnlib.jacobian.inputs import Inputs
from gnlib.jacobian.network import Mode
from gnlib.operators import KroneckerSum, SymmetricOperator
from gnlib.problem import Problem
from gnlib.refused import Refused


def condition_number(
    operand: nn.Module | KroneckerSum | Float[Tensor, "p p"] | np.ndarray,
    x: Inputs | None = None,
    y: Any = None,
    loss: str | Callable[[Tensor, Any], Tensor] = "mse",
    *,
    output: Callable[..., Tensor] | None = None,
    mode: Mode | None = None,
    memory: float = 4.0,
    outputs: int = 1,
    rank: int | None = None,
    method: str | None = None,
    tolerance: float = 1e-8,
    max_steps: int = 200,
) -> ConditionNumber:
    """Return the pseudo-condition number: the largest eigenvalue over the smallest one that is not zero.

    A Kronecker sum is never formed: one or two terms are reduced exactly to blocks of the size of the data, more are
    treated by an iteration at both ends, preconditioned by the inverses of such blocks. So is a large matrix, or it is
    factored where its outputs are strongly coupled; one that is small or singular is diagonalised. For a network this
    is `GaussNewton(operand, x, y, loss, ...).condition_number(...)`.

    Parameters
    ----------
    operand
        a network, a Kronecker sum, or a symmetric positive semi-definite matrix
    x, y, loss, output, mode, memory
        for a network: as for :class:`gnlib.GaussNewton`
    outputs
        for a matrix: number k of outputs of a Gram matrix whose row `i k + a` belongs to output a of sample i;
        giving it helps where the outputs are weakly coupled, because their blocks then precondition the iteration
    rank
        for a matrix: number of non-zero eigenvalues where theory gives it; otherwise eigenvalues up to `p * eps` times
        the largest count as zero. The rank of a Kronecker sum or a network is found from its factors.
    method
        the method to use, even where another would be faster: for a Kronecker sum `"first layer"`, `"layers"`,
        `"blocks"`, `"iteration"` or `"dense"`, for a matrix `"iteration"`, `"factor"` or `"dense"`, for a network
        `"gram"` or `"jacobian"` (:mod:`gnlib.eigen.strategy`)
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
        that does not apply; all that :class:`gnlib.GaussNewton` refuses.
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
    of_network = {"x": x is not None, "y": y is not None, "loss": loss != "mse", "output": output is not None}
    of_network |= {"mode": mode is not None, "memory": memory != 4.0}
    of_matrix = {"outputs": outputs != 1, "rank": rank is not None}
    if max_steps < 1:
        raise Refused("bad-option", f"max_steps is {max_steps}; at least one step is needed.")
    limits, start = Limits(tolerance, max_steps), perf_counter()
    match operand:
        case nn.Module():
            _refuse(operand, of_matrix, *of_network)
            if x is None:
                raise TypeError(
                    "x is missing; a network is measured on samples: pass a tensor with samples along its first axis."
                )
            problem = Problem(operand, x, y, loss, output=output, mode=mode, memory=memory)
            ends = problem.ends_by(method, limits)
        case KroneckerSum():
            _refuse(operand, of_network | of_matrix)
            ends = find_ends(Terms(operand), KRONECKER_SUM, limits, method).with_rounding(rounding_of(operand.dtype))
            ends = replace(ends, residual=ends.residual + operand.error)
        case Tensor() | np.ndarray():
            _refuse(operand, of_network, *of_matrix)
            gram = _as_gram(operand, outputs, rank)
            ends = find_ends(gram, GRAM, limits, method).with_rounding(gram.rounding)
        case SymmetricOperator():
            raise TypeError(
                "The operand is known by its products with vectors, which its smallest eigenvalue cannot be had from; "
                "its largest eigenvalue is gnlib.largest_eigenvalue(operand). For both pass a matrix, or a module and "
                "samples."
            )
        case _:
            why = "; a function has no parameters to differentiate by" if callable(operand) else ""
            raise TypeError(
                f"The operand is of type {type(operand).__name__}{why}; pass a torch module and its samples, a "
                "symmetric matrix, or what linear_gauss_newton returns."
            )
    return replace(ends, seconds=perf_counter() - start)


def report(
    module: nn.Module,
    x: Inputs,
    y: Any = None,
    loss: str | Callable[[Tensor, Any], Tensor] = "mse",
    *,
    optimizer: Any = None,
    output: Callable[..., Tensor] | None = None,
    mode: Mode | None = None,
    memory: float = 4.0,
    dtype: torch.dtype | None = None,
    budget: float | None = None,
    held_out: tuple[Inputs, Any] | None = None,
) -> Report | Overview:
    """Return what to change in a network, how well conditioned it is on its data, and where that comes from.

    This is `GaussNewton(module, x, y, loss, ...).report(budget=, held_out=)`, with all parameters of
    :class:`gnlib.GaussNewton`.

    Examples
    --------
    >>> import torch
    >>> report(torch.nn.Linear(2, 1), torch.tensor([[9.0, 1.0], [10.0, 2.0], [11.0, 1.0]])).condition.rank
    3
    """
    options: dict[str, Any] = dict(output=output, mode=mode, memory=memory, optimizer=optimizer, dtype=dtype)
    return GaussNewton(module, x, y, loss, **options).report(budget=budget, held_out=held_out)


def _as_gram(matrix: Tensor | np.ndarray, outputs: int, rank: int | None) -> Gram:
    symmetric, rounding = as_matrix(matrix, "The matrix")
    if outputs < 1 or len(symmetric) % outputs:
        raise Refused("bad-option", f"outputs is {outputs}; it must divide the size of the matrix, {len(symmetric)}.")
    return Gram(symmetric, outputs, rank, rounding)


def _refuse(operand: object, given: dict[str, bool], *takes: str) -> None:
    """Refuse arguments that are meant for another kind of operand."""
    for name, is_given in given.items():
        if is_given:
            takes = *takes, "method", "tolerance", "max_steps"
            raise TypeError(f"{name} is not for a {type(operand).__name__}, which takes {', '.join(takes)}.")
