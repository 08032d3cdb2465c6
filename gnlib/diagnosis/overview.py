"""One page on a network of any size: what some tens of products with vectors tell."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from torch.optim import Optimizer

from gnlib.advice.suggestions import Advice
from gnlib.diagnosis import pictures
from gnlib.diagnosis.course import LossBounds, View, loss_bounds_of, named, view_of_side, waiting_by_products
from gnlib.diagnosis.forecast import Forecast
from gnlib.diagnosis.foretell import PRECISIONS, forecast_of_side
from gnlib.diagnosis.page import Advised, page
from gnlib.diagnosis.preconditioner import NotFollowedError
from gnlib.diagnosis.rates import StableRate, stable_rate_of_largest
from gnlib.eigen.density import SpectralDensity
from gnlib.eigen.top import Eigenpairs, largest_eigenpairs
from gnlib.laws.waiting import Waiting
from gnlib.origin import Origin
from gnlib.plain import as_dict
from gnlib.products.side import Side
from gnlib.text import Line

STEPS, GOAL = 1000, 0.1
BUDGET = 3.0  # seconds for the steps of a forecast, of the linear model and real ones each


@dataclass(frozen=True, repr=False)
class Overview(Advised):
    """What is known of a network without a matrix.

    Attributes
    ----------
    words, rows
        what it is, and the rows that its matrix would have, one for each output
    largest
        the largest eigenvalue, without its vector, which may be as long as the parameters
    layers
        share of each layer in it
    rates
        largest stable rates of gradient descent, plain and with momentum 0.9
    waiting, waits_in
        an estimate of what the steps of gradient descent to a tenth of the loss wait for, and the share of each layer
        in that eigenvalue; None where the loss has no residual that is known
    bounds
        of the losses of the linear model under gradient descent at 1 / the largest, for the squared error
    forecast
        of the optimiser, or of gradient descent where its steps are not followed; None without targets, or in bfloat16
    error
        relative, of a product, measured against double precision on the first samples
    products, seconds
        that it took
    origin
        digests of the data and the parameters that it speaks of
    advice, safe
        what to change, and rates, tried by real steps, if there are targets
    """

    words: str
    rows: int
    loss: str
    largest: Eigenpairs
    layers: Mapping[str, float]
    rates: tuple[StableRate, ...]
    waiting: Waiting | None
    waits_in: Mapping[str, float]
    bounds: LossBounds | None
    forecast: Forecast | None
    error: float
    products: int
    seconds: float
    origin: Origin | None = None
    advice: Advice | None = None
    safe: tuple[float | None, ...] = ()

    to_dict = as_dict

    def lines(self) -> list[Line]:
        """Return the page line by line."""
        value, error = float(self.largest.values[0]), float(self.largest.errors[0])
        lines = [
            *self._first(),
            Line("network", self.words, f"products are right to {self.error:.0e}"),
            Line("largest eigenvalue", f"{value:.4g}", f"relative error {error:.0e}; it is in {named(self.layers)}"),
        ]
        lines += [*self._tries(), *self._of_rates(lambda _: "")]
        if self.waiting is not None:
            w, of = self.waiting, "the loss" if self.loss == "mse" else "the quadratic model of the loss"
            size = f"about {w.eigenvalue:.3g}, {w.effective_condition_number:.3g} times smaller than the largest"
            meaning = f"{w.steps} of gradient descent to a tenth of {of}, at 1 / the largest"
            lines.append(Line("waits for", size, f"{meaning}; it is in {named(self.waits_in)}"))
        if self.forecast is not None:
            lines += self.forecast.lines()
        elif self.bounds is not None:
            first, last = str(self.bounds).split("\n")
            lines.append(Line("forecast", first, last.partition(";")[0]))
        size = f"it takes a matrix of {self.rows:,} rows, {8 * self.rows**2 / 2**30:.2g} GiB"
        lines.append(Line("condition number", "unknown", size))
        return [*lines, Line("cost", f"{self.products} products", f"{self.seconds:.2g} s")]

    def to_html(self, path: str | Path | None = None, *, density: SpectralDensity | None = None) -> str:
        """Return the page as one file of HTML, with pictures if matplotlib is installed, and write it to a path.

        The density that :meth:`gnlib.GaussNewton.spectral_density` returns is drawn on it, if it is given.
        """
        drawings = [] if density is None else [pictures.density(density)]
        if (b := self.bounds) is not None:
            first, last = str(b).split("\n")
            drawings.append(pictures.course(b.lower.tolist(), b.upper.tolist(), f"Forecast: {first}; {last}."))
        of = {"largest eigenvalue": self.layers, "one that is waited for": self.waits_in}
        drawings.append(pictures.shares({what: shares for what, shares in of.items() if shares}))
        return page("Gauss-Newton report", self.lines(), drawings, [], path)


def overview_of(side: Side, memory: float, optimizer: str | Optimizer | None = None) -> Overview:
    """Return the page on a module before anything is tried."""
    begun, before = perf_counter(), side.operator.products
    view = view_of_side(side, memory) if side.knows_residual else None
    largest = largest_eigenpairs(side.operator)
    value = float(largest.values[0])
    waiting, waits_in, bounds = _of_loss(view, side.curvature.name)
    momentum, forecast = stable_rate_of_largest(value, "momentum"), _forecast(side, memory, optimizer)
    return Overview(
        words=side.words,
        rows=side.rows,
        loss=side.curvature.name,
        largest=replace(largest, vectors=largest.vectors[:0]),
        layers=side.by_layer(largest.vectors[:, 0]),
        rates=(stable_rate_of_largest(value), momentum),
        waiting=waiting,
        waits_in=waits_in,
        bounds=bounds,
        forecast=forecast,
        error=side.error,
        products=side.operator.products - before + (0 if forecast is None else forecast.products),
        seconds=perf_counter() - begun,
        origin=side.origin,
    )


def _forecast(side: Side, memory: float, optimizer: str | Optimizer | None) -> Forecast | None:
    if side.passes.parts[0].y is None or side.passes.dtype not in PRECISIONS:
        return None
    try:
        return forecast_of_side(side, memory, optimizer, steps=STEPS, budget=BUDGET)
    except NotFollowedError:
        return forecast_of_side(side, memory, steps=STEPS, budget=BUDGET)


def _of_loss(view: View | None, loss: str) -> tuple[Waiting | None, Mapping[str, float], LossBounds | None]:
    if view is None or not view.square:
        return None, {}, None
    if loss == "mse":
        bounds = loss_bounds_of(view, steps=STEPS)
        return bounds.waiting(GOAL), bounds.layers, bounds
    waiting, layers, _ = waiting_by_products(view, GOAL)
    return waiting, layers, None
