"""A small world for the tests of fetching: an empty cache, a server in place of the homes, and a program `npm`."""

import hashlib
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gnlib.data import DATASETS, Dataset
from gnlib.data import fetch as fetching
from tests.gnlib.data.helpers import IMAGES, LABELS, NAMES, home_files


@pytest.fixture
def small_world(tmp_path, monkeypatch):
    """The small training sets, an empty cache and an empty directory for temporary files."""
    for name in NAMES:
        sha256 = hashlib.sha256(IMAGES[name].tobytes() + LABELS.tobytes()).hexdigest()
        dataset = Dataset(50, IMAGES[name].shape[1:], sha256, "")
        monkeypatch.setitem(DATASETS, name, dataset)
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache" / project)
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
