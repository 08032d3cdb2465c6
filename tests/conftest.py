"""How the tests run, wherever they are started, and the count of the claims that they check.

A claim is a statement of a paper: its test carries `@pytest.mark.claim("zhao_lemma_1", verdict="holds")`.
"""

import os
import random
from collections import Counter

import jaxtyping
import pytest

VERDICTS = ("holds", "holds if", "fails", "open")

# The shapes in the annotations are checked at each call. This has to come before anything imports gnlib. beartype draws
# which item of a list it looks at; not from Python's own generator, which the trial of a module watches.
random.getrandbits, own = random.Random(0).getrandbits, random.getrandbits
import beartype._check.code.codemain  # noqa: E402, F401

random.getrandbits = own
jaxtyping.install_import_hook("gnlib", "beartype.beartype")


def pytest_configure(config):
    """Give each of several workers one thread, which sleeps while it waits for work.

    Spinning, the threads of two processes on two cores slow each other down a hundredfold. A single process is better
    off where they spin. The workers are started later and inherit what is set here.
    """
    if config.getoption("numprocesses", None):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.hookimpl(tryfirst=True)  # before the fixtures
def pytest_runtest_setup(item):
    """Let the functions themselves complain of a wrong argument, and time them without the checks."""
    unchecked = item.get_closest_marker("bad_input") or item.get_closest_marker("benchmark")
    jaxtyping.config.update("jaxtyping_disable", unchecked is not None)


def pytest_collection_modifyitems(items):
    for item in items:
        for mark in item.iter_markers("claim"):
            (claim,), verdict = mark.args, mark.kwargs.get("verdict")
            if verdict not in VERDICTS:
                raise pytest.UsageError(f"{item.nodeid}: the verdict is one of {VERDICTS}.")
            # A property of the report, since that is what a worker of xdist sends home.
            item.user_properties.append(("claim", f"{claim}: {verdict}"))


def pytest_terminal_summary(terminalreporter):
    passed = terminalreporter.getreports("passed")
    claims = [[c for key, c in report.user_properties if key == "claim"] for report in passed]
    if any(claims):
        terminalreporter.write_line(claims_line(claims))


def claims_line(claims_by_test):
    """Say how many claims were checked, given the list of claims of each test that passed."""
    claims = {claim for claims in claims_by_test for claim in claims}
    count = Counter(claim.rpartition(": ")[2] for claim in claims)
    return (
        f"{len(claims)} claims checked by {sum(map(bool, claims_by_test))} tests: "
        f"{count['holds']} hold, {count['holds if']} hold if, {count['fails']} fail, {count['open']} open"
    )
