"""The gradient of a training loss, products with its Hessian, and how fast the tangent kernel moves."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.lanczos import symmetric_ends
from gnlib.jacobian.gram import gram_of
from gnlib.jacobian.network import Factors, Network
from gnlib.jacobian.passes import replace_parameters
from gnlib.losses import Loss

Product = Callable[[Float[Tensor, " p"]], Float[Tensor, " p"]]
TOLERANCE = 1e-3  # of the residual, relative to the norm; the error of the eigenvalue is smaller
STEP = 1e-2  # share of the time of the loss over which the kernel is followed: it has jumps where units have kinks


@contextmanager
def differentiated(network: Network, loss: Loss) -> Iterator[tuple[Float[Tensor, " p"], Product]]:
    """Give the gradient of the loss by all parameters and what multiplies a vector with its Hessian.

    The Hessian is that of automatic differentiation, which does not see the kinks of ReLUs. The network is on all its
    samples, the loss with its targets.
    """
    with network.as_template(), torch.enable_grad():
        leaves = {name: p.detach().requires_grad_() for name, p in network.parameters.items()}
        outputs = network(leaves, network.x)
        kept = dict(allow_unused=True, materialize_grads=True)
        pulled = torch.autograd.grad(
            outputs, [*leaves.values()], loss.gradient(outputs) / len(outputs), create_graph=True, **kept
        )
        gradient = torch.cat([g.flatten() for g in pulled])

        def product(v: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
            found = torch.autograd.grad(gradient, [*leaves.values()], v, retain_graph=True, **kept)
            return torch.cat([g.flatten() for g in found])

        yield gradient.detach(), product


def sharpness(product: Product, p: int, *, generator: torch.Generator) -> float:
    """Return the largest eigenvalue of a Hessian, by Lanczos (Cohen et al. 2021, at the edge of stability, ICLR)."""
    start = torch.randn(p, generator=generator, dtype=torch.float64)
    return symmetric_ends(product, start, tolerance=TOLERANCE).largest


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
