"""Fully connected networks as torch modules, to be trained."""

from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor, nn


def xavier_weights(widths: Sequence[int], *, generator: torch.Generator) -> list[Tensor]:
    """Draw the weights of a network at Xavier normal initialisation of gain 1.

    Parameters
    ----------
    widths
        `[d, m_1, ..., k]`, from the input to the output
    generator
        source of the random numbers; the weights are on its device

    Returns
    -------
    Weights of shape `(out, in)`, input layer first, with independent entries of standard deviation
    `sqrt(2 / (in + out))`.
    """
    if len(widths) < 2 or any(not isinstance(w, Integral) or w < 1 for w in widths):
        raise ValueError(f"widths is {list(widths)}; give at least two integers from 1 on, [inputs, ..., outputs].")
    return [
        torch.randn(out, fan_in, generator=generator, device=generator.device, dtype=torch.float64)
        * (2 / (fan_in + out)) ** 0.5
        for fan_in, out in pairwise(widths)
    ]


class FullyConnected(nn.Module):
    r"""A network without biases, :math:`f(x) = W_L \varphi(\cdots \varphi(W_1 x))`, linear or with ReLUs.

    The weights of a linear network are multiplied before the data are, from the output on: products of k rows, which
    make a step of gradient descent several times as fast as the passes of a batch through the layers.

    Parameters
    ----------
    weights
        matrices of shape `(out, in)`, input layer first; copied
    relu
        whether a ReLU follows each layer but the last
    dtype
        precision of the parameters
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
