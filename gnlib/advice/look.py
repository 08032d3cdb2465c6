"""Which changes to run: all are measured, kind by kind, and ordered by what the training waits for."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

from torch import nn

from gnlib.advice.candidates import TARGETS, Change, Setting, changed, changes_for
from gnlib.laws.waiting import Waiting

GOAL = 0.1  # of the smallest first loss
RUN = 4  # candidates that are run at first
SHARE = 1 / 3  # of the seconds, in which candidates are measured
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
    """A network with some changes, and what is measured of it when that is asked for."""

    changes: tuple[Change, ...]
    module: nn.Module
    measure: Measure

    @cached_property
    def measured(self) -> Measured:
        """What is known of the linear model."""
        return self.measure(self.module)

    def waiting(self, goal: float) -> Waiting:
        """Return within what the steps of the linear model to a loss lie."""
        if self.measured.loss <= max(goal, 0.0):
            return Waiting(0.0, 0.0, 0.0, 0.0)
        if goal <= 0:
            return Waiting(math.inf, math.inf, 0.0, 0.0)
        return self.measured.find(goal / self.measured.loss)

    @property
    def names(self) -> frozenset[str]:
        """The changes in words, in no order."""
        return frozenset(change.what for change in self.changes)

    @property
    def what(self) -> str:
        """The changes in words."""
        return "; ".join(change.what for change in self.changes) or "no change"


@dataclass(eq=False)
class Look:
    """A look at what may be changed, for a third of the seconds.

    What is usual is measured first. Of each kind of change the one is taken that the training waits least with, and the
    next kind is looked for with it. The goal is common to all: the smallest of the losses at the start, times a tenth.
    """

    setting: Setting
    measure: Measure
    budget: float
    begun: float

    def __post_init__(self) -> None:
        """Measure the network as it is."""
        self.left_out, self.refused = self.setting.left_out(), set[str]()
        self.unchanged = Candidate((), self.setting.module, self.measure)
        self.candidates = [self.unchanged]
        _ = self.unchanged.measured
        self.longest = self.spent  # seconds of a measurement

    @property
    def spent(self) -> float:
        """Seconds since the begin."""
        return perf_counter() - self.begun

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.budget - self.spent

    @cached_property
    def changes(self) -> list[Change]:
        """All changes that there is a reason to try."""
        return [*changes_for(self.setting)]

    @property
    def goal(self) -> float:
        """A tenth of the smallest first loss."""
        least = min(candidate.measured.loss for candidate in self.candidates)
        return least - (1 - GOAL) * abs(least)  # a loss of one's own may be negative

    def chosen(self) -> list[Candidate]:
        """Measure what there is time for; return what is usual, and of the others those that wait least."""
        self._measure_all()
        usual = {change.what for change in self._usual()}
        order = sorted(self.candidates[1:], key=lambda c: (c.names != usual, self.waits(c)))
        return order[:RUN]

    def waits(self, candidate: Candidate) -> float:
        """Return the least number of steps of the linear model to the goal."""
        return candidate.waiting(self.goal).lower

    def made(self, *changes: Change) -> Candidate:
        """Return a candidate with some changes: one that is there, or a new one, which is not measured."""
        wanted = {change.what for change in changes}
        there = next((candidate for candidate in self.candidates if candidate.names == wanted), None)
        return there or Candidate(changes, changed(self.setting.module, changes), self.measure)

    def _usual(self) -> list[Change]:
        """Return what an engineer does unasked: the first change of each kind, and weights that fit the activations."""
        found: dict[str, Change] = {}
        for change in self.changes:
            if change.kind not in ("weights", "branches") or change.what in self.setting.usual_weights:
                found.setdefault(change.kind, change)
        if self.setting.has_normalisation:
            found.pop("normalisation", None)
        return [*found.values()]

    def _measure_all(self) -> None:
        """Measure what is usual, and from the best so far on, kind by kind, what is not."""
        usual = self._usual()
        without = [change for change in usual if change.kind not in ("weights", "normalisation")]
        for changes in (usual, [change for change in usual if change.kind != "weights"], without):
            self._measure(changes, changes[-1:])
        for kind in GREEDY:
            best = min(self._fitting, key=self.waits)
            others = [change for change in best.changes if change.kind != kind]
            for change in self.changes:
                if change.kind == kind and change not in best.changes:
                    self._measure([*others, change], [change])

    def _measure(self, changes: list[Change], named: list[Change]) -> None:
        """Measure a candidate if there is time, and name what was left out."""
        start, why = self.spent, ""
        if self.left - self.longest < self.budget * (1 - SHARE):
            why = f"no time within {self.budget:.2g} s; pass a larger budget="
        else:
            try:
                candidate = self.made(*changes)
                _ = candidate.measured
                if candidate not in self.candidates:
                    self.candidates.append(candidate)
            except (ValueError, RuntimeError) as error:
                why = str(error).splitlines()[0]
                self.refused |= {change.what for change in named}
        for change in named:
            if why:
                self.left_out[change.what] = why
            else:
                self.left_out.pop(change.what, None)
        self.longest = max(self.longest, self.spent - start)

    @property
    def _fitting(self) -> list[Candidate]:
        """The candidates with standardised targets, where these are to be had: no linear quantity sees them."""
        offered = any(change.what == TARGETS for change in self.changes)
        found = [candidate for candidate in self.candidates if TARGETS in candidate.names]
        return found if offered and found else self.candidates
