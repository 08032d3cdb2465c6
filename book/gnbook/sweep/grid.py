"""Read grids: YAML files with the cases of a sweep, and the figures to draw of them.

A block combines the cases of its keys; every combination is one case:

| key | cases |
|---|---|
| `parameters` | one: the same in every case |
| `product` | every combination of the values of each parameter |
| `zip` | the values of all its parameters side by side; as many of each |
| `cases` | one for each name, with parameters of its own |

The values of a parameter are a list, `{from: 2, to: 10, step: 2}` (both ends included), or `{seeds: 20}`, which stands
for 0 to 19. A grid is one block, or several under `grids`, whose cases follow one another; `parameters` beside `grids`
are for all of them.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gnbook.sweep.report import check_figure

BLOCK = ("parameters", "product", "zip", "cases")


@dataclass(frozen=True)
class Case:
    """One point of a grid: the parameters that it sets, and its name if it has one."""

    parameters: dict[str, object]
    name: str | None = None


@dataclass(frozen=True)
class Grid:
    """The cases of a sweep in their order, and the figures that `report` draws of them."""

    cases: tuple[Case, ...]
    figures: tuple[dict[str, object], ...] = ()


def read_grid(source: str | Path | Mapping[str, object]) -> Grid:
    """Read a grid from a YAML file, or from its content as a mapping."""
    where = "The grid" if isinstance(source, Mapping) else str(source)
    content = source if isinstance(source, Mapping) else _read_yaml(Path(source))
    try:
        return _grid(content)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _grid(content: object) -> Grid:
    if not isinstance(content, Mapping):
        raise ValueError(f"a mapping with some of {', '.join(BLOCK)} was expected.")
    content = dict(content)
    figures = content.pop("figures", [])
    if not isinstance(figures, list) or not all(isinstance(figure, Mapping) for figure in figures):
        raise ValueError("figures is a list of mappings; one for each figure.")
    for figure in figures:
        check_figure(figure)
    blocks = content.pop("grids", None)
    if blocks is None:
        blocks, common = [content], {}
    else:
        common = _mapping(content.pop("parameters", {}), "parameters")
        if content:
            raise ValueError(f"beside grids stand parameters and figures only, not {', '.join(map(repr, content))}.")
        if not isinstance(blocks, list):
            raise ValueError("grids is a list of blocks.")
    cases = [case for block in blocks for case in _block(block, common)]
    if not cases:
        raise ValueError("the grid has no case; give at least one block.")
    return Grid(tuple(cases), tuple(map(dict, figures)))


def _block(block: object, common: Mapping[str, object]) -> list[Case]:
    """Return the cases of a block."""
    if not isinstance(block, Mapping) or not block:
        raise ValueError(f"a block is a mapping with some of {', '.join(BLOCK)}; got {block!r}.")
    for key in block:
        if key not in BLOCK:
            raise ValueError(f"{key!r} is none of {', '.join((*BLOCK, 'grids', 'figures'))}.")
    parts = {key: _mapping(block.get(key, {}), key) for key in BLOCK}
    named = {name: _mapping(case, f"the case {name!r}") for name, case in parts["cases"].items()}
    if "cases" in block and not named:
        raise ValueError("cases is empty.")
    _refuse_twice(parts["parameters"], parts["product"], parts["zip"], {k: 0 for case in named.values() for k in case})

    columns = {name: _values(name, values) for name, values in parts["zip"].items()}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"zip needs as many values of each parameter; got {lengths}.")
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] if columns else [{}]
    axes = {name: _values(name, values) for name, values in parts["product"].items()}
    points = [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    start = {**common, **parts["parameters"]}
    return [
        Case({**start, **case, **row, **point}, name)
        for name, case in (named or {None: {}}).items()
        for row in rows
        for point in points
    ]


def _values(name: str, values: object) -> list:
    """Return the values of a parameter, from a list, a range or a number of seeds."""
    if isinstance(values, Mapping):
        if set(values) == {"seeds"} and _whole(values["seeds"]) and values["seeds"] > 0:
            return list(range(values["seeds"]))
        if {"from", "to"} <= set(values) <= {"from", "to", "step"} and all(map(_whole, values.values())):
            step = values.get("step", 1)
            if step > 0:
                values = list(range(values["from"], values["to"] + 1, step))
    if not isinstance(values, list):
        raise ValueError(
            f"{name} takes a list of values, {{from: 2, to: 10, step: 2}} or {{seeds: 20}}, "
            f"in positive whole numbers; got {values!r}."
        )
    if not values:
        raise ValueError(f"{name} takes no value: its list or range is empty, and so the grid has no case.")
    return values


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _mapping(value: object, name: str) -> dict:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{name} is a mapping from names to values; got {value!r}.")
    return dict(value)


def _refuse_twice(*parts: Mapping[str, object]) -> None:
    seen = set()
    for part in parts:
        if both := seen & set(part):
            raise ValueError(f"{min(both)!r} is set twice in one block.")
        seen |= set(part)


def _read_yaml(path: Path) -> object:
    """Read a YAML file, in which no key may occur twice: PyYAML would keep the last one without a word."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for key in keys:
                if keys.count(key) > 1:
                    raise ValueError(f"{path}: {key!r} stands twice in one mapping{node.start_mark}.")
            return super().construct_mapping(node, deep)

    if not path.is_file():
        raise FileNotFoundError(f"There is no grid file at {path}.")
    try:
        return yaml.load(path.read_text(), Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {error}") from None
