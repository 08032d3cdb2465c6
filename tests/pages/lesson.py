"""A lesson as its reader has it: the cells in sight, in a process that knows the library, NumPy and matplotlib alone.

`python -m tests.pages.lesson deep-linear` runs them and prints what they print.
"""

import os
import re
import subprocess
import sys

from gnbook.checkout import ROOT, chapters, environment

from tests.pages.counts import HIDDEN, cells_of

ALLOWED = {"gnlib", "matplotlib", "numpy", "scipy", "torch"} | sys.stdlib_module_names
# Where a range is stated, as in `n = 100  # images (20 to 500)`.
RANGE = re.compile(r"^(?P<name>\w+) = (?P<value>[\d.e-]+) +#.*\((?P<low>[\d.e-]+) to (?P<high>[\d.e-]+)\)", re.M)
BLOCK = """
import sys
class Nothing:
    def find_spec(self, name, *_):
        if name.startswith("gnbook.") and name not in ("gnbook.figures", "gnbook.results"):
            raise ImportError(f"a lesson needs {name}")
sys.meta_path.insert(0, Nothing())
import matplotlib
matplotlib.use("agg")
"""
COUNT = """
import matplotlib.pyplot
print(len(matplotlib.pyplot.get_fignums()), "figures")
"""


def cells(name):
    """Return the code cells of a lesson, without the one that installs the library in Colab."""
    return [cell for cell in cells_of(chapters()[name]) if cell.cell_type == "code"]


def in_sight(name):
    """Return the code cells that a reader sees."""
    return [cell for cell in cells(name) if not HIDDEN & {*cell.metadata.get("tags", ())}]


def script(name, **changed):
    """Return the cells in sight as a script, with other values of some parameters."""
    sources = [cell.source for cell in in_sight(name)]
    for parameter, value in changed.items():
        sources[0] = re.sub(rf"^{parameter} = [\d.e-]+", f"{parameter} = {value}", sources[0], flags=re.M)
    return "\n\n".join([BLOCK, *sources, COUNT])


def run(name, **changed):
    """Run the script where the lesson lies, and return what it prints."""
    command = [sys.executable, "-W", "error::SyntaxWarning", "-c", script(name, **changed)]
    surroundings = os.environ | environment() | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=surroundings, cwd=ROOT / "notebooks"
    )
    if done.returncode:
        raise RuntimeError(f"{name}, {changed}: {done.stderr}")
    return done.stdout


def ranges(name):
    """Return the ranges that the parameters of a lesson state, as pairs of numbers of the kind of the value."""
    found = {}
    for stated in RANGE.finditer(in_sight(name)[0].source):
        kind = int if re.fullmatch(r"\d+", stated["value"]) else float
        found[stated["name"]] = kind(stated["low"]), kind(stated["high"])
    return found


if __name__ == "__main__":
    print(run(sys.argv[1]), end="")
