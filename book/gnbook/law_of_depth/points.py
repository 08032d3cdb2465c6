"""Points of figures: what the law of depth has there, and what was measured."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from gnbook.results import Cell, Row
from gnlib.laws import deep_linear


@dataclass(frozen=True)
class Point:
    """One point of a figure: the law, with few outputs and with those that there are, and what networks have."""

    figure: str
    name: str
    one: float
    law: float
    measured: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over networks."""
        return float(np.mean(self.measured))

    @property
    def spread(self) -> float | None:
        """The standard deviation of one network, None if there is only one."""
        return float(np.std(self.measured, ddof=1)) if len(self.measured) > 1 else None

    @property
    def ratio(self) -> float:
        """The mean over the law."""
        return self.mean / self.law

    @property
    def row(self) -> list[object]:
        """The cells of a table."""
        return [self.name, self.one, self.law, self.mean, self.spread, len(self.measured), self.ratio]


COLUMNS = {"point": "<", "law": ".4g", "with outputs": ".4g", "measured": ".4g"}  # heads of the cells of a point
COLUMNS |= {"±": ".2g", "networks": "d", "measured / law": ".3f"}


def runs(rows: Iterable[Row], *columns: str, value: str = "kappa") -> dict[tuple[Cell, ...], tuple[float, ...]]:
    """Return the values of networks that are the same in some columns, in the order of these."""

    def key(row: Row) -> tuple[Cell, ...]:
        return tuple(row[column] for column in columns)

    found = sorted((row for row in rows if row[value] is not None), key=key)
    return {of: tuple(float(row[value]) for row in some) for of, some in groupby(found, key)}


def kappa_point(
    figure: str,
    name: str,
    measured: Sequence[float],
    layers: int,
    width: int,
    data: int | Sequence[float],
    inputs: int,
    skip: float = 0.0,
) -> Point:
    """Return the condition numbers of a figure beside the law, for hidden layers of one width and ten outputs."""
    one, law = (deep_linear(layers, width, data, inputs=inputs, skip=skip, outputs=k).kappa for k in (1, 10))
    return Point(figure, name, one, law, tuple(measured))


def largest_miss(points: Iterable[Point]) -> float:
    """Return the factor by which the law misses the mean of a point at most, above one."""
    return math.exp(max(abs(math.log(point.ratio)) for point in points))
