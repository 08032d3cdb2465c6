"""One page on a network and its data: its condition number for a loss, where that comes from, and what to do."""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

from gnlib.advice.suggestions import Advice
from gnlib.diagnosis.by_layer import Shares, shares_of
from gnlib.diagnosis.culprits import Culprits, culprits_of
from gnlib.diagnosis.forecast import Forecast
from gnlib.diagnosis.foretell import forecast_of
from gnlib.diagnosis.growth import Growth, growth_of
from gnlib.diagnosis.page import Advised, page
from gnlib.diagnosis.pictures import Drawing, course, shares, spectrum
from gnlib.diagnosis.preconditioner import NotFollowedError, check_followed, name_of
from gnlib.diagnosis.rates import StableRate, stable_rate_of
from gnlib.diagnosis.remarks import remarks_on
from gnlib.diagnosis.waits import waiting_of
from gnlib.eigen.result import ConditionNumber
from gnlib.jacobian.network import GIB
from gnlib.jacobian.plan import LONG, seconds_per_flop
from gnlib.laws.waiting import Waiting
from gnlib.losses import SquaredError
from gnlib.origin import Origin
from gnlib.plain import as_dict
from gnlib.problem import Problem
from gnlib.text import Line

T = TypeVar("T")
STEPS, FORECAST, GOAL = 100, 1000, 0.1
EIGEN = 80  # operations of all decompositions, over the cube of the number of rows


