"""Files that are written whole or not at all."""

import errno
import os

import pytest

from gnlib.files import open_atomic, write


def test_open_atomic_replaces_only_when_complete(tmp_path):
    path = tmp_path / "new" / "file"
    write(path, b"one")
    with open_atomic(path) as file:
        file.write(b"two")
        assert path.read_bytes() == b"one"
    with pytest.raises(ZeroDivisionError), open_atomic(path) as file:
        file.write(b"three")
        raise ZeroDivisionError
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_fills_leaves_the_file_before_and_says_where(step, tmp_path, monkeypatch):
    path = tmp_path / "file"
    write(path, "whole, with an umlaut: ü")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    sentence = r"^file cannot be written in .* \(No space left on device\); make the directory writable"
    with pytest.raises(OSError, match=sentence) as raised:
        write(path, b"another")
    assert raised.value.errno == errno.ENOSPC
    assert path.read_text(encoding="utf8") == "whole, with an umlaut: ü"
    assert list(tmp_path.iterdir()) == [path]
