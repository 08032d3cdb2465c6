"""The largest learning rate at which gradient descent, or an optimiser, is stable on the quadratic model of a loss."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import torch
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.descent import Rule, descend
from gnlib.diagnosis.model import combined, largest_of, stable_rate
from gnlib.diagnosis.preconditioner import kernels_of, moved_by, name_of, optimizer_of, parts_of, preconditioner_of
from gnlib.diagnosis.standing import Whole, longest_step
from gnlib.eigen.largest import largest_eigenvalue
from gnlib.jacobian.gram import NotFiniteError
from gnlib.jacobian.passes import vjp
from gnlib.plain import as_dict
from gnlib.problem import Problem, TooSmallError, with_root
from gnlib.products.choice import LARGEST, prefers_products
from gnlib.refused import Refused


@dataclass(frozen=True)
class StableRate:
    r"""The largest stable learning rate of an optimiser.

    Attributes
    ----------
    optimizer
        its name
    largest
        the largest eigenvalue, of :math:`P^{-1} G` if the optimiser divides by a P, with rates in proportion to that of
        the first group, and weight decay, in it
    find_smallest
        returns the smallest one that is not zero, which takes longer and is not always asked for
    rule
        the steps that the first group makes of gradients
    longest
        the largest rate of an adaptive optimiser for its first step
    batch
        samples in a batch, of which `largest` is then made that it would be of full batches at this rate
    """

    optimizer: str
    largest: float
    find_smallest: Callable[[], float] = field(repr=False, compare=False)
    rule: Rule
    longest: float = math.inf
    batch: int | None = None

    to_dict = as_dict

    @property
    def rate(self) -> float:
        """The largest stable learning rate."""
        return min(self.rule.limit / self.largest, self.longest)

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue that is not zero."""
        return self.find_smallest()

    def left(self, steps: int = 100, rate: float | None = None) -> float:
        """Return the share of the slowest direction that is left, at half the largest rate if none is given."""
        start = torch.ones(1, dtype=torch.float64)
        rule, smallest = self.rule._replace(rate=self.rate / 2 if rate is None else rate), self.smallest
        course = descend(start, lambda sums: smallest * sums[0, :1], lambda now: now, [rule])
        return next(islice(course, steps, None))[1].abs().item()

    def with_momentum(self, momentum: float = 0.9) -> "StableRate":
        """Return the same for gradient descent with heavy-ball momentum."""
        if self.batch is not None:
            raise Refused(
                "wrong-optimizer", "The stable rate of mini-batches is known without momentum; leave batch= out."
            )
        return replace(self, optimizer=f"with momentum {momentum:g}", rule=Rule(1.0, momentum))

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.optimizer}: stable below a learning rate of {self.rate:.4g}"


def stable_rate_of(problem: Problem, optimizer: str | Optimizer | None = None) -> StableRate:
    """Return the largest stable rate of an optimiser, of gradient descent if there is none."""
    if optimizer is None:
        return StableRate(
            optimizer="gradient descent",
            largest=_largest_of(problem),
            find_smallest=lambda: problem.condition.smallest,
            rule=Rule(1.0),
        )
    networks, memory = problem.networks, problem.memory
    leaves = {name: p.detach() for name, p in (networks[0].parameters | networks[0].frozen).items()}
    made = optimizer_of(optimizer, networks[0], leaves, 1.0)
    some, kind = moved_by(made, networks, leaves), name_of(optimizer)
    gradient = {}
    if not isinstance(made, SGD) and not any(made.state.values()):
        if not problem.has_targets:
            raise Refused(
                "no-targets",
                f"optimizer, of type {kind}, has taken no step and has no state; take one, or pass y, of which the "
                "gradient stands in for it.",
            )
        gradient = vjp(some, memory)(problem.loss.gradient(problem.outputs))
    parts = parts_of(made, some, leaves)
    factors = preconditioner_of(made, some, leaves, gradient, memory).factors
    rules, rule = [part.rule for part in parts], parts[0].rule
    name = kind + (f" with momentum {rule.momentum:g}" if rule.momentum else "")
    if factors is None and some is networks and len(parts) == 1 and {*parts[0].scales.values()} == {1.0}:
        largest, smallest = _largest_of(problem) + rule.damping, lambda: problem.condition.smallest
    else:
        kernels = [with_root(problem.root, kernel) for kernel in kernels_of(parts, some, factors, memory)]
        undamped = [each._replace(decay=0.0) for each in rules]
        ends = problem.ends_of(torch.linalg.eigvalsh(rule.limit / rule.rate * combined(undamped, kernels)))
        largest = ends.largest + rule.damping if len(parts) == 1 else rule.limit / stable_rate(rules, kernels)
        smallest = partial(float, ends.smallest)
    return StableRate(
        optimizer=name,
        largest=largest,
        find_smallest=lambda: smallest() + rule.decay,
        rule=rule._replace(decay=0.0, decoupled=False),
        longest=longest_step(Whole(some, problem.loss, memory), made, leaves) if problem.has_targets else math.inf,
    )


def stable_rate_of_largest(largest: float, optimizer: str | Optimizer | None = None) -> StableRate:
    """Return the largest stable rate of gradient descent, plain or with momentum, by the largest eigenvalue alone."""
    group = optimizer.param_groups[0] if isinstance(optimizer, SGD) else {}
    rules = {None: Rule(1.0), "sgd": Rule(1.0), "momentum": Rule(1.0, 0.9)}
    if isinstance(optimizer, SGD) and len(optimizer.param_groups) == 1 and not group["weight_decay"]:
        options = {name: group[name] for name in ("momentum", "nesterov", "dampening")}
        rule = Rule(1.0, **options)
    elif not isinstance(optimizer, Optimizer) and optimizer in rules:
        rule = rules[optimizer]
    else:
        raise Refused(
            "wrong-optimizer",
            "By products with vectors the stable rate is known of SGD with one group and no weight decay; pass "
            "optimizer='sgd' or 'momentum', or leave dtype= out.",
        )

    def smallest() -> float:
        raise Refused(
            "needs-matrix", "The smallest eigenvalue cannot be had by products with vectors; leave dtype= out."
        )

    name = "gradient descent" + (f" with momentum {rule.momentum:g}" if rule.momentum else "")
    return StableRate(optimizer=name, largest=largest, find_smallest=smallest, rule=rule)


def _largest_of(problem: Problem) -> float:
    """Return the largest eigenvalue of the matrix of the loss, from products with vectors where that is cheaper."""
    if prefers_products(problem, LARGEST):
        return largest_eigenvalue(problem.operator()).value
    try:
        return largest_of(problem.loss_gram)
    except (NotFiniteError, TooSmallError):  # products leave the range before what they are made of does
        return problem.condition.largest
