"""The largest learning rate at which gradient descent, or an optimiser, is stable on the quadratic model of a loss."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.descent import Rule, descend
from gnlib.diagnosis.inputs import Inputs
from gnlib.diagnosis.measured import Measured, through
from gnlib.diagnosis.preconditioner import optimizer_of, preconditioned_gram, preconditioner_of, rule_of
from gnlib.jacobian.passes import only, pull


@dataclass(frozen=True)
class StableRate:
    r"""The largest stable learning rate of an optimiser, and what it leaves.

    Attributes
    ----------
    optimizer
        what it is the rate of
    largest, smallest
        the ends of the non-zero spectrum, of :math:`P^{-1} G` if the optimiser divides by a P
    rule
        what it makes of gradients
    """

    optimizer: str
    largest: float
    smallest: float
    rule: Rule

    @property
    def rate(self) -> float:
        """The largest stable learning rate."""
        return self.rule.limit / self.largest

    def left(self, steps: int = 100, rate: float | None = None) -> float:
        """Return what is left of the slowest direction after some steps, at half the largest rate if none is given."""
        start = torch.ones(1, dtype=torch.float64)
        rule = self.rule._replace(rate=self.rate / 2 if rate is None else rate)
        course = descend(start, lambda sums: self.smallest * sums, lambda now: now, rule)
        return next(islice(course, steps, None))[1].abs().item()

    def with_momentum(self, momentum: float = 0.9) -> "StableRate":
        """Return the same for gradient descent with heavy-ball momentum."""
        return replace(self, optimizer=f"with momentum {momentum:g}", rule=Rule(1.0, momentum))

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.optimizer}: stable below a learning rate of {self.rate:.4g}"


def largest_stable_rate(
    module: nn.Module,
    x: Inputs,
    y: Any = None,
    *,
    loss: str | Callable[[Tensor, Any], Tensor] = "mse",
    optimizer: Optimizer | None = None,
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> StableRate:
    r"""Return the largest learning rate at which an optimiser is stable on the quadratic model of a loss.

    It is 2 over the largest eigenvalue for gradient descent and :math:`2 (1 + \beta)` over it with momentum
    (:class:`gnlib.diagnosis.descent.Rule`); for Adam with :math:`\beta_1 = 0.9` it is 38 over the largest eigenvalue
    of :math:`P^{-1} G`, with P what it divides by.

    Parameters
    ----------
    module, x, y, loss, output, mode, memory
        as for :func:`gnlib.diagnosis.report`
    optimizer
        SGD, Adam, AdamW or RMSprop of torch, with parameters of the module, of which it may leave out some; gradient
        descent without. Its own state makes P. Before its first step P is the root of the diagonal of G, of the size
        of the gradient, which takes `y`

    Raises
    ------
    TypeError
        Another optimiser; as :func:`gnlib.diagnosis.report`.
    ValueError
        An optimiser of other parameters, of several rates or with settings that are left out here, or without a state
        where `y` is missing; as :func:`gnlib.diagnosis.report`.

    References
    ----------
    J. M. Cohen et al. (2022), Adaptive gradient methods at the edge of stability, arXiv:2207.14484 (the sharpness in
    the coordinates of Adam, and 38).

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(2, 1, bias=False)
    >>> x = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> largest_stable_rate(net, x).rate
    1.0
    >>> round(largest_stable_rate(net, x, optimizer=torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)).rate, 6)
    1.9
    """
    return stable_rate_of(Measured(module, x, y, loss=loss, output=output, mode=mode, memory=memory), optimizer)


def stable_rate_of(measured: Measured, optimizer: Optimizer | None = None) -> StableRate:
    """Return the largest stable rate for a network that has been measured."""
    found = measured.condition
    if optimizer is None:
        return StableRate("gradient descent", found.largest, found.smallest, Rule(1.0))
    networks, memory = measured.networks, measured.memory
    leaves = {name: p.detach() for name, p in (networks[0].parameters | networks[0].frozen).items()}
    made = optimizer_of(optimizer, networks[0], leaves, 1.0)
    held = {id(leaf) for group in made.param_groups for leaf in group["params"]}
    moving = {name for name in networks[0].parameters if id(leaves[name]) in held}
    some = networks if len(moving) == len(networks[0].parameters) else only(networks, moving)
    rule, kind = rule_of(made), type(optimizer).__name__
    gradient = {}
    if not isinstance(optimizer, SGD) and not any(optimizer.state.values()):
        if not measured.has_targets:
            raise ValueError(
                f"optimizer, of type {kind}, has taken no step and has no state; take one, or pass y, of which the "
                "gradient stands in for it."
            )
        gradient = pull(some, measured.loss.gradient(measured.outputs), memory)
    factors = preconditioner_of(made, some, leaves, gradient, memory).factors
    if factors is not None or some is not networks:
        matrix = through(measured.root, preconditioned_gram(some, factors, memory))
        found = measured.ends(torch.linalg.eigvalsh(matrix))
    name = kind + (f" with momentum {rule.momentum:g}" if rule.momentum else "")
    return StableRate(name, found.largest, found.smallest, rule)
