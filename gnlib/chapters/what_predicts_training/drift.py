"""How fast the tangent kernel moves, in units of the time that the loss takes to fall."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from gnlib.diagnosis.inputs import Inputs, networks_on
from gnlib.diagnosis.linearised import at, outputs_of, pull
from gnlib.diagnosis.losses import loss_of
from gnlib.diagnosis.preconditioner import Factors
from gnlib.modules.gram import gram_of
from gnlib.modules.network import Network
from gnlib.modules.plan import check_memory

STEP = 1e-2
r"""Share of :math:`\tau` over which the kernel is followed: it has jumps, not derivatives, where units have kinks."""


def drift(
    module: nn.Module,
    x: Inputs,
    y: Any,
    loss: str | Callable[[Tensor, Any], Tensor] = "mse",
    *,
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> float:
    r"""Return :math:`V = \tau \|\dot K\| / \|K\|` along the gradient flow, in Frobenius norms, by a difference.

    :math:`\tau = L / \|\nabla L\|^2` is the time in which the loss would fall to zero at the speed that it has. V is
    about the relative change of the kernel in that time. It costs two Gram matrices, and does not tell good forecasts
    of training from bad ones: the chapter on what predicts training tries it.

    Parameters
    ----------
    module, x, output, mode, memory
        as for :func:`gnlib.diagnosis.report`
    y, loss
        targets and loss, as for :func:`gnlib.diagnosis.loss_of`

    Raises
    ------
    TypeError, ValueError
        As :func:`gnlib.diagnosis.forecast`.

    Examples
    --------
    >>> import torch
    >>> line = torch.nn.Linear(1, 1)
    >>> x = torch.tensor([[1.0], [2.0]])
    >>> drift(line, x, x) < 1e-10  # the kernel of a linear model stays
    True
    """
    check_memory(memory)
    networks = networks_on(module, x, output, mode, memory)
    outputs = outputs_of(networks, memory)
    target = loss_of(loss, y, outputs)
    gradient = pull(networks, target.gradient(outputs), memory)
    return drift_of(networks, gram_of(networks, memory), target.value(outputs), gradient, memory)


def drift_of(
    networks: Sequence[Network], kernel: Float[Tensor, "nk nk"], loss: float, gradient: Factors, memory: float
) -> float:
    """Return the drift of networks that have been tried, one for each batch, and whose Gram matrix is known.

    Parameters
    ----------
    networks, kernel
        networks, and their Gram matrix by all parameters
    loss, gradient
        the loss L and its gradient by the parameters
    memory
        GiB that may be used
    """
    speed = sum(float(g.square().sum()) for g in gradient.values())
    if speed == 0:  # nothing moves at a minimum
        return 0.0
    ahead = {name: p - STEP * loss / speed * gradient[name] for name, p in networks[0].parameters.items()}
    moved = gram_of(at(networks, ahead), memory)
    return float((moved - kernel).norm() / kernel.norm()) / STEP
