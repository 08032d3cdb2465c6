"""One page on a network and its data: its condition number for a loss, where that comes from, and what to do."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch.optim import Optimizer

from gnlib.diagnosis.by_layer import Shares, shares_of
from gnlib.diagnosis.changes import fresh_norms, off_scale
from gnlib.diagnosis.culprits import Culprits, culprits_of
from gnlib.diagnosis.forecast import Forecast, forecast_of
from gnlib.diagnosis.growth import Growth, growth_of
from gnlib.diagnosis.page import page
from gnlib.diagnosis.pictures import Drawing, course, shares, spectrum
from gnlib.diagnosis.preconditioner import NotFollowedError, check_followed, name_of
from gnlib.diagnosis.rates import StableRate, stable_rate_of
from gnlib.diagnosis.suggestions import Suggestion, suggestions_for
from gnlib.diagnosis.waits import waiting_of
from gnlib.eigen.result import ConditionNumber
from gnlib.jacobian.network import GIB, Network
from gnlib.jacobian.plan import LONG, seconds_per_flop
from gnlib.laws.waiting import Waiting
from gnlib.losses import CrossEntropy, SquaredError
from gnlib.origin import Origin
from gnlib.plain import as_dict
from gnlib.problem import Problem
from gnlib.text import Line, as_html, as_page, listed

STEPS, FORECAST, GOAL = 100, 1000, 0.1
EIGEN = 80  # operations of all decompositions, over the cube of the number of rows


@dataclass(frozen=True, repr=False)
class Report:
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
    suggestions
        at most three, the best first
    forecast
        of the loss, if there are targets
    seconds, gib
        time that it took, and memory of its matrices
    spectrum
        all eigenvalues of the matrix of the loss, descending; those beyond the rank are rounding
    origin
        digests of the data and the parameters that it speaks of
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
    suggestions: tuple[Suggestion, ...]
    forecast: Forecast | None
    seconds: float
    gib: float
    spectrum: tuple[float, ...] = ()
    origin: Origin | None = None

    to_dict = as_dict

    def lines(self) -> list[Line]:
        """Return all but the table of layers: advice first, then the numbers that it rests on."""
        c = self.condition
        lines = [
            Line("network", f"n = {self.samples}, k = {self.outputs}, p = {self.parameters}", _counts(self)),
            Line("condition number", _kappa(c), "about so many steps of gradient descent for the slowest direction"),
            *([] if self.waiting is None else [_waits(self.waiting, self.loss)]),
            *([] if self.growth is None else [Line("more samples", *self.growth.words)]),
            *([Line("try", s.what, s.effect) for s in self.suggestions] or [_in_order(self)]),
            *(Line("found", what, meaning) for what, meaning in (*self.culprits.lines(), *self.remarks)),
            _of_rank(self),
            Line(self.loss, _ends(c), f"both ends of the non-zero eigenvalues, relative error {c.residual:.0e}"),
        ]
        if self.loss != SquaredError.name:
            meaning = "the matrix of the outputs alone, for comparison"
            lines.append(Line("squared error", _ends(self.squared_error), meaning))
        for rate in self.rates:
            left = f"at half of it {rate.left(STEPS):.1%} of the slowest direction is left after {STEPS} steps"
            lines.append(Line(rate.optimizer, f"stable here below {rate.rate:.3g}", left))
        if self.forecast is not None:
            lines += self.forecast.lines()
        return [*lines, Line("cost", f"{self.seconds:.2g} s", f"{self.gib:.2g} GiB of matrices")]

    def __str__(self) -> str:
        """Return the page as text."""
        return f"{as_page(self.lines())}\n\n{self.layers}"

    def __repr__(self) -> str:
        """Return the page as text, which a notebook keeps beside its table."""
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self.lines()) + self.layers._repr_html_()

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
    """Return the report on a network, with the stable rate of an optimiser if there is one."""
    begun = perf_counter()
    _announce(problem)
    remarks = [*_remarks(problem)]
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
        waiting=_waiting(problem),
        growth=_growth(problem),
        full=problem.loss_rows,
        rates=tuple(rates),
        layers=shares,
        culprits=culprits,
        remarks=tuple(remarks),
        suggestions=suggestions_for(problem, shares, culprits, optimizer),
        forecast=forecast_of(problem, optimizer, steps=FORECAST) if problem.has_targets else None,
        seconds=perf_counter() - begun,
        gib=_gib(problem),
        spectrum=tuple(problem.spectrum[0].flip(0).tolist()),
        origin=problem.origin,
    )


def _waiting(problem: Problem) -> Waiting | None:
    """Return what training waits for, if there are targets, a residual, and a goal that the loss can have."""
    if not problem.has_targets:
        return None
    with suppress(ValueError):
        return waiting_of(problem, GOAL)
    return None


def _growth(problem: Problem) -> Growth | None:
    """Return how the condition number grows, unless the loss has no quadratic model with a minimum."""
    with suppress(ValueError):
        return growth_of(problem)
    return None


def _remarks(problem: Problem) -> Iterator[tuple[str, str]]:
    """Yield headings and sentences on anything else that is unusual about a network."""
    network, module = problem.networks[0], problem.module
    if network.coupled:
        yield "outputs depend on the other samples", "the matrix is that of this batch, normalisation included"
    elif fresh := fresh_norms(module):
        yield f"{len(fresh)} batch normalisations are fresh", "they do nothing yet: pass the batch, or mode='train'"
    if sizes := off_scale(module):
        least, most = min(sizes.values()), max(sizes.values())
        size = f"{least:.2g}" if least == most else f"{least:.2g} to {most:.2g}"
        names = listed([name or "the module" for name in sizes])
        yield f"weights of {names} are {size} / sqrt(inputs)", "usual are 0.6 (torch) to 1.4 (Kaiming)"
    if lower := _casts(network):
        named = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in lower))
        yield f"the forward pass casts to {named}", "training rounds there; what stands here is in double precision"
    y = problem.outputs
    if isinstance(problem.loss, CrossEntropy) and y.amin() >= 0 and (y.sum(1) - 1).abs().max() < 1e-6:
        yield "the outputs are probabilities", "cross_entropy takes a softmax of them again: pass what comes before it"


@torch.no_grad()
def _casts(network: Network) -> set[torch.dtype]:
    """Return the precisions below its own that the forward pass of a module asks for."""
    own = next(network.module.parameters()).dtype
    with network.as_template() as precision:
        network(network.parameters, network.x if network.coupled else network.x[:1])
    return {dtype for dtype in precision.requested if torch.finfo(dtype).eps > torch.finfo(own).eps}


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


def _in_order(report: Report) -> Line:
    """Return the line of advice where no change of the network helps."""
    goal = "condition number" if report.forecast is None else "number of steps"
    plain, momentum = (rate.left(STEPS) for rate in report.rates[:2])
    tried = f"no change of the network or its inputs that was tried here lowers the {goal} by a fifth"
    if plain <= momentum or len(report.rates) > 2:  # who has named an optimiser does not ask for another
        return Line("try", "nothing new", tried)
    slowest = f"of the slowest direction it leaves {momentum:.1%} after {STEPS} steps, plain descent {plain:.1%}"
    return Line("try", "momentum 0.9", f"{slowest}; {tried}")


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
