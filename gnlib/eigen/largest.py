"""The largest eigenvalue of a matrix or an operator, from products with few vectors."""

import numpy as np
import torch
from torch import Tensor

from gnlib.checks import as_matrix, rounding_of
from gnlib.eigen.davidson import ExtremePair, Map, extreme_eigenpair
from gnlib.eigen.scale import exponent_of, restored, size_of, times_power
from gnlib.operators import SymmetricOperator
from gnlib.refused import Refused

STEPS_OF_SCALE = 0, 500, 1000, -500, -1000
"""Exponents of powers of two to multiply a vector by, so that no part of its product leaves the range."""


def largest_eigenvalue(
    operator: SymmetricOperator | Tensor | np.ndarray, *, tolerance: float = 1e-8, max_steps: int = 500
) -> ExtremePair:
    """Return the largest eigenvalue of a positive semi-definite operator or matrix, from products with few vectors.

    Parameters
    ----------
    operator
        the operator, or a matrix
    tolerance
        relative error at which the iteration may stop; the error of the result is proved by its residual, and the
        rounding of a matrix or an operator in single precision is added to it
    max_steps
        steps after which it gives up, with a `NotConvergedError`

    Examples
    --------
    >>> import torch
    >>> round(largest_eigenvalue(torch.diag(torch.tensor([1.0, 2.0, 4.0]).double())).value, 8)
    4.0
    """
    if max_steps < 1:
        raise Refused("bad-option", f"max_steps is {max_steps}; at least one step is needed.")
    if isinstance(operator, SymmetricOperator):
        rounding = rounding_of(operator.dtype)
    elif isinstance(operator, Tensor | np.ndarray):
        operator, rounding = as_matrix(operator, "The matrix")
    else:
        raise TypeError(
            f"The operator is of type {type(operator).__name__}; pass a symmetric matrix, or what has products with "
            "vectors: gnlib.GaussNewton(module, x).operator(), or what linear_gauss_newton returns."
        )
    generator = torch.Generator().manual_seed(0)
    shape = operator.shape[0], min(2, operator.shape[0])
    start = torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
    start = start.to(operator.device, operator.dtype)
    product, exponent = _of_usual_size(operator.matmul, start)

    def errors(values: Tensor, residual: Tensor, _: Tensor) -> Tensor:
        return torch.linalg.vector_norm(residual, dim=0) / values.abs()

    pair = extreme_eigenpair(
        product, start, block=start.shape[1], largest=True, errors=errors, tolerance=tolerance, max_steps=max_steps
    )
    return pair._replace(value=restored(pair.value, exponent), error=pair.error + rounding)


def _of_usual_size(product: Map, start: Tensor) -> tuple[Map, int]:
    """Return products over a power of two, so that they are of usual size, and its exponent."""
    for before in STEPS_OF_SCALE:
        size = size_of(product(times_power(start[:, :1], before)))
        if 1e-290 < size < 1e300:
            break
    else:
        return product, 0  # that of a matrix of zeros, or of one that nothing can be said of
    after = -exponent_of(size)
    return lambda v: times_power(product(times_power(v, before)), after), -before - after
