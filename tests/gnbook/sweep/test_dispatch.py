"""Runs dealt out to workers, and what a worker does with a run before any notebook runs."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from gnbook.sweep import dispatch
from gnbook.sweep.execute import Outcome, execute, gpu_of_worker

from tests.gnbook.sweep.faults.helpers import wait_until
from tests.gnbook.sweep.helpers import finish, settings_for


def test_runs_wait_on_the_scheduler_not_behind_a_long_one(plan, notebook, folder, monkeypatch):
    """Dask deals single tasks out at once; those of a group it keeps until a worker is free."""
    import dask
    from distributed import Client, Event, LocalCluster

    monkeypatch.setattr(dispatch, "execute", lambda settings, name, given: Event("gate").wait() and Outcome(name, None))
    runs = [replace(run, name=f"{run.name}{letter}") for run in plan.runs for letter in "ab"]
    local = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set({"distributed.scheduler.worker-saturation": 1.0}),
        LocalCluster(**local, scheduler_kwargs={"dashboard": False}) as cluster,
        Client(cluster) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        gate = Event("gate", client=client)
        try:
            ended = thread.submit(list, dispatch.outcomes(client, settings_for(folder.path, notebook), runs))
            wait_until(lambda: len(cluster.scheduler.tasks) == len(runs) == 8, "all runs are known")
            dealt = [len(worker.processing) for worker in cluster.scheduler.workers.values()]
            waiting = len(cluster.scheduler.queued)
        finally:
            gate.set()
        assert {outcome.name for outcome in ended.result()} == {run.name for run in runs}
    assert (waiting, dealt) == (6, [1, 1])


def test_a_worker_with_another_library_refuses(notebook, folder):
    error = execute(settings_for(folder.path, notebook, digest="another"), "name", {}).error
    assert "gnlib or gnbook has changed since the sweep began" in error
    assert list(folder.unfinished.iterdir()) == []


def test_a_run_that_a_lost_worker_had_finished_is_not_run_again(notebook, plan, folder):
    finish(folder, plan.runs[0], [])
    settings = settings_for(folder.path, notebook)
    assert execute(settings, plan.runs[0].name, {}) == Outcome(plan.runs[0].name, None, 2.0, 2**20)


def test_each_worker_has_a_gpu_of_its_own():
    assert [gpu_of_worker(worker, ("2", "5")) for worker in range(4)] == ["2", "5", "2", "5"]
