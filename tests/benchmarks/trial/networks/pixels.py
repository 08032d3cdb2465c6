"""An output for each pixel, by networks of segmentation_models_pytorch on 32 by 32 pixels of CIFAR-10."""

from functools import partial

from torch import Tensor
from torch.nn import functional

from gnlib import load
from tests.benchmarks.trial.cases import Case, Data, of_library, parted, standardised

SAMPLES = 8


def images() -> Tensor:
    return load("cifar10", 36)[0].view(-1, 3, 32, 32).float()


def coarse(x: Tensor) -> Tensor:
    """Return every fourth pixel of each row and column, as one axis."""
    return x[:, 0, 2::4, 2::4].flatten(1)


def bright() -> Data:
    """Pixels from 0 to 255, and which of them are brighter than the mean of their image."""
    x = images()
    grey = x.mean(1, keepdim=True)
    return parted(255 * x, coarse((grey > grey.mean((2, 3), keepdim=True)).float()), n=SAMPLES)


def edges() -> Data:
    """Pixels from 0 to 1, and a hundred times the steepness of their grey values."""
    x = images()
    grey = functional.pad(x.mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    across, down = grey[:, :, 1:-1, 2:] - grey[:, :, 1:-1, :-2], grey[:, :, 2:, 1:-1] - grey[:, :, :-2, 1:-1]
    return parted(x, coarse(100 * (across.square() + down.square()).sqrt()), n=SAMPLES)


def prepared() -> Data:
    return standardised(bright(), 0, 2, 3)


LIBRARY = "segmentation_models_pytorch"
small = partial(of_library, encoder_weights=None, in_channels=3)
unet = small(f"{LIBRARY}.Unet", "tu-test_efficientnet", encoder_depth=3, decoder_channels=(24, 16, 8))
linknet = small(f"{LIBRARY}.Linknet", "tu-test_byobnet", encoder_depth=3)
PYRAMID = dict(decoder_pyramid_channels=32, decoder_segmentation_channels=32, decoder_dropout=0.0)
pyramid = small(f"{LIBRARY}.FPN", "tu-test_resnet", **PYRAMID)
SIGNS = functional.binary_cross_entropy_with_logits
CASES = {
    "bright-unet": Case(LIBRARY, "U-Net", unet, bright, SIGNS, output=coarse),
    "edges-linknet": Case(LIBRARY, "LinkNet", linknet, edges, "mse", output=coarse),
    "bright-pyramid-prepared": Case(LIBRARY, "feature pyramid", pyramid, prepared, SIGNS, output=coarse, prepared=True),
}
