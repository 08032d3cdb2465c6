"""Twenty networks of other kinds than the forty, written when these had been looked at: those that are held out."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tests.benchmarks.trial.cases import Case, Data, kaiming, parted, standardised
from tests.benchmarks.trial.networks import graphs, images, sequences, tables, text
from tests.benchmarks.trial.networks.tables import perceptron, table
from tests.gnlib.networks import Whole, recurrent

CLASSES, NUMBERS = "cross_entropy", "mse"


def dense_perceptron(inputs: int = 30, width: int = 24) -> nn.Module:
    """Each layer sees the inputs and what all layers before it return."""

    def forward(self: Any, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, torch.relu(layer(x))], 1)
        return self.last(x)

    layers = nn.ModuleList(nn.Linear(inputs + i * width, width) for i in range(3))
    return Whole(forward, layers=layers, last=nn.Linear(inputs + 3 * width, 2))


def gated() -> nn.Module:
    layers = [nn.Linear(10, 64), nn.GLU(), nn.LayerNorm(32), nn.Linear(32, 64), nn.GLU(), nn.LayerNorm(32)]
    return nn.Sequential(*layers, nn.Linear(32, 1))


def residual_perceptron(depth: int = 3, width: int = 48) -> nn.Module:
    """Blocks of a perceptron behind a normalisation, each added to what it gets."""

    def forward(self: Any, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)

    inside = [nn.Sequential(nn.LayerNorm(width), perceptron([width, width, width], nn.ReLU)) for _ in range(depth)]
    ends = dict(first=nn.Linear(64, width), last=nn.Linear(width, 10))
    return kaiming(Whole(forward, **ends, blocks=nn.ModuleList(inside)))


def wide_and_deep() -> nn.Module:
    """The sum of a linear model and a perceptron, as Cheng and others (2016) have it."""

    def forward(self: Any, category: Tensor, numbers: Tensor) -> Tensor:
        x = torch.cat([self.embed(category).flatten(1), numbers], 1)
        return self.wide(x) + self.deep(x)

    return Whole(forward, embed=nn.Embedding(8, 4), wide=nn.Linear(11, 1), deep=perceptron([11, 48, 24, 1], nn.ELU))


class Waves(nn.Module):
    """Sines and cosines of random directions, as Tancik and others (2020) have them; they are not trained."""

    def __init__(self, inputs: int, waves: int) -> None:
        super().__init__()
        self.register_buffer("directions", math.pi * torch.randn(inputs, waves))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.sin(x @ self.directions), torch.cos(x @ self.directions)], 1)


def separable() -> nn.Module:
    """Convolutions of each channel by itself, each followed by one of single pixels."""
    layers: list[nn.Module] = [nn.Conv2d(1, 12, 3, 2, 1), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.Conv2d(12, 12, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, 10))


def pooling() -> nn.Module:
    """A mean over rows, weighted by the softmax of a score."""

    def forward(self: Any, x: Tensor) -> Tensor:
        x = torch.tanh(self.each(x))
        return self.last((self.score(x).softmax(1) * x).sum(1))

    return Whole(forward, each=nn.Linear(8, 48), score=nn.Linear(48, 1), last=nn.Linear(48, 10))


def points() -> nn.Module:
    """A perceptron of each point, and the largest of each unit, as Qi and others (2017) have it."""
    each, last = perceptron([2, 32, 32], nn.ReLU), perceptron([32, 32, 1], nn.ReLU)
    return Whole(lambda self, x, mask: self.last((self.each(x) * mask).amax(1)), each=each, last=last)


def bidirectional() -> nn.Module:
    net = recurrent(nn.GRU(3, 16, num_layers=2, batch_first=True, bidirectional=True), 1)
    net.head = nn.Linear(32, 1)
    return net


def albert() -> nn.Module:
    from transformers import AlbertConfig, AlbertForSequenceClassification

    silent = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout_prob=0.0)
    options = dict(embedding_size=16, attn_implementation="eager", num_labels=len(text.TABLES))
    return AlbertForSequenceClassification(AlbertConfig(**text.SIZES, **silent, **options))


def opt() -> nn.Module:
    from transformers import OPTConfig, OPTForCausalLM

    sizes = dict(vocab_size=len(text.LETTERS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, ffn_dim=64)
    options = dict(max_position_embeddings=text.LENGTH, dropout=0.0, use_cache=False, attn_implementation="eager")
    return OPTForCausalLM(OPTConfig(**sizes, **options, word_embed_proj_dim=32, init_std=32**-0.5))


def chebyshev() -> nn.Module:
    from torch_geometric.nn import ChebConv

    return graphs.on_nodes(ChebConv(6, 16, K=2), ChebConv(16, 3, K=2), graphs.blocks()[1])


def wine() -> Data:
    return parted(*table("wine"))


def of_pixels(n: int = 60) -> Data:
    return images.of_channels(images.cifar(n=n))


raw = partial(images.cifar, 255.0)
blocks = [[1, 16, 1, 1], [3, 24, 1, 2], [3, 32, 1, 1]]
mobilenet = images.ten("torchvision.models.MobileNetV2", width_mult=0.5, inverted_residual_setting=blocks, dropout=0.0)
squeezenet = images.ten("torchvision.models.SqueezeNet", "1_1", dropout=0.0)
sizes = dict(patch_size=[2, 2], embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=[4, 4])
swin = images.ten("torchvision.models.SwinTransformer", **sizes, stochastic_depth_prob=0.0)
sizes = dict(img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=2)
cait = images.ten("timm.models.cait.Cait", **sizes)
inception = images.ten("timm.models.inception_next.MetaNeXt", depths=(1, 1), dims=(16, 32))
CASES = {
    "wine-selu": Case("torch", "SELU perceptron", partial(perceptron, [13, 32, 32, 3], nn.SELU), wine, CLASSES),
    "friedman-softplus": Case(
        *("torch", "softplus perceptron", partial(perceptron, [4, 32, 32, 1], nn.Softplus)),
        *(partial(tables.friedman, 3), NUMBERS),
    ),
    "cancer-dense": Case("torch", "densely connected perceptron", dense_perceptron, tables.breast_cancer, CLASSES),
    "diabetes-gated-prepared": Case(
        *("torch", "gated perceptron", gated, lambda: standardised(tables.diabetes(), targets=True), NUMBERS),
        prepared=True,
    ),
    "digits-residual-prepared": Case(
        *("torch", "residual perceptron", residual_perceptron),
        *(lambda: standardised(parted(*(each[:400] for each in table("digits")))), CLASSES),
        prepared=True,
    ),
    "rents-wide": Case("torch", "wide and deep", wide_and_deep, tables.rents, NUMBERS),
    "picture-waves-prepared": Case(
        *("torch", "perceptron on waves", lambda: nn.Sequential(Waves(2, 32), *perceptron([64, 48, 48, 1], nn.ReLU))),
        *(tables.picture, NUMBERS),
        prepared=True,
    ),
    "mnist-separable": Case("torch", "separable convolutions", separable, images.mnist, CLASSES),
    "cifar-mobilenet-prepared": Case(
        "torchvision", "MobileNet", mobilenet, partial(of_pixels, 30), CLASSES, prepared=True
    ),
    "cifar-squeezenet": Case("torchvision", "SqueezeNet", squeezenet, partial(raw, n=30, stride=1), CLASSES),
    "cifar-swin": Case("torchvision", "shifted windows", swin, partial(raw, n=30), CLASSES),
    "cifar-cait": Case("timm", "class attention", cait, raw, CLASSES),
    "cifar-inception-prepared": Case("timm", "InceptionNeXt", inception, of_pixels, CLASSES, prepared=True),
    "weather-gru": Case("torch", "bidirectional GRU", bidirectional, sequences.weather, NUMBERS),
    "digits-pooling": Case("torch", "attention pooling", pooling, sequences.rows, CLASSES),
    "clouds-points": Case("torch", "largest over points", points, sequences.clouds, NUMBERS),
    "source-albert": Case("transformers", "ALBERT", albert, text.source, CLASSES, output=lambda r: r.logits),
    "letters-opt-prepared": Case(
        "transformers", "OPT", opt, text.each_letter, CLASSES, output=lambda r: r.logits, prepared=True
    ),
    "blocks-chebyshev": Case(
        "torch_geometric", "Chebyshev filters of nodes", chebyshev, graphs.members, CLASSES, together=True
    ),
    "energies-graphconv": Case(
        *("torch_geometric", "graph layers with skips", lambda: graphs.dense("DenseGraphConv", 1)),
        *(graphs.energies, NUMBERS),
    ),
}
