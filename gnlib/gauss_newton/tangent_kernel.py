r"""The tangent kernel of a network: the Gauss-Newton matrix in its Gram form, times the number of samples."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

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

    References
    ----------
    C. Liu, L. Zhu, M. Belkin (2020), NeurIPS 33, Eq. 1.

    Examples
    --------
    >>> import torch
    >>> tangent_kernel(torch.nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    tensor([[1., 1.],
            [1., 2.]], dtype=torch.float64)
    """
    return gauss_newton_gram(module, x, output=output, mode=mode, memory=memory).mul_(len(x))
