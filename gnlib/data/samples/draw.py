"""Draw the bundled samples again from the full training sets in the cache.

`python -m gnlib.data.samples.draw` says whether each is identical to the bundled file, which is
never overwritten; a file that is missing is written.
"""

import io
import sys

import numpy as np

from gnlib.data import DATASETS, SAMPLE_SIZE, SAMPLES, balanced_order
from gnlib.data.fetch import training_set
from gnlib.files import write


def draw(name: str) -> bytes:
    """Return the .npz file of a sample: its images, labels, and their rows in the training set."""
    images, labels = training_set(name)
    rows = balanced_order(labels)[:SAMPLE_SIZE]
    file = io.BytesIO()
    np.savez_compressed(file, images=images[rows], labels=labels[rows], index=rows.astype(np.int32))
    return file.getvalue()


def same_arrays(one: bytes, other: bytes) -> bool:
    """Say whether two .npz files hold the same arrays; compression may differ by platform."""
    try:
        with np.load(io.BytesIO(one)) as ours, np.load(io.BytesIO(other)) as theirs:
            return sorted(ours) == sorted(theirs) and all(
                ours[key].dtype == theirs[key].dtype and np.array_equal(ours[key], theirs[key]) for key in ours
            )
    except Exception:  # a damaged file holds no arrays; it surfaces as a dozen types
        return False


def main() -> int:
    """Draw every sample and compare it; return the exit status, 1 if one differs."""
    status = 0
    for name in DATASETS:
        path = SAMPLES / f"{name}.npz"
        try:
            drawn = draw(name)
            if not path.exists():
                write(path, drawn)
                print(f"{name}: written to {path}")
            elif same_arrays(drawn, path.read_bytes()):
                print(f"{name}: identical to {path}")
            else:
                print(
                    f"{name}: differs from {path}; delete that file and run again to replace it.",
                    file=sys.stderr,
                )
                status = 1
        except (ImportError, OSError, ValueError) as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
