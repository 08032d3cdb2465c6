"""Tests stand where the code stands: a reader of a module finds its test in one guess, in a file that is not long.

Of :mod:`gnlib.sweep` some modules show only in sweeps that run whole; their tests are laid out by what is tried.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARY, TESTS = ROOT / "gnlib", ROOT / "tests"
MOST_LINES = 500

ELSEWHERE = {  # modules without a test file of their name, and where and why they are tested instead
    "chapters/deep_linear/bounds.py": "bounds/test_linear.py, beside the bounds from above",
    "checks.py": "with each function that refuses by it",
    "progress.py": "data/test_fetch.py, which sees the bar",
    "data/__main__.py": "data/test_fetch_command.py, which runs the command",
    "samples/draw.py": "data/test_data.py, from whose sets it draws",
    "gauss_newton/few.py": "gauss_newton/test_traps_*.py, which try all that a trial may meet",
    "gauss_newton/network.py": "gauss_newton/test_module.py, since a network is seen through its matrices",
    "gauss_newton/precision.py": "gauss_newton/test_traps_precision.py",
    "gauss_newton/randomness.py": "gauss_newton/test_traps_randomness.py",
    "gauss_newton/trial.py": "gauss_newton/test_traps_*.py",
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
