"""What goes wrong in a run stays in that run; what is wrong with a sweep is said before anything runs."""

import json

import pytest


@pytest.mark.nightly
def test_runs_that_raise_hang_die_or_grow_fail_alone_and_are_kept(make_sweep):
    faults = ["", "raise", "hang", "die", "die once", "grow", ""]
    grid = {"zip": {"case": list(range(len(faults))), "misbehave": faults}}
    sweep = make_sweep(grid)
    said = sweep.run("--timeout", 25, "--memory", "400MiB", status=1)
    assert "7 cases: 0 done before, 3 done now, 4 failed" in said
    for reason in (
        "misbehave='raise': ValueError: asked to fail",
        "misbehave='hang': it took longer than 25 seconds (--timeout)",
        "misbehave='die': its kernel died, twice",
        "misbehave='grow': it held 0.",
        "of 0.39 GiB allowed",
    ):
        assert reason in said
    assert list(sweep.results().case.unique()) == [0, 4, 6]
    assert sorted(sweep.executed) == [0, 1, 2, 3, 3, 4, 4, 5, 6]

    kept = {report["parameters"]["misbehave"]: path for path, report in failures(sweep)}
    assert set(kept) == {"raise", "hang", "die", "grow"}
    assert all((path / "notebook.ipynb").exists() for path in kept.values())
    assert "ValueError: asked to fail" in (kept["raise"] / "traceback.txt").read_text()
    assert "\x1b" not in (kept["raise"] / "traceback.txt").read_text()

    sweep.grid.write_text(json.dumps({"zip": {"case": [0, 1], "misbehave": ["", "raise"]}}))
    assert "2 cases: 1 done before, 0 done now, 1 failed" in sweep.run(status=1)


def failures(sweep):
    return [(path.parent, json.loads(path.read_text())) for path in (sweep.out / "failed").glob("*/run.json")]
