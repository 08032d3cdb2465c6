"""Each lesson keeps to what lessons are: short, one picture soon, its code in sight, enough to run alone."""

import random
import re
import subprocess
import sys

import pytest
from gnbook.checkout import ROOT, chapters

from tests.numbers import differences
from tests.pages.counts import HIDDEN, counts, lessons, lines_of
from tests.pages.lesson import ALLOWED, cells, in_sight, ranges, run

GENERIC = re.compile(r"(show|hide|source|the)? ?(source|code|cell)?", re.I)
each_lesson = pytest.mark.parametrize("name", sorted(lessons()))


@each_lesson
def test_its_words_and_lines_are_within_what_a_lesson_may_have(name):
    found = counts(lessons()[name])
    assert found.words <= 1600
    assert 30 <= found.code <= 110
    assert found.longest <= 12
    assert found.before <= 250 and found.lines_before <= 32
    assert found.per_thousand(found.numbers) <= 15
    assert found.per_thousand(found.links) <= 3.5
    assert found.per_thousand(found.bold) <= 5.5


def test_the_prose_of_the_book_stays_short():
    laboratory = [counts(path) for name, path in chapters().items() if "/" in name]
    main = [counts(path) for path in lessons().values()]
    reference = [counts(path) for path in (ROOT / "book").glob("*.md") if not path.stem.startswith("claims")]
    assert 14 <= len(main) <= 16 and sum(each.words for each in main) <= 25_000
    assert sum(each.words for each in laboratory) <= 36_000
    assert sum(each.words + each.folded for each in (*main, *laboratory, *reference)) <= 75_000


@each_lesson
def test_each_fold_has_a_name(name):
    for cell in cells(name):
        if "remove-cell" not in cell.metadata.get("tags", ()) and HIDDEN & {*cell.metadata.get("tags", ())}:
            shown = cell.metadata.get("mystnb", {}).get("code_prompt_show", "")
            assert not GENERIC.fullmatch(shown), cell.source


@each_lesson
def test_what_is_in_sight_needs_nothing_that_is_not(name):
    code = "\n".join(cell.source for cell in in_sight(name))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", "--stdin-filename=lesson.py", "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert {*re.findall(r"^ *(?:from|import) (\w+)", code, re.M)} - ALLOWED <= {"gnbook"}
    assert {*re.findall(r".*gnbook.*", code)} <= {"from gnbook import figures"}  # nothing but their style


def test_the_type_checker_reads_what_cells_define(tmp_path):
    """Calls that nothing takes and attributes that nothing has; cells reuse names, and say no types."""
    for name in lessons():
        code = "\n\n".join(cell.source for cell in cells(name))
        (tmp_path / f"{name.replace('-', '_')}.py").write_text(code)
    loose = "var-annotated", "union-attr", "arg-type", "operator", "misc"
    options = "--config-file=", "--check-untyped-defs", "--ignore-missing-imports", "--follow-imports=silent"
    options += (
        "--allow-redefinition-new",
        "--local-partial-types",
        *(f"--disable-error-code={code}" for code in loose),
    )
    command = [sys.executable, "-m", "mypy", *options, *sorted(map(str, tmp_path.glob("*.py")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout


@each_lesson
def test_the_first_cell_says_what_each_parameter_is(name):
    first = in_sight(name)[0]
    assert "parameters" in first.metadata["tags"]
    assert all("  # " in line for line in lines_of(first.source) if re.match(r"\w+ = ", line))
    assert len(ranges(name)) >= 2


@pytest.mark.nightly
@each_lesson
def test_the_cells_in_sight_run_alone_and_print_what_the_page_shows(name):
    printed = run(name).splitlines()
    outputs = [output for cell in in_sight(name) for output in cell.outputs if output.output_type == "stream"]
    assert int(printed[-1].split()[0]) >= 1
    assert differences("\n".join(printed[:-1]), "".join(output.text for output in outputs)) == []


@pytest.mark.nightly
@each_lesson
def test_it_runs_after_a_change_of_two_parameters(name):
    draw, stated = random.Random(name), ranges(name)
    for parameter in draw.sample(sorted(stated), 2):
        low, high = stated[parameter]
        value = draw.randint(low, high) if isinstance(low, int) else draw.uniform(low, high)
        assert run(name, **{parameter: value})
