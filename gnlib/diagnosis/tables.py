"""Tables as text and as HTML."""

from collections.abc import Sequence
from html import escape


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
