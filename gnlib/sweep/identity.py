"""What makes two runs the same run."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from gnlib.sweep.notebook import Notebook

LIBRARY = Path(__file__).parents[1]


def library_digest() -> str:
    """Return the SHA-256 of the source of gnlib, less the sweeps, which compute nothing.

    The version alone would not do: who works on the library changes it without a new version.
    """
    digest = hashlib.sha256()
    for path in sorted(LIBRARY.rglob("*.py")):
        name = path.relative_to(LIBRARY)
        if name.parts[0] != "sweep":
            digest.update(f"{name.as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def data_digests() -> dict[str, list[str]]:
    """Return the digests that images are verified against when they are read: those of the samples and whole sets."""
    from gnlib.data import DATASETS

    return {name: [dataset.sample_sha256, dataset.sha256] for name, dataset in DATASETS.items()}


class Identity:
    """Names runs by what decides their results: code of the notebook and of the library, data, and parameters."""

    def __init__(self, notebook: Notebook) -> None:
        self.common = {"notebook": notebook.digest, "library": library_digest(), "data": data_digests()}
        self._hash = hashlib.sha256(json.dumps(self.common, sort_keys=True).encode())

    def __call__(self, parameters: Mapping[str, object]) -> str:
        """Return the name of the run with these parameters, 20 hexadecimal digits."""
        whole = self._hash.copy()
        whole.update(json.dumps(parameters, sort_keys=True).encode())
        return whole.hexdigest()[:20]
