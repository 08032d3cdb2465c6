"""Training images: which ones are loaded and how, and that nothing damaged is ever taken for them."""

import hashlib
import importlib.util
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnlib.data import balanced_order, datasets, load
from gnlib.data.datasets import DATASETS, Dataset, bundled_sample

NAMES = sorted(DATASETS)
SIDES = {"mnist": 28, "cifar10": 32}


def fingerprint(images, labels):
    return hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The user's cache directory."""
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache" / project)
    return tmp_path / "cache" / "gnlib"


@pytest.fixture
def synthetic(cache, tmp_path, monkeypatch):
    """A made-up training set of 1,500 tiny images, unbalanced, in the cache and in the samples."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (1500, 3, 4, 4), dtype=np.uint8)
    labels = rng.choice(10, 1500, p=np.linspace(1, 2, 10) / 15).astype(np.uint8)
    rounds = sorted(range(1500), key=lambda i: ((labels[:i] == labels[i]).sum(), labels[i]))
    first = rounds[:1000]
    digests = fingerprint(images, labels), fingerprint(images[first], labels[first])
    monkeypatch.setitem(DATASETS, "cifar10", Dataset(1500, (3, 4, 4), *digests))
    monkeypatch.setattr(datasets, "SAMPLES", tmp_path)
    cache.mkdir(parents=True)
    np.savez(cache / "cifar10.npz", images=images, labels=labels)
    np.savez(tmp_path / "cifar10.npz", images=images[first], labels=labels[first])
    return images[rounds], labels[rounds]


@pytest.mark.parametrize(
    "name, n, options, d",
    [("mnist", 1000, {}, 784), ("mnist", 30, {"stride": 5}, 36), ("cifar10", 30, {"stride": 4}, 192)],
)
def test_dimensions_of_the_papers(name, n, options, d):
    x, labels = load(name, n, **options)
    assert (x.shape, x.dtype, labels.dtype) == ((n, d), torch.float64, torch.int64)
    assert labels[:30].tolist() == list(range(10)) * 3 and labels.bincount().tolist() == [n // 10] * 10


@settings(max_examples=25, derandomize=False)
@given(st.sampled_from(NAMES), st.integers(1, 28), st.integers(1, 50), st.integers(0, 950))
def test_fewer_images_are_a_prefix_of_more_and_striding_is_slicing(name, stride, n, more):
    x, labels = load(name, n + more)
    images = x[:n].reshape(n, -1, SIDES[name], SIDES[name])
    strided, of = load(name, n, stride=stride)
    assert torch.equal(strided, images[:, :, ::stride, ::stride].flatten(1)) and torch.equal(of, labels[:n])


@settings(max_examples=100, derandomize=False)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60))
def test_balanced_order_serves_the_classes_in_rounds(labels):
    order = balanced_order(np.array(labels, dtype=np.uint8))
    rounds = sorted(range(len(labels)), key=lambda i: (labels[:i].count(labels[i]), labels[i]))
    assert order.tolist() == rounds


@pytest.mark.parametrize("stride", [1, 4, 5])
def test_grayscale_is_that_of_pillow_before_rounding(stride):
    image = pytest.importorskip("PIL.Image")
    colour = bundled_sample("cifar10")[0][:20].transpose(0, 2, 3, 1)
    pillow = np.stack([image.fromarray(one).convert("L") for one in colour])
    ours = load("cifar10", 20, stride=stride, grayscale=True)[0] * 255
    difference = ours.reshape(20, len(range(0, 32, stride)), -1).numpy() - pillow[:, ::stride, ::stride]
    assert np.abs(difference).max() < 0.51


def test_more_than_the_sample_comes_from_the_cache_in_the_same_order(synthetic):
    images, labels = synthetic
    for n in (1, 999, 1000, 1001, 1500):
        x, y = load("cifar10", n)
        assert np.array_equal(x.numpy(), images[:n].reshape(n, -1) / 255)
        assert np.array_equal(y.numpy(), labels[:n])


NAMES_OF_NONE, NO_COUNTS = (
    ("MNIST", "fashion", "", "../mnist", None, 3, ["mnist"]),
    (0, -1, 10.0, 2.5, "10", None, True),
)
WRONG = [
    *((dict(name=name), r"Unknown dataset .*the known ones are mnist, cifar10\.") for name in NAMES_OF_NONE),
    *((dict(n=n), r"n must be a whole number from 1 to 60000 .*, got") for n in (*NO_COUNTS, 60_001, float("nan"))),
    *((dict(stride=stride), r"stride must be a whole number from 1 to 28 ") for stride in (*NO_COUNTS, 29)),
    (dict(grayscale=True), r"mnist images are grayscale already"),
    (dict(name="cifar10", grayscale="no"), r"grayscale must be True or False, got 'no'\."),
]


@pytest.mark.bad_input
@pytest.mark.parametrize("given, message", WRONG, ids=str)
def test_what_wrong_arguments_are_told(given, message):
    with pytest.raises(ValueError, match=message):
        load(**{"name": "mnist", **given})


@pytest.mark.bad_input
def test_what_is_missing_is_not_replaced_by_other_data(synthetic, cache, tmp_path, monkeypatch):
    for path in (cache, tmp_path):
        (path / "cifar10.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"run `python -m gnlib\.data fetch cifar10`\.$"):
        load("cifar10", 1001)
    with pytest.raises(FileNotFoundError, match=r"cifar10\.npz, which ships with gnlib, is missin"):
        load("cifar10", 10)
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(ImportError, match=r"need pooch; run `pip install 'gauss-newton-book\[data\]'`\.$"):
        load("cifar10", 1001)


DAMAGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a directory": lambda path: path.unlink() or path.mkdir(),
    "pickled": lambda path: np.savez(path, images=np.array([{}], dtype=object), labels=np.zeros(1, dtype=np.uint8)),
    "other images": lambda path: np.savez(path, **{name: 1 - array for name, array in np.load(path).items()}),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("n, remedy", [(1001, "run `python -m gnlib.data fetch cifar10`"), (10, "install gnlib again")])
def test_a_damaged_cache_and_a_damaged_sample_name_the_file_and_what_to_do(
    synthetic, cache, tmp_path, damage, n, remedy
):
    path = (cache if n > 1000 else tmp_path) / "cifar10.npz"
    damage(path)
    with pytest.raises(ValueError, match=re.escape(remedy)) as caught:
        load("cifar10", n)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    if n > 1000:
        assert len(load("cifar10", 1000)[0]) == 1000  # the bundled sample does not need it


@pytest.mark.bad_input
@settings(max_examples=50, derandomize=False, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_changed_byte_never_changes_the_images_silently(tmp_path, monkeypatch, where, flip):
    genuine = (datasets.SAMPLES / "mnist.npz").read_bytes()
    damaged = bytearray(genuine)
    damaged[int(where * len(damaged))] ^= flip
    (tmp_path / "mnist.npz").write_bytes(damaged)
    expected = load("mnist", 10)[0]
    with monkeypatch.context() as patch:
        patch.setattr(datasets, "SAMPLES", tmp_path)
        try:
            found = load("mnist", 10)[0]
        except ValueError as error:
            assert "install gnlib again" in str(error)
        else:  # a date or another field of the archive that no image depends on
            assert torch.equal(found, expected)


def test_importing_data_does_not_import_what_only_fetching_needs():
    code = (
        "import sys, gnlib.data; gnlib.data.load('mnist', 10);"
        "print(sorted({'pooch', 'PIL', 'requests'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
