"""The command `python -m gnlib.data`: what it refuses, and what is left when it is interrupted."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import pytest

from gnlib.data.__main__ import main
from tests.gnlib.data.helpers import complaint

pytestmark = pytest.mark.usefixtures("small_world")


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
