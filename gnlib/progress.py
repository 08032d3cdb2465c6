"""A progress bar where someone can see it."""

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def progress(iterable: Iterable[T], description: str, total: int) -> Iterable[T]:
    """Return `iterable`, with a bar if tqdm is installed, on a terminal, and after three seconds."""
    try:
        from tqdm import tqdm
    except ImportError:  # a bar is not worth a dependency
        return iterable
    return tqdm(iterable, description, total, leave=False, disable=None, delay=3)
