"""How much memory a computation takes beyond its arguments."""

import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

STATUS = Path("/proc/self/status")


def with_peak_memory(work, make, *arguments):
    """Return `work(*make(*arguments))` from a fresh process, and the GiB that it took at most, or None."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_measure, work, make, *arguments).result()


def _measure(work, make, *arguments):
    made = make(*arguments)
    before = _resident("VmRSS")
    result = work(*made)
    return result, None if before is None else _resident("VmHWM") - before


def _resident(key):
    # The maximum that getrusage tells is inherited from the process that started this one; this one is not.
    return int(re.search(rf"{key}:\s+(\d+) kB", STATUS.read_text())[1]) / 2**20 if STATUS.exists() else None
