"""How the tests run, wherever they are started, and the count of the claims that they check.

A claim is a statement of a paper: its test carries `@pytest.mark.claim("Lemma 1", verdict="holds")`.
"""

import inspect
from collections import Counter

import jaxtyping
import pytest

from tests import annotations
from tests.threads import pytest_configure as pytest_configure

VERDICTS = ("holds", "holds if", "fails", "open")

# Before anything imports gnlib.
annotations.install()

# What stands between a network and torch is called for every attribute of a tensor, those that a check looks at among
# them: its own arguments are not checked, which took as long as all the rest.
from gnlib.modules import few, precision, randomness, recording, watch  # noqa: E402, F401

for kind in (watch.Watch, *watch.Watch.__subclasses__()):
    for name in {"call", "__torch_function__"} & {*vars(kind)}:
        setattr(kind, name, inspect.unwrap(vars(kind)[name]))
precision._wide = inspect.unwrap(precision._wide)


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
