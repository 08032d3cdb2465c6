"""The folder of a sweep, in which nothing is ever half written.

| path | content |
|---|---|
| `runs/<name>/` | a finished run: `notebook.ipynb`, `run.json`, and `rows.json` if it recorded rows |
| `failed/<name>/` | the last attempt of a failed run: the same so far, `traceback.txt`, `stderr.txt` of its kernel |
| `unfinished/` | runs in progress; renamed when whole |
| `table.parquet`, `table.csv` | the rows of all finished runs of the grid |
| `sweep.json` | the notebook and the figures of the table |
| `lock`, `holder` | the lock that keeps a second sweep out, and the process that took it last |
"""

import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gnlib.files import write

# Executed notebooks are no chapters: git and jupytext leave them alone, wherever the folder is.
IGNORED_BY_GIT = "# Results of a sweep.\n*\n"
NOT_PAIRED = '# Executed notebooks: jupytext makes no text of them.\nformats = "ipynb"\n'


@dataclass(frozen=True)
class Folder:
    """The folder of a sweep; the path is absolute."""

    path: Path

    @property
    def runs(self) -> Path:
        """Finished runs."""
        return self.path / "runs"

    @property
    def failed(self) -> Path:
        """Failed runs."""
        return self.path / "failed"

    @property
    def unfinished(self) -> Path:
        """Runs in progress, and the remains of killed runs."""
        return self.path / "unfinished"

    def prepare(self) -> None:
        """Create the folders that are missing."""
        try:
            for path in (self.runs, self.failed, self.unfinished):
                path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"Cannot write to the folder {self.path}: {error.strerror or error}.") from None
        write(self.path / ".gitignore", IGNORED_BY_GIT)
        write(self.path / "jupytext.toml", NOT_PAIRED)

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
            rest = path.name.partition(".")[2]
            host, _, pid = rest.rpartition(".")[0].rpartition(".")
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
        names = [path.name for path in self.runs.iterdir()] if self.runs.is_dir() else []
        return {name: report for name in names if (report := self.finished(name)) is not None}

    def of_other_versions(self, digest: str) -> list[str]:
        """Return a line that counts the finished runs with another digest; none if there is no such run."""
        others = sum(report.get("digest") != digest for report in self.all_finished().values())
        line = f"Finished runs of another version of the notebook, gnlib or the data: {others}; they stay as they are"
        return [f"{line}, and the table leaves them out."] if others else []
