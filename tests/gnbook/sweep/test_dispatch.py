"""Runs dealt out to workers, and what a worker does with a run before any notebook runs."""

from gnbook.sweep.execute import Outcome, execute, gpu_of_worker

from tests.gnbook.sweep.helpers import finish, settings_for


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
