"""The largest learning rate at which gradient descent, or an optimiser, is stable on the quadratic model of a loss."""

from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.descent import Rule, descend
from gnlib.diagnosis.preconditioner import (
    moved_by,
    name_of,
    optimizer_of,
    preconditioned_gram,
    preconditioner_of,
    rule_of,
)
from gnlib.jacobian.passes import vjp
from gnlib.problem import Problem, with_root


@dataclass(frozen=True)
class StableRate:
    r"""The largest stable learning rate of an optimiser.

    Attributes
    ----------
    optimizer
        its name
    largest, smallest
        the ends of the non-zero spectrum, of :math:`P^{-1} G` if the optimiser divides by a P
    rule
        the steps that it makes of gradients
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
        """Return the share of the slowest direction that is left, at half the largest rate if none is given."""
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


def stable_rate_of(problem: Problem, optimizer: str | Optimizer | None = None) -> StableRate:
    """Return the largest stable rate of an optimiser, of gradient descent if there is none."""
    if optimizer is None:
        ends = problem.condition
        return StableRate(optimizer="gradient descent", largest=ends.largest, smallest=ends.smallest, rule=Rule(1.0))
    networks, memory = problem.networks, problem.memory
    leaves = {name: p.detach() for name, p in (networks[0].parameters | networks[0].frozen).items()}
    made = optimizer_of(optimizer, networks[0], leaves, 1.0)
    some = moved_by(made, networks, leaves)
    rule, kind = rule_of(made), name_of(optimizer)
    gradient = {}
    if not isinstance(made, SGD) and not any(made.state.values()):
        if not problem.has_targets:
            raise ValueError(
                f"optimizer, of type {kind}, has taken no step and has no state; take one, or pass y, of which the "
                "gradient stands in for it."
            )
        gradient = vjp(some, memory)(problem.loss.gradient(problem.outputs))
    factors = preconditioner_of(made, some, leaves, gradient, memory).factors
    if factors is None and some is networks:
        ends = problem.condition
    else:
        matrix = with_root(problem.root, preconditioned_gram(some, factors, memory))
        ends = problem.ends_of(torch.linalg.eigvalsh(matrix))
    name = kind + (f" with momentum {rule.momentum:g}" if rule.momentum else "")
    return StableRate(optimizer=name, largest=ends.largest, smallest=ends.smallest, rule=rule)
