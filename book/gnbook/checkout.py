"""Where this code lies, so that what is started from here runs this code and no other that is installed."""

import os
from pathlib import Path

BOOK = Path(__file__).parent
ROOT = BOOK.parents[1]


def environment() -> dict[str, str]:
    """Return what to add to the environment of a process that is to import this `gnlib` and this `gnbook`.

    Beside an editable installation of another clone it would import those of the other. Of an installed package this
    adds nothing: its folder holds other packages, which are to hide no module of Python.
    """
    here = [str(ROOT), str(BOOK.parent)] if (ROOT / "gnlib").is_dir() else []
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys([*here, *filter(None, others)]))} if here else {}
