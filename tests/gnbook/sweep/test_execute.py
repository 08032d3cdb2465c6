"""What a worker does with a run before any notebook runs."""

from gnbook.sweep.execute import Outcome, Settings, execute, gpu_of_worker
from gnbook.sweep.identity import library_digest

from tests.gnbook.sweep.helpers import finish


def test_a_worker_with_another_library_refuses(tmp_path):
    settings = Settings(tmp_path, tmp_path, tmp_path, library_digest(None)[::-1], None, 1, None, 1, (), {})
    assert "gnlib has changed since the sweep began" in execute(settings, "name", {}).error
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_a_lost_worker_had_finished_is_not_run_again(plan, folder):
    finish(folder, plan.runs[0], [])
    settings = Settings(folder.path, folder.path, folder.path, library_digest(None), None, 1, None, 1, (), {})
    assert execute(settings, plan.runs[0].name, {}) == Outcome(plan.runs[0].name, None, 2.0, 2**20)


def test_each_worker_has_a_gpu_of_its_own():
    assert [gpu_of_worker(worker, ("2", "5")) for worker in range(4)] == ["2", "5", "2", "5"]
