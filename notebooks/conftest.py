"""What nbval has run the book need not run again: the fresh outputs of a chapter join the execution cache."""

from copy import deepcopy
from pathlib import Path

import pytest
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn

CACHE = Path(__file__).parents[1] / "_build" / ".jupyter_cache"
OUTPUTS = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Put a chapter into the cache when the last of its cells has passed."""
    report = yield
    if call.when == "call" and report.passed:
        chapter = item.parent
        outputs = chapter.stash.setdefault(OUTPUTS, {})
        outputs[item.cell_num] = item.test_outputs
        executed = deepcopy(chapter.nb)
        cells = [cell for cell in executed.cells if cell.cell_type == "code"]
        if len(outputs) == len(cells):
            for number, cell in enumerate(cells):
                cell.outputs = outputs[number]
            bundle = CacheBundleIn(executed, uri=str(chapter.path.with_suffix(".md")))
            get_cache(CACHE).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    return report
