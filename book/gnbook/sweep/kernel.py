"""A kernel of this interpreter, and a monitor that ends it when it takes too much memory or time."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

LAUNCHER = Path(__file__).with_name("launcher.py")

INTERVAL, SEARCH = 0.1, 5.0
"""Seconds between two looks at the memory of a kernel, and between two searches for its children."""


def kernel_class(environment: Mapping[str, str], stderr: IO[bytes], started: Callable[[int], None]) -> type:
    """Return a class of kernel managers for papermill.

    Its kernels run this interpreter whatever kernels are installed, talk over TCP, see the additional `environment`,
    complain to `stderr` and end with this process; `started` is told the process of each.
    """
    import zmq
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpec

    argv, named = [sys.executable, str(LAUNCHER), "-f", "{connection_file}"], {"supported_encryption": "curve"}
    spec = KernelSpec(argv=argv, env=dict(environment), display_name="Python 3", language="python", metadata=named)

    class Kernel(AsyncKernelManager):
        kernel_spec = spec

        async def start_kernel(self, **options: object) -> None:
            self.transport, self.ip = "tcp", "127.0.0.1"
            if zmq.has("curve"):  # others on a cluster's machine can connect to its ports too
                self.transport_encryption = "required"
            await super().start_kernel(**options, stderr=stderr)
            started(self.provisioner.pid)

    return Kernel


class Monitor:
    """Measures the memory of a kernel, and ends it when it takes too much memory or time."""

    def __init__(self, seconds: float, memory: int | None) -> None:
        self.seconds, self.memory = seconds, memory
        self.peak = 0
        self.complaint: str | None = None
        self.answered = False
        self._kernel: psutil.Process | None = None
        self._over = threading.Event()

    def follow(self, pid: int) -> None:
        """Monitor this process from now on."""
        import psutil

        self._kernel = psutil.Process(pid)  # which knows it from a later one of the same number

    def note_answer(self, **_: object) -> None:
        """Note that the kernel has answered; nbclient calls this with the notebook."""
        self.answered = True

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the kernel while the block runs."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _run(self) -> None:
        import psutil

        deadline = time.monotonic() + self.seconds
        family, search = [], 0.0
        while not self._over.wait(INTERVAL):
            if self._kernel is None:
                continue
            try:
                if time.monotonic() >= search:
                    family = [self._kernel, *self._kernel.children(recursive=True)]
                    search = time.monotonic() + SEARCH  # through all processes of the machine, which takes time
                held = sum(process.memory_info().rss for process in family)
            except psutil.Error:  # it ended, or a child of it did, while we looked
                family, search, held = [self._kernel], 0.0, 0
            self.peak = max(self.peak, held)
            if self.memory is not None and held > self.memory:
                self.complaint = (
                    f"it held {held / 2**30:.2f} GiB; {self.memory / 2**30:.2f} GiB are allowed for each (--memory)"
                )
            elif time.monotonic() > deadline:
                self.complaint = f"it took longer than {self.seconds:g} seconds (--timeout)"
            else:
                continue
            for process in family:
                with suppress(psutil.Error):
                    process.kill()
            return
