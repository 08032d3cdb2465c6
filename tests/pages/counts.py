"""What a page asks of its readers, counted: `python -m tests.pages.counts` prints a line for each page and the sums.

Words in sight are those of the text and of captions; what a reader has to open first is in folds. Lines of code are in
sight or folded, empty ones left out; the cell that installs the library in Colab is not on the page.
"""

import re
import statistics
from typing import NamedTuple

import jupytext
from gnbook.checkout import ROOT, chapters
from nbformat.v4 import new_markdown_cell

from tests.pages.anchors import COMMENT, FORMULA, FRONT, NAMES

FOLD = re.compile(r"<details>.*?</details>", re.S)
HIDDEN = {"hide-input", "hide-cell", "remove-cell", "remove-input"}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\([^)]*\)")
TAG = re.compile(r"</?\w+[^>]*>")
BOLD = re.compile(r"\*\*[^*]+\*\*")
NUMBER = re.compile(r"(?<![\w.,^_{])\d[\d,]*(?:\.\d+)?")
MARKS = re.compile(r"[#>|`*]|^:{3,}.*$|^```.*$", re.M)


class Counts(NamedTuple):
    """Counts of one page."""

    words: int  # in sight
    folded: int  # words in folds
    code: int  # lines in sight
    hidden: int  # lines folded
    longest: int  # lines of the longest cell in sight
    before: int  # words in sight before the first picture
    lines_before: int  # lines of code in sight before it
    numbers: int  # in the text in sight, but for formulas, names and code
    links: int
    bold: int

    def per_thousand(self, count: int) -> float:
        """Return a count for each 1,000 words in sight."""
        return 1000 * count / max(self.words, 1)


def lines_of(source):
    return [line for line in source.splitlines() if line.strip()]


def words_of(text):
    """Return the words of a text: a formula is one, an address none."""
    text = TAG.sub(" ", LINK.sub(r"\1", COMMENT.sub("", text)))
    words = MARKS.sub(" ", re.sub(r"\$\$.*?\$\$|\$[^$]+\$", " formula ", text, flags=re.S)).split()
    return [word for word in words if re.search(r"\w", word)]


def is_picture(cell):
    """Say whether a cell of the executed notebook shows a picture."""
    kinds = {kind for output in cell.get("outputs", ()) for kind in output.get("data", {})}
    return bool(kinds & {"image/png", "image/svg+xml", "application/vnd.plotly.v1+json"})


def cells_of(path):
    """Return the cells of a page, of its notebook where it has one, but for the installation in Colab."""
    if not path.with_suffix(".ipynb").exists():
        return [new_markdown_cell(FRONT.sub("", path.read_text()))]
    found = jupytext.read(path.with_suffix(".ipynb")).cells
    return [cell for cell in found if "install" not in cell.metadata.get("tags", ())]


def counts(path):
    """Return the counts of a page, a notebook with its outputs or a page of text."""
    sight, folds, code, hidden, before = [], [], [], 0, None
    for cell in cells_of(path):
        if cell.cell_type == "markdown":
            sight.append(FOLD.sub("", cell.source))
            folds += FOLD.findall(cell.source)
            continue
        lines = lines_of(cell.source)
        if HIDDEN & {*cell.metadata.get("tags", ())}:
            hidden += len(lines)
        else:
            code.append(lines)
        if is_picture(cell) and before is None:
            before = len(words_of("\n".join(sight))), sum(map(len, code))
        sight.append(cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", ""))
    text = "\n\n".join(sight)
    words, lines = len(words_of(text)), sum(map(len, code))
    longest = max(map(len, code), default=0)
    folded, before = len(words_of("\n".join(folds))), before or (words, lines)
    return Counts(words, folded, lines, hidden, longest, *before, *_marks(text))


def _marks(text):
    """Return how many numbers, links and bold phrases a text has."""
    plain = COMMENT.sub("", text)
    running = FORMULA.sub("", NAMES.sub("", re.sub(r"^\s*\|.*$", "", plain, flags=re.M)))
    return len(NUMBER.findall(running)), len(LINK.findall(plain)), len(BOLD.findall(plain))


def lessons():
    """Return the lessons by name; `sweeps` is one without cells."""
    return {name: path for name, path in chapters().items() if "/" not in name}


def main():
    """Print the counts of all pages, and what they add up to."""
    texts = {path.stem: path for path in sorted((ROOT / "book").glob("*.md")) if not path.stem.startswith("claims")}
    laboratory = {name: path for name, path in chapters().items() if "/" in name}
    print(f"{'':44s}" + "".join(f"{field:>13s}" for field in Counts._fields))
    prose = 0
    for title, pages in (("lessons", lessons()), ("laboratory", laboratory), ("reference", texts)):
        found = {name: counts(path) for name, path in pages.items()}
        for name, each in found.items():
            print(f"{name:44s}" + "".join(f"{count:13,d}" for count in each))
        seen, folded = (sum(each[i] for each in found.values()) for i in (0, 1))
        prose += seen + folded
        print(f"{title}: {len(found)} pages, {seen:,d} words in sight, {seen + folded:,d} in all")
        if title == "lessons":
            density = statistics.median(each.per_thousand(each.code) for each in found.values())
            print(f"lines of code in sight in 1,000 words: {density:.0f} in the median")
    print(f"prose of the book, claims aside: {prose:,d} words")
    python = [path for folder in ("gnlib", "book", "tests", "notebooks") for path in (ROOT / folder).rglob("*.py")]
    print(f"Python: {sum(len(path.read_text().splitlines()) for path in python):,d} lines")


if __name__ == "__main__":
    main()
