"""Compare outputs by their words and numbers, since processors round in different ways.

Words must be equal. Numbers must agree within a relative tolerance, unless both are so small that only rounding made
them. The metadata of a cell may set the two limits: `tolerance` and `rounding`.
"""

import json
import re
from itertools import zip_longest

TOLERANCE, ROUNDING = 0.02, 1e-12

# With or without commas between thousands; not part of a word such as float64, nor of a version such as 2.13.0.
NUMBER = re.compile(r"(?<![\w.])([-+]?(?:\d{1,3}(?:,\d{3})+|\d+|(?=\.\d))(?:\.\d+)?(?:[eE][-+]?\d+)?)")


def differences(text, kept, tolerance=TOLERANCE, rounding=ROUNDING):
    """Return a line for each difference between a text and the text that was kept."""
    ours, theirs = NUMBER.split(text), NUMBER.split(kept)
    lines = []
    for (word, number), (kept_word, kept_number) in zip_longest(_pairs(ours), _pairs(theirs), fillvalue=("", "")):
        if word.lstrip(".").split() != kept_word.lstrip(".").split():  # some write 2. for 2
            return [*lines, f"{word.strip()!r} where {kept_word.strip()!r} was kept"]
        if not _agree(number, kept_number, tolerance, rounding):
            lines.append(f"{number} where {kept_number} was kept, after {word.strip()[-40:]!r}")
    return lines


def _pairs(parts):
    """Return each text between numbers with the number that follows."""
    return zip_longest(parts[::2], parts[1::2], fillvalue="")


def _agree(number, kept, tolerance, rounding):
    if not number or not kept:
        return number == kept
    a, b = (float(each.replace(",", "")) for each in (number, kept))
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
