"""How fast the tangent kernel moves, in units of the time that the loss takes to fall."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from gnlib.jacobian.gram import gram_of
from gnlib.jacobian.network import Factors, Network
from gnlib.jacobian.passes import replace_parameters

STEP = 1e-2
r"""Share of :math:`\tau` over which the kernel is followed: it has jumps, not derivatives, where units have kinks."""


def drift(
    networks: Sequence[Network], kernel: Float[Tensor, "nk nk"], loss: float, gradient: Factors, memory: float
) -> float:
    r"""Return :math:`V = \tau \|\dot K\| / \|K\|` along the gradient flow, in Frobenius norms, by a difference.

    :math:`\tau = L / \|\nabla L\|^2` is the time in which the loss would fall to zero at the speed that it has. V is
    about the relative change of the kernel in that time. The networks have been tried, one for each batch; their Gram
    matrix is `kernel`, L is `loss`.
    """
    speed = sum(float(g.square().sum()) for g in gradient.values())
    if speed == 0:  # nothing moves at a minimum
        return 0.0
    ahead = {name: p - STEP * loss / speed * gradient[name] for name, p in networks[0].parameters.items()}
    moved = gram_of(replace_parameters(networks, ahead), memory)
    return float((moved - kernel).norm() / kernel.norm()) / STEP
