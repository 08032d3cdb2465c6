"""What to change in a network: candidates in the order of what training waits for, and the first of them run."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from torch import nn

from gnlib.advice.candidates import Change, Setting, changed, changes_for
from gnlib.advice.runs import SETTLED, Run, Trainer, best_of
from gnlib.laws.waiting import Waiting
from gnlib.text import Line, as_html, as_page

GOAL = 0.1  # of the smallest first loss
WORTH = 1.25  # times as many steps without a change: then it is suggested
RUN = 4  # candidates that are run
APART = 3.0  # times the spread, by which targets and outputs are named
GREEDY = "targets", "inputs", "normalisation", "weights"  # kinds of change, in the order in which they are looked for
FORCED = "standardise the targets"  # which no quantity of the linear model sees


@dataclass(frozen=True, eq=False)
class Measured:
    """The loss of a network, the largest stable rate of descent, and what a share of the loss waits for."""

    loss: float
    stable: float
    find: Callable[[float], Waiting]


Measure = Callable[[nn.Module], Measured]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A network with some changes, and what was measured of it."""

    changes: tuple[Change, ...]
    module: nn.Module
    measured: Measured

    def waiting(self, goal: float) -> Waiting:
        """Return within what the steps of the linear model to a loss lie."""
        share = goal / self.measured.loss if self.measured.loss else math.inf
        if share >= 1:
            return Waiting(0.0, 0.0, 0.0, 0.0)
        return self.measured.find(share)

    @property
    def what(self) -> str:
        """The changes in words."""
        return "; ".join(change.what for change in self.changes) or "no change"


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A change that was run, and was faster by a fifth.

    Attributes
    ----------
    what
        in words
    module
        the changed network, untrained
    run, before
        the best of its runs, and the best one without a change
    goal
        loss at which they are compared
    waiting
        within what the steps of the linear model to a tenth of the smallest first loss lie
    optimizer
        its name
    """

    what: str
    module: nn.Module
    run: Run
    before: Run
    goal: float
    waiting: Waiting
    optimizer: str

    @property
    def gain(self) -> float:
        """Steps without the change over those with it."""
        return self.before.steps_to(self.goal) / max(self.run.steps_to(self.goal), 1.0)

    def __str__(self) -> str:
        """Return a line: what was tried, and what happened."""
        then = self.before.steps_to(self.goal)
        instead = f"not {then:.0f}" if then < math.inf else f"where without it {len(self.before.losses) - 1} do not"
        return (
            f"{self.what}: tried, loss {self.goal:.3g} after {self.run.steps_to(self.goal):.0f} steps of "
            f"{self.optimizer}, {instead}, at the best of three rates, {self.run.rate:.2g}; the linear model said "
            f"{self.waiting.steps}"
        )


@dataclass(frozen=True, eq=False)
class Advice:
    """What to change, the best first, each tried by real steps.

    Attributes
    ----------
    suggestions
        those that were faster by a fifth
    tried
        within what the steps of the linear model lie, for each change that was measured, and without one
    left_out
        what was not tried, and why
    targets
        how they differ from the outputs, if they do
    seconds
        that it took
    """

    suggestions: tuple[Suggestion, ...]
    tried: Mapping[str, Waiting]
    left_out: Mapping[str, str]
    targets: str
    seconds: float

    def apply(self, i: int = 0) -> nn.Module:
        """Return the network with suggestion i made: for the same inputs, with outputs in the same units."""
        if not 0 <= i < len(self.suggestions):
            raise IndexError(f"There are {len(self.suggestions)} suggestions, numbered from 0; {i} is none of them.")
        return copy.deepcopy(self.suggestions[i].module)

    def lines(self) -> list[Line]:
        """Return the page line by line."""
        lines = [Line("targets", self.targets, "standardise them: training has to bridge that first")] * bool(
            self.targets
        )
        lines += [Line("try", *str(each).split(": ", 1)) for each in self.suggestions]
        if not self.suggestions:
            count = len(self.tried) - 1
            lines.append(Line("try", "nothing new", f"of {count} changes that were tried none gains a fifth"))
        lines += [Line("not tried", what, why) for what, why in self.left_out.items()]
        return [*lines, Line("cost", f"{self.seconds:.2g} s", f"{len(self.tried)} networks measured")]

    def __str__(self) -> str:
        """Return the page as text."""
        return as_page(self.lines())

    def __repr__(self) -> str:
        """Return the page as text, which a notebook keeps beside its table."""
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self.lines())


def advice_on(setting: Setting, measure: Measure, trainer: Trainer, budget: float) -> Advice:
    """Return advice on a network: half of the seconds are for measuring candidates, half for running the best.

    Of each kind of change the one is taken that the training waits least with, and the next kind is looked for with it.
    The goal is common to all: the smallest of the losses at the start, times a tenth.
    """
    begun, left_out = perf_counter(), {}
    candidates = [Candidate((), setting.module, measure(setting.module))]

    def goal() -> float:
        return GOAL * min(c.measured.loss for c in candidates)

    def waits(candidate: Candidate) -> float:
        return candidate.waiting(goal()).lower

    best, longest = candidates[0], perf_counter() - begun
    for kind in GREEDY:
        for change in changes_for(setting):
            if change.kind != kind:
                continue
            start = perf_counter()
            if start - begun + longest > budget / 2:
                left_out[change.what] = f"no time for it within {budget:g} s; pass a larger budget"
                continue
            changes = (*best.changes, change)
            module = changed(setting.module, changes)
            try:
                candidates.append(Candidate(changes, module, measure(module)))
            except (ValueError, RuntimeError) as error:
                left_out[change.what] = str(error).splitlines()[0]
            longest = max(longest, perf_counter() - start)
        forced = [c for c in candidates if kind == "targets" and c.what == FORCED]
        best = forced[0] if forced else min(candidates, key=waits)
    chosen = _to_run(setting, candidates, waits, measure)
    candidates += [c for c in chosen if c not in candidates]
    seconds = max(budget - (perf_counter() - begun), 0.0) / (3 * (1 + len(chosen)))
    before, *runs = (_best_run(trainer, c, goal(), seconds) for c in (candidates[0], *chosen))
    falls = before.is_sound and before.least < before.losses[0]
    common = max(goal(), before.least) if falls else goal()
    found = [
        Suggestion(c.what, c.module, run, before, common, c.waiting(goal()), trainer.name)
        for c, run in zip(chosen, runs, strict=True)
        if run.is_sound and run.steps_to(common) < math.inf
    ]
    found.sort(key=lambda s: (s.run.steps_to(goal()), s.run.steps_to(common)))
    return Advice(
        suggestions=tuple(s for s in found if s.gain >= WORTH),
        tried={c.what: c.waiting(goal()) for c in candidates},
        left_out=left_out,
        targets=_targets(setting),
        seconds=perf_counter() - begun,
    )


def _to_run(
    setting: Setting, candidates: Sequence[Candidate], waits: Callable[[Candidate], float], measure: Measure
) -> list[Candidate]:
    """Return the candidates that wait least, the first of them with and without standardised targets."""
    order = sorted(candidates[1:], key=waits)
    if not order:
        return []
    first, chosen = order[0], order[:RUN]
    if setting.is_regression and not any(FORCED in c.what for c in chosen):
        for change in changes_for(setting):
            if change.what == FORCED:
                changes = (change, *first.changes)
                module = changed(setting.module, changes)
                chosen[-1:] = [Candidate(changes, module, measure(module))]
    return chosen


def _best_run(trainer: Trainer, candidate: Candidate, goal: float, seconds: float) -> Run:
    """Return the best run of three rates, or of smaller ones where all of them explode."""
    rates = trainer.rates(candidate.measured.stable)
    runs = [trainer.run(candidate.module, rate, goal, seconds) for rate in rates]
    while not any(run.is_sound for run in runs) and len(runs) < SETTLED:
        runs.append(trainer.run(candidate.module, min(run.rate for run in runs) / 2, goal, seconds))
    return best_of(runs, goal)


def _targets(setting: Setting) -> str:
    """Return means and deviations of targets and outputs where they are far apart."""
    if not setting.is_regression:
        return ""
    f = setting.result if setting.output is None else setting.output(setting.result)
    y, f = setting.y.detach().double(), f.detach().double()
    mean, spread, of, own = (float(t) for t in (y.mean(), y.std(correction=0), f.mean(), f.std(correction=0)))
    if abs(mean - of) <= APART * own and own / APART <= spread <= APART * own:
        return ""
    return f"{mean:.3g} +- {spread:.3g}, the outputs {of:.3g} +- {own:.3g}"
