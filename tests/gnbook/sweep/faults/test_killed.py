"""Kill the driver, a worker and a kernel in the middle of five runs: nothing is lost, nothing is done twice."""

import signal

import pytest

from tests.gnbook.sweep.faults.helpers import PATIENCE, Sweep, busy_workers, family, gone, kernels, wait_until

CASES = 5
GRID = {"parameters": {"pause": 0.2}, "product": {"case": {"seeds": CASES}}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    sweep = Sweep(tmp_path_factory.mktemp("undisturbed"), GRID)
    assert f"{CASES} cases: 0 done before, {CASES} done now, 0 failed" in sweep.run()
    assert sorted(sweep.executed) == list(range(CASES))
    table = sweep.results()
    assert list(table.case) == [case for case in range(CASES) for _ in range(2)]  # in the order of the grid
    assert list(table.value) == [case / 7 + step for case in range(CASES) for step in range(2)]
    yield sweep
    sweep.end()


@pytest.fixture
def sweep(make_sweep):
    return make_sweep(GRID)


def assert_same_table(sweep, undisturbed):
    import pandas

    pandas.testing.assert_frame_equal(sweep.results(), undisturbed.results(), check_exact=True)


def in_the_middle(sweep, process):
    wait_until(lambda: len(sweep.finished) >= 2 and kernels(process), "two runs finish and one goes on", process)


@pytest.mark.nightly
def test_a_killed_driver_leaves_no_process_and_the_next_start_does_what_is_missing(sweep, undisturbed):
    driver = sweep.start()
    in_the_middle(sweep, driver)
    children = family(driver)
    assert any(children)
    driver.kill()
    driver.communicate()
    wait_until(lambda: gone(children), "workers and kernels end after their driver")
    done = {name: (sweep.out / "runs" / name / "run.json").stat().st_mtime_ns for name in sweep.finished}
    assert 2 <= len(done) < CASES
    begun = len(sweep.executed)

    missing = CASES - len(done)
    assert f"{CASES} cases: {len(done)} done before, {missing} done now, 0 failed" in sweep.run()
    assert len(sweep.executed) == begun + missing
    assert len(set(sweep.executed[begun:])) == missing
    assert done.items() <= {n: (sweep.out / "runs" / n / "run.json").stat().st_mtime_ns for n in sweep.finished}.items()
    assert list((sweep.out / "unfinished").iterdir()) == []
    assert_same_table(sweep, undisturbed)


@pytest.mark.nightly
@pytest.mark.parametrize("whom", [busy_workers, kernels])
def test_a_killed_worker_or_kernel_costs_one_run_which_is_done_again(whom, sweep, undisturbed):
    driver = sweep.start()
    in_the_middle(sweep, driver)
    victim = wait_until(lambda: whom(driver), "there is one to kill", driver)[0]
    orphans = victim.children(recursive=True)
    victim.kill()
    out, err = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0, out + err
    assert f"{CASES} done now, 0 failed" in out
    assert gone(orphans)
    assert CASES <= len(sweep.executed) <= CASES + 2
    assert list((sweep.out / "unfinished").iterdir()) == []
    assert_same_table(sweep, undisturbed)


@pytest.mark.parametrize("which", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_an_interrupted_sweep_says_so_and_keeps_what_is_done(which, sweep):
    driver = sweep.start()
    in_the_middle(sweep, driver)
    children = family(driver)
    driver.send_signal(which)
    out, err = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 130, out + err
    assert "Interrupted; the same command does what is missing." in out
    wait_until(lambda: gone(children), "workers and kernels end")
    done = len(sweep.finished)
    assert len(sweep.results()) == 2 * done  # the table holds what there is
