"""Networks on images of 16 x 16 pixels and of the sizes in use, and their Gram matrix from the whole Jacobian."""

from functools import partial

from jaxtyping import Float, Int
from torch import Tensor, func, nn

from gnbook.shared import networks


def perceptron(width: int) -> nn.Sequential:
    """Return a network of two hidden layers of ReLUs, each of so many units, with ten outputs."""
    return networks.perceptron(768, width, width, 10)


def cnn() -> nn.Sequential:
    """Return a network of three convolutions, each of which halves the image, with ten outputs."""
    return networks.cnn(16, 64, 256, side=16)


def patch_transformer(width: int) -> networks.PatchTransformer:
    """Return a transformer of two layers on patches of 4 x 4 pixels, without positions."""

    def blocks() -> nn.Module:
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0, batch_first=True)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    return networks.PatchTransformer(blocks, width=width, position=None)


def contracted(module: nn.Module, x: Float[Tensor, "n ..."]) -> Float[Tensor, "nk nk"]:
    r"""Return :math:`\frac1n J J^\top` from the whole Jacobian, as torch's own tutorial on tangent kernels has it."""
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def outputs(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return func.functional_call(module, p, x[None])[0]

    parts = func.vmap(func.jacrev(outputs), (None, 0))(parameters, x).values()
    return sum(part.flatten(2).flatten(0, 1) @ part.flatten(2).flatten(0, 1).mT for part in parts) / len(x)


def count(network: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(weight.numel() for weight in network.parameters())


ResNet = partial(networks.ResidualNetwork, width=64, large=True)
"""Residual networks for large images of He et al. (2016), as torchvision has them, from the blocks of four stages."""


class TextTransformer(nn.Module):
    """Words as tokens, layers of attention, and a linear layer of the mean token.

    Hidden layers have four times as many units as a token has entries, and there is a head for each 64.
    """

    def __init__(self, words: int = 20_000, width: int = 768, layers: int = 12, outputs: int = 10) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0, nn.functional.gelu, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Int[Tensor, "n t"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        return self.head(self.layers(self.embedding(x)).mean(1))
