"""Condition numbers with the accuracy that they are known to, and the errors raised where there is none to give."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gnlib.checks import EPS
from gnlib.eigen.scale import restored
from gnlib.plain import as_dict

RESOLVED = 1e-3
"""A condition number counts as resolved when its relative error is below this."""


class Limits(NamedTuple):
    """The relative error at which an iteration may stop, and the steps after which it gives up."""

    tolerance: float = 1e-8
    max_steps: int = 200


class NotConvergedError(RuntimeError):
    """An iteration ended before its error was small enough: allow more steps, a larger tolerance, or any method."""

    code = "not-converged"


class NotResolvedError(ArithmeticError):
    """The smallest non-zero eigenvalue is lost in the rounding of double precision."""

    code = "not-resolved"


@dataclass(frozen=True)
class ConditionNumber:
    """The pseudo-condition number of a positive semi-definite matrix: largest over smallest non-zero eigenvalue.

    Attributes
    ----------
    largest, smallest, rank
        the largest and the smallest non-zero eigenvalue, and how many there are
    gap
        smallest non-zero eigenvalue over the largest one that counts as zero (over the rounding level of the method,
        `eps * largest`, where that is larger): how visible the rank is
    residual
        bound on the relative error of the eigenvalues, at the worse of the two ends; for a matrix, the rounding of
        its type is included, and none that was made before
    method, seconds
        how the ends were obtained, and the time that it took, which comparisons leave out

    Examples
    --------
    >>> c = ConditionNumber(largest=6.0, smallest=2.0, rank=5, gap=1e15, residual=1e-12, method="by hand")
    >>> c.value, c.resolved
    (3.0, True)
    >>> print(c)
    condition number 3: eigenvalues 6 to 2, rank 5 (gap 1e+15), relative residual 1e-12, by hand
    """

    largest: float
    smallest: float
    rank: int
    gap: float
    residual: float
    method: str
    seconds: float = field(default=0.0, compare=False)

    to_dict = as_dict

    @property
    def value(self) -> float:
        """The condition number, or, where it is not resolved, a lower bound of it."""
        margin = 1.0 if self.resolved else 1 + self.residual
        return self.largest / (self.smallest * margin)

    @property
    def resolved(self) -> bool:
        """Whether double precision and the method determine the value to three digits."""
        return self.residual <= RESOLVED

    def rescale(self, exponent: int) -> "ConditionNumber":
        """Return the same result for the matrix times a power of two, unless an end of it cannot be represented."""
        largest, smallest = (restored(end, exponent) for end in (self.largest, self.smallest))
        return replace(self, largest=largest, smallest=smallest)

    def with_rounding(self, rounding: float) -> "ConditionNumber":
        """Return the same result for a matrix that is rounded by so much, relative to its largest eigenvalue."""
        if not rounding:
            return self
        lost = rounding * self.largest / self.smallest
        return replace(self, gap=min(self.gap, 1 / lost), residual=self.residual + lost)

    def __float__(self) -> float:
        """Return the value, or raise `NotResolvedError` where it would be no more than a lower bound."""
        if not self.resolved:
            raise NotResolvedError(
                f"The condition number is at least {self.value:.1e} but its smallest eigenvalue is known only to a "
                f"relative error of {self.residual:.0e}; use .value as a lower bound, or better conditioned data."
            )
        return self.value

    def __str__(self) -> str:
        """Return one line: the value, both ends, the rank and how they were obtained."""
        return (
            f"condition number {self._summary()}: eigenvalues {self.largest:.6g} to {self.smallest:.6g}, "
            f"rank {self.rank} (gap {self.gap:.0e}), relative residual {self.residual:.0e}, {self.method}"
        )

    def _summary(self) -> str:
        return f"{self.value:.6g}" if self.resolved else f"at least {self.value:.1e} (not resolved)"

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        rows = {
            "condition number": self._summary(),
            "largest eigenvalue": f"{self.largest:.6g}",
            "smallest non-zero eigenvalue": f"{self.smallest:.6g}" if self.resolved else f"{self.smallest:.0e}",
            "relative error below": f"{self.residual:.0e}",
            "rank": f"{self.rank}, at a gap of {self.gap:.0e}" + ("" if self.resolved else ", as uncertain"),
            "obtained by": self.method,
            "time": f"{self.seconds:.2g} s",
        }
        if not self.resolved:
            rows["not resolved"] = "the smallest eigenvalue is lost in rounding; the value is a lower bound"
        cells = "".join(f'<tr><th style="text-align: left">{k}</th><td>{v}</td></tr>' for k, v in rows.items())
        return f"<table>{cells}</table>"


def of_ends(
    largest: float, smallest: float, rank: int, residual: float, method: str, *, zero: float = 0.0
) -> ConditionNumber:
    """Return a result by both ends, and the largest eigenvalue that counts as zero."""
    return ConditionNumber(largest, smallest, rank, smallest / max(zero, EPS * largest), residual, method)
