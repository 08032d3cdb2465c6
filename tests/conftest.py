"""How the tests run, wherever they are started, and the count of the claims that they check.

A claim is a statement of a paper: its test carries `@pytest.mark.claim("Lemma 1", verdict="holds")`.
"""

import os
from collections import Counter

import jaxtyping
import pytest

from tests.threads import pytest_configure as pytest_configure

VERDICTS = ("holds", "holds if", "fails", "open")

if os.environ.get("CHECK_SHAPES"):  # at each call, which takes several times as long: before anything imports gnlib
    jaxtyping.install_import_hook(("gnlib", "gnbook"), "beartype.beartype")


@pytest.hookimpl(tryfirst=True)  # before the fixtures
def pytest_runtest_setup(item):
    """Let a function itself complain of a wrong argument, and time it without the checks."""
    unchecked = item.get_closest_marker("bad_input") is not None or "benchmark" in getattr(item, "fixturenames", ())
    jaxtyping.config.update("jaxtyping_disable", unchecked)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: "faults" not in item.path.parts)  # they mostly wait: others have work meanwhile
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
