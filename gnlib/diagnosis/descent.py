"""Descent of a linear model in the space of its outputs: no network, no parameters."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Rule(NamedTuple):
    r"""The steps that an optimiser makes of gradients :math:`g_t`, up to the factors of single parameters.

    It keeps :math:`m_t = \beta m_{t-1} + w g_t` and goes back by `rate` times :math:`m_t`, with `w` one less the
    dampening (but one at the first step), or :math:`1 - \beta` where it takes a mean, which is then divided by
    :math:`1 - \beta^t`.

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
    dampening
        of gradients that come to a momentum
    decay, decoupled
        the weight decay: `decay` times the parameters is added to the gradients, or, if it is decoupled, `rate` times
        that is taken from the parameters at each step
    """

    rate: float
    momentum: float = 0.0
    averaged: bool = False
    nesterov: bool = False
    taken: int = 0
    dampening: float = 0.0
    decay: float = 0.0
    decoupled: bool = False

    @property
    def limit(self) -> float:
        r"""The largest rate at which a quadratic of curvature one is stable, without weight decay.

        With heavy-ball momentum the residual of a mode of curvature :math:`\lambda` goes by the roots of
        :math:`z^2 - (1 + \beta - w \eta \lambda) z + \beta`, which leave the unit disc at :math:`z = -1`, where
        :math:`w \eta \lambda = 2 (1 + \beta)`; for Nesterov's :math:`(1 + \beta - \eta \lambda (1 + \beta)) z` and
        :math:`\beta (1 - \eta \lambda)` take their places.
        """
        b = self.momentum
        if self.nesterov:
            return (2 + 2 * b) / (1 + 2 * b)
        return 2 * (1 + b) / (1 - (b if self.averaged else self.dampening))

    @property
    def damping(self) -> float:
        """The curvature that weight decay stands for where a mode ceases to be stable."""
        return self.decay * (self.limit / 2 if self.decoupled else 1)


def descend(
    outputs: Float[Tensor, " r"],
    change: Callable[[Float[Tensor, "m c"]], Float[Tensor, " r"]],
    gradient: Callable[[Float[Tensor, " r"]], Float[Tensor, " r"]],
    rules: Sequence[Rule],
) -> Iterator[tuple[Float[Tensor, "m c"], Float[Tensor, " r"]]]:
    r"""Yield, for steps 0, 1, 2 and so on, sums of gradients and the outputs that they lead to.

    All the displacements of a linear model are :math:`-\frac1n P^{-1} J^\top c_t - a_t \theta_0 - b_t M_0`, with
    :math:`c_t` a sum of gradients by the outputs, weighted as the optimiser does, the share :math:`a_t` of the
    parameters that weight decay has taken, and the weight :math:`b_t` of the momentum from before: for each part of
    the parameters that has a rule of its own. So the outputs are linear in all of these: `change` takes the sums, in
    rows :math:`(c, a, b)` with `c = r + 2` entries, to the change of the outputs.
    """
    sums = outputs.new_zeros(len(rules), len(outputs) + 2)
    velocity, whole = sums.clone(), sums[0].clone()
    velocity[:, -1], whole[-2] = 1, 1
    rate, b, nesterov, decay = (
        outputs.new_tensor([getattr(rule, name) for rule in rules])[:, None]
        for name in ("rate", "momentum", "nesterov", "decay")
    )
    shrink = outputs.new_tensor([rule.decoupled for rule in rules])[:, None] * rate * decay
    coupled = outputs.new_tensor([not rule.decoupled for rule in rules])[:, None] * decay
    step = 0
    while True:
        now = outputs - change(sums)
        yield sums, now
        step += 1
        left = whole - sums  # of the parameters, in these coordinates
        g = torch.cat([gradient(now), now.new_zeros(2)]) + coupled * left
        weights, rates = zip(*(weight_and_rate(rule, step) for rule in rules), strict=True)
        velocity = b * velocity + outputs.new_tensor(weights)[:, None] * g
        move = nesterov * g + (1 - nesterov + nesterov * b) * velocity
        sums = sums + shrink * left + outputs.new_tensor(rates)[:, None] * move


def weight_and_rate(rule: Rule, step: int) -> tuple[float, float]:
    """Return the weight of a gradient in the momentum, and the rate, at a step from where the course begins."""
    if rule.averaged:
        return 1 - rule.momentum, rule.rate / (1 - rule.momentum ** (rule.taken + step))
    return 1 - rule.dampening * (rule.taken + step > 1), rule.rate
