"""What nbval has run the book need not run again: the fresh outputs of a chapter join the execution cache."""

from copy import deepcopy

import pytest

from book.execute import put_into_cache, unfold
from tests.threads import pytest_configure as pytest_configure

OUTPUTS, SECONDS = pytest.StashKey(), pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Put a chapter into the cache when the last of its cells has passed."""
    report = yield
    if call.when == "call" and report.passed:
        chapter = item.parent
        outputs = chapter.stash.setdefault(OUTPUTS, {})
        outputs[item.cell_num] = item.test_outputs
        chapter.stash[SECONDS] = chapter.stash.get(SECONDS, 0) + call.duration
        executed = unfold(deepcopy(chapter.nb))
        cells = [cell for cell in executed.cells if cell.cell_type == "code"]
        if len(outputs) == len(cells):
            for number, cell in enumerate(cells):
                cell.outputs = outputs[number]
            put_into_cache(chapter.path.with_suffix(".md"), executed, chapter.stash[SECONDS])
    return report
