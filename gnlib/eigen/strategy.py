"""Which method finds both ends of a spectrum: one list for each kind of operand, tried from the top.

A method is taken if it applies (its result is right) and pays (no other is faster, judging by sizes). If it then turns
out not to work, the next one is tried. A method that is named is used whether it pays or not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gnlib.eigen import gram, kronecker_sum, linear_network, narrow_layer
from gnlib.eigen.gram import Gram
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.result import ConditionNumber, Limits, NotConvergedError

Operand = TypeVar("Operand")


@dataclass(frozen=True)
class Method(Generic[Operand]):
    """A way to both ends of a spectrum.

    Attributes
    ----------
    name
        what a user calls it
    applies
        whether its result is right for an operand
    pays
        whether the methods further down the list are likely to be slower
    ends
        both ends, or None where it turned out not to work
    """

    name: str
    applies: Callable[[Operand, Limits], bool]
    pays: Callable[[Operand, Limits], bool]
    ends: Callable[[Operand, Limits], ConditionNumber | None]


def find_ends(
    operand: Operand, methods: Sequence[Method[Operand]], limits: Limits, method: str | None = None
) -> ConditionNumber:
    """Return both ends of a spectrum by the first of the methods that suits the operand, or by the one that is named.

    Raises
    ------
    ValueError
        A method that is not there, or does not apply.
    NotConvergedError
        A named method that found on the way that it does not work, or an iteration with none after it.
    """
    names = list(dict.fromkeys(m.name for m in methods))
    if method is not None and method not in names:
        raise ValueError(f"method is {method!r}; for this operand it can be {', '.join(map(repr, names))}, or None.")
    able = [m for m in methods if m.name == (method or m.name) and m.applies(operand, limits)]
    if not able:
        raise ValueError(f"The method {method!r} does not apply to this operand; leave method out for one that does.")
    for candidate in able:
        if method or candidate.pays(operand, limits):
            found = candidate.ends(operand, limits)
            if found is not None:
                return found
    raise NotConvergedError(f"The method {method!r} does not work here; leave method out for one that does.")


def always(operand: object, limits: Limits) -> bool:
    """Return true: no condition."""
    return True


def _within_first_layer(terms: Terms, limits: Limits) -> ConditionNumber:
    """Both ends for white data that the first layer does not see all of."""
    within = find_ends(Terms(narrow_layer.within_first_layer(terms.layered)), KRONECKER_SUM, limits)
    return narrow_layer.with_complement(within, terms.layered)


KRONECKER_SUM: tuple[Method[Terms], ...] = (
    Method("first layer", narrow_layer.applies, always, _within_first_layer),
    Method("layers", linear_network.applies, linear_network.pays, linear_network.ends),
    Method("dense", always, kronecker_sum.is_small, kronecker_sum.dense),
    Method("blocks", kronecker_sum.is_block_diagonal, always, kronecker_sum.blocks),
    Method("iteration", kronecker_sum.is_regular, always, kronecker_sum.iteration),
    Method("dense", always, always, kronecker_sum.dense),
)

GRAM: tuple[Method[Gram], ...] = (
    Method("iteration", gram.is_of_full_rank, gram.is_large, gram.iteration),
    Method("dense", always, always, gram.dense),
)
