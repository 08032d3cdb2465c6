"""How nbval executes the notebooks: those of which something has changed, in this tree, numbers compared as numbers.

The fresh outputs of a chapter join the execution cache, so that the book does not run it again.
"""

import os
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
from gnbook.checkout import environment
from gnbook.digest import digest

from book.execute import code, is_unchanged, put_into_cache, unfold
from tests import threads
from tests.numbers import compare_as_numbers

NOTEBOOKS = sorted(Path(__file__).parent.glob("*.ipynb"))
OUTPUTS, SECONDS = pytest.StashKey(), pytest.StashKey()


def pytest_addoption(parser):
    """Add an option for all notebooks."""
    parser.addoption("--unchanged", action="store_true", help="execute also notebooks that are as they were kept")


def pytest_configure(config):
    """Have kernels run the code of this tree."""
    threads.pytest_configure(config)
    os.environ.update(environment())


@cache
def unchanged():
    """Return the notebooks of which nothing has changed since their outputs were kept."""
    return {path for path in NOTEBOOKS if is_unchanged(path)}


def pytest_ignore_collect(collection_path, config):
    """Leave out what has not changed, unless it is named on the command line."""
    if not config.getoption("unchanged") and collection_path in unchanged():
        return True


def pytest_itemcollected(item):
    """Have the cells of nbval compare numbers as numbers."""
    if hasattr(item, "compare_outputs"):
        compare_as_numbers(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Put a chapter into the cache when the last of its cells has passed, unless what is kept is as good."""
    report = yield
    if call.when == "call" and report.passed:
        chapter = item.parent
        outputs = chapter.stash.setdefault(OUTPUTS, {})
        outputs[item.cell_num] = item.test_outputs
        chapter.stash[SECONDS] = chapter.stash.get(SECONDS, 0) + call.duration
        if len(outputs) == len(code(chapter.nb)) and not is_unchanged(chapter.path):
            executed = unfold(deepcopy(chapter.nb))
            executed.metadata["digest"] = digest(code(executed), chapter.path.parent)
            for number, cell in enumerate(cell for cell in executed.cells if cell.cell_type == "code"):
                cell.outputs = outputs[number]
            put_into_cache(chapter.path.with_suffix(".md"), executed, chapter.stash[SECONDS])
    return report


def pytest_sessionfinish(session, exitstatus):
    """Nothing to execute is no failure."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and unchanged():
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter, config):
    """Say how many notebooks were left out."""
    if not config.getoption("unchanged"):
        terminalreporter.write_line(f"{len(unchanged())} of {len(NOTEBOOKS)} notebooks are as they were kept")
