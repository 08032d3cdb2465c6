"""The search for what to change: candidates in the order of what training waits for, and the first of them run."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter

from torch import nn

from gnlib.advice.candidates import TARGETS, Change, Setting, changed, changes_for
from gnlib.advice.checks import remarks_on
from gnlib.advice.runs import SETTLED, STEPS, Run, Trainer, best_of, further_rate
from gnlib.advice.suggestions import Advice, Suggestion
from gnlib.laws.waiting import Waiting

GOAL = 0.1  # of the smallest first loss
WORTH = 1.25  # times as many steps without a change: then it is suggested
CLOSE = 1.05  # times as many steps up to which the simpler one of two is preferred
RUN, MOST = 4, 3  # candidates that are run, and that are suggested
RATES = 10  # at most, of a candidate that is run
WHOLE = 120  # steps in which a few rates are told apart
MOST_RUN = 16  # candidates, with those that differ from the best by one change
# Kinds of change, in the order in which they are looked for.
GREEDY = "targets", "inputs", "normalisation", "weights", "branches"


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
        if self.measured.loss <= max(goal, 0.0):
            return Waiting(0.0, 0.0, 0.0, 0.0)
        if goal <= 0:
            return Waiting(math.inf, math.inf, 0.0, 0.0)
        return self.measured.find(goal / self.measured.loss)

    @property
    def what(self) -> str:
        """The changes in words."""
        return "; ".join(change.what for change in self.changes) or "no change"


@dataclass(eq=False)
class Search:
    """A search for advice: half of the seconds are for measuring candidates, half for running the best.

    What is usual is measured first. Of each kind of change the one is taken that the training waits least with, and the
    next kind is looked for with it. The goal is common to all: the smallest of the losses at the start, times a tenth.
    From what was first in the runs on, one change is left out or put in the place of another, while that is better.
    """

    setting: Setting
    measure: Measure
    trainer: Trainer
    budget: float
    begun: float = field(default_factory=perf_counter)

    def __post_init__(self) -> None:
        """Measure the network as it is."""
        self.left_out = self.setting.left_out()
        self.candidates = [Candidate((), self.setting.module, self.measure(self.setting.module))]
        self.runs: dict[Candidate, Run] = {}
        self.compared: int | None = None
        self.ten = 0.0

    @cached_property
    def changes(self) -> list[Change]:
        """All changes that there is a reason to try."""
        return [*changes_for(self.setting)]

    @property
    def goal(self) -> float:
        """A tenth of the smallest first loss, of the candidates that were measured before the first run."""
        least = min(candidate.measured.loss for candidate in self.candidates[: self.compared])
        return least - (1 - GOAL) * abs(least)  # a loss of one's own may be negative

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.budget - (perf_counter() - self.begun)

    def advice(self) -> Advice:
        """Measure, run, and return what came out."""
        self._look()
        chosen = self._chosen()
        self.compared = len(self.candidates)
        self._run(chosen)
        self._improve()
        found = [*self._found()]
        tried = {change.what for candidate in self.candidates for change in candidate.changes}
        return Advice(
            suggestions=tuple(found[:MOST]),
            tried={c.what: c.waiting(self.goal) for c in self.candidates},
            runs={c.what: run for c, run in self.runs.items()},
            left_out={what: why for what, why in self.left_out.items() if what not in tried},
            remarks=tuple(remarks_on(self.setting)),
            budget=self.budget,
            seconds=perf_counter() - self.begun,
        )

    def _waits(self, candidate: Candidate) -> float:
        return candidate.waiting(self.goal).lower

    def _made(self, *changes: Change) -> Candidate:
        """Return a candidate, which is measured if it is new."""
        wanted = {change.what for change in changes}
        for candidate in self.candidates:
            if {change.what for change in candidate.changes} == wanted:
                return candidate
        module = changed(self.setting.module, changes)
        self.candidates.append(Candidate(changes, module, self.measure(module)))
        return self.candidates[-1]

    def _usual(self) -> list[Change]:
        """Return what an engineer does unasked: the first change of each kind, and weights that fit the activations."""
        found: dict[str, Change] = {}
        for change in self.changes:
            if change.kind not in ("weights", "branches") or change.what in self.setting.usual_weights:
                found.setdefault(change.kind, change)
        if self.setting.has_normalisation:
            found.pop("normalisation", None)
        return [*found.values()]

    def _look(self) -> None:
        """Measure what is usual, and from the best so far on, kind by kind, what is not."""
        longest = perf_counter() - self.begun
        usual = self._usual()
        without = [change for change in usual if change.kind not in ("weights", "normalisation")]
        for changes in (usual, [change for change in usual if change.kind != "weights"], without):
            longest = max(longest, self._tried(changes, longest, changes[-1:]))
        for kind in GREEDY:
            best = min(self._fitting, key=self._waits)
            others = [change for change in best.changes if change.kind != kind]
            for change in self.changes:
                if change.kind == kind and change not in best.changes:
                    longest = max(longest, self._tried([*others, change], longest, [change]))

    def _tried(self, changes: list[Change], longest: float, named: list[Change]) -> float:
        """Measure a candidate if there is time; return the seconds, and name what was left out."""
        start, why = perf_counter(), ""
        if self.left - longest < self.budget / 2:
            why = f"no time within {self.budget:.2g} s; pass a larger budget="
        elif changes:
            try:
                self._made(*changes)
            except (ValueError, RuntimeError) as error:
                why = str(error).splitlines()[0]
        for change in named:
            if why:
                self.left_out[change.what] = why
            else:
                self.left_out.pop(change.what, None)
        return perf_counter() - start

    @property
    def _fitting(self) -> list[Candidate]:
        """The candidates with standardised targets, where these are to be had: no linear quantity sees them."""
        offered = any(change.what == TARGETS for change in self.changes)
        found = [c for c in self.candidates if any(change.what == TARGETS for change in c.changes)]
        return found if offered and found else self.candidates

    def _chosen(self) -> list[Candidate]:
        """Return what is usual and was measured, and of the others those that wait least."""
        usual = {change.what for change in self._usual()}
        order = sorted(
            self.candidates[1:], key=lambda c: (not {change.what for change in c.changes} == usual, self._waits(c))
        )
        return order[:RUN]

    def _run(self, chosen: list[Candidate]) -> None:
        """Run the network as it is and the chosen ones: at three rates or more, at one where there is little time."""
        if not chosen:
            return
        start = perf_counter()
        self.trainer.run(self.setting.module, 1e-3, -math.inf, 0.0, steps=0)
        step = perf_counter() - start
        self.ten = (SETTLED + 2) * step  # seconds
        rates = 3 if self.left > 3 * 2 * self.ten else 1
        afford = int(self.left / (rates * self.ten))
        if afford >= 2:
            whole = max(int(self.left / 2 / (WHOLE * step)), 2)  # half is for what is close to the best
            some = [self.candidates[0], *chosen[: min(afford, whole) - 1]]
            seconds = self.left * (2 / 3) / len(some)
            for candidate in some:
                self.runs[candidate] = self._best_run(candidate, rates, seconds)
        for candidate in chosen[max(afford - 1, 0) :]:
            self.left_out[candidate.what] = f"no time for ten steps within {self.budget:.2g} s; pass a larger budget="

    def _best_run(self, candidate: Candidate, count: int, seconds: float, steps: int = STEPS) -> Run:
        """Return the best run of some rates, and of others beyond them as long as the best is at an end."""
        rates, end = self.trainer.rates(candidate.measured.stable), perf_counter() + seconds
        rates, runs = rates if count == len(rates) else rates[1:2], list[Run]()
        while rates or (perf_counter() < end and len(runs) < RATES):
            rate = rates.pop(0) if rates else further_rate(runs, self.goal)
            if rate is None:
                break
            runs.append(self._run_at(candidate, rate, runs, (end - perf_counter()) / (len(rates) + 1), steps))
        return best_of(runs, self.goal)

    def _run_at(self, candidate: Candidate, rate: float, others: list[Run], seconds: float, steps: int) -> Run:
        """Run a candidate at a rate, until it cannot be better than others."""
        ahead = best_of(others, self.goal) if others else None
        if ahead is not None and ahead.is_sound and ahead.steps_to(self.goal) < math.inf:
            steps = max(int(ahead.steps_to(self.goal)), SETTLED)
        if candidate is self.candidates[0]:
            ahead = None  # all others are compared with it: it may fall behind for a while
        return self.trainer.run(candidate.module, rate, self.goal, max(seconds, self.ten), steps, ahead)

    def _improve(self) -> None:
        """Go from the first to what is as fast with fewer changes, or faster with another one, while there is time."""
        if len(self.runs) < 2:
            return
        best: Candidate | None = min([*self.runs][1:], key=self._rank)
        path: list[Candidate] = []
        while best is not None:
            path.append(best)
            best = next((c for c in self._neighbours(path[-1]) if c not in path and self._is_better(c, path[-1])), None)
        for candidate in (self.candidates[0], path[-1]):
            self.runs[candidate] = self._refined(candidate)

    def _neighbours(self, first: Candidate) -> Iterator[Candidate]:
        """Run and yield candidates that differ from one by a change: those with fewer first."""
        fewer = [[other for other in first.changes if other is not change] for change in first.changes]
        more = [
            [*(other for other in first.changes if other.kind != change.kind), change]
            for change in self.changes
            if change not in first.changes
        ]
        for changes in (*fewer, *more):
            begun = perf_counter()
            try:
                candidate = self._made(*changes)
                if candidate not in self.runs:
                    if self.left <= 0 or len(self.runs) >= MOST_RUN:
                        return
                    steps = CLOSE * self.runs[first].steps_to(self.goal)
                    steps = STEPS if steps == math.inf else max(math.ceil(steps), SETTLED)
                    self.runs[candidate] = self._best_run(candidate, 3, self.left / 3, steps)
            except (ValueError, RuntimeError):  # it was measured with the others alone
                continue
            yield candidate
            if self.left < perf_counter() - begun:
                return

    def _refined(self, candidate: Candidate) -> Run:
        """Return the best of the run of a candidate and of two at rates between those that were run."""
        runs = [self.runs[candidate]]
        for factor in (3**0.5, 3**-0.5):
            if self.left > 0 and runs[0].is_sound:
                runs.append(self._run_at(candidate, runs[0].rate * factor, runs, self.left / 2, STEPS))
        return best_of(runs, self.goal)

    def _is_simpler(self, one: Candidate, other: Candidate) -> bool:
        """Whether a candidate has some of the changes of another, and takes at most 5 % more steps."""
        if not {change.what for change in one.changes} < {change.what for change in other.changes}:
            return False
        mine, its = self._compared(one, other)
        return self.runs[one].is_sound and mine <= CLOSE * its and mine < math.inf

    def _is_better(self, one: Candidate, other: Candidate) -> bool:
        """Whether a candidate is simpler than another, or takes fewer steps, by 5 %."""
        mine, its = self._compared(one, other)
        return self._is_simpler(one, other) or (self.runs[one].is_sound and CLOSE * mine < its)

    def _compared(self, one: Candidate, other: Candidate) -> tuple[float, float]:
        """Return the steps of two to the goal, or where neither gets there to the common loss."""
        runs = self.runs[one], self.runs[other]
        goal = self.goal if min(run.steps_to(self.goal) for run in runs) < math.inf else self._common
        return runs[0].steps_to(goal), runs[1].steps_to(goal)

    @property
    def _common(self) -> float:
        """The loss at which runs are compared: the goal, or the least that the network reaches as it is."""
        before = self.runs[self.candidates[0]]
        return max(self.goal, before.least) if before.is_sound and before.least < before.losses[0] else self.goal

    def _rank(self, candidate: Candidate) -> tuple[bool, float, float]:
        run = self.runs[candidate]
        return not run.is_sound, run.steps_to(self.goal), run.steps_to(self._common)

    def _ends_lower(self, suggestion: Suggestion) -> bool:
        """Whether the loss ends lower by a fifth, which is asked where the goal is not reached without the change."""
        run, before = suggestion.run, suggestion.before
        end = before.least - (1 - 1 / WORTH) * abs(before.least)
        return not before.is_sound or before.least <= self.goal or run.least <= end

    def _found(self) -> Iterator[Suggestion]:
        """Yield what was faster by a fifth, the first at the goal first, without what has a part that gains nothing."""
        if not self.runs:
            return
        before, *others = self.runs
        found = []
        for c in sorted(others, key=self._rank):
            if self.runs[c].is_sound and not any(self._is_simpler(other, c) for other in others):
                common = (self._common, c.waiting(self.goal), self.trainer.name, c.module)
                found.append(Suggestion(c.what, self.runs[c], self.runs[before], *common))
        worth = [s for s in found if s.run.steps_to(s.goal) < math.inf and s.gain >= WORTH and self._ends_lower(s)]
        yield from sorted(worth, key=lambda suggestion: suggestion.loses)
