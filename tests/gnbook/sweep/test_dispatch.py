"""Runs dealt out to workers."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from gnbook.sweep import dispatch
from gnbook.sweep.execute import Outcome

from tests.gnbook.sweep.faults.helpers import wait_until
from tests.gnbook.sweep.helpers import settings_for


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
