"""Changes that help, each tried on the spot: the steps and the condition number that it leads to."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.by_layer import Shares
from gnlib.diagnosis.changes import changes_of
from gnlib.diagnosis.culprits import Culprits
from gnlib.diagnosis.descent import descend
from gnlib.diagnosis.model import linearise
from gnlib.diagnosis.preconditioner import NAMED
from gnlib.eigen.dense import BY_FACTOR
from gnlib.eigen.result import ConditionNumber, Limits
from gnlib.jacobian.gram import gram_of
from gnlib.jacobian.passes import freeze_all_but
from gnlib.jacobian.plan import BudgetError
from gnlib.problem import Problem, with_root
from gnlib.text import listed

MOST = 3
WORTH = 1.25  # by which the steps, or the condition number where there are no targets, have to fall
FACTOR = 10  # of the learning rate of one layer
GOAL, STEPS = 0.1, 1000  # of the loss at the start; of the linear model, at most
DESCENT = "gradient descent"
CHEAP = 3e10  # operations, of a second or so
CHEAP_COLUMNS = 5e9  # the same where all columns of the Jacobian are formed


class Pace(NamedTuple):
    """Steps of an optimiser that the linear model takes to a loss: as the network is, and as it is changed."""

    goal: float
    before: int
    steps: int
    optimizer: str


class Suggestion(NamedTuple):
    """Something to do, both ends of the spectrum once it is done, and the pace, where there are targets."""

    what: str
    after: ConditionNumber
    pace: Pace | None = None

    def __str__(self) -> str:
        """Return a line."""
        return f"{self.what}: {self.effect}"

    @property
    def effect(self) -> str:
        """The steps, the condition number and the rank that it leads to, in words."""
        c, pace = self.after, self.pace
        steps = ""
        if pace is not None:
            of = f"step{'s' * (pace.steps != 1)} of {pace.optimizer}"
            steps = f"{pace.steps} {of}, not {pace.before}, to a loss of {pace.goal:.3g}; "
        how = "" if c.resolved else "numerically "
        return f"{steps}kappa {'' if c.resolved else 'at least '}{c.value:.4g}, rank {how}{c.rank}"


class Trial(NamedTuple):
    """A change: the problem with the outputs that it leads to, the Gram matrix, and both ends of the spectrum."""

    what: str
    problem: Problem
    gram: Float[Tensor, "nk nk"]
    after: ConditionNumber


def suggestions_for(
    problem: Problem, shares: Shares, culprits: Culprits, optimizer: str | Optimizer | None = None
) -> tuple[Suggestion, ...]:
    """Return the three changes that help the most, of those tried here.

    What counts is by how much the linear model is sooner at a tenth of the loss at the start, or at the least loss that
    it now reaches in 1,000 steps of the optimiser at half of the largest rate at which that model is stable; without
    targets, or where the loss does not fall at all, the condition number. Samples to drop are none of these, and are
    named in any case, the last.

    An optimiser counts with its settings and without its state, which a changed network has not. One that divides by
    the size of gradients gives each layer a rate already, so none is suggested for it.
    """
    trials = [*_changed(problem)] if is_cheap(problem) else []
    if isinstance(optimizer, str):
        optimizer = NAMED[optimizer]([*problem.module.parameters()], lr=1.0)
    optimizer = optimizer if is_cheap_for(problem, optimizer) else None
    if optimizer is None or isinstance(optimizer, SGD):
        trials = [*_by_rates(problem, shares, _held(problem, trials)), *trials]
    dropped = [*_without_duplicates(problem, culprits, _held(problem, trials))]

    def gain(suggestion: Suggestion) -> float:
        pace = suggestion.pace
        if pace is not None:
            return pace.before / max(pace.steps, 1)
        return problem.condition.value / suggestion.after.value if paced is None else 1.0

    plain = [Suggestion(trial.what, trial.after) for trial in trials]
    paced = _paced(problem, trials, optimizer) if problem.has_targets else None
    tried = plain if paced is None else paced
    best = sorted((s for s in tried if gain(s) >= WORTH), key=gain, reverse=True)[: MOST - len(dropped)]
    return tuple(sorted([*best, *dropped], key=gain, reverse=True))


def is_cheap(problem: Problem) -> bool:
    """Say whether the matrix takes so little that it may be made again for a trial."""
    return problem.networks[0].vmapped and problem.cost().operations < CHEAP


def is_cheap_for(problem: Problem, optimizer: Optimizer | None) -> bool:
    """Say whether the matrix in the coordinates of an optimiser takes so little too."""
    plain = optimizer is None or isinstance(optimizer, SGD)
    return plain or problem.parameters * problem.outputs.numel() ** 2 < CHEAP_COLUMNS


def _paced(problem: Problem, trials: Sequence[Trial], optimizer: Optimizer | None) -> list[Suggestion] | None:
    """Return suggestions with the steps to a loss that the network reaches as it is; None if its loss never falls."""
    if not trials:
        return []
    start = min(m.loss.value(m.outputs) for m in (problem, *(trial.problem for trial in trials)))
    now, losses = Trial(what="", problem=problem, gram=problem.gram, after=problem.condition), []
    for loss in islice(_course(now, optimizer), STEPS + 1):
        if not math.isfinite(loss):
            break
        losses.append(loss)
        if loss <= GOAL * start:
            break
    before, goal = losses.index(min(losses)), min(losses)
    if not before:
        return None
    name, paced = type(optimizer).__name__ if optimizer else DESCENT, []
    for trial in trials:
        course = enumerate(islice(_course(trial, optimizer), before + 1))
        steps = next((t for t, loss in course if loss <= goal), None)
        if steps is not None:  # it takes no longer
            pace = Pace(goal=goal, before=before, steps=steps, optimizer=name)
            paced.append(Suggestion(trial.what, trial.after, pace))
    return paced


def _course(trial: Trial, optimizer: Optimizer | None) -> Iterator[float]:
    """Yield the losses of the linear model at half of the largest rate at which it is stable."""
    _, problem, gram, _ = trial
    leaves = {name: p.detach() for name, p in problem.networks[0].parameters.items()}
    kind: Callable[..., Optimizer] = SGD if optimizer is None else type(optimizer)
    settings = optimizer.param_groups[0] if optimizer else {}
    made = kind([{**settings, "lr": 1.0, "params": [*leaves.values()]}])
    linear = linearise(problem.networks, problem.loss, made, leaves, problem.memory, gram)
    space, rules = linear.space, linear.rules(linear.stable_rate / 2)
    return (space.value(f) for _, f in descend(space.start, space.change, space.gradient, rules))


def _changed(problem: Problem) -> Iterator[Trial]:
    """Measure the network, or its inputs, as they would be."""
    held = 0.0
    for change in changes_of(problem.module, problem.batches, problem.networks[0].mode):
        try:
            other = problem.changed(change.module, change.batches, held)
            by_factor = problem.condition.method == BY_FACTOR  # one method on both sides
            after = other.ends_by("jacobian", Limits()) if by_factor else other.ends_of(other.eigenvalues)
        except ValueError:  # a network that is refused is no suggestion
            continue
        trial = Trial(what=change.what, problem=other, gram=other.gram, after=after)
        held += _held(problem, [trial])
        yield trial


def _held(problem: Problem, trials: Sequence[Trial]) -> float:
    """Return the GiB of the matrices of trials of a problem."""
    return sum(t.gram.nbytes / 2**30 if t.problem is problem else t.problem.own for t in trials)


def _by_rates(problem: Problem, shares: Shares, held: float) -> Iterator[Trial]:
    """Give a smaller rate to the layer that makes kappa larger, and a larger rate to the one that makes it smaller.

    A learning rate of its own multiplies a layer's part of the matrix.
    """
    if len(shares.layers) < 2:
        return
    steep, flat = (extreme(shares.layers, key=lambda share: share.difference) for extreme in (max, min))
    for share, factor, how in ((steep, 1 / FACTOR, "smaller"), (flat, FACTOR, "larger")):
        own = [name for name in problem.networks[0].parameters if problem.layer_of(name) == share.layer]
        try:
            gram = gram_of(freeze_all_but(problem.networks, own), problem.free - held).mul_(factor - 1)
        except BudgetError:  # what is left of the memory is for what was measured
            return
        gram.add_(problem.gram)
        held += gram.nbytes / 2**30
        what = f"give {share.layer or 'the module itself'} a learning rate {FACTOR} times {how}"
        rates, matrix = dict.fromkeys(own, factor), partial(with_root, problem.root, gram)
        yield Trial(what=what, problem=problem, gram=gram, after=problem.changed_ends(matrix, rates, beside=held))


def _without_duplicates(problem: Problem, culprits: Culprits, held: float) -> Iterator[Suggestion]:
    """Leave out the second of each pair of samples with equal inputs."""
    dropped = sorted({pair.second for pair in culprits.equal_samples if pair.equal})
    n, r = len(problem.root), problem.root.shape[2]
    if dropped:
        kept = torch.ones(n, dtype=torch.bool, device=problem.outputs.device)
        kept[dropped] = False
        rows = kept.repeat_interleave(r)
        what = f"drop sample{'s' * (len(dropped) > 1)} {listed(dropped)}"

        def matrix() -> Float[Tensor, "q q"]:
            return problem.loss_gram[rows][:, rows] * (n / (n - len(dropped)))

        yield Suggestion(what, problem.changed_ends(matrix, kept=rows, beside=held))
