"""The networks of the chapter: linear ones with one hidden layer, and a small convolutional one."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gnbook.batch_normalization.gauss_newton import batch_norm_gauss_newton
from gnbook.results import Cell
from gnbook.shared import networks
from gnbook.shared.networks import initialise
from gnbook.shared.training import half_squared_error, train
from gnlib import SecondMoment, condition_number, linear_gauss_newton, linear_weights


def linear_network(d: int, width: int, k: int, seed: int) -> list[Tensor]:
    """Return Kaiming normal weights of a linear network with one hidden layer."""
    return linear_weights([d, width, k], generator=torch.Generator().manual_seed(seed))


def without_bn(weights: list[Tensor], data: Tensor) -> float:
    """Return the condition number of a linear network."""
    return float(condition_number(linear_gauss_newton(weights, SecondMoment.from_data(data))))


def with_bn(weights: list[Tensor], data: Tensor, **how: Any) -> float:
    """Return the condition number of a linear network with BN after its first layer."""
    return float(condition_number(batch_norm_gauss_newton(weights, data, **how)))


class Half(nn.Module):
    """A half of BN for images: subtract the mean over the batch, or divide by the standard deviation."""

    def __init__(self, channels: int, subtract: bool) -> None:
        super().__init__()
        self.channels, self.subtract = channels, subtract

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise each channel of images (samples, channels, height, width)."""
        deviation, mean = torch.std_mean(hidden, (0, 2, 3), correction=0, keepdim=True)
        return hidden - mean if self.subtract else hidden / deviation


NORMALISATIONS: dict[str, Callable[[int], nn.Module]] = {
    "nothing": lambda channels: nn.Identity(),
    "mean subtracted": partial(Half, subtract=True),
    "divided by deviation": partial(Half, subtract=False),
    "BN": partial(nn.BatchNorm2d, affine=False),
    "BN, scale and shift": nn.BatchNorm2d,  # as torch has it by default
}


def cnn(how: str, kaiming: bool, seed: int, outputs: int = 10) -> nn.Sequential:
    """Return three convolutions with biases, each normalised and with a ReLU, and a linear layer, in double precision.

    If `kaiming`, weights are normal with Kaiming's deviation and biases zero; else both are as torch has them.
    """
    net = networks.cnn(16, 32, 64, norm=NORMALISATIONS[how], outputs=outputs).double()
    generator = torch.Generator().manual_seed(seed)
    if kaiming:
        return initialise(net, networks.kaiming, generator=generator)
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            end = layer.weight[0].numel() ** -0.5
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -end, end, generator=generator)
    return net


def prepared(colour: Tensor) -> dict[str, Tensor]:
    """Return images (samples, channels, height, width) as they are and prepared in three ways, each by its name."""
    less_mean = colour - colour.mean((0, 2, 3), keepdim=True)
    standardised = less_mean / colour.std((0, 2, 3), keepdim=True)
    less_image = colour - colour.mean(0)
    return {"raw": colour, "centred": less_mean, "standardised": standardised, "less mean image": less_image}


def steps_to(net: nn.Module, x: Tensor, targets: Tensor, rate: float, most: int = 1500) -> float:
    """Return the steps of gradient descent on the squared error to a tenth of the loss of answering zero."""
    goal = half_squared_error(torch.zeros_like(targets), targets).item() / 10
    return train(net, x, targets, rate=rate, until=goal, most=most - 1).steps


def best_steps(rows: Iterable[Mapping[str, Cell]]) -> dict[tuple[Cell, Cell, Cell], list[tuple[float, float]]]:
    """Return the fewest steps over the rates, and the rate with them, of each seed, by images, units and weights.

    >>> about = {"images": "raw", "units": "BN", "kaiming": True, "seed": 0}
    >>> rates = {1.0: 20, 4.0: 7, 8.0: None}
    >>> best_steps(about | {"factor": factor, "steps": steps} for factor, steps in rates.items())
    {('raw', 'BN', True): [(7, 4.0)]}
    """
    best: dict[tuple[Cell, Cell, Cell], dict[Cell, tuple[float, float]]] = {}
    for row in rows:
        if row["steps"] is not None:
            seeds = best.setdefault((row["images"], row["units"], row["kaiming"]), {})
            seeds[row["seed"]] = min((row["steps"], row["factor"]), seeds.get(row["seed"], (float("inf"), 0.0)))
    return {key: list(seeds.values()) for key, seeds in best.items()}
