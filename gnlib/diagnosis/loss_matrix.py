"""The generalised Gauss-Newton matrix of a loss, and its eigenvalues."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnlib.diagnosis.inputs import Inputs
from gnlib.diagnosis.measured import Measured, through
from gnlib.jacobian.gram import gram_of


def loss_gram(
    module: nn.Module,
    x: Inputs,
    y: Any = None,
    *,
    loss: str | Callable[[Tensor, Any], Tensor] = "cross_entropy",
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> Float[Tensor, "nr nr"]:
    r"""Return the Gram form of the generalised Gauss-Newton matrix of a loss, :math:`\frac1n R^\top J J^\top R`.

    It has the non-zero eigenvalues of :math:`\frac1n \sum_i J_i^\top H_i J_i`, with :math:`H_i = R_i R_i^\top` the
    second derivative of the loss of sample i by its outputs, at the outputs as they are. Row `i r + a` belongs to
    column a of :math:`R_i`, of which cross-entropy has `r = k - 1`. No Jacobian is formed.

    Parameters
    ----------
    module, x, y, loss, output, mode, memory
        as for :func:`gnlib.diagnosis.report`

    Raises
    ------
    TypeError, ValueError
        As :func:`gnlib.diagnosis.report`.

    References
    ----------
    N. N. Schraudolph (2002), Fast curvature matrix-vector products for second-order gradient descent, Neural
    Computation 14.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.zeros_(net.weight)
    >>> loss_gram(net, torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    tensor([[0.2500, 0.2500],
            [0.2500, 0.5000]], dtype=torch.float64)
    """
    measured = Measured(module, x, y, loss=loss, output=output, mode=mode, memory=memory)
    return through(measured.root, gram_of(measured.networks, memory))


def eigenvalues(
    module: nn.Module,
    x: Inputs,
    y: Any = None,
    *,
    loss: str | Callable[[Tensor, Any], Tensor] = "mse",
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> Float[Tensor, " nr"]:
    r"""Return all eigenvalues of the generalised Gauss-Newton matrix of a loss that its Gram form has, descending.

    Those below `n r` times the rounding of double precision, relative to the largest, are rounding, of either sign.

    Parameters
    ----------
    module, x, y, loss, output, mode, memory
        as for :func:`gnlib.diagnosis.report`

    Raises
    ------
    TypeError, ValueError
        As :func:`gnlib.diagnosis.report`.

    Examples
    --------
    >>> import torch
    >>> eigenvalues(torch.nn.Linear(2, 1, bias=False), torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([2.0000, 0.5000], dtype=torch.float64)
    """
    matrix = loss_gram(module, x, y, loss=loss, output=output, mode=mode, memory=memory)
    return torch.linalg.eigvalsh(matrix).flip(0)
