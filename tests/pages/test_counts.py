"""How pages are counted, and what they may come to."""

import jupytext
import nbformat
import pytest
from gnbook.checkout import ROOT, chapters

from tests.pages.counts import counts, lessons, words_of

PAGE = """\
# Title

One **law** for 20 images, see [here](there.md): $x^2 = 4$.

<details><summary>Solution</summary>

Three words more.

</details>
"""


@pytest.fixture
def page(tmp_path):
    """A page of text, a cell in sight, one that draws with a caption, one that is folded, and the installation."""

    def cell(source, tags=(), **kinds):
        outputs = [nbformat.v4.new_output("display_data", data=kinds)] if kinds else []
        return nbformat.v4.new_code_cell(source, outputs=outputs, metadata={"tags": [*tags]})

    drawn = cell("a = 1\n\ndraw(a)", **{"image/png": "AA"})
    drawn.metadata["mystnb"] = {"figure": {"caption": "Two words."}}
    cells = [nbformat.v4.new_markdown_cell(PAGE), cell("pip", ["install"]), cell("n = 1"), drawn]
    cells += [cell("fold\nfold", ["hide-input"]), nbformat.v4.new_markdown_cell("After it.")]
    jupytext.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "page.ipynb")
    return tmp_path / "page.md"


def test_words_and_lines_in_sight_are_told_from_those_in_folds(page):
    found = counts(page)
    title, first, caption, last = 1, 8, 2, 2
    assert (found.words, found.folded) == (title + first + caption + last, 1 + 3)
    assert (found.code, found.hidden, found.longest) == (3, 2, 2)
    assert (found.before, found.lines_before) == (title + first, 3)
    assert (found.numbers, found.links, found.bold) == (1, 1, 1)


def test_a_formula_is_one_word_and_an_address_none():
    assert words_of("so $a + b$ is\n\n$$\nc = d\n$$\n\nsee [two words](a/b.md) <!-- value -->") == (
        "so formula is formula see two words".split()
    )


def test_the_prose_of_the_book_stays_short():
    laboratory = [counts(path) for name, path in chapters().items() if "/" in name]
    main = [counts(path) for path in lessons().values()]
    reference = [counts(path) for path in (ROOT / "book").glob("*.md") if not path.stem.startswith("claims")]
    assert 14 <= len(main) <= 16 and sum(each.words for each in main) <= 25_000
    assert sum(each.words for each in laboratory) <= 36_000
    assert sum(each.words + each.folded for each in (*main, *laboratory, *reference)) <= 75_000
