"""Which changes help: the best that were measured are run, and what is one change from the first of them."""

import math
from collections.abc import Iterator
from time import perf_counter

from gnlib.advice.candidates import TARGETS, Setting
from gnlib.advice.checks import remarks_on
from gnlib.advice.look import Candidate, Look, Measure
from gnlib.advice.runs import APART, SETTLED, STEPS, Run, Trainer, best_of, further_rates
from gnlib.advice.suggestions import Advice, Suggestion, loses

WORTH = 1.25  # times as many steps without a change: then it is suggested
CLOSE = 1.05  # times as many steps up to which the simpler one of two is preferred
MOST = 3  # candidates that are suggested
RATES = 10  # at most, of a candidate that is run
RUNS = 25  # that there should be time for: all are shorter where there is little
LIKE = APART**2  # multiple of the usual rate at most, that candidates begin with
MOST_RUN = 24  # candidates


def advice(setting: Setting, measure: Measure, trainer: Trainer, budget: float, begun: float) -> Advice:
    """Return what to change: a third of the seconds are for measuring candidates, the others for running the best."""
    look = Look(setting, measure, budget, begun)
    race = Race(look, look.chosen(), trainer)
    tried = {change.what for candidate in (*look.candidates, *race.runs) for change in candidate.changes}
    return Advice(
        suggestions=tuple(race.won),
        tried={c.what: c.waiting(race.goal) for c in look.candidates},
        runs={c.what: run for c, run in race.runs.items()},
        left_out={what: why for what, why in look.left_out.items() if what not in tried},
        remarks=tuple(remarks_on(setting, race.is_in_vain(TARGETS))),
        budget=budget,
        seconds=look.spent,
    )


