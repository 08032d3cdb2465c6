"""The search for gains: a quasi-Newton descent of an objective over their logarithms."""

import math
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.design.layers import weights_of
from gnbook.design.objectives import Objective

MOST = math.log(10)  # of the logarithm of a gain: from a tenth to ten
MOST_LAYERS = 15
LOOKS = 60  # at the objective


@dataclass(frozen=True, eq=False)
class Found:
    """Gains, and how they were found.

    Attributes
    ----------
    gains
        one for each layer
    start, end
        the objective without gains, and with them
    looks
        how often it was computed
    """

    gains: Float[Tensor, " layers"]
    start: float
    end: float
    looks: int


def search(objective: Objective, count: int, *, degrees: Float[Tensor, " layers"] | None = None) -> Found:
    r"""Return the gains, from a tenth to ten, with the lowest objective that descent from one finds.

    Parameters
    ----------
    objective
        of the logarithms of the gains, with a gradient
    count
        of the gains, at most fifteen
    degrees
        of the outputs in the layers; if they are given, :math:`\prod_l g_l^{d_l}` is held at one, and the function
        that the network is at its start stays the same

    Raises
    ------
    ValueError
        More gains than that.

    Examples
    --------
    >>> found = search(lambda z: (z - torch.tensor([0.5, -1.0])).square().sum(), 2)
    >>> found.gains.log().round(decimals=4), found.start
    (tensor([ 0.5000, -1.0000], dtype=torch.float64), 1.25)
    """
    if not 1 <= count <= MOST_LAYERS:
        raise ValueError(f"There are {count} layers; from one to {MOST_LAYERS} gains were expected.")
    best: tuple[float, np.ndarray] = (math.inf, np.zeros(count))
    looks, start = 0, math.nan

    def inside(z: Float[Tensor, " layers"]) -> Float[Tensor, " layers"]:
        if degrees is None or not degrees.any():
            return z
        held = degrees.cpu()
        return z - held * (held @ z) / (held @ held)

    def value(point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, looks, start
        z = torch.tensor(point, dtype=torch.float64, device="cpu", requires_grad=True)
        found = objective(inside(z))
        (slope,) = torch.autograd.grad(found, z)
        looks, start = looks + 1, found.item() if looks == 0 else start
        best = min(best, (found.item(), point.copy()), key=lambda pair: pair[0])
        return found.item(), slope.numpy()

    scipy.optimize.minimize(
        value, best[1], jac=True, method="L-BFGS-B", bounds=[(-MOST, MOST)] * count, options={"maxfun": LOOKS}
    )
    return Found(inside(torch.tensor(best[1], dtype=torch.float64, device="cpu")).exp(), start, best[0], looks)


@torch.no_grad()
def with_gains(network: nn.Module, gains: Float[Tensor, " layers"]) -> nn.Module:
    """Multiply the weights of linear layers and convolutions by gains, in place, and return the network.

    Examples
    --------
    >>> line = nn.Linear(1, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = line.weight.fill_(2.0)
    >>> with_gains(line, torch.tensor([3.0])).weight.item()
    6.0
    """
    for weight, gain in zip(weights_of(network).values(), gains.tolist(), strict=True):
        weight.mul_(gain)
    return network
