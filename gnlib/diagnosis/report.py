"""One page on a network and its data: how well conditioned it is for a loss, why, and what to do."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gnlib.diagnosis.by_layer import Shares, shares_of
from gnlib.diagnosis.culprits import Culprits, culprits_of
from gnlib.diagnosis.forecast import Forecast, forecast_of
from gnlib.diagnosis.inputs import Inputs
from gnlib.diagnosis.measured import Measured
from gnlib.diagnosis.rates import StableRate, stable_rate_of
from gnlib.diagnosis.remarks import remarks_on
from gnlib.diagnosis.suggestions import Suggestion, suggestions_for
from gnlib.eigen.result import ConditionNumber
from gnlib.jacobian.plan import LONG, seconds_per_flop
from gnlib.losses import SquaredError
from gnlib.text import Line, as_html, as_page

STEPS, FORECAST = 100, 1000
EIGEN = 80  # operations of all decompositions, over the cube of the number of rows


@dataclass(frozen=True, repr=False)
class Report:
    """What :func:`gnlib.diagnosis.report` found.

    Attributes
    ----------
    samples, outputs, parameters
        n, k and p
    loss
        its name
    squared_error, condition
        both ends of the spectrum for the squared error, and for the loss
    full
        the number of eigenvalues that the matrix of the loss has, of which `condition.rank` are not zero
    rates
        largest stable rates: of gradient descent, with momentum 0.9, and of the optimiser if there is one
    layers, culprits
        where the condition number comes from
    remarks
        what else is unusual: a heading, and what it means
    suggestions
        at most three, the best first
    forecast
        of the loss, if there are targets
    seconds, gib
        time that it took, and memory of its matrices
    """

    samples: int
    outputs: int
    parameters: int
    loss: str
    squared_error: ConditionNumber
    condition: ConditionNumber
    full: int
    rates: tuple[StableRate, ...]
    layers: Shares
    culprits: Culprits
    remarks: tuple[tuple[str, str], ...]
    suggestions: tuple[Suggestion, ...]
    forecast: Forecast | None
    seconds: float
    gib: float

    def lines(self) -> list[Line]:
        """Return all but the table of layers: what to do first, then what it rests on."""
        c = self.condition
        found = [
            Line("network", f"n = {self.samples}, k = {self.outputs}, p = {self.parameters}", _counts(self)),
            Line("condition number", _kappa(c), "about so many steps of gradient descent for the slowest direction"),
            *([Line("try", s.what, s.effect) for s in self.suggestions] or [_in_order(self)]),
            *(Line("found", what, meaning) for what, meaning in (*self.culprits.lines(), *self.remarks)),
            Line("rank", f"{c.rank} of {self.full}", _of_rank(self)),
            Line(self.loss, _ends(c), f"both ends of the non-zero eigenvalues, relative error {c.residual:.0e}"),
        ]
        if self.loss != SquaredError.name:
            what = "the matrix of the outputs alone, for comparison"
            found.append(Line("squared error", _ends(self.squared_error), what))
        for rate in self.rates:
            left = f"at half of it {rate.left(STEPS):.1%} of the slowest direction is left after {STEPS} steps"
            found.append(Line(rate.optimizer, f"stable here below {rate.rate:.3g}", left))
        if self.forecast is not None:
            found += self.forecast.lines()
        return [*found, Line("cost", f"{self.seconds:.2g} s", f"{self.gib:.2g} GiB of matrices")]

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, as what JSON has."""
        return {
            "samples": self.samples,
            "outputs": self.outputs,
            "parameters": self.parameters,
            "loss": self.loss,
            "squared_error": _as_dict(self.squared_error),
            "condition": _as_dict(self.condition),
            "full": self.full,
            "rates": [
                {"optimizer": r.optimizer, "rate": r.rate, "left": r.left(STEPS), "largest": r.largest}
                for r in self.rates
            ],
            "layers": [{**share._asdict(), "difference": share.difference} for share in self.layers.layers],
            "found": [list(line) for line in (*self.culprits.lines(), *self.remarks)],
            "suggestions": [
                {"what": s.what, **_as_dict(s.after), "pace": s.pace and s.pace._asdict()} for s in self.suggestions
            ],
            "forecast": None if self.forecast is None else _forecast_as_dict(self.forecast),
            "seconds": self.seconds,
            "gib": self.gib,
        }

    def __str__(self) -> str:
        """Return the page as text."""
        return f"{as_page(self.lines())}\n\n{self.layers}"

    def __repr__(self) -> str:
        """Return the page as text, which is what a notebook keeps beside its table."""
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self.lines()) + self.layers._repr_html_()


