"""Small networks that several chapters train: perceptrons, convolutions, transformers, residual networks.

Weights are torch's defaults, from its global generator, drawn in the order in which the layers are named.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

Make = Callable[[], nn.Module]
Norm = Callable[[int], nn.Module]
Fill = Callable[[Tensor, Generator | None], object]
"""Overwrite a weight tensor with random numbers from a generator, or from torch's global one."""


def perceptron(*widths: int, activation: Make = nn.ReLU, norm: Norm | None = None) -> nn.Sequential:
    """Return linear layers of flattened samples, with an activation, perhaps after a normalisation, between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths[:-1]):
        layers += [nn.Linear(before, after), *([norm(after)] if norm else []), activation()]
    return nn.Sequential(*layers, nn.Linear(*widths[-2:]))


def cnn(
    *channels: int, strides: Sequence[int] = (), norm: Norm | None = None, side: int | None = None, outputs: int = 10
) -> nn.Sequential:
    """Return 3 x 3 convolutions of colour images, with ReLUs, and a linear layer of the mean pixel or of all pixels.

    Strides are 2 if not given; `norm` is given the number of channels. With the side of the images the last layer reads
    all pixels, else their mean.
    """
    layers: list[nn.Module] = []
    for (before, after), stride in zip(pairwise((3, *channels)), strides or [2] * len(channels), strict=True):
        layers += [nn.Conv2d(before, after, 3, stride, 1), *([norm(after)] if norm else []), nn.ReLU()]
        side = side and -(-side // stride)
    pool = [] if side else [nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, *pool, nn.Flatten(), nn.Linear(channels[-1] * (side or 1) ** 2, outputs))


class Attention(nn.Module):
    """Attention with several heads, of linear layers that can be pruned one by one; it runs under `torch.vmap`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens: Float[Tensor, "n t width"]) -> Float[Tensor, "n t width"]:
        """Return for each token the mean of the values of all tokens, weighted by attention."""
        query, key, value = (
            layer(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.mT / query.shape[-1] ** 0.5
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


class PatchTransformer(nn.Module):
    """Patches of colour images as tokens, blocks of layers, and a linear layer of the mean token or of a class token.

    The blocks are constructed after embedding and positions are drawn, of a deviation `position`; None is without. A
    class token is a further one, standard normal at the start, which the last layer reads in place of the mean token.

    A. Dosovitskiy et al. (2021), An image is worth 16x16 words, ICLR.
    """

    def __init__(
        self,
        blocks: Make,
        *,
        width: int,
        side: int = 16,
        patch: int = 4,
        position: float | None = 0.02,
        class_token: bool = False,
        norm: bool = False,
        outputs: int = 10,
    ) -> None:
        super().__init__()
        self.embedding = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, width)) if class_token else None
        tokens = (side // patch) ** 2 + class_token
        self.position = None if position is None else nn.Parameter(position * torch.randn(tokens, width))
        self.blocks = blocks()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Float[Tensor, "n 3 side side"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        tokens = self.embedding(x).flatten(2).mT
        if self.token is not None:
            tokens = torch.cat([self.token.expand(len(x), 1, -1), tokens], 1)
        tokens = self.norm(self.blocks(tokens if self.position is None else tokens + self.position))
        return self.head(tokens.mean(1) if self.token is None else tokens[:, 0])


class ResidualNetwork(nn.Module):
    """Convolution, stages of residual blocks, the mean over the image and a linear layer, of He et al. (2016).

    Each stage but the first begins by halving the image and doubling the channels. Its skip is a convolution with
    filters of one pixel and batch normalisation (option B; option A, which pads with zeros, has no weights there).
    There are three stages if `blocks` is one number: 3 for ResNet20, 5 for ResNet32. Large ones begin with 7 x 7
    pixels, stride 2 and a maximum over 3 x 3. A block with a bottleneck has three convolutions, the first and the last
    with filters of one pixel.
    """

    def __init__(
        self,
        blocks: int | Sequence[int] = 3,
        width: int = 16,
        outputs: int = 10,
        *,
        large: bool = False,
        bottleneck: bool = False,
    ) -> None:
        stages = [blocks] * 3 if isinstance(blocks, int) else blocks
        layers: list[nn.Module] = [*_normalised(3, width, *((7, 2) if large else (3, 1))), nn.ReLU()]
        layers += [nn.MaxPool2d(3, 2, 1)] if large else []
        channels = width
        for stage, number in enumerate(stages):
            for block in range(number):
                stride = 2 if stage and not block else 1
                layers.append(ResidualBlock(channels, width * 2**stage, stride, bottleneck=bottleneck))
                channels = layers[-1].channels
        super().__init__()
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs))

    def forward(self, x: Float[Tensor, "n 3 side side"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        return self.layers(x)


class ResidualBlock(nn.Module):
    """Two or three convolutions, each with batch normalisation, beside a skip, and a ReLU of their sum."""

    def __init__(self, channels: int, width: int, stride: int = 1, *, bottleneck: bool = False) -> None:
        super().__init__()
        self.channels = 4 * width if bottleneck else width
        sizes, strides = ((1, 3, 1), (1, stride, 1)) if bottleneck else ((3, 3), (stride, 1))
        layers: list[nn.Module] = []
        widths = pairwise([channels, *[width] * (len(sizes) - 1), self.channels])
        for (before, after), size, step in zip(widths, sizes, strides, strict=True):
            layers += [*_normalised(before, after, size, step), nn.ReLU()]
        self.branch = nn.Sequential(*layers[:-1])
        same = stride == 1 and channels == self.channels
        self.skip = nn.Identity() if same else nn.Sequential(*_normalised(channels, self.channels, 1, stride))

    def forward(self, x: Float[Tensor, "n channels h w"]) -> Float[Tensor, "n out h2 w2"]:
        """Return the outputs."""
        return (self.branch(x) + self.skip(x)).relu()


def _normalised(channels: int, out: int, size: int, stride: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)


class FullyConnected(nn.Module):
    r"""A network without biases, :math:`f(x) = W_L \varphi(\cdots \varphi(W_1 x))`, linear or with ReLUs.

    The weights of a linear network are multiplied before the data are, from the output on: products of k rows, which
    make a step of gradient descent several times as fast as the passes of a batch through the layers.
    """

    def __init__(self, weights: Sequence[Tensor], *, relu: bool = False, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layers = nn.ParameterList(w.detach().clone().to(dtype) for w in weights)
        self.relu = relu

    def weights(self) -> list[Tensor]:
        """Return a copy of the weights in double precision, input layer first."""
        return [w.detach().clone().double() for w in self.layers]

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        *hidden, last = self.layers  # a slice of a ParameterList would cut the gradient of stacked weights
        if self.relu:
            for w in hidden:
                x = (x @ w.mT).relu()
            return x @ last.mT
        for w in reversed(hidden):
            last = last @ w
        return x @ last.mT


def xavier_weights(widths: Sequence[int], *, generator: Generator) -> list[Tensor]:
    """Draw Xavier normal weights, of deviation `sqrt(2 / (in + out))`, on the device of the generator."""
    return [
        torch.randn(out, fan_in, generator=generator, device=generator.device, dtype=torch.float64)
        * (2 / (fan_in + out)) ** 0.5
        for fan_in, out in pairwise(widths)
    ]


def drawn(make: Make, seed: int) -> nn.Module:
    """Return a network drawn with a seed; torch's global generator is left as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def kaiming(weight: Tensor, generator: Generator | None = None, *, scale: float = 1.0) -> Tensor:
    """Fill a weight tensor with normal numbers of Kaiming's deviation for ReLUs, the root of two over fan-in, scaled.

    K. He, X. Zhang, S. Ren, J. Sun (2015), Delving deep into rectifiers, ICCV.
    """
    return nn.init.kaiming_normal_(weight, generator=generator).mul_(scale)


def orthogonal(weight: Tensor, generator: Generator | None = None) -> Tensor:
    """Fill a weight tensor with orthogonal rows or columns of length root of two.

    A. M. Saxe, J. L. McClelland, S. Ganguli (2014), Exact solutions to the nonlinear dynamics of learning in deep
    linear neural networks, ICLR.
    """
    return nn.init.orthogonal_(weight, 2**0.5, generator)


@torch.no_grad()
def initialise(network: nn.Module, fill: Fill, *, generator: Generator | None = None) -> nn.Module:
    """Fill all weight matrices and filters of a network, layer by layer, and set its biases to zero, in place.

    Scales of normalisations stay, and so do embeddings of positions and of a class token. The numbers are drawn on the
    CPU, from torch's global generator if none is given.
    """
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.ndim > 1 and name not in ("position", "token"):
            weight = torch.empty_like(parameter, device="cpu")
            fill(weight, generator)
            parameter.copy_(weight)
    return network
