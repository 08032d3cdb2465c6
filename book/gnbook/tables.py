"""Tables as a notebook shows them."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape


class Table:
    """Rows under a head: a table in a notebook, aligned text elsewhere.

    Columns are from the head of each to how its cells are formatted, such as `".3g"`; `"<"` is for names, which begin
    on the left, as numbers end on the right. Text is taken as it is, and None is a dash.
    """

    def __init__(self, columns: Mapping[str, str], rows: Iterable[Sequence[object]], caption: str = "") -> None:
        head, forms = tuple(columns), tuple(columns.values())
        self.caption, self.head = caption, head
        self.rows = [tuple(_written(*cell) for cell in zip(row, forms, strict=True)) for row in rows]
        self._left = [form == "<" for form in forms]

    def __repr__(self) -> str:
        """Return the caption, the head and the rows, a line each."""
        columns = []
        for left, *cells in zip(self._left, self.head, *self.rows, strict=True):
            width = max(map(len, cells))
            columns.append([cell.ljust(width) if left else cell.rjust(width) for cell in cells])
        lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
        return "\n".join([self.caption, *lines] if self.caption else lines)

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        styles = [f'style="text-align: {"left" if left else "right"}"' for left in self._left]

        def row(tag: str, cells: Sequence[str]) -> str:
            return "".join(f"<{tag} {style}>{escape(c)}</{tag}>" for c, style in zip(cells, styles, strict=True))

        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        body = "".join(f"<tr>{row('td', cells)}</tr>\n" for cells in self.rows)
        return f"<table>{caption}\n<thead><tr>{row('th', self.head)}</tr></thead>\n<tbody>\n{body}</tbody></table>"


def _written(cell: object, form: str) -> str:
    """Return a cell as text."""
    if cell is None:
        return "-"
    return cell if isinstance(cell, str) else format(cell, form)
