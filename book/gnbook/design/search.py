"""The search for gains: a quasi-Newton descent of an objective over their logarithms."""

import math
from typing import NamedTuple

import numpy as np
import scipy
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.design.layers import weights_of
from gnbook.design.objectives import Objective

MOST = math.log(10)  # of the logarithm of a gain: from a tenth to ten
LOOKS = 60  # at the objective


class Found(NamedTuple):
    """Gains, one for each layer, and the objective with them."""

    gains: Float[Tensor, " layers"]
    end: float


def search(objective: Objective, count: int, *, degrees: Float[Tensor, " layers"] | None = None) -> Found:
    r"""Return the gains, from a tenth to ten, with the lowest objective that descent from one finds.

    If the `degrees` of the outputs in the layers are given, :math:`\prod_l g_l^{d_l}` is held at one, and the function
    that the network is at its start stays the same.
    """
    best: tuple[float, np.ndarray] = (math.inf, np.zeros(count))

    def inside(z: Float[Tensor, " layers"]) -> Float[Tensor, " layers"]:
        if degrees is None or not degrees.any():
            return z
        held = degrees.cpu()
        return z - held * (held @ z) / (held @ held)

    def value(point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        z = torch.tensor(point, dtype=torch.float64, device="cpu", requires_grad=True)
        found = objective(inside(z))
        (slope,) = torch.autograd.grad(found, z)
        best = min(best, (found.item(), point.copy()), key=lambda pair: pair[0])
        return found.item(), slope.numpy()

    scipy.optimize.minimize(
        value, best[1], jac=True, method="L-BFGS-B", bounds=[(-MOST, MOST)] * count, options={"maxfun": LOOKS}
    )
    return Found(inside(torch.tensor(best[1], dtype=torch.float64, device="cpu")).exp(), best[0])


@torch.no_grad()
def with_gains(network: nn.Module, gains: Float[Tensor, " layers"]) -> nn.Module:
    """Multiply the weights of linear layers and convolutions by gains, in place, and return the network."""
    for weight, gain in zip(weights_of(network).values(), gains.tolist(), strict=True):
        weight.mul_(gain)
    return network
