"""What differs between two results, by which factor, and whether that is more than the noise of the draw.

The noise is the largest over the smallest of what some initialisations have, drawn again with other seeds. Of a
quantity whose logarithm is normal, two more draws of the same kind differ by more than the spread of 5 in 16 of 100
cases, and by more than that of 10 in 6 of 100: a factor within the spread is no finding, one of several times the
spread is.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gnlib.diagnosis.overview import Overview
from gnlib.diagnosis.report import Report
from gnlib.eigen.result import ConditionNumber
from gnlib.laws.waiting import Waiting
from gnlib.refused import Refused
from gnlib.text import as_html, as_text, listed

Result = Report | Overview | ConditionNumber | Waiting | float
LAYERS = 3  # with the largest shares, that are compared
SAME = 1e-9  # relative difference up to which numbers are the same


class Difference(NamedTuple):
    """A quantity of two results; the spread is the largest over the smallest in several draws, if there are any."""

    name: str
    before: float
    after: float
    spread: float | None = None

    @property
    def factor(self) -> float:
        """The second over the first; NaN where there is none, as of two that are infinite."""
        if not self.before or math.inf in (abs(self.before), abs(self.after)):
            return 1.0 if self.before == self.after else math.nan
        return self.after / self.before

    @property
    def times_the_spread(self) -> float | None:
        """The logarithm of the factor over that of the spread: up to 1 it is no more than the noise of the draw."""
        if self.spread is None or not self.factor > 0:
            return None
        size = abs(math.log(self.factor))
        return size / math.log(self.spread) if self.spread > 1 else math.inf if size > SAME else 0.0

    @property
    def words(self) -> str:
        """The factor in words, larger over smaller."""
        if abs(self.factor - 1) <= SAME:
            return "the same"
        if not self.factor > 0:
            return "no factor"
        if abs(self.factor - 1) < 0.005:
            return f"the same to {abs(self.factor - 1):.0e}"
        return f"{max(self.factor, 1 / self.factor):.3g} times {'larger' if self.factor > 1 else 'smaller'}"


class Noise(NamedTuple):
    """What results of several seeds have: by name a number for each seed."""

    seeds: tuple[int, ...]
    numbers: Mapping[str, tuple[float, ...]]

    def spread(self, name: str) -> float | None:
        """Return the largest over the smallest of a quantity; None if it is not a positive number for each seed."""
        found = self.numbers.get(name, ())
        return max(found) / min(found) if found and all(0 < number < math.inf for number in found) else None

    def __str__(self) -> str:
        """Return what was drawn."""
        first, last = self.seeds[0], self.seeds[-1]
        in_a_row = [*self.seeds] == [*range(first, last + 1)]
        return f"{len(self.seeds)} initialisations (seeds {f'{first} to {last}' if in_a_row else listed(self.seeds)})"


@dataclass(frozen=True)
class Comparison:
    """What differs between two results: each quantity that both have, remarks, and the noise of several draws."""

    differences: tuple[Difference, ...]
    remarks: tuple[str, ...] = ()
    noise: Noise | None = None

    def __getitem__(self, name: str) -> Difference:
        """Return the difference of this name."""
        return {difference.name: difference for difference in self.differences}[name]

    def rows(self) -> Sequence[Sequence[str]]:
        """Return a heading and one row for each quantity."""
        rows = [("", "first", "second", "the second is", "")]
        for each in self.differences:
            rows.append((each.name, f"{each.before:.4g}", f"{each.after:.4g}", each.words, self._noise(each)))
        return rows

    def _noise(self, difference: Difference) -> str:
        times = difference.times_the_spread
        if times is None:
            return ""
        return "within the spread" if times <= 1 else f"{times:.2g} times the spread"

    def _notes(self) -> Iterator[str]:
        yield from self.remarks
        if self.noise is not None:
            yield f"The spread is that of {self.noise}: of logarithms, largest less smallest."

    def __str__(self) -> str:
        """Return a table and the remarks."""
        return "\n".join([as_text(self.rows()), *self._notes()])

    def _repr_html_(self) -> str:
        return as_html([*self.rows(), *((note,) for note in self._notes())])


def compare(a: Result, b: Result, *, noise: Noise | None = None) -> Comparison:
    """Return what differs between two results, and by which factor.

    Parameters
    ----------
    a, b
        reports of either kind, condition numbers or what trainings wait for; of two kinds what both know
    noise
        of :func:`noise_of_draws`, to say of each factor whether it is more than that of another initialisation

    Raises
    ------
    TypeError
        A result of another kind.
    ValueError
        Two results that have no quantity in common.

    Examples
    --------
    >>> import torch, gnlib
    >>> of = lambda *ends: gnlib.condition_number(torch.diag(torch.tensor(ends)))
    >>> print(gnlib.compare(of(4.0, 2.0), of(8.0, 2.0)))
                         first  second  the second is
    largest eigenvalue   4      8       2 times larger
    smallest eigenvalue  2      2       the same
    condition number     2      4       2 times larger
    """
    before, after = _numbers(a), _numbers(b)
    common = [name for name in before if name in after]
    if not common:
        raise Refused(
            "not-comparable",
            f"A {type(a).__name__} and a {type(b).__name__} have no number in common; compare two of a kind.",
        )
    spreads = {name: None if noise is None else noise.spread(name) for name in common}
    differences = [Difference(name, before[name], after[name], spreads[name]) for name in common]
    return Comparison((*differences, *_layers(a, b)), tuple(_remarks(a, b)), noise)


def noise_of_draws(make: Callable[[int], Result], seeds: Iterable[int] = range(5)) -> Noise:
    """Return what several initialisations have, for :func:`compare`.

    Parameters
    ----------
    make
        takes a seed, draws a network with it, and returns its report, condition number, or another number
    seeds
        at least two

    Raises
    ------
    ValueError
        Fewer than two seeds, or the same numbers for all of them.

    Examples
    --------
    >>> import torch, gnlib
    >>> x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    >>> def kappa(seed, width=20):
    ...     torch.manual_seed(seed)
    ...     layers = torch.nn.Linear(3, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)
    ...     return gnlib.condition_number(torch.nn.Sequential(*layers), x)
    >>> noise = noise_of_draws(kappa)
    >>> print(noise)
    5 initialisations (seeds 0 to 4)
    >>> compare(kappa(0), kappa(1), noise=noise)["condition number"].times_the_spread <= 1
    True
    """
    seeds = tuple(seeds)
    if len(seeds) < 2:
        raise Refused("not-comparable", f"seeds holds {len(seeds)}; at least two were expected, such as range(5).")
    found = [_numbers(make(seed)) for seed in seeds]
    common = [name for name in found[0] if all(name in each for each in found)]
    numbers = {name: tuple(each[name] for each in found) for name in common}
    if all(len(set(each)) == 1 for each in numbers.values()):
        raise Refused(
            "not-comparable", "All seeds have the same numbers; call torch.manual_seed(seed) in make, before it draws."
        )
    return Noise(seeds, numbers)


def _numbers(result: Any) -> dict[str, float]:
    """Return the quantities of a result by their names."""
    match result:
        case Report():
            found = _numbers(result.condition)
        case Overview():
            found = {"largest eigenvalue": float(result.largest.values[0])}
        case ConditionNumber(largest=largest, smallest=smallest, value=value):
            return {"largest eigenvalue": largest, "smallest eigenvalue": smallest, "condition number": value}
        case Waiting():
            return {
                "largest eigenvalue": result.largest,
                "eigenvalue waited for": result.eigenvalue,
                "effective condition number": result.effective_condition_number,
                "steps, at least": result.lower,
                "steps, at most": float(result.upper),
            }
        case float() | int():
            return {"number": float(result)}
        case _:
            kind = type(result).__name__
            raise TypeError(f"A {kind} is not compared; pass reports, condition numbers or what trainings wait for.")
    if result.waiting is not None:
        found = {**_numbers(result.waiting), **found}
    return found | {
        f"stable rate, {rate.optimizer.removeprefix('gradient descent ')}": rate.rate for rate in result.rates
    }


def _layers(a: Any, b: Any) -> Iterator[Difference]:
    """Yield the shares in the largest eigenvalue of the layers that have the largest in one of both."""
    shares = [_shares(result) for result in (a, b)]
    if not all(shares):
        return
    before, after = shares
    most = {name: max(before.get(name, 0.0), after.get(name, 0.0)) for name in {**before, **after}}
    for name in sorted(most, key=lambda name: -most[name])[:LAYERS]:
        yield Difference(f"share of {name or 'the module'} in the largest", before.get(name, 0.0), after.get(name, 0.0))


def _shares(result: Any) -> Mapping[str, float]:
    if isinstance(result, Report):
        return {share.layer: share.largest for share in result.layers.layers}
    return result.layers if isinstance(result, Overview) else {}


def _remarks(a: Any, b: Any) -> Iterator[str]:
    for which, result in (("first", a), ("second", b)):
        condition = result.condition if isinstance(result, Report) else result
        if isinstance(condition, ConditionNumber) and not condition.resolved:
            yield f"The condition number of the {which} is a lower bound: the smallest eigenvalue is lost in rounding."
    one, other = (getattr(result, "origin", None) for result in (a, b))
    if one is not None and other is not None:
        alike = [name for name in one._fields if getattr(one, name) == getattr(other, name)]
        differ = [name for name in one._fields if name not in alike]
        yield f"The same: {listed(alike) or 'nothing'}. Different: {listed(differ) or 'nothing'}."
