"""Count the claims checked: a test carries `@pytest.mark.claim("Lemma 1", verdict="holds")`."""

from collections import Counter

import pytest

VERDICTS = ("holds", "holds if", "fails", "open")


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
