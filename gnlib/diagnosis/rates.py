"""The largest learning rate at which gradient descent, or an optimiser, is stable on the quadratic model of a loss."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from gnlib.diagnosis.descent import Rule, descend
from gnlib.diagnosis.inputs import Inputs
from gnlib.diagnosis.linearised import pull
from gnlib.diagnosis.measured import Measured, through
from gnlib.diagnosis.preconditioner import preconditioned_gram, preconditioner_of, rule_of

KNOWN = SGD, Adam, AdamW, RMSprop
UNKNOWN = ("dampening", "maximize", "centered")


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
        SGD, Adam, AdamW or RMSprop of torch, with the parameters of the module; gradient descent without. Its own state
        makes P. Before its first step P is the root of the diagonal of G, of the size of the gradient, which takes `y`.
        Weight decay is left out

    Raises
    ------
    TypeError
        Another optimiser; as :func:`gnlib.diagnosis.report`.
    ValueError
        An optimiser of other parameters, of several rates or with settings that are not known here, or without a state
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
    _check(measured, optimizer)
    rule, kind = rule_of(optimizer), type(optimizer).__name__
    if not isinstance(optimizer, SGD):
        networks, memory = measured.networks, measured.memory
        named = dict(networks[0].module.named_parameters())
        leaves = {name: named[name] for name in networks[0].parameters}
        gradient = {}
        if not any(optimizer.state.values()):
            if not measured.has_targets:
                raise ValueError(
                    f"optimizer, of type {kind}, has taken no step and has no state; take one, or pass y, of which "
                    "the gradient makes one."
                )
            gradient = pull(networks, measured.loss.gradient(measured.outputs), memory)
        factors = preconditioner_of(optimizer, networks, leaves, gradient, memory).factors
        matrix = through(measured.root, preconditioned_gram(networks, factors, memory))
        found = measured.ends(torch.linalg.eigvalsh(matrix))
    name = kind + (f" with momentum {rule.momentum:g}" if rule.momentum else "")
    return StableRate(name, found.largest, found.smallest, rule)


def _check(measured: Measured, optimizer: Optimizer) -> None:
    """Refuse an optimiser whose steps are others than those that are known."""
    if type(optimizer) not in KNOWN:
        names = ", ".join(kind.__name__ for kind in KNOWN)
        raise TypeError(
            f"optimizer is of type {type(optimizer).__name__}; one of {names} of torch.optim was expected, or None."
        )
    own = {id(p) for p in measured.module.parameters() if p.requires_grad}
    first = optimizer.param_groups[0]
    for group in optimizer.param_groups:
        for setting in UNKNOWN:
            if group.get(setting):
                raise ValueError(f"optimizer has {setting}={group[setting]}, which is not known here; leave it out.")
        if any(group.get(name) != first.get(name) for name in ("lr", "betas", "momentum")):
            raise ValueError("optimizer has groups of several rates or momenta; pass one with the same for all.")
    if {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad} != own:
        raise ValueError("optimizer has other parameters than the module; make it with module.parameters().")
