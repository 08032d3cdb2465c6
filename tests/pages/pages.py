"""What the pages of the book say, and what the cells of its chapters have shown."""

import json
import math
import re
from functools import cache
from pathlib import Path

import torch
from gnbook import results

from tests.numbers import NUMBER

ROOT = Path(__file__).parents[2]


@cache
def outputs(chapter, tag=None):
    """Return the outputs of a chapter's cells, or of those with a tag, each by its kinds: a stream is `text/plain`."""
    cells = json.loads((ROOT / "notebooks" / f"{chapter}.ipynb").read_text())["cells"]
    some = [cell for cell in cells if tag is None or tag in cell["metadata"].get("tags", ())]
    found = [output for cell in some for output in cell.get("outputs", ())]
    return [{"text/plain": output["text"]} if "text" in output else output["data"] for output in found]


def parameters(chapter):
    """Return what the cell of parameters of a chapter sets, by its names."""
    cells = json.loads((ROOT / "notebooks" / f"{chapter}.ipynb").read_text())["cells"]
    (cell,) = (cell for cell in cells if "parameters" in cell["metadata"].get("tags", ()))
    given = {}
    exec("".join(cell["source"]), {}, given)
    return given


def texts(chapter, tag=None):
    """Return what is printed, and tables as text."""
    return ["".join(data.get("text/plain", "")) for data in outputs(chapter, tag)]


def table(chapter, start):
    """Return the lines under the head of the one table whose caption begins like this."""
    (found,) = (text for text in texts(chapter) if text.startswith(start))
    return found.splitlines()[2:]


def number(cell):
    """Return the number that a cell of a table is, None for a dash, or its words."""
    try:
        return None if cell == "-" else float(cell.replace(",", "").rstrip("%"))
    except ValueError:
        return cell


def span(cell):
    """Return both numbers of a cell such as `4 to 10`."""
    return [number(end) for end in cell.split(" to ")]


def cells(chapter, start):
    """Return the cells of each line of the one table whose caption begins like this."""
    return [[number(cell) for cell in re.split(r" {2,}", line.strip())] for line in table(chapter, start)]


def column(chapter, start, at, row=None):
    """Return one column of the same table, of all rows or of those that begin with a cell."""
    return [found[at] for found in cells(chapter, start) if row in (None, found[0])]


def named(chapter, start, names=1):
    """Return the same table from the first cell of each line, or the first cells, to the others."""
    found = cells(chapter, start)
    return {row[0] if names == 1 else tuple(row[:names]): row[names:] for row in found}


def checked_lines(chapter):
    """Return what the checked cells print or show."""
    return "\n".join(texts(chapter, "nbval-check-output")).splitlines()


def numbers(text):
    """Return the numbers of a text, less those that are part of a word."""
    return [float(found[0].replace(",", "")) for found in NUMBER.finditer(text)]


def rows(chapter, pattern):
    """Return the numbers of each printed line that begins like this, behind what is matched."""
    lines = [line.strip() for text in texts(chapter) for line in text.splitlines()]
    matches = [(re.match(pattern, line), line) for line in lines]
    return [numbers(line[match.end() :]) for match, line in matches if match]


@cache
def kept(name):
    """Return the rows of a kept table."""
    return results.kept(name)


def those(name, **values):
    """Return the rows of a kept table that have these values."""
    found = [row for row in kept(name) if values.items() <= row.items()]
    assert found, f"{name} has no rows with {values}"
    return found


def kappas(name, column="kappa", **values):
    """Return a column of the rows of a kept table that have these values."""
    return [row[column] for row in those(name, **values)]


def word(chapter, start, at):
    """Return one of the numbers that the one checked line shows that begins like this."""
    (found,) = (line.removeprefix(start) for line in checked_lines(chapter) if line.startswith(start))
    return number(found.split()[at])


def slider(chapter):
    """Return what plotly draws of the one figure with a slider, from position to curves, each by its x and y."""
    (figure,) = (data[kind] for data in outputs(chapter) for kind in data if kind == "application/vnd.plotly.v1+json")
    return {frame["name"]: [(curve["x"], curve["y"]) for curve in frame["data"]] for frame in figure["frames"]}


def descend(model, x, target, goal, rate, most=400):
    """Descend by full batches until a sum of squares is at a goal, and return the steps, or infinity after the most."""
    for step in range(most + 1):
        squares = (model(x) - target).square().sum()
        if squares <= goal:
            return step
        if step == most or not squares < 1e10:
            return math.inf
        grads = torch.autograd.grad(squares / (2 * len(x)), [*model.parameters()])
        for weight, grad in zip(model.parameters(), grads, strict=True):
            weight.data -= rate * grad
