"""Lines and tables as text and as HTML."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from textwrap import TextWrapper
from typing import NamedTuple

WIDTH = 72  # of a page
LISTED = 10  # names or numbers that are listed


class Line(NamedTuple):
    """A line of a report: a name, a value, and its meaning or a piece of advice."""

    name: str
    value: str
    meaning: str


class Page(ABC):
    """A result that is shown as a page of lines: as text, and in a notebook as a table."""

    @abstractmethod
    def lines(self) -> list[Line]:
        """Return the page line by line."""

    def __str__(self) -> str:
        """Return the page as text."""
        return as_page(self.lines())

    def __repr__(self) -> str:
        """Return the page as text, which a notebook keeps beside its table."""
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self.lines())


def as_page(lines: Sequence[Line]) -> str:
    """Return lines below each other, the names in a column of their own."""
    indent = max(len(line.name) for line in lines) + 2
    wrapper = TextWrapper(WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
    return "\n".join(wrapper.fill(f"{name:<{indent}}{value}: {meaning}") for name, value, meaning in lines)


def listed(entries: Sequence[object]) -> str:
    """Return the first entries, separated by commas."""
    return ", ".join(map(str, entries[:LISTED])) + (", ..." if len(entries) > LISTED else "")


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines with columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def as_html(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table, the first cell of each as its heading."""
    lines = [
        f'<tr><th style="text-align: left">{escape(row[0])}</th>'
        + "".join(f'<td style="text-align: left">{escape(cell)}</td>' for cell in row[1:])
        + "</tr>"
        for row in rows
    ]
    return f"<table>{''.join(lines)}</table>"
