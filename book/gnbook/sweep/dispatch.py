"""Send runs to a cluster and follow them."""

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
    """Yield the outcomes of runs as they end."""
    from distributed import CancelledError, as_completed

    # The end of the grid first, where the long runs usually are: a long run that begins last leaves workers idle.
    names, given = zip(*((run.name, run.given) for run in reversed(runs)), strict=True)
    # The keys are new at each start, since a scheduler that has seen a run fail would return the old failure. They
    # form one group, since a scheduler holds back the tasks of groups, and no single tasks, until a worker is free.
    start = f"{time.time_ns():x}"
    keys = [f"run-{name}-{start}" for name in names]
    futures = dict(zip(client.map(partial(execute, settings), names, given, key=keys, pure=False), names, strict=True))
    for future in as_completed(futures):
        try:
            yield future.result()
        except CancelledError:
            raise ConnectionError("The scheduler went away; the same command does what is missing.") from None
        except Exception as error:  # its worker was lost several times, or has no gnlib
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
