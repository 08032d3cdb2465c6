"""How the tests run, wherever they are started, and the count of the claims that they check.

A claim is a statement of a paper: its test carries `@pytest.mark.claim("Lemma 1", verdict="holds")`, or several.
"""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from tests import threads

ROOT = Path(__file__).parents[1]
VERDICTS = ("holds", "holds if", "fails", "open")

# What Hypothesis draws is the same in every run, unless a test says otherwise; two hundred instances every night.
INSTANCES = int(os.environ.get("INSTANCES", "20"))
settings.register_profile("instances", max_examples=INSTANCES, derandomize=True, deadline=None)
settings.load_profile("instances")

sys.dont_write_bytecode = False  # pytest rewrites thousands of asserts, in many seconds unless it keeps them

if os.environ.get("CHECK_SHAPES"):  # at each call, in several times the time; before anything imports gnlib
    from itertools import count

    import jaxtyping
    from beartype._check.code import codemain

    # Of a list it looks at an entry that it draws, and gnlib refuses what draws random numbers: at one after the other.
    turns = count()
    codemain.getrandbits = lambda _: next(turns)

    numbers = "beartype.BeartypeConf(is_pep484_tower=True)"  # an integer is a float, as for every other type checker
    jaxtyping.install_import_hook(("gnlib", "gnbook"), f"beartype.beartype(conf={numbers})")


@pytest.hookimpl(tryfirst=True)  # before pytest-benchmark looks at its options
def pytest_configure(config):
    """Time nothing unless asked by `--benchmark-enable`; what tests start runs the code of this tree, too."""
    threads.pytest_configure(config)
    config.option.benchmark_disable = True
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "book"), inherited]))


@pytest.hookimpl(tryfirst=True)  # before the fixtures
def pytest_runtest_setup(item):
    """Skip what needs a GPU where none is; let functions themselves complain of wrong arguments."""
    if item.get_closest_marker("cuda"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs CUDA")
    if os.environ.get("CHECK_SHAPES"):
        unchecked = item.get_closest_marker("bad_input") is not None or "benchmark" in getattr(item, "fixturenames", ())
        jaxtyping.config.update("jaxtyping_disable", unchecked)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: "faults" not in item.path.parts)  # they mostly wait: others have work meanwhile
    for item in items:
        for mark in item.iter_markers("claim"):
            verdict = mark.kwargs.get("verdict")
            if verdict not in VERDICTS:
                raise pytest.UsageError(f"{item.nodeid}: the verdict is one of {VERDICTS}.")
            # A property of the report, since that is what a worker of xdist sends home.
            item.user_properties += [("claim", f"{claim}: {verdict}") for claim in mark.args]


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
