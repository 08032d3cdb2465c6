"""A small vision transformer."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.shared.attention import Attention


class VisionTransformer(nn.Module):
    """Patches as tokens, blocks of attention and a network with one hidden layer, a linear layer of the class token.

    Dosovitskiy et al. (2021), with LayerNorm before each branch of a block, none at the end, and no dropout. Torch's
    default initialisation, from its global generator; the class token and the positions are standard normal.

    Parameters
    ----------
    side
        of the images in pixels
    patch
        side of a patch in pixels
    width
        of a token
    blocks
        number of blocks
    heads
        of the attention
    hidden
        units of the networks with one hidden layer
    outputs
        number of outputs

    Raises
    ------
    ValueError
        Images that are not made of whole patches, or tokens that cannot be divided among the heads.
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
        if min(side, patch) < 1 or side % patch:
            raise ValueError(f"side is {side} and patch is {patch}; a patch that divides the side was expected.")
        super().__init__()
        self.embedding = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, width))
        self.position = nn.Parameter(torch.randn((side // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, hidden) for _ in range(blocks)))
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Float[Tensor, "n 3 side side"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        patches = self.embedding(x).flatten(2).mT
        tokens = torch.cat([self.token.expand(len(x), 1, -1), patches], 1) + self.position
        return self.head(self.blocks(tokens)[:, 0])


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
