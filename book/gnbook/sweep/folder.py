"""The folder of a sweep, in which nothing is ever half written.

Besides what `book/sweeps.md` lists it has `unfinished/`, runs in progress, which are renamed when whole, `sweep.json`,
the notebook and the figures of the table, `lock`, and `holder`, the process that took the lock last.
"""

import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gnlib.files import write

# Executed notebooks are no chapters: git and jupytext leave them alone, wherever the folder is.
LEFT_ALONE = {".gitignore": "*\n", "jupytext.toml": 'formats = "ipynb"\n'}


class Folder:
    """The folder of a sweep; the path is absolute."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs, self.failed, self.unfinished = (path / name for name in ("runs", "failed", "unfinished"))

    def prepare(self) -> None:
        """Create the folders that are missing."""
        for path in (self.runs, self.failed, self.unfinished):
            path.mkdir(parents=True, exist_ok=True)
        for name, content in LEFT_ALONE.items():
            write(self.path / name, content)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other sweeps out of this folder, on other machines too, until the block ends or this process dies."""
        from filelock import FileLock, Timeout

        lock, holder = FileLock(self.path / "lock"), self.path / "holder"  # a locked file cannot be read on Windows
        try:
            held = lock.acquire(blocking=False)
        except Timeout:
            by = holder.read_text() if holder.exists() else "unknown"
            raise BlockingIOError(
                f"Another sweep is at work in {self.path} ({by}); wait for it, or give this one another --out."
            ) from None
        with held:
            write(holder, f"process {os.getpid()} on {socket.gethostname()}")
            yield

    def new_run(self, name: str) -> Path:
        """Create the folder of a run in progress; its name says which process it belongs to."""
        path = self.unfinished / f"{name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        path.mkdir()
        return path

    def remove_left_over(self) -> None:
        """Remove runs in progress whose process on this machine is gone; other machines may still be at work."""
        import psutil

        for path in self.unfinished.iterdir():
            host, pid, _ = path.name.partition(".")[2].rsplit(".", 2)
            if host == socket.gethostname() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(path, ignore_errors=True)

    def keep_finished(self, run: Path, name: str) -> None:
        """Move a whole run to the finished runs; one that was there first stays."""
        try:
            run.rename(self.runs / name)
        except OSError:
            if not (self.runs / name).is_dir():
                raise
            shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(self.failed / name, ignore_errors=True)

    def keep_failed(self, run: Path, name: str) -> None:
        """Move a failed run to the failed runs, in place of an earlier attempt."""
        shutil.rmtree(self.failed / name, ignore_errors=True)
        run.rename(self.failed / name)

    def finished(self, name: str) -> dict | None:
        """Return the `run.json` of a finished run, or None if there is none."""
        try:
            return json.loads((self.runs / name / "run.json").read_text())
        except FileNotFoundError:
            return None
        except ValueError:  # cut off, by a loss of power
            shutil.rmtree(self.runs / name)
            return None

    def all_finished(self) -> dict[str, dict]:
        """Return the `run.json` of every finished run by its name, other grids and versions included."""
        return {path.name: report for path in self.runs.glob("*") if (report := self.finished(path.name)) is not None}

    def of_other_versions(self, digest: str) -> list[str]:
        """Return a line that counts the finished runs with another digest; none if there is no such run."""
        others = sum(report.get("digest") != digest for report in self.all_finished().values())
        line = f"Finished runs of another version of the notebook, gnlib or the data: {others}; they stay as they are"
        return [f"{line}, and the table leaves them out."] if others else []
