import pytest

from tests.gnbook.sweep.faults.helpers import Sweep


@pytest.fixture
def make_sweep(tmp_path):
    """Make sweeps, each in a folder of its own, none of which outlives the test."""
    made = []

    def make(grid, **options):
        made.append(Sweep(tmp_path / str(len(made)), grid, **options))
        return made[-1]

    yield make
    for sweep in made:
        sweep.end()
