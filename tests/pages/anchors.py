"""Anchors, which hold the numbers in sentences to what they are computed from, and which no reader sees.

A number is followed by the name of its value, as in `grows to 390<!-- growth -->`; a sentence that states a finding is
followed by the name of the test that checks it, as in `Width helps late.<!-- test: test_width_helps_late -->`. The
values of `notebooks/<slug>.md` are what the function `values` of `tests/pages/test_<slug>.py` returns: numbers, or
lists of numbers, of which `growth.0` names the first. A page needs no such list: `390<!-- =growth('ReLU') -->` is
what this says in the words of the same module, of NumPy, `np`, and of `tests/pages/pages.py`, with single quotes, as
the notebook has the same text within double ones. `make numbers` writes the numbers anew, each as it stands: in words
or digits, with as many decimals, with commas or without.
"""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tests.pages import pages as helpers

ROOT = Path(__file__).parents[2]
WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()

# A formula may end after its number, as in `$m = 600\, L$<!-- width -->`.
ANCHOR = re.compile(
    rf"(?P<number>(?<![\w.,])[-+]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[-+]\d+)?|\b(?:{'|'.join(WORDS)})\b)"
    r"(?P<rest>[^$\d]*\$)?<!-- (?P<name>\w+(?:\.\d+)?|=.+?) -->",
    re.I,
)
TEST = re.compile(r"<!-- test: (\w+) -->")
COMMENT = re.compile(r"<!--.*?-->", re.S)

FRONT = re.compile(r"\A---\n.*?\n---\n", re.S)
CELL = re.compile(r"^```\{code-cell\}.*?^```$", re.M | re.S)
CAPTION = re.compile(r"^    caption: >\n(.*?)^  image:", re.M | re.S)
# What is no result: formulas on lines of their own, code, addresses, the numbers of an exercise, of what a paper has
# numbered and of its year, names of data sets and of precisions, and, in a formula, numbers of one digit.
NAMES = re.compile(
    r"\$\$.*?\$\$|```.*?```|`[^`]+`|\]\([^)]*\)|^\d\. |\(\d{4}\)|CIFAR-10|\bfloat(?:32|64)\b"
    r"|\b(?:Lemmas?|[Ff]igures?|Eq\.) \d+\w?(?:(?:, | and )\d+)*",
    re.M | re.S,
)
FORMULA = re.compile(r"\$[^$]+\$")


def path(page):
    """Return the source of a page: a chapter, such as `laboratory/waiting`, or one of the book, such as `scorecard`."""
    chapter = ROOT / f"notebooks/{page}.md"
    return chapter if chapter.exists() else ROOT / f"book/{page}.md"


def pages():
    """Return the pages that have anchors."""
    files = {str(file.relative_to(ROOT / "notebooks").with_suffix("")): file for file in ROOT.glob("notebooks/**/*.md")}
    files |= {file.stem: file for file in ROOT.glob("book/*.md")}
    return sorted(page for page, file in files.items() if ANCHOR.search(file.read_text()))


def module(page):
    """Return the module that tests a page, or what it continues, or what continues it; or several of the laboratory."""
    folder, _, stem = page.replace("-", "_").rpartition("/")
    stems = stem, stem.removesuffix("_further"), f"{stem}_further", "tables"
    names = (".".join(filter(None, ["tests.pages", folder, f"test_{each}"])) for each in stems)
    return import_module(next(name for name in names if find_spec(name)))


def has_names(page):
    """Say whether a page has names for its values."""
    tests = module(page)
    return hasattr(tests, "values") and page.endswith("-further") == tests.__name__.endswith("_further")


def by_name(found):
    """Return values by the names of their anchors, members of lists by their places."""
    single = {name: value for name, value in found.items() if not isinstance(value, list | tuple)}
    return single | {f"{n}.{i}": v for n, many in found.items() if n not in single for i, v in enumerate(many)}


def values_of(page):
    """Return the values of a page by the names, or by the expressions, that its anchors have."""
    words = {"np": np} | vars(helpers) | vars(module(page))
    anchors = {anchor["name"] for anchor in ANCHOR.finditer(path(page).read_text())}
    named = by_name(module(page).values()) if has_names(page) else {}
    return named | {name: eval(name[1:], words) for name in anchors if name.startswith("=")}


def written(value, like):
    """Write a value as a number is written."""
    if like.lower() in WORDS and round(value) < len(WORDS):
        word = WORDS[round(value)]
        return word.capitalize() if like[0].isupper() else word
    mantissa, e, _ = like.partition("e")
    decimals = len(mantissa.partition(".")[2])
    if e:
        return f"{value:.{decimals}e}"
    sign = "+" if like.startswith("+") else ""
    comma = "" if re.match(r"[-+]?\d{4}", like) else ","
    return f"{round(float(value), decimals) + 0.0:{sign}{comma}.{decimals}f}"  # zero has no sign


def rewritten(text, values):
    """Return a text with the numbers that its anchors name."""

    def number(anchor):
        rest = anchor["rest"] or ""
        return f"{written(values[anchor['name']], anchor['number'])}{rest}<!-- {anchor['name']} -->"

    return ANCHOR.sub(number, text)


def prose(text):
    """Return what a reader reads of a page: without its cells, but with the captions of their figures."""

    def caption(cell):
        found = CAPTION.search(cell[0])
        return found[1] if found else ""

    return CELL.sub(caption, FRONT.sub("", text))


def without_anchor(text):
    """Return the numbers of a text that no anchor holds."""
    held = ANCHOR.sub(lambda anchor: f"n{anchor['rest'] or ''}", prose(text))
    rest = NAMES.sub("", COMMENT.sub("", held))
    formulas = [found for formula in FORMULA.findall(rest) for found in re.findall(r"\d[\d.,]*\d(?![\d^])", formula)]
    return formulas + re.findall(r"\S*\d\S*", FORMULA.sub("", rest))


def write():
    """Write the numbers of all pages that have anchors, in the source and in the notebook."""
    for page in pages():
        values = values_of(page)
        for file in (path(page), path(page).with_suffix(".ipynb")):
            if file.exists():
                file.write_text(rewritten(file.read_text(), values))


if __name__ == "__main__":
    write()
