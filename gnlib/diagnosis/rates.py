"""The largest learning rate at which gradient descent, or an optimiser, is stable on the quadratic model of a loss."""

import math
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.descent import Rule, descend
from gnlib.diagnosis.first_step import longest_step
from gnlib.diagnosis.model import combined, stable_rate
from gnlib.diagnosis.preconditioner import kernels_of, moved_by, name_of, optimizer_of, parts_of, preconditioner_of
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
        the ends of the non-zero spectrum, of :math:`P^{-1} G` if the optimiser divides by a P, with rates in proportion
        to that of the first group, and weight decay, in it
    rule
        the steps that the first group makes of gradients
    longest
        the largest rate of an adaptive optimiser for its first step
    """

    optimizer: str
    largest: float
    smallest: float
    rule: Rule
    longest: float = math.inf

    @property
    def rate(self) -> float:
        """The largest stable learning rate."""
        return min(self.rule.limit / self.largest, self.longest)

    def left(self, steps: int = 100, rate: float | None = None) -> float:
        """Return the share of the slowest direction that is left, at half the largest rate if none is given."""
        start = torch.ones(1, dtype=torch.float64)
        rule = self.rule._replace(rate=self.rate / 2 if rate is None else rate)
        course = descend(start, lambda sums: self.smallest * sums[0, :1], lambda now: now, [rule])
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
    some, kind = moved_by(made, networks, leaves), name_of(optimizer)
    gradient = {}
    if not isinstance(made, SGD) and not any(made.state.values()):
        if not problem.has_targets:
            raise ValueError(
                f"optimizer, of type {kind}, has taken no step and has no state; take one, or pass y, of which the "
                "gradient stands in for it."
            )
        gradient = vjp(some, memory)(problem.loss.gradient(problem.outputs))
    parts = parts_of(made, some, leaves)
    factors = preconditioner_of(made, some, leaves, gradient, memory).factors
    rules, rule = [part.rule for part in parts], parts[0].rule
    name = kind + (f" with momentum {rule.momentum:g}" if rule.momentum else "")
    if factors is None and some is networks and len(parts) == 1 and {*parts[0].scales.values()} == {1.0}:
        ends = problem.condition
        largest = ends.largest + rule.damping
    else:
        kernels = [with_root(problem.root, kernel) for kernel in kernels_of(parts, some, factors, memory)]
        undamped = [each._replace(decay=0.0) for each in rules]
        ends = problem.ends_of(torch.linalg.eigvalsh(rule.limit / rule.rate * combined(undamped, kernels)))
        largest = ends.largest + rule.damping if len(parts) == 1 else rule.limit / stable_rate(rules, kernels)
    plain = rule._replace(decay=0.0, decoupled=False)
    longest = longest_step(some, problem.loss, made, leaves, memory) if problem.has_targets else math.inf
    return StableRate(name, largest, ends.smallest + rule.decay, plain, longest)
