"""A progress bar where someone can see it."""

from collections.abc import Iterable


def progress(iterable: Iterable, description: str, total: int) -> Iterable:
    """Return `iterable`, with a bar if tqdm is installed, on a terminal, and after three seconds."""
    try:
        from tqdm import tqdm
    except ImportError:  # a bar is no reason to depend on anything
        return iterable
    return tqdm(iterable, description, total, leave=False, disable=None, delay=3)
