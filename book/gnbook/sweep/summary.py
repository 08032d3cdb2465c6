"""The result of a sweep."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnbook.sweep.plan import Run, duration

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Summary:
    """The result of a sweep."""

    folder: Path
    runs: list[Run]  # all cases of the grid
    reused: int  # runs that had finished before
    finished: int  # runs that finished now
    failed: list[tuple[Run, str]]  # with the reason
    interrupted: bool  # whether it was stopped before its end
    seconds: float
    memory: int  # the most bytes that a run held
    allowed: int | None  # bytes for a run; None if its worker decided
    other_versions: list[str]  # a line that counts the finished runs of other versions, if any

    def table(self) -> "DataFrame":
        """Return the rows of all finished runs."""
        import pandas

        return pandas.read_parquet(self.folder / "table.parquet")

    def __str__(self) -> str:
        """Return the result in a few lines."""
        counts = f"{self.reused} done before, {self.finished} done now, {len(self.failed)} failed"
        lines = [f"{len(self.runs)} cases: {counts}, in {duration(self.seconds)}.", *self.other_versions]
        if self.memory:
            allowed = f" of {self.allowed / 2**30:.2f} GiB allowed" if self.allowed else ""
            lines.append(f"The largest run held {self.memory / 2**20:.0f} MiB{allowed}.")
        if self.failed:
            kept = self.folder / "failed"
            lines.append(f"Failed (their notebooks are in {kept}; the same command tries them again):")
            lines += [f"  {run}: {error}" for run, error in self.failed]
        if self.interrupted:
            lines.append("Interrupted; the same command does what is missing.")
        lines.append(f"The table is {self.folder / 'table.parquet'} (and .csv).")
        return "\n".join(lines)
