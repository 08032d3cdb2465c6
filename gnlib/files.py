"""Files that are written whole or not at all, and a progress bar."""

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

T = TypeVar("T")


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file that appears at `path` when the block ends, and never if it fails.

    Its bytes are on the disk before it takes its name: a loss of power leaves the old file or the new one.

    Raises
    ------
    OSError
        The file cannot be written; the sentence names the directory, and `errno` says why.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        complaint = OSError(
            f"{path.name} cannot be written in {path.parent} ({error.strerror or error}); "
            "make the directory writable and leave it enough room."
        )
        complaint.errno = error.errno
        raise complaint from error
    finally:
        with suppress(OSError):  # already in place, or never created
            temporary.unlink()


def write(path: Path, content: str | bytes) -> None:
    """Write text, in UTF-8, or bytes to a file, whole or not at all."""
    with open_atomic(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def progress(iterable: Iterable[T], description: str, total: int) -> Iterable[T]:
    """Return `iterable`, with a bar if tqdm is installed, on a terminal, and after three seconds."""
    try:
        from tqdm import tqdm
    except ImportError:  # a bar is not worth a dependency
        return iterable
    return tqdm(iterable, description, total, leave=False, disable=None, delay=3)
