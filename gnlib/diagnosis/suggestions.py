"""What to change, tried on the spot: each suggestion with the steps and the condition number that it leads to."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.by_layer import Shares
from gnlib.diagnosis.changes import changes_of
from gnlib.diagnosis.culprits import Culprits
from gnlib.diagnosis.descent import descend
from gnlib.diagnosis.inputs import Inputs
from gnlib.diagnosis.measured import Measured, through
from gnlib.diagnosis.model import linearise
from gnlib.diagnosis.preconditioner import rule_of
from gnlib.eigen.result import ConditionNumber
from gnlib.text import listed

MOST = 3
WORTH = 1.25  # by which the steps, or the condition number where there are no targets, have to fall
FACTOR = 10  # of the learning rate of one layer
GOAL, STEPS = 0.1, 1000  # of the loss at the start; of the linear model, at most
DESCENT = "gradient descent"


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
        """What it does, in words."""
        c, pace = self.after, self.pace
        steps = ""
        if pace is not None:
            of = f"step{'s' * (pace.steps != 1)} of {pace.optimizer}"
            steps = f"{pace.steps} {of}, not {pace.before}, to a loss of {pace.goal:.3g}; "
        return f"{steps}kappa {'' if c.resolved else 'at least '}{c.value:.4g}, rank {c.rank}"


class Trial(NamedTuple):
    """A change and what it makes of a network: whether of its outputs too, its Gram matrix, and both ends of that."""

    what: str
    measured: Measured
    gram: Float[Tensor, "nk nk"]
    after: ConditionNumber


def suggestions_for(
    measured: Measured,
    x: Inputs,
    again: Callable[[nn.Module, Inputs], Measured] | None,
    shares: Shares,
    found: Culprits,
    optimizer: Optimizer | None = None,
) -> tuple[Suggestion, ...]:
    """Return the three changes that help the most, of those tried here.

    What counts is by how much the linear model is sooner at a tenth of the loss at the start, or at the loss that it
    now has after 1,000 steps of the optimiser at half of its largest stable rate; without targets, the condition
    number. Samples to drop are none of these, and are named in any case, the last.

    Parameters
    ----------
    measured, x
        a network that has been measured, on these inputs
    again
        measures another module or other inputs in the same way; None where that takes too long
    shares, found
        where its condition number comes from
    optimizer
        with its settings and without its state, which a changed network has not; gradient descent if there is none.
        Those that divide by the size of gradients give each layer a rate already, so none is suggested for them
    """
    trials = [] if again is None else [*_changed(measured, x, again)]
    if optimizer is None or isinstance(optimizer, SGD):
        trials = [*_by_rates(measured, shares), *trials]
    dropped = [*_without_duplicates(measured, found)]

    def gain(suggestion: Suggestion) -> float:
        pace = suggestion.pace
        if pace is not None:
            return pace.before / max(pace.steps, 1)
        return 1.0 if measured.has_targets else measured.condition.value / suggestion.after.value

    plain = [Suggestion(trial.what, trial.after) for trial in trials]
    tried = _paced(measured, trials, optimizer) if measured.has_targets and trials else plain
    best = sorted((s for s in tried if gain(s) >= WORTH), key=gain, reverse=True)[: MOST - len(dropped)]
    return tuple(sorted([*best, *dropped], key=gain, reverse=True))


def _paced(measured: Measured, trials: Sequence[Trial], optimizer: Optimizer | None) -> list[Suggestion]:
    """Return suggestions with the steps to a loss that the network reaches as it is."""
    start = min(m.loss.value(m.outputs) for m in (measured, *(trial.measured for trial in trials)))
    now, losses = Trial("", measured, measured.gram, measured.condition), []
    for loss in islice(_course(now, optimizer), STEPS + 1):
        losses.append(loss)
        if loss <= GOAL * start:
            break
    before, goal = len(losses) - 1, losses[-1]
    name, found = type(optimizer).__name__ if optimizer else DESCENT, []
    for trial in trials:
        course = enumerate(islice(_course(trial, optimizer), before + 1))
        steps = next((t for t, loss in course if loss <= goal), None)
        if steps is not None:  # it takes no longer
            found.append(Suggestion(trial.what, trial.after, Pace(goal, before, steps, name)))
    return found


def _course(trial: Trial, optimizer: Optimizer | None) -> Iterator[float]:
    """Yield the losses of the linear model at half of the largest stable rate."""
    _, measured, gram, _ = trial
    leaves = {name: p.detach() for name, p in measured.networks[0].parameters.items()}
    kind: Callable[..., Optimizer] = SGD if optimizer is None else type(optimizer)
    made = kind([{**(optimizer.param_groups[0] if optimizer else {"lr": 1.0}), "params": [*leaves.values()]}])
    space, _, stable, _ = linearise(measured.networks, measured.loss, made, leaves, measured.memory, gram)
    rule = rule_of(made)._replace(rate=stable / 2)
    return (space.value(f) for _, f in descend(space.start, space.change, space.gradient, rule))


def _changed(measured: Measured, x: Inputs, again: Callable[[nn.Module, Inputs], Measured]) -> Iterator[Trial]:
    """Measure the network, or its inputs, as they would be."""
    for change in changes_of(measured.module, x, measured.networks[0].mode):
        try:
            other = again(change.module, change.x)
            after = other.ends(other.spectrum[0])
        except ValueError:  # what cannot be measured is no suggestion
            continue
        yield Trial(change.what, other, other.gram, after)


def _by_rates(measured: Measured, shares: Shares) -> Iterator[Trial]:
    """Give a smaller rate to the layer that makes kappa larger, and a larger rate to the one that makes it smaller.

    A learning rate of its own multiplies a layer's part of the matrix.
    """
    if len(shares.layers) < 2:
        return
    steep, flat = (extreme(shares.layers, key=lambda share: share.difference) for extreme in (max, min))
    for share, factor, how in ((steep, 1 / FACTOR, "smaller"), (flat, FACTOR, "larger")):
        gram = measured.gram + (factor - 1) * measured.parts[share.layer].gram
        what = f"give {share.layer or 'the module itself'} a learning rate {FACTOR} times {how}"
        yield Trial(what, measured, gram, measured.ends(torch.linalg.eigvalsh(through(measured.root, gram))))


def _without_duplicates(measured: Measured, found: Culprits) -> Iterator[Suggestion]:
    """Leave out the second of each pair of samples."""
    dropped = sorted({pair.second for pair in found.equal_samples})
    n, r = len(measured.root), measured.root.shape[2]
    if dropped:
        kept = torch.ones(n, dtype=torch.bool, device=measured.outputs.device)
        kept[dropped] = False
        rows = kept.repeat_interleave(r)
        matrix = measured.matrix[rows][:, rows] * (n / (n - len(dropped)))
        what = f"drop sample{'s' * (len(dropped) > 1)} {listed(dropped)}"
        yield Suggestion(what, measured.ends(torch.linalg.eigvalsh(matrix)))
