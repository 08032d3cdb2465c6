"""Compare outputs by their words and numbers, since processors round in different ways.

Words must be equal. Numbers must agree within a relative tolerance, unless both are so small that only rounding made
them. The metadata of a cell may set the two limits: `tolerance` and `rounding`.
"""

import json
import re
from itertools import zip_longest

TOLERANCE, ROUNDING = 0.02, 1e-12

# With or without commas between thousands; not part of a word such as float64, nor of a version such as 2.13.0.
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+|(?=\.\d))(?:\.\d+)?(?:[eE][-+]?\d+)?")


def differences(text, kept, tolerance=TOLERANCE, rounding=ROUNDING):
    """Return a line for each number that differs from the one that was kept, or for the first word that does."""
    for ours, theirs in zip_longest(_words(text), _words(kept)):
        if ours != theirs:
            return [f"{ours!r} where {theirs!r} was kept"]
    pairs = zip(NUMBER.finditer(text), NUMBER.finditer(kept), strict=True)
    return [
        f"{ours[0]} where {theirs[0]} was kept, in {_line(text, ours.start())!r}"
        for ours, theirs in pairs
        if not _agree(_value(ours[0]), _value(theirs[0]), tolerance, rounding)
    ]


def _words(text):
    """Return the words of a text, with # for each number, whether it is written 2 or 2. as NumPy does."""
    words = (word.lstrip(".") for word in NUMBER.sub(" # ", text).split())
    return [word for word in words if word]


def _line(text, position):
    return text[text.rfind("\n", 0, position) + 1 :].partition("\n")[0].strip()


def _value(number):
    return float(number.replace(",", ""))


def _agree(a, b, tolerance, rounding):
    largest = max(abs(a), abs(b))
    return largest < rounding or abs(a - b) <= tolerance * largest * (1 + 1e-12)


def texts(outputs, without):
    """Return the texts of outputs: of streams by their name, of others by their media type."""
    parts = {}
    for output in outputs:
        data = {output.name: output.text} if output.output_type == "stream" else output.get("data", {})
        for kind, content in data.items():
            if kind not in without:
                parts.setdefault(kind, []).append(content if isinstance(content, str) else json.dumps(content))
    return {kind: "\n".join(contents) for kind, contents in parts.items()}


def compare_as_numbers(cell):
    """Have a cell of nbval compare its outputs with the kept ones by words and numbers."""

    def compare(outputs, kept):
        ours, theirs = (texts(some, without=cell.parent.skip_compare) for some in (outputs, kept))
        options = {name: cell.cell.metadata[name] for name in ("tolerance", "rounding") if name in cell.cell.metadata}
        lines = [] if ours.keys() == theirs.keys() else [f"{sorted(ours)} where {sorted(theirs)} was kept"]
        for kind in ours.keys() & theirs.keys():
            lines += [f"{kind}: {line}" for line in differences(ours[kind], theirs[kind], **options)]
        cell.comparison_traceback = [f"  {line}" for line in lines]
        return not lines

    cell.compare_outputs = compare
