"""A computation in a process of its own, where the memory that it takes can be told from that of others."""

import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")


def with_peak_memory(work, make, *arguments):
    """Return `work(*make(*arguments))` from a fresh process, and the GiB that it took at most, or None."""
    with Apart(work, make, *arguments) as process:
        process()
        return process.found(), process.memory()


class Apart:
    """A fresh process that makes arguments once, and calls `work(*make(*arguments))` whenever it is called."""

    def __init__(self, work, make, *arguments):
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        self._pool.submit(_prepare, work, make, arguments).result()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._pool.shutdown()

    def __call__(self):
        self._pool.submit(_work).result()  # what it finds stays there: a large matrix on its way home is not timed

    def found(self):
        """Return what the last call found."""
        return self._pool.submit(_found).result()

    def memory(self):
        """Return the GiB that the calls took at most, beyond the arguments, or None where they cannot be told."""
        return self._pool.submit(_memory).result()


_here = {}  # in the fresh process: the work, its arguments, what it found, and the memory before


def _prepare(work, make, arguments):
    _here.update(work=work, made=make(*arguments), before=_taken("VmRSS"))


def _work():
    _here["found"] = None  # so that the last result is not held beside the next
    _here["found"] = _here["work"](*_here["made"])
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _found():
    found = _here["found"]
    return found.cpu() if isinstance(found, torch.Tensor) else found


def _memory():
    return None if _here["before"] is None else _taken("VmHWM") - _here["before"]


def _taken(key):
    if torch.cuda.is_initialized():
        return {"VmRSS": torch.cuda.memory_allocated, "VmHWM": torch.cuda.max_memory_allocated}[key]() / 2**30
    # The maximum that getrusage tells is inherited from the process that started this one; this one is not.
    return int(re.search(rf"{key}:\s+(\d+) kB", STATUS.read_text())[1]) / 2**20 if STATUS.exists() else None
