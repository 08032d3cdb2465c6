"""Hand runs to a cluster and follow them."""

import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gnbook.sweep.execute import Outcome, Settings, execute
from gnbook.sweep.plan import Run

if TYPE_CHECKING:
    from distributed import Client


def outcomes(client: "Client", settings: Settings, runs: Sequence[Run]) -> Iterator[Outcome]:
    """Yield how the runs end, in the order in which they do."""
    from distributed import CancelledError, as_completed

    # From the end of the grid, where the long runs usually are: one that began last would leave the others idle.
    names, given = zip(*((run.name, run.given) for run in reversed(runs)), strict=True)
    # Keys of this start alone, as a scheduler that has seen a run fail would else hand out the old failure; and of one
    # group, as it keeps those, and no single tasks, until a worker is free.
    start = f"{time.time_ns():x}"
    keys = [f"run-{name}-{start}" for name in names]
    futures = dict(zip(client.map(partial(execute, settings), names, given, key=keys, pure=False), names, strict=True))
    for future in as_completed(futures):
        try:
            yield future.result()
        except CancelledError:
            raise ConnectionError("The scheduler went away; the same command does what is missing.") from None
        except Exception as error:  # a worker that is lost again and again, or that has no gnlib
            yield Outcome(futures[future], f"no worker could run it: {type(error).__name__}: {error}")


def progress(outcomes: Iterator[Outcome], before: int, total: int) -> Iterator[Outcome]:
    """Show one bar, on a terminal or in a notebook, and one line for each run that fails."""
    from tqdm import tqdm

    disable = None if "ipykernel" not in sys.modules else False
    failed = 0
    with tqdm(desc="Runs", initial=before, total=total, unit="run", disable=disable, dynamic_ncols=True) as bar:
        for outcome in outcomes:
            if outcome.error is not None:
                failed += 1
                bar.set_postfix(failed=failed)
                bar.write(f"Run {outcome.name} failed: {outcome.error}", file=sys.stderr)
            bar.update()
            yield outcome
