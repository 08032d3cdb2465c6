"""The networks of the race in torch, on the bundled images or random words, and their gradients."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from gnbook.shared.networks import ResidualNetwork, cnn, perceptron
from torch import nn
from torch.nn.functional import cross_entropy

from gnlib import load
from tests.benchmarks.peers.common import Problem


class Language(nn.Module):
    """A decoder of words; the classes stand on the second axis, as the losses of torch have them."""

    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Parameter(0.02 * torch.randn(64, width))
        options = dict(dropout=0.0, batch_first=True, norm_first=True)
        layer = nn.TransformerEncoderLayer(width, max(width // 64, 1), 4 * width, **options)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.body(self.embed(ids) + self.place[: ids.shape[1]], mask)).mT


class Case(NamedTuple):
    """A network, its number of samples, and whether it is in training mode, or large."""

    make: Callable[[], nn.Module]
    samples: int
    side: int = 32  # of the images, or the number of words
    vocabulary: int = 0
    training: bool = False
    full: bool = False


def resnet18():
    return ResidualNetwork((2, 2, 2, 2), 64)


CASES = {
    "perceptron": Case(lambda: perceptron(768, 256, 256, 10), 40, side=16),
    "CNN": Case(lambda: cnn(16, 32, 64, side=16), 40, side=16),
    "language model": Case(lambda: Language(1600, 64, 6), 2, side=64, vocabulary=1600),
    "ResNet18": Case(resnet18, 16),
    "ResNet18, training": Case(resnet18, 16, training=True),
    "large language model": Case(lambda: Language(8000, 384, 6), 2, side=64, vocabulary=8000, full=True),
    "ResNet18, 64 images": Case(resnet18, 64, full=True),
    "ResNet18, 64 images, training": Case(resnet18, 64, training=True, full=True),
}


def problem_of(network: str) -> Problem:
    """Return a network as all its peers get it: weights, data and a vector, as arrays."""
    case = CASES[network]
    torch.manual_seed(0)
    module = case.make()
    if case.vocabulary:
        ids = torch.randint(0, case.vocabulary, (case.samples, case.side + 1))
        x, y = ids[:, :-1], ids[:, 1:]
    else:
        images, y = load("cifar10", case.samples, stride=32 // case.side)
        x = images.reshape(case.samples, 3, case.side, case.side).float()
        x = (x - x.mean()) / x.std()
    weights = {name: weight.detach().numpy() for name, weight in module.named_parameters()}
    v = torch.randn(sum(w.size for w in weights.values()), generator=torch.Generator().manual_seed(1))
    return Problem(network, weights, x.numpy(), y.numpy(), v.numpy())


def in_torch(problem: Problem) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return the module with these weights, its data and its labels, in the precision of the weights."""
    case = CASES[problem.network]
    module = case.make().to(torch.from_numpy(problem.v[:1]).dtype).train(case.training)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(problem.weights[name]))
    return module, torch.from_numpy(problem.x), torch.from_numpy(problem.y)


def gradient(problem: Problem) -> Callable[[], object]:
    """Return a function that differentiates the loss once, the unit of the race."""
    module, x, y = in_torch(problem)
    return lambda: torch.autograd.grad(cross_entropy(module(x), y), [*module.parameters()])


def vector(problem: Problem) -> torch.Tensor:
    return torch.from_numpy(problem.v)


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def plain_attention() -> None:
    """Switch fused attention off for good: it has no derivative along a direction."""
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cuda.enable_flash_sdp(False)  # on any device, in spite of the name
    torch.backends.cuda.enable_mem_efficient_sdp(False)
