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
from gnlib.operators import LayeredSum
from gnlib.refused import Refused

Operand = TypeVar("Operand")


@dataclass(frozen=True)
class Method(Generic[Operand]):
    """A way to both ends of a spectrum, which `ends` returns, or None where it turned out not to work.

    It applies where its result is right, and pays where the methods further down are likely to be slower.
    """

    name: str
    ends: Callable[[Operand, Limits], ConditionNumber | None]
    applies: Callable[[Operand, Limits], bool] = lambda operand, limits: True
    pays: Callable[[Operand, Limits], bool] = lambda operand, limits: True


def find_ends(
    operand: Operand, methods: Sequence[Method[Operand]], limits: Limits, method: str | None = None
) -> ConditionNumber:
    """Return both ends of a spectrum by the first method that suits the operand, or by the one that is named."""
    names = dict.fromkeys(m.name for m in methods)
    if method is not None and method not in names:
        known = ", ".join(map(repr, names))
        raise Refused("bad-option", f"method is {method!r}; for this operand it can be {known}, or None.")
    able = [m for m in methods if m.name == (method or m.name) and m.applies(operand, limits)]
    if not able:
        raise Refused("bad-option", f"The method {method!r} does not apply to this operand; leave method out.")
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
    Method("layers", layered_sum.iteration, lambda t, _: isinstance(t.op, LayeredSum), pays=layered_sum.is_wide),
    Method("dense", kronecker_sum.dense, pays=lambda t, _: t.size <= kronecker_sum.DENSE_UP_TO),
    Method("blocks", kronecker_sum.blocks, applies=kronecker_sum.is_block_diagonal),
    Method("iteration", kronecker_sum.iteration, applies=kronecker_sum.is_regular),
    Method("dense", kronecker_sum.dense),
)

GRAM: tuple[Method[Gram], ...] = (
    Method(  # without outputs its one block is the whole matrix, factored beside it, and once for either end
        "iteration",
        gram.iteration,
        applies=lambda g, _: g.rank in (None, len(g.matrix)) and g.has_room(gram.COPIES_OF_BLOCKS / g.outputs),
        pays=lambda g, _: not g.is_small and g.outputs > 1,
    ),
    Method(
        "factor",
        gram.factor,
        applies=lambda g, _: g.rank in (None, len(g.matrix)) and (g.lent or g.has_room(1)),
        pays=lambda g, _: not g.is_small,
    ),
    Method("dense", gram.dense),
)
