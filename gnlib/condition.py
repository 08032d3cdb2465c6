"""The condition number of an operator, a matrix or a network, by the method that suits it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.checks import as_symmetric
from gnlib.gauss_newton.module import BudgetError, blocks_of, check_memory, gram_of
from gnlib.gauss_newton.network import Network
from gnlib.operators import KroneckerSum
from gnlib.spectrum.dense import dense_ends
from gnlib.spectrum.factor import factor_ends
from gnlib.spectrum.gram import gram_ends
from gnlib.spectrum.kronecker_sum import kronecker_sum_ends
from gnlib.spectrum.result import ConditionNumber

SMALL = 2000  # size up to which all eigenvalues take hardly longer than two of them


def condition_number(
    operator: KroneckerSum | Float[Tensor, "p p"] | np.ndarray | nn.Module,
    x: Tensor | None = None,
    *,
    output: Callable[[Any], Tensor] | None = None,
    mode: Literal["eval", "train"] | None = None,
    memory: float = 4.0,
    outputs: int = 1,
    rank: int | None = None,
    tolerance: float = 1e-8,
    max_steps: int = 200,
) -> ConditionNumber:
    """Return the pseudo-condition number: the largest eigenvalue over the smallest one that is not zero.

    A Kronecker sum is never formed: one or two terms are reduced exactly to blocks of the size of the data, more are
    treated by an iteration on both ends that the inverses of such blocks precondition. So is a large matrix; if it is
    small, singular, or its outputs are coupled strongly, it is diagonalised. For a network and a batch the Gram form of
    the Gauss-Newton matrix is built; where that is singular or does not resolve the smallest eigenvalue, the singular
    values of the Jacobian take its place.

    Parameters
    ----------
    operator
        a Kronecker sum, a symmetric positive semi-definite matrix, or a network
    x
        the samples, for a network only
    output, mode, memory
        for a network only, see :func:`gnlib.gauss_newton.gauss_newton_gram`
    outputs
        number k of outputs of a Gram matrix whose row `i k + a` belongs to output a of sample i: of use where the
        outputs are coupled weakly, because their blocks then precondition the iteration
    rank
        number of non-zero eigenvalues of a matrix where theory gives it; otherwise eigenvalues up to `p * eps` times
        the largest count as zero. The rank of a Kronecker sum or a network is found from its factors.
    tolerance
        relative error at which an iteration may stop
    max_steps
        steps after which it gives up

    Raises
    ------
    ValueError
        A matrix that is empty, not square, not symmetric, not positive semi-definite, not finite, or zero; an argument
        that is not meant for what is measured; what :func:`gnlib.gauss_newton.gauss_newton_gram` refuses.
    NotConvergedError
        An iteration that did not reach the tolerance.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps is {max_steps}; at least one step is needed.")
    network = isinstance(operator, nn.Module)
    if callable(operator) and not network:
        raise TypeError(
            f"operator is of type {type(operator).__name__}; a function has no parameters to differentiate by. Pass a "
            "torch.nn.Module, a KroneckerSum or a matrix."
        )
    if network and x is None:
        raise TypeError(
            "x is missing; a network is measured on samples: pass a tensor with samples along its first axis."
        )
    for name, value in {"x": x, "output": output, "mode": mode}.items():
        if not network and value is not None:
            raise ValueError(f"{name} is for a network; a {type(operator).__name__} is measured as it is.")
    if rank is not None and (network or isinstance(operator, KroneckerSum)):
        raise ValueError("rank is for matrices; the rank of a Kronecker sum or a network is found from its factors.")

    start = perf_counter()
    device = _device(operator)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    if network:
        result = _network_ends(operator, x, output, mode, memory, tolerance=tolerance, max_steps=max_steps)
    elif isinstance(operator, KroneckerSum):
        result = kronecker_sum_ends(operator, tolerance=tolerance, max_steps=max_steps)
    else:
        matrix = torch.as_tensor(operator) if isinstance(operator, np.ndarray) else operator
        matrix = as_symmetric(matrix, "The matrix")
        if outputs < 1 or len(matrix) % outputs:
            raise ValueError(f"outputs is {outputs}; it must divide the size of the matrix, {len(matrix)}.")
        result = _matrix_ends(matrix, outputs, rank, tolerance=tolerance, max_steps=max_steps)
    gpu_memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    return replace(result, seconds=perf_counter() - start, gpu_memory=gpu_memory)


def _matrix_ends(
    matrix: Float[Tensor, "p p"], outputs: int, rank: int | None, *, tolerance: float, max_steps: int
) -> ConditionNumber:
    """Both ends of a matrix from its factors if it is large and definite, else from all eigenvalues."""
    if len(matrix) > SMALL and rank in (None, len(matrix)):
        found = gram_ends(matrix, outputs, tolerance=tolerance, max_steps=max_steps)
        if found is not None:
            return found
    return dense_ends(matrix, rank=rank)


def _network_ends(
    module: nn.Module,
    x: Tensor,
    output: Callable[[Any], Tensor] | None,
    mode: Literal["eval", "train"] | None,
    memory: float,
    *,
    tolerance: float,
    max_steps: int,
) -> ConditionNumber:
    """Both ends of the Gauss-Newton matrix of a network, from its Gram matrix or else from its Jacobian.

    That squaring the Jacobian has lost nothing is certain only if every eigenvalue of the Gram matrix is resolved.
    """
    check_memory(memory)
    network = Network(module, x, output, mode, memory)
    rows, columns = len(network.x) * network.outputs, sum(p.numel() for p in network.parameters.values())
    if columns >= rows:
        gram = gram_of(network, memory)
        # an entry is a sum of so many products, whose rounding grows like that of a random walk (Higham and Mary 2019)
        rounding = columns**0.5 * torch.finfo(gram.dtype).eps
        with suppress(ValueError):  # a matrix that is singular up to that may have a negative eigenvalue
            found = _matrix_ends(gram, network.outputs, None, tolerance=tolerance, max_steps=max_steps)
            residual = found.residual + rounding * found.largest / found.smallest
            found = replace(found, residual=residual, method=f"Gram matrix: {found.method}")
            if found.resolved and found.rank == rows:
                return found
        del gram
    triangle = 3 * 8 * rows * min(rows, columns) / 2**30  # with a block on it, and the decomposition of both
    try:
        left = max((memory - triangle) / 3, 1e-9)
        blocks = blocks_of(network, left)
    except BudgetError as error:
        raise ValueError(
            f"memory is {memory} GiB but {triangle + 3 * error.needed:.3f} are needed for the singular values of the "
            "Jacobian (its Gram matrix loses the smallest of them); allow more, or pass fewer samples."
        ) from error
    return factor_ends(block / len(x) ** 0.5 for block in blocks)


def _device(operator: object) -> torch.device:
    """The device that does the work."""
    if isinstance(operator, nn.Module):
        return next((p.device for p in operator.parameters()), torch.device("cpu"))
    return operator.device if isinstance(operator, KroneckerSum | Tensor) else torch.device("cpu")
