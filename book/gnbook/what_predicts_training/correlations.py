"""How well numbers order networks by the steps that they take: rank correlations, with intervals over families."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Shaped

COVERED = 0.95  # by an interval

NOTHING = 1e-12  # share of the ranks that is left where another column says them all

Table = Float[np.ndarray, "q m"]
Row = Float[np.ndarray, " q"]
Column = Float[np.ndarray, " m"]
Labels = Shaped[np.ndarray, " m"]
Statistic = Callable[[Table, Column, Labels, Column], Row]


class Interval(NamedTuple):
    """A number, and the ends of its interval of 95 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return them with two decimals, a dash where there is none."""
        return "-" if np.isnan(self.value) else f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Correlations:
    """Rank correlations of several predictors with the steps, over all networks and in each draw of the bootstrap."""

    names: Sequence[str]
    values: Float[np.ndarray, " q"]  # over all networks; nan where a predictor or the steps are the same for all
    again: Callable[[], Float[np.ndarray, "draws q"]]  # does the draws

    @cached_property
    def draws(self) -> Float[np.ndarray, "draws q"]:
        """The correlations in each draw: the same draws for all predictors, so that differences have intervals too."""
        return self.again()

    def value(self, name: str) -> float:
        """Return the correlation of a predictor, without its interval: nothing is drawn."""
        return float(self.values[self.names.index(name)])

    def interval(self, name: str) -> Interval:
        """Return the correlation of a predictor."""
        i = self.names.index(name)
        return _interval(self.values[i], self.draws[:, i])

    def difference(self, name: str, other: str) -> Interval:
        """Return how much larger the correlation of one predictor is than that of another."""
        i, j = self.names.index(name), self.names.index(other)
        return _interval(self.values[i] - self.values[j], self.draws[:, i] - self.draws[:, j])


def correlate(
    predictors: Mapping[str, Sequence[float | None]],
    steps: Sequence[float | None],
    families: Sequence[str],
    *,
    given: Sequence[float | None],
    statistic: Statistic,
    draws: int = 500,
    seed: int = 0,
) -> Correlations:
    """Return the correlation of each predictor with the steps, and its bootstrap: draws of as many families.

    Larger predictors are of slower networks; what is missing or not a number counts as larger than all others, and so
    do steps of networks that did not arrive. A family is drawn as a whole, with replacement: networks of one are not
    independent. :func:`partial` takes out what is `given`, such as the loss at the start.

    B. Efron, R. J. Tibshirani (1993), An introduction to the bootstrap, chapter 13 (percentiles).
    """
    labels = np.array(list(families))
    members = _members(labels)
    table = np.array([_last_if_missing(column) for column in predictors.values()])
    least, control = _last_if_missing(steps), _last_if_missing(given)

    def again() -> Float[np.ndarray, "draws q"]:
        generator, found = np.random.default_rng(seed), []
        for _ in range(draws):
            drawn = [members[i] for i in generator.integers(len(members), size=len(members))]
            some = np.concatenate(drawn)
            apart = np.repeat(np.arange(len(drawn)), list(map(len, drawn)))  # a family that is drawn twice counts twice
            found.append(statistic(table[:, some], least[some], apart, control[some]))
        return np.array(found)

    return Correlations(list(predictors), statistic(table, least, labels, control), again)


def pooled(predictors: Table, steps: Column, _families: Labels, _given: Column) -> Row:
    """Return Spearman's rank correlations over all networks."""
    return _spearman(_ranks(predictors), _ranks(steps))


def within(predictors: Table, steps: Column, families: Labels, _given: Column) -> Row:
    """Return the mean over the families of Spearman's rank correlation within each, of those that have one."""
    members = _members(families)
    alike = [np.array([own for own in members if len(own) == size]) for size in {len(own) for own in members}]
    found = np.concatenate([_spearman(_ranks(predictors[:, own]), _ranks(steps[own])) for own in alike], axis=1)
    there = np.isfinite(found).sum(1)
    return np.where(there > 0, np.nansum(found, 1), np.nan) / np.maximum(there, 1)


def between(predictors: Table, steps: Column, families: Labels, _given: Column) -> Row:
    """Return Spearman's rank correlations of families: of the mean ranks that their networks have among all."""

    def means(values: np.ndarray) -> np.ndarray:
        ranks = _ranks(values)
        return np.stack([ranks[..., own].mean(-1) for own in _members(families)], -1)

    return _spearman(_ranks(means(predictors)), _ranks(means(steps)))


def partial(predictors: Table, steps: Column, _families: Labels, given: Column) -> Row:
    """Return Spearman's partial rank correlations, of what a line through the ranks of `given` leaves of the ranks."""
    a, b, c = _ranks(predictors), _ranks(steps), _ranks(given)
    ab, ac, bc = _spearman(a, b), _spearman(a, c), _spearman(b, c)
    left = np.clip((1 - ac**2) * (1 - bc**2), 0, None)
    return np.divide(ab - ac * bc, np.sqrt(left), out=np.full_like(ab, np.nan), where=left > NOTHING)


def _spearman(ranks: Float[np.ndarray, "*q m"], of_steps: Float[np.ndarray, "*f m"]) -> Float[np.ndarray, "*q"]:
    a, b = (values - values.mean(-1, keepdims=True) for values in (ranks, of_steps))
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return np.divide((a * b).sum(-1), norms, out=np.full(norms.shape, np.nan), where=norms > 0)


def _ranks(values: np.ndarray) -> np.ndarray:
    return scipy.stats.rankdata(values, axis=-1)


def _members(families: Labels) -> list[np.ndarray]:
    return [np.flatnonzero(families == family) for family in np.unique(families)]


def _last_if_missing(column: Sequence[float | None]) -> Column:
    return np.nan_to_num(np.array(column, dtype=float), nan=np.inf, posinf=np.inf, neginf=-np.inf)


def _interval(value: float, draws: Float[np.ndarray, " draws"]) -> Interval:
    there = draws[np.isfinite(draws)]
    if not np.isfinite(value) or not len(there):
        return Interval(np.nan, np.nan, np.nan)
    low, high = np.quantile(there, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return Interval(float(value), float(low), float(high))
