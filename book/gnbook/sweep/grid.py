"""Read grids: YAML files with the cases of a sweep, and the figures to draw of them, as `book/sweeps.md` has them.

A grid is a block, or several under `grids`; every combination of the cases of a block's keys is a case. The values of a
parameter are a list, `{from: 2, to: 10, step: 2}` (both ends included), or `{seeds: 20}`, which stands for 0 to 19.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gnbook.sweep.report import check_figure

BLOCK = ("parameters", "product", "zip", "cases")


class Case(NamedTuple):
    """One point of a grid: the parameters that it sets, and its name if it has one."""

    parameters: dict[str, object]
    name: str | None = None


class Grid(NamedTuple):
    """The cases of a sweep in their order, and the figures that `report` draws of them."""

    cases: list[Case]
    figures: list[dict[str, object]]


def read_grid(source: str | Path | Mapping[str, object]) -> Grid:
    """Read a grid from a YAML file, or from its content as a mapping."""
    import yaml

    where = "The grid" if isinstance(source, Mapping) else str(source)
    try:
        content = source if isinstance(source, Mapping) else yaml.safe_load(Path(source).read_text())
        content = _mapping(content, "a grid")
        figures, blocks, common = content.pop("figures", []), [content], {}
        if "grids" in content:
            blocks, common = content.pop("grids"), _mapping(content.pop("parameters", {}), "parameters")
            if content:
                raise ValueError(f"beside grids stand parameters and figures only, not {', '.join(content)}.")
        for figure in figures:
            check_figure(figure)
        cases = [case for block in blocks for case in _block(block, common)]
        if not cases:
            raise ValueError("the grid has no case; give at least one block.")
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{where}: {error}") from None
    return Grid(cases, figures)


def _block(block: object, common: Mapping[str, object]) -> list[Case]:
    """Return the cases of a block."""
    block = _mapping(block, "a block")
    if not block or not set(block) <= {*BLOCK}:
        raise ValueError(f"a block is a mapping with some of {', '.join(BLOCK)}; got {block!r}.")
    start, product, side_by_side, cases = (_mapping(block.get(key, {}), key) for key in BLOCK)
    named = {name: _mapping(case, f"the case {name!r}") for name, case in cases.items()}
    names = [*start, *product, *side_by_side, *{name for case in named.values() for name in case}]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} is set twice in one block.")
    columns = {name: _values(name, values) for name, values in side_by_side.items()}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"zip needs as many values of each parameter; got {lengths}.")
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] if columns else [{}]
    axes = {name: _values(name, values) for name, values in product.items()}
    points = [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    return [
        Case({**common, **start, **case, **row, **point}, name)
        for name, case in (named or {None: {}}).items()
        for row in rows
        for point in points
    ]


def _values(name: str, values: object) -> list:
    """Return the values of a parameter, from a list, a range or a number of seeds."""
    found = values
    if isinstance(values, Mapping) and all(type(value) is int for value in values.values()):
        step = values.get("step", 1)
        if set(values) == {"seeds"}:
            found = [*range(values["seeds"])]
        elif {"from", "to"} <= set(values) <= {"from", "to", "step"} and step > 0:
            found = [*range(values["from"], values["to"] + 1, step)]
    if not isinstance(found, list) or not found:
        raise ValueError(
            f"{name} takes a list of values, {{from: 2, to: 10, step: 2}} or {{seeds: 20}}, in positive whole numbers "
            f"and with one value at least; got {values!r}."
        )
    return found


def _mapping(value: object, name: str) -> dict:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{name} is a mapping from names to values; got {value!r}.")
    return dict(value)
