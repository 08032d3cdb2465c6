"""What advice consists of: changes that were run, and what was not tried, as a page; to follow it is one line."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from gnlib.advice.runs import SETTLED, Run
from gnlib.laws.waiting import Waiting
from gnlib.plain import as_dict
from gnlib.refused import Refused
from gnlib.text import Line, Page

WORSE = 1.05  # times the least loss on held-out data, above which a change loses there


def loses(run: Run, before: Run) -> bool:
    """Return whether a run is worse than another on held-out data, if there are such data.

    Examples
    --------
    >>> loses(Run(0.1, (1.0, 0.1), (1.0, 0.9)), Run(0.1, (1.0, 0.5), (1.0, 0.6)))
    True
    """
    losses = run.least_held_out, before.least_held_out
    return losses[0] is not None and losses[1] is not None and losses[0] > WORSE * losses[1]


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A change that was run, and was faster by a fifth.

    Attributes
    ----------
    what
        in words
    run, before
        the best of its runs, and the best one without a change
    goal
        loss at which they are compared
    waiting
        within what the steps of the linear model to a tenth of the smallest first loss lie
    optimizer
        its name
    module
        the changed network, untrained; None where the suggestion was read from a file
    """

    what: str
    run: Run
    before: Run
    goal: float
    waiting: Waiting
    optimizer: str
    module: nn.Module | None = field(default=None, repr=False, metadata={"kept": False})

    to_dict = as_dict

    @property
    def gain(self) -> float:
        """Steps without the change over those with it."""
        return self.before.steps_to(self.goal) / max(self.run.steps_to(self.goal), 1.0)

    @property
    def held_out(self) -> tuple[float, float] | None:
        """The least losses on held-out data, with the change and without, if there are such data."""
        with_it, without = self.run.least_held_out, self.before.least_held_out
        return None if with_it is None or without is None else (with_it, without)

    @property
    def loses(self) -> bool:
        """Whether it is worse on held-out data."""
        return loses(self.run, self.before)

    @property
    def effect(self) -> str:
        """What happened when it was tried, in words."""
        then, steps = self.before.steps_to(self.goal), self.run.steps_to(self.goal)
        instead = f"instead of {then:.0f}"
        if then == math.inf:
            instead = f"where without it {len(self.before.losses) - 1} do not get there"
        said = (
            f"tried: loss {self.goal:.3g} after {steps:.0f} steps of {self.optimizer} {instead}, each at the best of "
            f"some rates, {self.run.rate:.2g}; the linear model, which mostly takes more, said {self.waiting.steps}"
        )
        if self.held_out is not None:
            with_it, without = self.held_out
            verdict = "it loses" if self.loses else "it does not lose"
            said += f"; on held-out data {verdict}: loss {with_it:.3g} at best, without it {without:.3g}"
        return said

    def __str__(self) -> str:
        """Return a line: what was tried, and what happened."""
        return f"{self.what}: {self.effect}"


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Page):
    """What to change, the best first, each tried by real steps.

    Attributes
    ----------
    suggestions
        at most three that were faster by a fifth; those that lose on held-out data come last
    tried
        within what the steps of the linear model lie, for each change that was measured, and without one
    runs
        the best run of each change that was trained, and without one
    left_out
        what was not tried, and why
    remarks
        on the data: of other scales than the outputs, constant, without some classes
    budget, seconds
        that it might take, and that it took
    """

    suggestions: tuple[Suggestion, ...]
    tried: Mapping[str, Waiting]
    runs: Mapping[str, Run]
    left_out: Mapping[str, str]
    remarks: tuple[Line, ...]
    budget: float
    seconds: float

    to_dict = as_dict

    def apply(self, i: int = 0) -> nn.Module:
        """Return the network with suggestion i made, for the same inputs, with outputs in the units of the targets.

        Its maps were fitted to the given samples alone and are saved with it; new inputs are prepared by the same
        numbers. Outermost is a :class:`gnlib.advice.wrappers.Prepared`, whose `maps` prepare inputs, then a
        :class:`gnlib.advice.wrappers.Scaled`, whose `restored` takes standardised targets back, where these are part of
        the suggestion.

        Raises
        ------
        IndexError
            There is no such suggestion.
        ValueError
            It was read from a file, which holds no networks.
        """
        if not 0 <= i < len(self.suggestions):
            raise IndexError(f"There are {len(self.suggestions)} suggestions, numbered from 0; {i} is none of them.")
        module = self.suggestions[i].module
        if module is None:
            raise Refused("unreadable-file", "Files keep no networks; ask again for the report, and apply that.")
        return copy.deepcopy(module)

    def lines(self) -> list[Line]:
        """Return the page line by line."""
        return [*self.remarks, *self.tries(), *self.omissions(), self.cost]

    @property
    def cost(self) -> Line:
        """The line on the time that it took."""
        what = f"{len(self.tried)} networks measured, {len(self.runs)} trained"
        return Line("advice", f"{self.seconds:.2g} of {self.budget:.2g} s", what)

    def tries(self) -> list[Line]:
        """Return the lines on what was tried."""
        if self.suggestions:
            return [Line("try", each.what, each.effect) for each in self.suggestions]
        if not self.tried:
            return [Line("try", "nothing was tried", "a copy of the network cannot be trained here")]
        run = sum(len(run.losses) > SETTLED for run in self.runs.values())
        untimed = any("pass a larger budget=" in why for why in self.left_out.values())
        if run < 2 and (len(self.tried) > 1 or untimed):
            few = f"{self.budget:.2g} s are too few for ten steps with a change and without; pass a larger budget="
            return [Line("try", "nothing was tried", few)]
        most = f"{len(self.tried) - 1} changes were measured, {max(run - 1, 0)} were run"
        return [Line("try", "nothing new", f"{most}; none gains a fifth")]

    def omissions(self) -> list[Line]:
        """Return a line for each reason for which something was not tried."""
        reasons = dict.fromkeys(self.left_out.values())
        named = {why: [what for what, its in self.left_out.items() if its == why] for why in reasons}
        return [Line("not tried", "; ".join(what), why) for why, what in named.items()]


def nothing_for(error: Exception, budget: float) -> Advice:
    """Return advice that says why nothing was tried.

    Examples
    --------
    >>> print(nothing_for(RuntimeError("no copy"), 5.0))
    try        nothing was tried: a copy of the network cannot be trained
               here
    not tried  any change: no copy
    advice     0 of 5 s: 0 networks measured, 0 trained
    """
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    return Advice((), {}, {}, {"any change": why}, (), budget, 0.0)
