"""Results in files that can be kept, sent and compared: JSON, with what made them."""

import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gnlib.diagnosis.by_layer import Shares
from gnlib.diagnosis.course import LossBounds
from gnlib.diagnosis.culprits import Culprits
from gnlib.diagnosis.forecast import Forecast
from gnlib.diagnosis.growth import Growth
from gnlib.diagnosis.overview import Overview
from gnlib.diagnosis.rates import StableRate
from gnlib.diagnosis.report import Report
from gnlib.eigen.density import Estimate, SpectralDensity
from gnlib.eigen.result import ConditionNumber
from gnlib.eigen.top import Eigenpairs
from gnlib.files import write
from gnlib.laws.waiting import Waiting
from gnlib.plain import as_dict, of_dict
from gnlib.refused import Refused

FORMAT = 1  # a file of a higher one may mean something else by the same names
KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(ConditionNumber, Culprits, Eigenpairs, Estimate, Forecast, Growth, LossBounds, Overview, Report, Shares),
        *(SpectralDensity, StableRate, Waiting),
    )
}


def save(result: Any, path: str | Path) -> None:
    """Write a result of :class:`gnlib.GaussNewton` to a file, as JSON, whole or not at all.

    Beside the result itself (`to_dict()`) it holds the versions of gnlib, torch and Python; of a report also the
    precision that it was computed in, and digests of its data and parameters. A seed is an attribute of the result.

    Raises
    ------
    TypeError
        Something else than such a result.
    OSError
        A file that cannot be written.

    Examples
    --------
    >>> import tempfile, torch, gnlib
    >>> found = gnlib.condition_number(torch.diag(torch.tensor([4.0, 2.0])))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     gnlib.save(found, f"{folder}/kappa.json")
    ...     gnlib.load_result(f"{folder}/kappa.json") == found
    True
    """
    name = type(result).__name__
    if KINDS.get(name) is not type(result):
        raise TypeError(f"The result is of type {name}; save keeps those of GaussNewton: {', '.join(sorted(KINDS))}.")
    origin = getattr(result, "origin", None)
    document = {
        "format": FORMAT,
        "class": name,
        "versions": {"gnlib": _own_version(), "torch": version("torch"), "python": platform.python_version()},
        "dtype": "float64" if origin is None else origin.dtype,
        "origin": None if origin is None else as_dict(origin),
        "result": as_dict(result),
    }
    write(Path(path), json.dumps(document, allow_nan=False) + "\n")


def load_result(path: str | Path) -> Any:
    """Return the result that :func:`gnlib.keep.save` wrote to a file, of the same class and with equal attributes.

    Raises
    ------
    ValueError
        A file that is damaged, of a newer format, or of a class that is not known.

    Examples
    --------
    >>> import tempfile, torch, gnlib
    >>> g = gnlib.GaussNewton(torch.nn.Linear(2, 1), torch.tensor([[9.0, 1.0], [10.0, 2.0], [11.0, 1.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     gnlib.save(g.report(), f"{folder}/report.json")
    ...     gnlib.load_result(f"{folder}/report.json").condition.rank
    3
    """
    damaged = f"{path} is damaged, or no result that gnlib.save wrote"
    try:
        document = json.loads(Path(path).read_bytes())
        found, name, plain = document["format"], document["class"], document["result"]
        if not isinstance(found, int):
            raise TypeError("the format is no number")
    except (ValueError, TypeError, KeyError) as error:
        raise Refused("unreadable-file", f"{damaged}; save it again.") from error
    if found > FORMAT:
        by = f"format {found}, by gnlib {(document.get('versions') or {}).get('gnlib', 'of a later version')}"
        raise Refused(
            "unreadable-file",
            f"{path} is of {by}; gnlib {_own_version()} reads format {FORMAT}: install the newer one.",
        )
    if name not in KINDS:
        raise Refused(
            "unreadable-file",
            f"{path} holds a {name!r}, which gnlib {_own_version()} does not know: {', '.join(KINDS)}.",
        )
    try:
        return of_dict(KINDS[name], plain, "the result")
    except (ValueError, TypeError) as error:
        raise Refused("unreadable-file", f"{damaged}: {error}; save it again.") from error


def _own_version() -> str:
    return str(sys.modules["gnlib"].__version__)  # which imports this module: to import it here were a circle