def report(
    module: nn.Module,
    x: Inputs,
    y: Any = None,
    *,
    loss: str | Callable[[Tensor, Any], Tensor] = "mse",
    optimizer: Optimizer | None = None,
    output: Callable[..., Tensor] | None = None,
    mode: str | None = None,
    memory: float = 4.0,
) -> Report:
    r"""Return how well conditioned a network is on its data for a loss, where that comes from, and what to do.

    Parameters
    ----------
    module
        any module, as for :func:`gnlib.jacobian.gauss_newton_gram`
    x
        the data, samples along the first axis: a tensor, a tuple or a dict of the tensors that the module is called
        with, or a list of batches
    y
        the targets, as for :func:`gnlib.diagnosis.loss_of`
    loss
        `"mse"`, `"cross_entropy"` or a function of outputs and targets, as for :func:`gnlib.diagnosis.loss_of`. The
        largest stable rates are those for this loss: `"mse"` is half the mean over samples of the squared distance,
        of which `nn.MSELoss()` is `2 / k` times
    optimizer
        one of torch, whose largest stable rate to report too, as for :func:`gnlib.diagnosis.largest_stable_rate`
    output, mode, memory
        as for :func:`gnlib.jacobian.gauss_newton_gram`

    Raises
    ------
    TypeError, ValueError
        What :func:`gnlib.jacobian.gauss_newton_gram`, :func:`gnlib.diagnosis.loss_of` and
        :func:`gnlib.diagnosis.largest_stable_rate` raise; a loss without curvature at these outputs.

    Notes
    -----
    Learning rates by layer and samples to leave out cost little to try. Other inputs, weights of the usual scale,
    normalisations that have seen the batch, and new ones in a chain of layers are tried if the matrix takes less than
    about a second. The best suggestion is the one with the fewest steps of the linear model under `optimizer`, while
    the condition number may rise; without `y` it is the one with the lowest condition number. Where the matrix of an
    adaptive optimiser takes longer than about a second, steps are those of gradient descent, and are called so.

    Before a report of more than about ten seconds its time and memory are announced on the standard error.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[9.0, 1.0], [10.0, 2.0], [11.0, 1.0], [9.0, 1.0]])
    >>> found = report(torch.nn.Linear(2, 1), x)
    >>> print(found.suggestions[0].what)
    centre the inputs
    >>> found.condition.rank, found.full, [str(pair) for pair in found.culprits.equal_samples]
    (3, 4, ['0 and 3 are equal'])
    """
    begun = perf_counter()
    given: dict[str, Any] = dict(loss=loss, output=output, mode=mode, memory=memory)
    measured = Measured(module, x, y, **given)
    _announce(measured)
    condition = measured.condition
    plain = condition
    if not isinstance(measured.loss, SquaredError):
        plain = measured.ends(torch.linalg.eigvalsh(measured.gram))
    descent = stable_rate_of(measured)
    rates = [descent, descent.with_momentum()]
    if optimizer is not None:
        rates.append(stable_rate_of(measured, optimizer))
    shares, found = shares_of(measured), culprits_of(measured)
    cheap = optimizer if measured.is_cheap_for(optimizer) else None
    again = (lambda module, x: Measured(module, x, y, **given)) if measured.is_cheap else None
    suggestions = suggestions_for(measured, x, again, shares, found, cheap)
    forecast = None
    if measured.has_targets:
        how: dict[str, Any] = dict(optimizer=optimizer or "sgd", rate=None, steps=FORECAST, after=0, memory=memory)
        forecast = forecast_of(measured.networks, measured.loss, **how, kernel=measured.gram)
    n, k = measured.outputs.shape
    return Report(
        n,
        k,
        measured.parameters,
        measured.loss.name,
        plain,
        condition,
        len(measured.matrix),
        tuple(rates),
        shares,
        found,
        tuple(remarks_on(measured)),
        suggestions,
        forecast,
        perf_counter() - begun,
        measured.gib,
    )


def _announce(measured: Measured) -> None:
    """Say what a report will take, before it begins, where that is more than about ten seconds."""
    grams, eigen = 1 + measured.has_targets, EIGEN * measured.outputs.numel() ** 3
    if grams * measured.cost().operations + eigen >= LONG:
        seconds = grams * measured.cost(probe=True).seconds + eigen * seconds_per_flop()
        print(f"The report takes about {seconds:.2g} s and {measured.gib:.2g} GiB.", file=sys.stderr, flush=True)


def _counts(report: Report) -> str:
    rows = report.samples * report.outputs
    if report.parameters < rows:
        return f"fewer parameters than the {rows} outputs on all samples: it cannot fit them all"
    return f"{report.parameters / rows:.3g} parameters for each output on a sample"


def _in_order(report: Report) -> Line:
    """What to try where nothing about the network helps."""
    what = "condition number" if report.forecast is None else "number of steps"
    plain, momentum = (rate.left(STEPS) for rate in report.rates[:2])
    tried = f"no change of the network or its inputs that was tried here lowers the {what} by a fifth"
    if plain <= momentum or len(report.rates) > 2:  # who has named an optimiser does not ask for another
        return Line("try", "nothing new", tried)
    slowest = f"of the slowest direction it leaves {momentum:.1%} after {STEPS} steps, plain descent {plain:.1%}"
    return Line("try", "momentum 0.9", f"{slowest}; {tried}")


def _of_rank(report: Report) -> str:
    if report.condition.rank == report.full:
        return "linearised, the network can fit any targets on these samples"
    return "linearised, the network cannot fit all targets: look at what was found"


def _forecast_as_dict(forecast: Forecast) -> dict[str, Any]:
    names = ("trusted", "rate", "stable_rate", "unreachable", "optimizer")
    return {"losses": forecast.losses.tolist(), **{name: getattr(forecast, name) for name in names}}


def _kappa(c: ConditionNumber) -> str:
    return f"{c.value:.4g}" if c.resolved else f"at least {c.value:.1e}"


def _ends(c: ConditionNumber) -> str:
    return f"{c.largest:.4g} to {c.smallest:.4g}, kappa {_kappa(c)}"


def _as_dict(c: ConditionNumber) -> dict[str, Any]:
    return {
        "kappa": c.value,
        "largest": c.largest,
        "smallest": c.smallest,
        "rank": c.rank,
        "relative_error": c.residual,
        "resolved": c.resolved,
    }
