"""Three small networks with common ailments, and the same networks with the ailment mended."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

OUTPUTS = 10


def perceptron(side: int = 16, seed: int = 0, *, layer_norm: bool = False) -> nn.Sequential:
    """Return a network with two hidden layers of 128 ReLUs for images of so many rows and columns.

    Examples
    --------
    >>> len(perceptron()), len(perceptron(layer_norm=True))
    (6, 8)
    """
    torch.manual_seed(seed)
    first, second, head = nn.Linear(3 * side**2, 128), nn.Linear(128, 128), nn.Linear(128, OUTPUTS)
    norms = [[nn.LayerNorm(128)] if layer_norm else [] for _ in range(2)]
    return nn.Sequential(nn.Flatten(), first, *norms[0], nn.ReLU(), second, *norms[1], nn.ReLU(), head)


def cnn(seed: int = 0, *, group_norm: bool = False) -> nn.Sequential:
    """Return a network of three convolutions, each of which halves the image, and a linear layer of the mean pixel.

    Examples
    --------
    >>> len(cnn()), len(cnn(group_norm=True))
    (9, 12)
    """
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    before = 3
    for after in (16, 32, 64):
        norm = [nn.GroupNorm(1, after)] if group_norm else []
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), *norm, nn.ReLU()]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, OUTPUTS))


class VisionTransformer(nn.Module):
    """A transformer of two blocks on sixteen patches of an image.

    Parameters
    ----------
    side
        rows and columns of an image
    std
        standard deviation of all weight matrices; by default one over the root of the number of inputs of each
    """

    def __init__(self, side: int, std: float | None) -> None:
        super().__init__()
        width, patch = 32, side // 4
        self.embedding = nn.Conv2d(3, width, patch, stride=patch)
        blocks = [nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=True) for _ in "ab"]
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, OUTPUTS)
        for weight in (p for p in self.parameters() if p.ndim > 1):
            nn.init.normal_(weight, std=std or weight[0].numel() ** -0.5)
        self.position = nn.Parameter(0.02 * torch.randn(16, width))

    def forward(self, images: Float[Tensor, "n 3 side side"]) -> Float[Tensor, "n 10"]:
        """Return the outputs."""
        tokens = self.embedding(images).flatten(2).mT + self.position
        return self.head(self.norm(self.blocks(tokens)).mean(1))


def transformer(side: int = 16, seed: int = 0, std: float | None = None) -> VisionTransformer:
    """Return a vision transformer that is drawn with this seed.

    Examples
    --------
    >>> f"{transformer(std=0.02).head.weight.std():.2f}"
    '0.02'
    """
    torch.manual_seed(seed)
    return VisionTransformer(side, std)
