"""Plain convolutional networks for small images, in the manner of VGG."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn


class VGG(nn.Module):
    """Convolutions of 3 x 3 pixels with batch normalisation and ReLU, some maxima over 2 x 2, and a linear layer.

    Simonyan and Zisserman (2015), with batch normalisation and a single linear layer, as is usual for images of
    32 x 32 pixels. The default has five layers, the first four convolutions of VGG11. Torch's default initialisation,
    from its global generator.

    Parameters
    ----------
    layers
        number of channels of each convolution, and "M" for each maximum
    side
        of the images in pixels; each maximum halves it
    outputs
        number of outputs

    Raises
    ------
    ValueError
        Images that cannot be halved so often.
    """

    def __init__(
        self, layers: Sequence[int | str] = (64, "M", 128, "M", 256, 256, "M"), side: int = 32, outputs: int = 10
    ) -> None:
        modules, channels, halvings = [], 3, 0
        for layer in layers:
            if layer == "M":
                modules.append(nn.MaxPool2d(2))
                halvings += 1
            else:
                modules += [nn.Conv2d(channels, layer, 3, padding=1), nn.BatchNorm2d(layer), nn.ReLU()]
                channels = layer
        factor = 2**halvings
        if side < 1 or side % factor:
            raise ValueError(f"side is {side}; a multiple of {factor} was expected, to be halved {halvings} times.")
        features = channels * (side // factor) ** 2
        super().__init__()
        self.layers = nn.Sequential(*modules, nn.Flatten(), nn.Linear(features, outputs))

    def forward(self, x: Float[Tensor, "n 3 side side"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        return self.layers(x)
