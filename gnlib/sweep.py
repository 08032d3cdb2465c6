"""Where sweeps have gone; this module is kept for one release."""

MOVED = "Sweeps are in the package of the book now: python -m gnbook.sweep, or from gnbook import sweep."


def __getattr__(name: str) -> object:
    raise AttributeError(MOVED)


if __name__ == "__main__":
    raise SystemExit(MOVED)
