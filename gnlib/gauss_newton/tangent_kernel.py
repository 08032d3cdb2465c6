r"""The tangent kernel of a network: the Gauss-Newton matrix in its Gram form, times the number of samples."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.checks import as_symmetric
from gnlib.gauss_newton.module import gauss_newton_gram


def tangent_kernel(
    module: nn.Module,
    x: Tensor,
    *,
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> Float[Tensor, "nk nk"]:
    r"""Return the tangent kernel matrix :math:`K = J J^\top` of a network on samples (Liu 2020, Eq. 1).

    J is the Jacobian of all outputs on all samples with respect to the parameters that require a gradient, with row
    `i * k + a` for output a of sample i. It is `n` times :func:`gnlib.gauss_newton.gauss_newton_gram`, and computed as
    such.

    Parameters
    ----------
    module, x, output, mode, memory
        as for :func:`gnlib.gauss_newton.gauss_newton_gram`

    Raises
    ------
    TypeError, ValueError
        As :func:`gnlib.gauss_newton.gauss_newton_gram`.
    """
    return gauss_newton_gram(module, x, output=output, mode=mode, memory=memory).mul_(len(x))


def kernel_change(before: Float[Tensor, "nk nk"], after: Float[Tensor, "nk nk"]) -> float:
    r"""Return the relative change :math:`\|K - K_0\|_F / \|K_0\|_F` of a tangent kernel (Liu 2020, section 6).

    Parameters
    ----------
    before, after
        the kernels :math:`K_0` and K of one network at two points, on the same samples

    Raises
    ------
    ValueError
        Matrices of different shapes, not symmetric or not finite, or a kernel that is zero before.
    """
    before, after = as_symmetric(before, "before"), as_symmetric(after, "after")
    if before.shape != after.shape:
        raise ValueError(
            f"before is of shape {tuple(before.shape)} but after of {tuple(after.shape)}; take both kernels on the "
            "same samples and outputs."
        )
    size = torch.linalg.matrix_norm(before)
    if size == 0:
        raise ValueError("before is zero, and a change relative to it means nothing; no parameter moved any output.")
    return (torch.linalg.matrix_norm(after - before) / size).item()
