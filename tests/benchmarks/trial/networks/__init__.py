"""The forty networks of the trial, and which half each of them is in."""

import hashlib

from tests.benchmarks.trial.cases import Case
from tests.benchmarks.trial.networks import graphs, images, pixels, sequences, tables, text

CASES: dict[str, Case] = {
    name: case
    for part in (tables, images, sequences, text, graphs, pixels)
    for name, case in sorted(part.CASES.items())
}
PARTS = "development", "held-out"


def split(cases: dict[str, Case]) -> dict[str, list[str]]:
    """Return the names in each half.

    Well-prepared networks, other classifications and other regressions are each put in the order of the digests of
    their names; of the three lists, one after the other, every second network is held out.
    """

    def stratum(name: str) -> tuple[bool, bool]:
        return cases[name].prepared, not cases[name].prepared and cases[name].is_regression

    def digest(name: str) -> str:
        return hashlib.sha256(name.encode()).hexdigest()

    ordered = sorted(cases, key=lambda name: (*stratum(name), digest(name)))
    return {part: ordered[i::2] for i, part in enumerate(PARTS)}