class Race:
    """Runs of the network as it is and of candidates, each at the best of some rates.

    From what was first in the runs on, one change is left out or put in the place of another, while that is better;
    what was measured is run, too, as far as there is time.
    """

    def __init__(self, look: Look, chosen: list[Candidate], trainer: Trainer) -> None:
        self._look, self._trainer, self.goal = look, trainer, look.goal
        self.runs: dict[Candidate, Run] = {}
        self._ten, self._steps = 0.0, STEPS  # seconds of ten steps, and how many a run has
        self._unmeasured = 0  # candidates that were run: those that are suggested are measured in the end
        if chosen:
            self._run(chosen)
        if len(self.runs) > 1:
            self._improve()

    @property
    def _unchanged(self) -> Run:
        return self.runs[self._look.unchanged]

    @property
    def _left(self) -> float:
        """Seconds for runs."""
        return self._look.left - min(self._unmeasured, MOST) * self._look.longest

    def _run(self, chosen: list[Candidate]) -> None:
        """Run the network as it is and the chosen ones: at several rates, at one where there is little time."""
        step = min(self._seconds_of_a_step() for _ in range(2))  # the first warms up
        self._ten = (SETTLED + 2) * step
        self._steps = min(max(int(self._look.left / (RUNS * step)), 2 * SETTLED), STEPS)
        rates = RATES if self._look.left > 3 * 2 * self._ten else 1
        afford = int(self._look.left / (min(rates, 3) * self._ten))
        if afford >= 2:
            for candidate in (self._look.unchanged, *chosen[: afford - 1]):
                self.runs[candidate] = self._best_run(candidate, self._first_rate(candidate), rates)
        for candidate in chosen[max(afford - 1, 0) :]:
            why = f"no time for ten steps within {self._look.budget:.2g} s; pass a larger budget="
            self._look.left_out[candidate.what] = why

    def _seconds_of_a_step(self) -> float:
        start = perf_counter()
        self._trainer.run(self._look.unchanged.module, 1e-3, -math.inf, 0.0, steps=0)
        return perf_counter() - start

    def _first_rate(self, candidate: Candidate) -> float:
        """Return about the same multiple of the usual rate that was best for the network as it is."""
        before = self.runs.get(self._look.unchanged)
        factor = before.rate / self._usual_rate(self._look.unchanged) if before and before.is_sound else 1.0
        return min(max(factor, 1 / LIKE), LIKE) * self._usual_rate(candidate)

    def _usual_rate(self, candidate: Candidate) -> float:
        return self._trainer.first_rate(candidate.module, candidate.measured.stable)

    def _best_run(self, candidate: Candidate, rate: float, most: int = RATES) -> Run:
        """Return the best run of some rates: three, others beyond the end where the best is, and some beside it."""
        runs = list[Run]()
        following = [rate / APART, rate * APART, rate]
        while following and len(runs) < most and (not runs or self._left > 0):
            runs.append(self._run_at(candidate, following.pop(), runs))
            following = following or further_rates(runs, self._level)
        return best_of(runs, self.goal)

    @property
    def _level(self) -> float:
        """The goal, or where none has arrived the least loss so far."""
        return max(self.goal, min((run.end for run in self.runs.values()), default=self.goal))

    def _run_at(self, candidate: Candidate, rate: float, others: list[Run]) -> Run:
        """Run a candidate at a rate, until it cannot be as good as others, or as the best of all candidates."""
        steps, ahead = self._steps, None
        if candidate is not self._look.unchanged and (known := [*others, *self.runs.values()]):
            ahead = best_of(known, self.goal)
        if ahead is not None:  # with fewer changes 5 % more steps are as good
            steps = min(steps, math.ceil(max(CLOSE * min(ahead.steps_to(self.goal), steps), SETTLED)) + 1)
        return self._trainer.run(candidate.module, rate, self.goal, max(self._left, self._ten), steps, ahead)

    def _improve(self) -> None:
        """Go from the first to what is as fast with fewer changes, or faster with other ones, while there is time."""
        best: Candidate | None = min([*self.runs][1:], key=self._rank)
        path: list[Candidate] = []
        while best is not None:
            path.append(best)
            best = next((c for c in self._others(path[-1]) if c not in path and self._is_better(c, path[-1])), None)

    def _others(self, first: Candidate) -> Iterator[Candidate]:
        """Run and yield candidates that differ from one by a change, those with fewer first; then all measured ones."""
        fewer = [[other for other in first.changes if other is not change] for change in first.changes]
        more = [
            [*(other for other in first.changes if other.kind != change.kind), change]
            for change in self._look.changes
            if change not in first.changes and change.what not in self._look.refused
        ]
        measured = [[*candidate.changes] for candidate in sorted(self._look.candidates, key=self._look.waits)]
        for changes in (*fewer, *more, *measured):
            names = {change.what for change in changes}
            candidate = next((each for each in self.runs if each.names == names), None)
            if candidate is None:
                if self._left <= self._look.longest or len(self.runs) >= MOST_RUN:
                    return
                try:
                    candidate = self._look.made(*changes)
                    self._unmeasured += candidate not in self._look.candidates
                    run = self._best_run(candidate, self.runs[first].rate)
                except (ValueError, RuntimeError):  # it goes with other changes alone
                    continue
                self.runs[candidate] = run
            yield candidate

    def _is_simpler(self, one: Candidate, other: Candidate) -> bool:
        """Whether a candidate has some of the changes of another, and takes at most 5 % more steps."""
        if not one.names < other.names:
            return False
        mine, its = self._compared(one, other)
        return self.runs[one].is_sound and mine <= CLOSE * its and mine < math.inf

    def _is_better(self, one: Candidate, other: Candidate) -> bool:
        """Whether a candidate is simpler than another, or takes fewer steps, by 5 %."""
        mine, its = self._compared(one, other)
        return self._is_simpler(one, other) or (self.runs[one].is_sound and CLOSE * mine < its)

    def _compared(self, one: Candidate, other: Candidate) -> tuple[float, float]:
        """Return the steps of two to the goal, or where neither gets there to the loss that both get to."""
        runs = self.runs[one], self.runs[other]
        arrives = min(run.steps_to(self.goal) for run in runs) < math.inf
        goal = self.goal if arrives else max(run.end for run in runs)
        return runs[0].steps_to(goal), runs[1].steps_to(goal)

    @property
    def _common(self) -> float:
        """The loss at which runs are compared: the goal, or the least that the network reaches as it is."""
        before = self._unchanged
        return max(self.goal, before.end) if before.is_sound and before.end < before.losses[0] else self.goal

    def _rank(self, candidate: Candidate) -> tuple[bool, float, float]:
        run = self.runs[candidate]
        return not run.is_sound, run.steps_to(self.goal), run.end

    def _gains(self, candidate: Candidate) -> bool:
        """Whether a candidate is faster by a fifth, and ends lower by a fifth where the goal is not reached without."""
        run, before = self.runs[candidate], self._unchanged
        end = before.end - (1 - 1 / WORTH) * abs(before.end)
        ends_lower = not before.is_sound or before.end <= self.goal or run.end <= end
        steps, instead = (each.steps_to(self._common) for each in (run, before))
        return run.is_sound and ends_lower and steps < math.inf and instead >= WORTH * max(steps, 1.0)

    @property
    def won(self) -> list[Suggestion]:
        """What was faster by a fifth, the first at the goal first, without what has a part that gains nothing.

        What loses on held-out data comes last; what cannot be measured is left out.
        """
        gaining = [c for c in sorted([*self.runs][1:], key=self._rank) if self._gains(c)]
        best = [c for c in gaining if not any(self._is_simpler(other, c) for other in gaining)]
        found: list[Suggestion] = []
        for c in sorted(best, key=lambda c: loses(self.runs[c], self._unchanged)):
            try:
                waiting = c.waiting(self.goal)
            except (ValueError, RuntimeError):  # it was measured with other changes
                continue
            runs = self.runs[c], self._unchanged
            found.append(Suggestion(c.what, *runs, self._common, waiting, self._trainer.name, c.module))
            if len(found) == MOST:
                break
        return found

    def is_in_vain(self, what: str) -> bool:
        """Whether a change was run, and is part of no suggestion."""
        return any(what in c.names for c in self.runs) and not any(what in each.what for each in self.won)
