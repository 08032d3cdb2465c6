"""The choice of a method for both ends of a spectrum: one list for each kind of operand, tried from the top.

A method is taken if it applies (its result is right) and pays (no other is faster, judging by sizes). If it then turns
out not to work, the next one is tried. A method that is named is used whether it pays or not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gnlib.eigen import gram, kronecker_sum, layered_sum
from gnlib.eigen.gram import Gram
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.result import ConditionNumber, Limits, NotConvergedError

Operand = TypeVar("Operand")


def _always(operand: object, limits: Limits) -> bool:
    return True


@dataclass(frozen=True)
class Method(Generic[Operand]):
    """A way to both ends of a spectrum.

    Attributes
    ----------
    name
        its name, which a user may ask for
    ends
        both ends, or None where it turned out not to work
    applies
        whether its result is right for an operand
    pays
        whether the methods further down the list are likely to be slower
    """

    name: str
    ends: Callable[[Operand, Limits], ConditionNumber | None]
    applies: Callable[[Operand, Limits], bool] = _always
    pays: Callable[[Operand, Limits], bool] = _always


def find_ends(
    operand: Operand, methods: Sequence[Method[Operand]], limits: Limits, method: str | None = None
) -> ConditionNumber:
    """Return both ends of a spectrum by the first of the methods that suits the operand, or by the one that is named.

    Raises
    ------
    ValueError
        A method that is not in the list, or does not apply.
    NotConvergedError
        A named method that does not work for this operand, or an iteration with no method after it.
    """
    names = list(dict.fromkeys(m.name for m in methods))
    if method is not None and method not in names:
        raise ValueError(f"method is {method!r}; for this operand it can be {', '.join(map(repr, names))}, or None.")
    able = [m for m in methods if m.name == (method or m.name) and m.applies(operand, limits)]
    if not able:
        raise ValueError(f"The method {method!r} does not apply to this operand; leave method out for one that does.")
    for candidate in able:
        if method or candidate.pays(operand, limits):
            ends = candidate.ends(operand, limits)
            if ends is not None:
                return ends
    raise NotConvergedError(f"The method {method!r} does not work here; leave method out for one that does.")


def _within_first_layer(terms: Terms, limits: Limits) -> ConditionNumber:
    """Both ends for white data with more dimensions than the first layer has units."""
    op = terms.layered
    within = find_ends(Terms(layered_sum.restrict_to_first_layer(op)), KRONECKER_SUM, limits)
    return layered_sum.add_complement(within, op)


KRONECKER_SUM: tuple[Method[Terms], ...] = (
    Method("first layer", _within_first_layer, applies=layered_sum.has_narrow_first_layer),
    Method("layers", layered_sum.iteration, applies=layered_sum.is_layered, pays=layered_sum.is_wide),
    Method("dense", kronecker_sum.dense, pays=kronecker_sum.is_small),
    Method("blocks", kronecker_sum.blocks, applies=kronecker_sum.is_block_diagonal),
    Method("iteration", kronecker_sum.iteration, applies=kronecker_sum.is_regular),
    Method("dense", kronecker_sum.dense),
)

GRAM: tuple[Method[Gram], ...] = (
    Method("iteration", gram.iteration, applies=gram.is_of_full_rank, pays=gram.is_large),
    Method("dense", gram.dense),
)
