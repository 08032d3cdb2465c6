"""Have nbval execute the notebooks that changed, by the code of this tree, and compare numbers as numbers.

The fresh outputs of a notebook join the execution cache, so that the book does not execute it again.
"""

import os
from copy import deepcopy
from functools import cache

import nbformat
import pytest
from gnbook.checkout import chapters, environment
from gnbook.digest import digest

from book.execute import code, put_into_cache, unfold
from tests import threads
from tests.numbers import compare_as_numbers

NOTEBOOKS = [*chapters(".ipynb").values()]
OUTPUTS, SECONDS = pytest.StashKey(), pytest.StashKey()


def pytest_addoption(parser):
    """Add an option for all notebooks."""
    parser.addoption("--unchanged", action="store_true", help="execute unchanged notebooks too")


def pytest_configure(config):
    """Have kernels run the code of this tree."""
    threads.pytest_configure(config)
    os.environ.update(environment())


@cache
def digests(path):
    """Return the digest for which the outputs of a notebook were kept, and that of now."""
    notebook = nbformat.read(path, 4)
    return notebook.metadata.get("digest"), digest(code(notebook), path.parent)


@cache
def unchanged():
    """Return the notebooks that have not changed since their outputs were kept."""
    return {path for path in NOTEBOOKS if len(set(digests(path))) == 1}


def pytest_ignore_collect(collection_path, config):
    """Leave out unchanged notebooks, unless they are named on the command line."""
    if collection_path in unchanged() and not config.getoption("unchanged"):
        return True


def pytest_itemcollected(item):
    """Have the cells of nbval compare numbers as numbers."""
    if hasattr(item, "compare_outputs"):
        compare_as_numbers(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Put a notebook that changed into the cache when the last of its cells has passed."""
    report = yield
    if call.when == "call" and report.passed:
        chapter = item.parent
        outputs = chapter.stash.setdefault(OUTPUTS, {})
        outputs[item.cell_num] = item.test_outputs
        chapter.stash[SECONDS] = chapter.stash.get(SECONDS, 0) + call.duration
        kept, now = digests(chapter.path)
        if len(outputs) == len(code(chapter.nb)) and kept != now:
            executed = unfold(deepcopy(chapter.nb))
            executed.metadata["digest"] = now
            for number, cell in enumerate(cell for cell in executed.cells if cell.cell_type == "code"):
                cell.outputs = outputs[number]
            put_into_cache(chapter.path.with_suffix(".md"), executed, chapter.stash[SECONDS])
    return report


def pytest_sessionfinish(session, exitstatus):
    """Succeed if all notebooks were left out."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and unchanged():
        session.exitstatus = pytest.ExitCode.OK
