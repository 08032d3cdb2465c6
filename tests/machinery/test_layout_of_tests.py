"""Tests stand where the code stands: a reader of a module finds its test in one guess, in a file that is not long.

Of :mod:`gnbook.sweep` some modules show only in sweeps that run whole; their tests are laid out by what is tried.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARY, TESTS = ROOT / "gnlib", ROOT / "tests"
MOST_LINES = 500

ELSEWHERE = {  # modules without a test file of their name, and where and why they are tested instead
    "chapters/deep_linear/bounds.py": "bounds/test_linear.py, beside the bounds from above",
    "__main__.py": "diagnosis/test_command.py",
    "checks.py": "with each function that refuses by it",
    "progress.py": "data/test_fetch.py, which sees the bar",
    "data/__main__.py": "data/test_fetch_command.py, which runs the command",
    "diagnosis/measured.py": "with what is made of its matrices: diagnosis/test_loss_matrix.py, test_by_layer.py",
    "diagnosis/remarks.py": "diagnosis/test_report.py",
    "samples/draw.py": "data/test_data.py, from whose sets it draws",
    "modules/contraction.py": "modules/test_structure*.py, by the matrices that it makes of all kinds of layers",
    "modules/ends.py": "test_condition.py, beside the other operands",
    "modules/estimate.py": "modules/test_plan.py, beside what it estimates",
    "modules/few.py": "modules/test_traps_*.py, which try all that a trial may meet",
    "modules/layers.py": "modules/test_structure*.py",
    "modules/network.py": "modules/test_gram.py, since a network is seen through its matrices",
    "modules/precision.py": "modules/test_traps_precision.py",
    "modules/randomness.py": "modules/test_traps_randomness.py",
    "modules/recording.py": "modules/test_structure*.py",
    "modules/tables.py": "diagnosis/test_report.py, by the pages that are made of lines",
    "modules/trial.py": "modules/test_traps_*.py",
    "modules/watch.py": "with each of those that watch: modules/test_traps_*.py and test_structure*.py",
}


def modules():
    """The modules of the core and of the rooms, but for those that only name what others hold."""
    paths = (path.relative_to(LIBRARY) for path in LIBRARY.rglob("*.py") if path.name != "__init__.py")
    return {str(path) for path in paths if path.parts[0] != "sweep"}


def mirrored(module):
    return TESTS / Path(module).parent / f"test_{Path(module).name}"


def test_each_module_has_a_test_file_of_its_name_in_the_same_place():
    assert {module for module in modules() if not mirrored(module).exists()} == set(ELSEWHERE)


def test_no_test_file_is_longer_than_it_may_be():
    lines = {str(path.relative_to(TESTS)): len(path.read_text().splitlines()) for path in TESTS.rglob("*.py")}
    assert not {path for path, length in lines.items() if length > MOST_LINES}
