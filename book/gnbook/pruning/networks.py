"""The networks for small images that the chapter prunes, beside residual ones: VGG and a vision transformer.

Torch's default initialisation, from its global generator.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from gnbook.shared.networks import Attention, PatchTransformer


class VGG(nn.Module):
    """Convolutions of 3 x 3 pixels with batch normalisation and ReLU, some maxima ("M") over 2 x 2, a linear layer.

    Simonyan and Zisserman (2015), with a single linear layer, as is usual for images of 32 x 32 pixels. The default has
    the first four convolutions of VGG11.
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
        features = channels * (side // 2**halvings) ** 2
        super().__init__()
        self.layers = nn.Sequential(*modules, nn.Flatten(), nn.Linear(features, outputs))

    def forward(self, x: Float[Tensor, "n 3 side side"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        return self.layers(x)


class VisionTransformer(PatchTransformer):
    """Patches as tokens, blocks of attention and a network with one hidden layer, a linear layer of the class token.

    Dosovitskiy et al. (2021), with LayerNorm before each branch of a block, none at the end, and no dropout. The class
    token and the positions are standard normal.
    """

    def __init__(
        self,
        side: int = 32,
        patch: int = 4,
        width: int = 48,
        blocks: int = 4,
        heads: int = 4,
        hidden: int = 192,
        outputs: int = 10,
    ) -> None:
        def chain() -> nn.Sequential:
            return nn.Sequential(*(TransformerBlock(width, heads, hidden) for _ in range(blocks)))

        sizes = {"width": width, "side": side, "patch": patch, "outputs": outputs}
        super().__init__(chain, **sizes, position=1.0, class_token=True)


class TransformerBlock(nn.Module):
    """Attention among the tokens and a network for each of them, both beside a skip and after a LayerNorm."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, width)
        )

    def forward(self, tokens: Float[Tensor, "n t width"]) -> Float[Tensor, "n t width"]:
        """Return the tokens after the block."""
        tokens = tokens + self.attention(tokens)
        return tokens + self.mlp(tokens)
