"""Anchors, which hold the numbers in sentences to what they are computed from, and which no reader sees.

A number is followed by the name of its value, as in `grows to 390<!-- growth -->`; a sentence that states a finding is
followed by the name of the test that checks it, as in `Width helps late.<!-- test: test_width_helps_late -->`. The
values of `notebooks/<slug>.md` are what the function `values` of `tests/pages/test_<slug>.py` returns: numbers, or
lists of numbers, of which `growth.0` names the first. `make numbers` writes the numbers anew, each as it stands: in
words or digits, with as many decimals, with commas or without.
"""

import re
from importlib import import_module
from pathlib import Path

from gnbook.checkout import chapters

ROOT = Path(__file__).parents[2]
WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()

# A formula may end after its number, as in `$m = 600\, L$<!-- width -->`.
ANCHOR = re.compile(
    rf"(?P<number>(?<![\w.,])[-+]?\d(?:[\d,]*\d)?(?:\.\d+)?|\b(?:{'|'.join(WORDS)})\b)"
    r"(?P<rest>[^$\d]*\$)?<!-- (?P<name>\w+(?:\.\d+)?) -->",
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
    r"\$\$.*?\$\$|`[^`]+`|\]\([^)]*\)|^\d\. |\(\d{4}\)|CIFAR-10|\bfloat(?:32|64)\b"
    r"|\b(?:Lemmas?|[Ff]igures?|Eq\.) \d+\w?(?:(?:, | and )\d+)*",
    re.M | re.S,
)
FORMULA = re.compile(r"\$[^$]+\$")


def pages():
    """Return the chapters that have values."""
    modules = {name: ROOT / f"{module(name).replace('.', '/')}.py" for name in chapters()}
    return [name for name, path in modules.items() if path.exists() and "\ndef values():" in path.read_text()]


def module(page):
    """Return the name of the module that tests a page: that of `laboratory/waiting` lies in a folder as well."""
    folder, _, stem = page.rpartition("/")
    return ".".join(filter(None, ["tests.pages", folder, f"test_{stem.replace('-', '_')}"]))


def values_of(page):
    """Return the values of a page by the names that its anchors may have."""
    found = import_module(module(page)).values()
    single = {name: value for name, value in found.items() if not isinstance(value, list | tuple)}
    return single | {f"{n}.{i}": v for n, many in found.items() if n not in single for i, v in enumerate(many)}


def written(value, like):
    """Write a value as a number is written."""
    if like.lower() in WORDS and round(value) < len(WORDS):
        word = WORDS[round(value)]
        return word.capitalize() if like[0].isupper() else word
    decimals = len(like.partition(".")[2])
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
    """Write the numbers of all pages that have values, in the source and in the notebook."""
    for page in pages():
        values = values_of(page)
        for path in (ROOT / f"notebooks/{page}{suffix}" for suffix in (".md", ".ipynb")):
            path.write_text(rewritten(path.read_text(), values))


if __name__ == "__main__":
    write()
