"""The search for what to change: candidates in the order of what training waits for, and the first of them run."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter

from torch import nn

from gnlib.advice.candidates import TARGETS, Change, Setting, changed, changes_for
from gnlib.advice.checks import remarks_on
from gnlib.advice.runs import SETTLED, Run, Trainer, best_of, further_rate
from gnlib.advice.suggestions import Advice, Suggestion
from gnlib.laws.waiting import Waiting

GOAL = 0.1  # of the smallest first loss
WORTH = 1.25  # times as many steps without a change: then it is suggested
CLOSE = 1.05  # times as many steps up to which the simpler one of two is preferred
RUN, MOST = 4, 3  # candidates that are run, and that are suggested
RATES = 10  # at most, of a candidate that is run
GREEDY = "targets", "inputs", "normalisation", "weights"  # kinds of change, in the order in which they are looked for


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

    Of each kind of change the one is taken that the training waits least with, and the next kind is looked for with it.
    The goal is common to all: the smallest of the losses at the start, times a tenth. Parts of what was first in the
    runs that gain nothing are taken away again.
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
        self._simplify()
        found = [*self._found()]
        return Advice(
            suggestions=tuple(found[:MOST]),
            tried={c.what: c.waiting(self.goal) for c in self.candidates},
            runs={c.what: run for c, run in self.runs.items()},
            left_out=self.left_out,
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

    def _look(self) -> None:
        """Measure candidates, kind by kind on top of the best so far."""
        best, longest = self.candidates[0], perf_counter() - self.begun
        for kind in GREEDY:
            for change in (change for change in self.changes if change.kind == kind):
                start = perf_counter()
                if self.left - longest < self.budget / 2:
                    self.left_out[change.what] = f"no time within {self.budget:.2g} s; pass a larger budget="
                    continue
                try:
                    self._made(*best.changes, change)
                except (ValueError, RuntimeError) as error:
                    self.left_out[change.what] = str(error).splitlines()[0]
                longest = max(longest, perf_counter() - start)
            forced = [c for c in self.candidates if kind == "targets" and c.what == TARGETS]
            best = forced[0] if forced else min(self.candidates, key=self._waits)

    def _chosen(self) -> list[Candidate]:
        """Return the candidates that wait least, the first of them with and without standardised targets."""
        order = sorted(self.candidates[1:], key=self._waits)
        chosen = order[:RUN]
        targets = [change for change in self.changes if change.what == TARGETS]
        if chosen and targets and not any(TARGETS in c.what for c in chosen):
            with suppress(ValueError, RuntimeError):
                chosen[-1:] = [self._made(targets[0], *chosen[0].changes)]  # no quantity of the linear model sees it
        return chosen

    def _run(self, chosen: list[Candidate]) -> None:
        """Run the network as it is and the chosen ones: at three rates or more, at one where there is little time."""
        if not chosen:
            return
        start = perf_counter()
        self.trainer.run(self.setting.module, 1e-3, -math.inf, 0.0, steps=0)
        ten = (SETTLED + 2) * (perf_counter() - start)  # seconds
        rates = 3 if self.left > 3 * 2 * ten else 1
        afford = int(self.left / (rates * ten))
        if afford >= 2:
            some = [self.candidates[0], *chosen[: afford - 1]]
            seconds = self.left / 2 / (rates * len(some))  # half is for simpler ones
            for candidate in some:
                self.runs[candidate] = self._best_run(candidate, rates, max(seconds, ten))
        for candidate in chosen[max(afford - 1, 0) :]:
            self.left_out[candidate.what] = f"no time for ten steps within {self.budget:.2g} s; pass a larger budget="

    def _best_run(self, candidate: Candidate, count: int, seconds: float) -> Run:
        """Return the best run of some rates, and of others beyond them as long as the best is at an end."""
        rates = self.trainer.rates(candidate.measured.stable)
        rates = rates if count == len(rates) else rates[1:2]
        runs = [self.trainer.run(candidate.module, rate, self.goal, seconds) for rate in rates]
        while len(runs) < RATES and (rate := further_rate(runs, self.goal)):
            runs.append(self.trainer.run(candidate.module, rate, self.goal, seconds))
        return best_of(runs, self.goal)

    def _simplify(self) -> None:
        """Run the first candidate without one of its changes, as long as the time goes and that is no slower."""
        if len(self.runs) < 2:
            return
        first = min([*self.runs][1:], key=self._rank)
        again = True
        while again and len(first.changes) > 1:
            again = False
            for change in first.changes:
                begun = perf_counter()
                try:
                    simpler = self._made(*(other for other in first.changes if other is not change))
                    if simpler not in self.runs:
                        if self.left <= 0:
                            return
                        self.runs[simpler] = self._best_run(simpler, 3, self.left / 3)
                except (ValueError, RuntimeError):  # it was measured with the others alone
                    continue
                if self._is_simpler(simpler, first):
                    first, again = simpler, True
                    break
                if self.left < perf_counter() - begun:
                    return

    def _is_simpler(self, one: Candidate, other: Candidate) -> bool:
        """Whether a candidate has some of the changes of another, and takes at most 5 % more steps."""
        if not {change.what for change in one.changes} < {change.what for change in other.changes}:
            return False
        common = self._common
        mine, its = (self.runs[c].steps_to(common) for c in (one, other))
        return self.runs[one].is_sound and mine <= CLOSE * its and mine < math.inf

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