@dataclass(frozen=True, repr=False)
class Report(Advised):
    """How well conditioned a network is on its data for a loss, where that comes from, and what to do.

    Attributes
    ----------
    samples, outputs, parameters
        n, k and p
    loss
        its name
    squared_error, condition
        both ends of the spectrum for the squared error, and for the loss
    waiting
        the bounds on the steps of gradient descent to a tenth of the loss, and the eigenvalue that they wait for, if
        there are targets
    growth
        how the condition number grows with the number of samples, where that is known
    full
        the number of eigenvalues that the matrix of the loss has, of which `condition.rank` are not zero
    rates
        largest stable rates: of gradient descent, with momentum 0.9, and of the optimiser if there is one
    layers, culprits
        where the condition number comes from
    remarks
        on anything else that is unusual: a heading, and a sentence
    forecast
        of the loss, if there are targets
    seconds, gib
        time that it took, and memory of its matrices
    spectrum
        all eigenvalues of the matrix of the loss, descending; those beyond the rank are rounding
    origin
        digests of the data and the parameters that it speaks of
    advice, safe
        what to change, and rates, tried by real steps, if there are targets
    """

    samples: int
    outputs: int
    parameters: int
    loss: str
    squared_error: ConditionNumber
    condition: ConditionNumber
    waiting: Waiting | None
    growth: Growth | None
    full: int
    rates: tuple[StableRate, ...]
    layers: Shares
    culprits: Culprits
    remarks: tuple[tuple[str, str], ...]
    forecast: Forecast | None
    seconds: float
    gib: float
    spectrum: tuple[float, ...] = ()
    origin: Origin | None = None
    advice: Advice | None = None
    safe: tuple[float | None, ...] = ()

    to_dict = as_dict

    def lines(self) -> list[Line]:
        """Return all but the table of layers: advice first, then the numbers that it rests on."""
        c = self.condition
        lines = [
            *self._first(),
            Line("network", f"n = {self.samples}, k = {self.outputs}, p = {self.parameters}", _counts(self)),
            Line("condition number", _kappa(c), "about so many steps of gradient descent for the slowest direction"),
            *([] if self.waiting is None else [_waits(self.waiting, self.loss)]),
            *([] if self.growth is None else [Line("more samples", *self.growth.words)]),
            *self._tries(),
            *(Line("found", what, meaning) for what, meaning in (*self.culprits.lines(), *self.remarks)),
            _of_rank(self),
            Line(self.loss, _ends(c), f"both ends of the non-zero eigenvalues, relative error {c.residual:.0e}"),
        ]
        if self.loss != SquaredError.name:
            meaning = "the matrix of the outputs alone, for comparison"
            lines.append(Line("squared error", _ends(self.squared_error), meaning))
        left = "; at half of that {:.1%} of the slowest direction is left after {} steps"
        lines += self._of_rates(lambda rate: left.format(rate.left(STEPS), STEPS))
        if self.forecast is not None:
            lines += self.forecast.lines()
        return [*lines, Line("cost", f"{self.seconds:.2g} s", f"{self.gib:.2g} GiB of matrices")]

    def __str__(self) -> str:
        """Return the page as text."""
        return f"{super().__str__()}\n\n{self.layers}"

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self.layers._repr_html_()

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the page as one file of HTML, with pictures if matplotlib is installed, and write it to a path."""
        return page("Gauss-Newton report", self.lines(), self._drawings(), [self.layers._repr_html_()], path)

    def _drawings(self) -> Iterator[Drawing]:
        if self.spectrum:
            yield spectrum(self.spectrum, self.condition.rank, self.waiting.eigenvalue if self.waiting else None)
        if (f := self.forecast) is not None:
            (_, *ends), (_, *real) = f.lines()[1:3]
            losses, says = f.losses.tolist(), f"Forecast: {', '.join(ends)}; {', '.join(real)}."
            yield course(losses, losses, says, (f.after + 1, f.followed.tolist()), f.trusted)
        of = {"trace": "trace", "largest": "largest eigenvalue", "smallest": "smallest eigenvalue"}
        yield shares({of[name]: {each.layer: getattr(each, name) for each in self.layers.layers} for name in of})


def report_on(problem: Problem, optimizer: Optimizer | str | None = None) -> Report:
    """Return the report on a network before anything is tried, with the stable rate of an optimiser if there is one."""
    begun = perf_counter()
    _announce(problem)
    remarks = [*remarks_on(problem)]
    if isinstance(optimizer, Optimizer):
        try:
            check_followed(optimizer)
        except NotFollowedError as error:
            remarks.append((f"{name_of(optimizer)} is not followed", f"all lines are of gradient descent; {error}"))
            optimizer = None
    descent = stable_rate_of(problem)
    rates = [descent, descent.with_momentum()]
    if optimizer is not None:
        rates.append(stable_rate_of(problem, optimizer))
    shares, culprits = shares_of(problem), culprits_of(problem)
    n, k = problem.outputs.shape
    return Report(
        samples=n,
        outputs=k,
        parameters=problem.parameters,
        loss=problem.loss.name,
        squared_error=problem.condition if problem.is_plain else problem.ends_of(torch.linalg.eigvalsh(problem.gram)),
        condition=problem.condition,
        waiting=_known(waiting_of, problem, GOAL) if problem.has_targets else None,
        growth=_known(growth_of, problem),
        full=problem.loss_rows,
        rates=tuple(rates),
        layers=shares,
        culprits=culprits,
        remarks=tuple(remarks),
        forecast=forecast_of(problem, optimizer, steps=FORECAST) if problem.has_targets else None,
        seconds=perf_counter() - begun,
        gib=_gib(problem),
        spectrum=tuple(problem.spectrum[0].flip(0).tolist()),
        origin=problem.origin,
    )


def _known(ask: Callable[..., T], *given: Any) -> T | None:
    """Return an answer, unless there is none: no residual, or a loss whose quadratic model has no minimum."""
    with suppress(ValueError):
        return ask(*given)
    return None


def _announce(problem: Problem) -> None:
    """Announce the time and memory of a report that takes more than about ten seconds, before it begins."""
    grams, eigen = 1 + problem.has_targets, EIGEN * problem.outputs.numel() ** 3
    if grams * problem.cost().operations + eigen >= LONG:
        seconds = grams * problem.cost(probe=True).seconds + eigen * seconds_per_flop()
        print(f"The report takes about {seconds:.2g} s and {_gib(problem):.2g} GiB.", file=sys.stderr, flush=True)


def _gib(problem: Problem) -> float:
    """Memory of the matrices of a report: of the outputs, of the loss, its eigenvectors, and one that is tried."""
    return 8 * 4 * problem.outputs.numel() ** 2 / GIB


def _counts(report: Report) -> str:
    rows = report.samples * report.outputs
    if report.parameters < rows:
        return f"fewer parameters than the {rows} outputs on all samples: it cannot fit them all"
    return f"{report.parameters / rows:.3g} parameters for each output on a sample"


def _of_rank(report: Report) -> Line:
    """Return the line on the rank, with no conclusion from one that rounding may have made."""
    c, full = report.condition, report.full
    if c.rank == full and c.residual < 1:  # the smallest eigenvalue is not zero, whatever it is
        meaning = "linearised, the network can fit any targets on these samples"
    elif c.resolved:
        meaning = "linearised, the network cannot fit all targets: look at what was found"
    else:
        return Line(
            "rank", f"numerically {c.rank} of {full}", "not determined, as eigenvalues fall to rounding gradually"
        )
    return Line("rank", f"{c.rank} of {full}", meaning)


def _waits(waiting: Waiting, loss: str) -> Line:
    """Return the line on the eigenvalue that training waits for: both bounds, never one number."""
    size = f"{waiting.eigenvalue:.4g}, {waiting.effective_condition_number:.4g} times smaller than the largest"
    of = "the loss" if loss == SquaredError.name else "the quadratic model of the loss"
    return Line("waits for", size, f"{waiting.steps} of gradient descent to a tenth of {of}, at 1 / the largest")


def _kappa(c: ConditionNumber) -> str:
    return f"{c.value:.4g}" if c.resolved else f"at least {c.value:.1e}"


def _ends(c: ConditionNumber) -> str:
    return f"{c.largest:.4g} to {c.smallest:.4g}, kappa {_kappa(c)}"
