"""Descent of a linear model in the space of its outputs: no network, no parameters."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Rule(NamedTuple):
    r"""The steps that an optimiser makes of gradients :math:`g_t`, up to the factors of single parameters.

    It keeps :math:`m_t = \beta m_{t-1} + w g_t` and goes back by `rate` times :math:`m_t`, with `w` one, or
    :math:`1 - \beta` where it takes a mean, which is then divided by :math:`1 - \beta^t`.

    Attributes
    ----------
    rate, momentum
        the learning rate and :math:`\beta`
    averaged
        whether it takes a mean, as Adam does
    nesterov
        whether it goes by :math:`g_t + \beta m_t` instead
    taken
        steps that it has taken before
    """

    rate: float
    momentum: float = 0.0
    averaged: bool = False
    nesterov: bool = False
    taken: int = 0

    @property
    def limit(self) -> float:
        r"""The largest rate at which a quadratic of curvature one is stable.

        With heavy-ball momentum the residual of a mode of curvature :math:`\lambda` goes by the roots of
        :math:`z^2 - (1 + \beta - \eta \lambda) z + \beta`, which leave the unit disc at :math:`z = -1`, where
        :math:`\eta \lambda = 2 (1 + \beta)`; a mean has a rate that is smaller by :math:`1 - \beta`, and for Nesterov's
        :math:`(1 + \beta - \eta \lambda (1 + \beta)) z` and :math:`\beta (1 - \eta \lambda)` take their places.
        """
        b = self.momentum
        if self.nesterov:
            return (2 + 2 * b) / (1 + 2 * b)
        return 2 * (1 + b) / (1 - b if self.averaged else 1)


def descend(
    outputs: Float[Tensor, " r"],
    change: Callable[[Float[Tensor, " c"]], Float[Tensor, " r"]],
    gradient: Callable[[Float[Tensor, " r"]], Float[Tensor, " r"]],
    rule: Rule,
    inherited: int = 0,
) -> Iterator[tuple[Float[Tensor, " c"], Float[Tensor, " r"]]]:
    r"""Yield, for steps 0, 1, 2 and so on, sums of gradients and the outputs that they lead to.

    All the displacements of a linear model are :math:`-\frac1n P^{-1} J^\top c_t`, and :math:`c_t` a sum of gradients
    by the outputs, weighted as the optimiser does: so its outputs are :math:`f_0 - K_P c_t`.

    Parameters
    ----------
    outputs
        :math:`f_0`
    change
        takes :math:`c` to :math:`K_P c`
    gradient
        of the loss by the outputs
    rule
        of the optimiser
    inherited
        1 if it has momentum from before: then c has a last entry, the weight of that, which `change` has to know
    """
    sums = outputs.new_zeros(len(outputs) + inherited)
    velocity = sums.clone()
    velocity[len(outputs) :] = 1
    b, step = rule.momentum, rule.taken
    while True:
        now = outputs - change(sums)
        yield sums, now
        step += 1
        g = torch.cat([gradient(now), now.new_zeros(inherited)]) if inherited else gradient(now)
        velocity = b * velocity + (1 - b) * g if rule.averaged else b * velocity + g
        rate = rule.rate / (1 - b**step) if rule.averaged else rule.rate
        sums = sums + rate * (g + b * velocity if rule.nesterov else velocity)
