"""Worker processes for runs, on this machine or of a cluster, and the runs that they are given."""

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from gnbook.sweep.execute import Outcome, Settings, execute
from gnbook.sweep.plan import Run

if TYPE_CHECKING:
    from distributed import Client

PATIENCE = 8
"""Seconds that a scheduler has to answer."""

QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.scheduler.worker-saturation": 1.0,
}
"""Runs take seconds to hours: measuring the worker processes each few milliseconds would only take their cores."""


@contextmanager
def cluster(scheduler: str | None, workers: int) -> Iterator["Client"]:
    """Connect to a scheduler, or start one with that many worker processes and end them afterwards."""
    import dask
    from distributed import Client, LocalCluster

    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=PATIENCE)
        except (OSError, ValueError) as error:
            raise ConnectionError(
                f"No Dask scheduler answers at {scheduler} within {PATIENCE} seconds; is `dask scheduler` running "
                f"there, and is the address one that it prints? ({error})"
            ) from None
        with client:
            yield client
        return
    # One run at a time for each worker, so that a worker that is lost takes no other with it, and no port but one.
    with (
        dask.config.set(QUIET),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,  # of the workers, which hold nothing; runs are bounded one by one
            dashboard_address="127.0.0.1:0",  # any free port; 8787, the default, may be taken
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
        ) as local,
        Client(local) as client,
    ):
        yield client


def visible_gpus() -> tuple[str, ...]:
    """Return the identifiers of the GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return tuple(named[:count] if named else map(str, range(count)))


def outcomes(client: "Client", settings: Settings, runs: Sequence[Run]) -> Iterator[Outcome]:
    """Yield the outcomes of runs as they end."""
    from distributed import CancelledError, as_completed

    # The end of the grid first, where the long runs usually are: a long run that begins last leaves workers idle.
    names, given = zip(*((run.name, run.given) for run in reversed(runs)), strict=True)
    # The keys are new at each start, since a scheduler that has seen a run fail would return the old failure. They
    # form one group, since a scheduler holds back the tasks of groups, and no single tasks, until a worker is free.
    keys = [f"run-{name}-{time.time_ns():x}" for name in names]
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
    with tqdm(desc="Runs", initial=before, total=total, unit="run", disable=disable, dynamic_ncols=True) as bar:
        for outcome in outcomes:
            if outcome.error is not None:
                bar.write(f"Run {outcome.name} failed: {outcome.error}", file=sys.stderr)
            bar.update()
            yield outcome
