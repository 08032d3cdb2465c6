"""A network of the trial: how it is made, its data and its loss."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

SAMPLES = 64


class Data(NamedTuple):
    """Samples to train on and samples held out: inputs are a tensor, a tuple of them or a dict."""

    x: Any
    y: Tensor
    held_x: Any
    held_y: Tensor


@dataclass(frozen=True)
class Case:
    """A network of the trial."""

    library: str  # where its parts come from
    kind: str
    make: Callable[[], nn.Module]  # with weights from torch's own generator
    data: Callable[[], Data]
    loss: str | Callable[[Tensor, Tensor], Tensor]  # `mse`: half the mean over samples
    output: Callable[[Any], Tensor] | None = None  # of what the module returns
    prepared: bool = False  # data standardised, layers normalised, sensible weights
    together: bool = False  # whether outputs depend on other samples, as in a graph

    @property
    def is_regression(self) -> bool:
        """Whether targets are numbers under the squared error."""
        return self.loss == "mse"

    def module(self, seed: int) -> nn.Module:
        """Return the module with the weights of a seed, in training mode."""
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            return self.make().train()

    def unit(self, y: Tensor) -> float:
        """Return what losses are divided by: half the variance of the targets of a regression, or 1.

        It is one number for all variants. So losses, goals and rates do not depend on the unit of the targets.
        """
        return float((y - y.mean(0)).square().sum() / (2 * len(y))) if self.is_regression else 1.0

    def loss_of(self, module: nn.Module, x: Any, y: Tensor) -> Tensor:
        """Return the loss of a module, in the units of the raw targets."""
        result = called(module, x)
        f = result if self.output is None else self.output(result)
        if self.loss == "mse":
            return (f - y).square().sum() / (2 * len(f))
        if self.loss == "cross_entropy":
            return functional.cross_entropy(f.flatten(0, -2), y.flatten())
        return self.loss(f, y)  # type: ignore[operator]


def of_library(path: str, *sizes: Any, **options: Any) -> Callable[[], nn.Module]:
    """Return what makes a network of a library, which is not imported before."""
    library, _, name = path.rpartition(".")
    return lambda: getattr(import_module(library), name)(*sizes, **options)


def called(module: nn.Module, x: Any) -> Any:
    """Call a module on a tensor, a tuple of arguments or a dict of them."""
    if isinstance(x, dict):
        return module(**x)
    return module(*x) if isinstance(x, tuple) else module(x)


def taken(x: Any, index: Tensor) -> Any:
    """Return some of the samples."""
    if isinstance(x, dict):
        return {name: part[index] for name, part in x.items()}
    return tuple(part[index] for part in x) if isinstance(x, tuple) else x[index]


def parted(x: Any, y: Tensor, n: int = SAMPLES, held: int = 200, shuffled: bool = True) -> Data:
    """Return n samples to train on, and of the rest those that are held out."""
    order = torch.randperm(len(y), generator=generator()) if shuffled else torch.arange(len(y))
    one, other = order[:n], order[n : n + held]
    return Data(taken(x, one), y[one], taken(x, other), y[other])


def standardised(data: Data, *axes: int, targets: bool = False) -> Data:
    """Return the data with inputs, and targets if asked, of mean 0 and deviation 1, from the samples to train on."""
    axes = axes or (0,)
    mean, spread = data.x.mean(axes, keepdim=True), data.x.std(axes, keepdim=True) + 1e-6
    y, held_y = data.y, data.held_y
    if targets:
        y, held_y = ((part - data.y.mean(0)) / data.y.std(0) for part in (y, held_y))
    return Data((data.x - mean) / spread, y, (data.held_x - mean) / spread, held_y)


def generator(seed: int = 0) -> torch.Generator:
    """Return the generator of the data."""
    return torch.Generator().manual_seed(seed)


def kaiming(module: nn.Module) -> nn.Module:
    """Return the module with Kaiming's weights and biases of zero in linear maps and convolutions."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return module
