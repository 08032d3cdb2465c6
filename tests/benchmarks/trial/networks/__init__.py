"""The sixty networks of the trial: forty that the advice was developed on, and twenty of other kinds held out.

Twenty of the forty were held out once; that they were looked at is why there are others.
"""

from tests.benchmarks.trial.cases import Case
from tests.benchmarks.trial.networks import graphs, images, later, pixels, sequences, tables, text

PARTS: dict[str, dict[str, Case]] = {
    "development": {
        name: case
        for part in (tables, images, sequences, text, graphs, pixels)
        for name, case in sorted(part.CASES.items())
    },
    "held-out": later.CASES,
}
CASES = {name: case for part in PARTS.values() for name, case in part.items()}
