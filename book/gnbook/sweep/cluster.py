"""Worker processes for runs, on this machine or of a cluster."""

import asyncio
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

PATIENCE = 8
"""Seconds that a scheduler has to answer."""

QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}
"""Runs take seconds to hours: measuring the worker processes each few milliseconds would only take their cores."""


@contextmanager
def cluster(scheduler: str | None, workers: int) -> Iterator["Client"]:
    """Connect to a scheduler, or start one with that many worker processes and end them afterwards."""
    if scheduler is not None:
        client = _connect(scheduler)
        try:
            yield client
        finally:
            client.close()
        return

    import dask
    from distributed import Client, LocalCluster

    # One run at a time for each worker, so that a worker that is lost takes no other with it, and no port but one.
    with (
        dask.config.set(QUIET | {"distributed.scheduler.worker-saturation": 1.0}),
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


def _connect(address: str) -> "Client":
    from distributed import Client

    try:
        # A thread has no loop of its own running, as a notebook does. Client alone would wait for ever for a server
        # that takes the connection and says nothing.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _greet(address)).result()
        return Client(address, timeout=PATIENCE)
    except Exception as error:  # something else than a scheduler may answer anything
        raise ConnectionError(
            f"No Dask scheduler answers at {address} within {PATIENCE} seconds; is `dask scheduler` running there, "
            f"and is the address one that it prints? ({str(error) or 'no answer'})"
        ) from None


async def _greet(address: str) -> None:
    """Ask a scheduler who it is."""
    from distributed.core import rpc
    from distributed.security import Security

    async with (
        asyncio.timeout(PATIENCE),
        rpc(address, timeout=PATIENCE, connection_args=Security().get_connection_args("client")) as scheduler,
    ):
        await scheduler.identity()


def memory_of_machine() -> int:
    """Return how many bytes of memory this process may use: in a container fewer than the machine has."""
    from distributed.system import MEMORY_LIMIT

    return MEMORY_LIMIT


def visible_gpus() -> tuple[str, ...]:
    """Return the identifiers of the GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return tuple(named[:count] if named else map(str, range(count)))
