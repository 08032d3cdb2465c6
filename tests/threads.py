"""How many threads a worker may use, for every folder whose tests may be shared among workers."""

import os


def pytest_configure(config):
    """Give each of several workers one thread, which sleeps while it waits for work.

    Spinning, the threads of two processes on two cores slow each other down a hundredfold. A single process is better
    off where they spin. The workers, and what they start, inherit what is set here.
    """
    if config.getoption("numprocesses", None):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
