"""Tables: real ones as scikit-learn has them, in their raw units, and generated ones whose rule stands here."""

import math
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from gnlib import load
from tests.benchmarks.trial.cases import Case, Data, generator, kaiming, parted, standardised
from tests.gnlib.networks import Whole


def table(name: str, **options: bool) -> tuple[Tensor, Tensor]:
    """Return features and targets of one of scikit-learn's small tables."""
    from sklearn import datasets

    held = getattr(datasets, f"load_{name}")(**options)
    x, y = torch.tensor(held.data).float(), torch.tensor(held.target)
    return x, y.float()[:, None] if name == "diabetes" else y.long()


def breast_cancer() -> Data:
    return parted(*table("breast_cancer"))


def diabetes() -> Data:
    return parted(*table("diabetes", scaled=False))


def proline() -> Data:
    """The amino acid that a wine holds, in mg per litre, from the twelve other properties."""
    x, _ = table("wine")
    return parted(x[:, :-1], x[:, -1:])


def digits() -> Data:
    x, _ = table("digits")
    return parted(x[:400], x[:400])


def friedman(which: int) -> Data:
    """The function of Friedman (1991), with the noise of deviation 1 that it has there."""
    from sklearn import datasets

    x, y = getattr(datasets, f"make_friedman{which}")(300, noise=1.0, random_state=0)
    return parted(torch.tensor(x).float(), torch.tensor(y).float()[:, None])


def rents() -> Data:
    """Rents by district and by area, age and distance, in their units: 4 for each square metre, and a district's."""
    g = generator()
    district = torch.randint(8, (264, 2), generator=g)  # and the kind of house
    area, age, far = (torch.rand(264, generator=g) * top for top in (150.0, 100.0, 20_000.0))
    base = 200 * torch.randn(8, generator=g)
    y = 4 * area * (1 + 0.1 * (district[:, 1] % 3)) + base[district[:, 0]] - 0.005 * far - age
    return parted({"category": district, "numbers": torch.stack([area, age, far], 1)}, y[:, None])


def spirals() -> Data:
    """Two spirals around (500, 200), of radius 100, with one and a half turns each."""
    g = generator()
    label = torch.arange(264) % 2
    turn = torch.rand(264, generator=g).sqrt()
    angle = 3 * math.pi * turn + math.pi * label
    x = 100 * turn[:, None] * torch.stack([angle.cos(), angle.sin()], 1) + 2 * torch.randn(264, 2, generator=g)
    return parted(x + torch.tensor([500.0, 200.0]), label)


def picture() -> Data:
    """One digit as a function of the place, both coordinates in [-1, 1], grey values standardised."""
    image = load("mnist", 3, stride=2)[0][2]
    side = math.isqrt(len(image))
    axis = torch.linspace(-1, 1, side)
    x = torch.cartesian_prod(axis, axis)
    y = ((image - image.mean()) / image.std()).float()[:, None]
    return parted(x, y, n=98)


def perceptron(sizes: list[int], hidden: type[nn.Module], norm: type[nn.Module] | None = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes[:-1]):
        layers += [nn.Linear(fan_in, fan_out), *([norm(fan_out)] if norm else []), hidden()]
    return nn.Sequential(*layers, nn.Linear(*sizes[-2:]))


def highway(inputs: int = 10, width: int = 32, depth: int = 6) -> nn.Module:
    """Highway layers of Srivastava and others (2015): gates let the input by."""

    def forward(self: Any, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer, gate in zip(self.maps, self.gates, strict=True):
            t = torch.sigmoid(gate(x))
            x = t * torch.relu(layer(x)) + (1 - t) * x
        return self.last(x)

    ends = dict(first=nn.Linear(inputs, width), last=nn.Linear(width, 1))
    maps, gates = (nn.ModuleList(nn.Linear(width, width) for _ in range(depth)) for _ in range(2))
    for gate in gates:
        nn.init.constant_(gate.bias, -2.0)
    return Whole(forward, **ends, maps=maps, gates=gates)


def experts() -> nn.Module:
    """A mixture of four small perceptrons, weighted by the softmax of a linear map."""

    def forward(self: Any, x: Tensor) -> Tensor:
        values = torch.cat([expert(x) for expert in self.experts], 1)
        return (self.gate(x).softmax(1) * values).sum(1, keepdim=True)

    gate = nn.Linear(4, 4)
    return Whole(forward, gate=gate, experts=nn.ModuleList(perceptron([4, 16, 16, 1], nn.ReLU) for _ in range(4)))


def embedded() -> nn.Module:
    """A perceptron on embedded categories beside numbers."""

    def forward(self: Any, category: Tensor, numbers: Tensor) -> Tensor:
        return self.body(torch.cat([self.embed(category).flatten(1), numbers], 1))

    return Whole(forward, embed=nn.Embedding(8, 4), body=perceptron([11, 32, 32, 1], nn.ReLU))


def shared() -> nn.Module:
    """Eight steps of one residual layer, as of a differential equation."""

    def forward(self: Any, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(8):
            x = x + torch.tanh(self.step(x)) / 8
        return self.last(x)

    return Whole(forward, first=nn.Linear(2, 32), step=nn.Linear(32, 32), last=nn.Linear(32, 2))


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


def sines() -> nn.Module:
    """The network of Sitzmann and others (2020), with the weights that they give it."""
    net = perceptron([2, 48, 48, 48, 1], Sine)
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for layer in layers[1:]:
            layer.weight.uniform_(-1, 1).mul_(math.sqrt(6 / layer.in_features))
        layers[0].weight.uniform_(-1, 1).mul_(15)
    return net


AUTOENCODER = [64, 48, 32, 48, 64]
CLASSES, NUMBERS = "cross_entropy", "mse"
CASES = {
    "breast-cancer-raw": Case(
        "torch", "perceptron", lambda: perceptron([30, 64, 64, 2], nn.ReLU), breast_cancer, CLASSES
    ),
    "breast-cancer-prepared": Case(
        *("torch", "perceptron with BatchNorm", lambda: kaiming(perceptron([30, 64, 64, 2], nn.ReLU, nn.BatchNorm1d))),
        *(lambda: standardised(breast_cancer()), CLASSES),
        prepared=True,
    ),
    "diabetes-raw": Case("torch", "SiLU perceptron", lambda: perceptron([10, 48, 48, 1], nn.SiLU), diabetes, NUMBERS),
    "diabetes-prepared": Case(
        *("torch", "perceptron with LayerNorm", lambda: perceptron([10, 48, 48, 1], nn.GELU, nn.LayerNorm)),
        *(lambda: standardised(diabetes(), targets=True), NUMBERS),
        prepared=True,
    ),
    "proline-tanh": Case(
        "torch", "deep tanh perceptron", lambda: perceptron([12, *[24] * 5, 1], nn.Tanh), proline, NUMBERS
    ),
    "iris-linear": Case("torch", "linear model", lambda: nn.Linear(4, 3), lambda: parted(*table("iris")), CLASSES),
    "digits-autoencoder": Case("torch", "autoencoder", lambda: perceptron(AUTOENCODER, nn.ReLU), digits, NUMBERS),
    "friedman-highway": Case("torch", "highway network", highway, partial(friedman, 1), NUMBERS),
    "friedman-experts": Case("torch", "mixture of experts", experts, partial(friedman, 2), NUMBERS),
    "rents-embedded": Case("torch", "embedded categories", embedded, rents, NUMBERS),
    "spirals-shared": Case("torch", "residual layer used again", shared, spirals, CLASSES),
    "picture-sines": Case("torch", "sine network", sines, picture, NUMBERS, prepared=True),
}
