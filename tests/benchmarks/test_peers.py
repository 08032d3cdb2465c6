"""The race of the peers: its rows, its files, and what a peer leaves that cannot, fails, or dies; nothing is timed."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest
from gnbook import results

from tests.benchmarks.peers import by_hand, common, curvlinops, one, ours
from tests.benchmarks.peers.__main__ import COLUMNS, KEPT, write
from tests.benchmarks.peers.networks import CASES, problem_of
from tests.benchmarks.peers.runner import PEERS, Race

NETWORK, OTHER, LAST = [*CASES][:3]
PROBLEM = common.Problem(NETWORK, {"w": np.eye(2), "b": np.ones(3)}, np.ones((4, 2)), np.zeros(4, int), np.ones(7))
APART = {"product": 1e-5, "largest eigenvalue": 3e-3, "Gram matrix": 1e-6}  # one of them works in single precision
# A process that writes what it found, and dies at a network that a file names, as one without memory does.
STAND_IN = """
import json, os, pathlib, sys
peer, folder, *networks = sys.argv[1:]
folder = pathlib.Path(folder)
(folder / "calls").open("a").write(f"{peer} {len(networks)}\\n")
for network in networks:
    if (folder / "fatal").read_text() == network:
        sys.exit("out of memory")
    found = folder / "found" / f"{network}, {peer}.json"
    found.parent.mkdir(exist_ok=True)
    found.write_text(json.dumps({"rows": [{"task": "product", "seconds": 2.0}], "seconds": 3.0}))
"""


@pytest.fixture
def race(tmp_path, monkeypatch):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "fatal").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Race(tmp_path, pins=tmp_path, module="stand_in")


def test_what_is_there_is_not_run_again_and_a_process_that_dies_leaves_its_reason(race):
    (race.folder / "fatal").write_text(OTHER)
    assert race.rows("by_hand", [LAST])[0]["network"] == LAST
    rows = race.rows("by_hand", [LAST, OTHER, NETWORK])
    assert [row["network"] for row in rows] == [LAST, *[OTHER] * len(common.TASKS), NETWORK]
    assert {row.get("why") for row in rows} == {None, "The process ended with code 1: out of memory"}
    assert (race.folder / "calls").read_text().splitlines() == ["by_hand 1", "by_hand 2", "by_hand 1"]
    late = race.rows("ours", [NETWORK], patience=1e-3)
    assert {row["why"] for row in late} == {"The process was not done after 0.001 seconds."}
    write(rows, race.folder / "peers.csv")
    with (race.folder / "peers.csv").open(newline="") as file:
        first, *_, last = csv.DictReader(file)
    assert (first["network"], last["network"]) == (NETWORK, LAST) and tuple(first) == COLUMNS
    assert first["run_name"] == f"by_hand, {NETWORK}" and (first["seconds"], first["run_seconds"]) == ("2.0", "3.0")


def test_the_kept_table_is_of_all_peers_and_they_agree():
    rows = results.kept(KEPT.stem)
    assert {row["peer"] for row in rows} == {peer.replace("_", "-") for peer in PEERS}
    assert all(bool(row["gradients"]) != bool(row["why"]) for row in rows)
    found = [row for row in rows if row["gradients"] and row["peer"] != "ours"]
    assert {row["task"] for row in found} == {*APART} and all(row["difference"] < APART[row["task"]] for row in found)


@pytest.mark.parametrize("peer", [by_hand, curvlinops], ids=lambda peer: peer.__name__.rpartition(".")[2])
def test_a_peer_finds_what_we_do(peer, monkeypatch):
    pytest.importorskip(peer.PACKAGES[0].split("-")[0])
    monkeypatch.setattr(common, "LONG", 0.0)  # one call of each
    problem = problem_of("CNN")
    rows, _ = one.rows_of(peer, problem, one.rows_of(ours, problem, {})[1])
    assert {row["task"] for row in rows if "why" in row} == {*getattr(peer, "CANNOT", ())}
    assert all(row["difference"] < APART[row["task"]] for row in rows if "why" not in row)


def peer_of(**tasks):
    return SimpleNamespace(gradient=lambda problem: lambda: None, **tasks)


def test_a_row_has_seconds_and_how_far_it_is_from_ours_or_a_reason_in_one_line(monkeypatch):
    monkeypatch.setattr(common, "LEAST", 0.0)
    kinds = []

    def product(problem):
        kinds.append(problem.v.dtype)
        return lambda: 3 * problem.v

    def broken(problem):
        raise NotImplementedError

    found_by_us = {"product": 2 * np.ones(7), "largest eigenvalue": 4.0}
    peer = peer_of(product=product, largest=lambda problem: lambda: (5.0, 7), CANNOT={"Gram matrix": "It has none."})
    rows, found = one.rows_of(peer, PROBLEM, found_by_us)
    assert kinds == [np.float32] and found["largest eigenvalue"] == 5.0
    assert [row.get("difference") for row in rows] == pytest.approx([0.5, 0.25, None])
    assert rows[1]["products"] == 7 and rows[0]["gradients"] == rows[0]["seconds"] / rows[0]["gradient_seconds"]
    assert rows[2] == {"task": "Gram matrix", "dtype": "float64", "why": "It has none."}
    rows, _ = one.rows_of(
        peer_of(product=broken, largest=lambda problem: lambda: (np.ones(3), None)), PROBLEM, found_by_us
    )
    assert [row["why"] for row in rows[:2]] == [
        "NotImplementedError: no message",
        "ValueError: It is of shape (3,), ours of ().",
    ]
    assert common.reason(ValueError("two\nlines")) == "ValueError: two"
    assert common.reason(common.Unable("A sentence.")) == "A sentence."


def test_a_problem_is_what_was_saved(tmp_path):
    PROBLEM.save(tmp_path)
    read = common.load(tmp_path, NETWORK)
    assert [*read.weights] == ["w", "b"] and read.classes == 3
    np.testing.assert_equal(read._asdict(), PROBLEM._asdict())
    assert read.as_dtype(np.float32).x.dtype == np.float32 and read.as_dtype(np.float32).y.dtype == int
