"""The checkout that holds this code, for processes that are to run the same code."""

import os
from pathlib import Path

BOOK = Path(__file__).parent
ROOT = BOOK.parents[1]


def environment() -> dict[str, str]:
    """Return the environment variables by which a process imports `gnlib` and `gnbook` from this checkout.

    Without them it would import those of another clone, where one is installed as editable. If this code is installed
    itself there are none: other packages in its folder must not hide modules of Python.
    """
    here = [str(ROOT), str(BOOK.parent)] if (ROOT / "gnlib").is_dir() else []
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys([*here, *filter(None, others)]))} if here else {}


def chapters(ending: str = ".md") -> dict[str, Path]:
    """Return the files of the notebooks by their names, such as `waiting`, a lesson, and `laboratory/waiting`."""
    folder = ROOT / "notebooks"
    files = sorted([*folder.glob(f"*{ending}"), *folder.glob(f"laboratory/*{ending}")])
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}
