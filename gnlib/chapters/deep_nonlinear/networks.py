"""Chains as the chapter draws them: Kaiming normal weights, no biases, with normalisation or skips if asked for."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gnlib.chapters.deep_nonlinear.chain import Skip
from gnlib.models import linear_weights

Activation = Callable[[], nn.Module]


def plain_chain(
    widths: Sequence[int],
    activation: Activation,
    *,
    gain: float = 1.0,
    normalised: bool = False,
    generator: torch.Generator,
) -> nn.Sequential:
    """Return a fully connected network.

    Parameters
    ----------
    widths
        `[d, m_1, ..., k]`, from the input to the output
    activation
        makes the module that stands between any two layers
    gain
        by which the weights of all layers but the last are multiplied, after Kaiming normal initialisation
    normalised
        whether a layer normalisation without parameters stands before each activation
    generator
        source of the random numbers; the network is on its device

    Examples
    --------
    >>> import torch
    >>> plain_chain([4, 3, 2], torch.nn.Tanh, generator=torch.Generator().manual_seed(0))
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=False)
      (1): Tanh()
      (2): Linear(in_features=3, out_features=2, bias=False)
    )
    """
    *hidden, last = linear_weights(widths, generator=generator)
    modules: list[nn.Module] = []
    for weight in hidden:
        normalisation = [nn.LayerNorm(len(weight), elementwise_affine=False)] * normalised
        modules += [_linear(gain * weight), *normalisation, activation()]
    return nn.Sequential(*modules, _linear(last))


def residual_chain(
    widths: Sequence[int],
    activation: Activation,
    *,
    factor: float,
    gain: float = 1.0,
    generator: torch.Generator,
) -> nn.Sequential:
    """Return a network of the same layers with a skip around each of those in the middle.

    These are `x + factor * W activation(x)`; with a factor of zero they do nothing.

    Parameters
    ----------
    widths
        `[d, m, ..., m, k]`, with one hidden width
    activation, gain, generator
        as for :func:`plain_chain`
    factor
        of each branch

    Raises
    ------
    ValueError
        Hidden widths that differ: a skip adds what comes in to what comes out.

    Examples
    --------
    >>> import torch
    >>> network = residual_chain([4, 3, 3, 2], torch.nn.Tanh, factor=0.5, generator=torch.Generator().manual_seed(0))
    >>> [type(module).__name__ for module in network]
    ['Linear', 'Skip', 'Tanh', 'Linear']
    """
    if len(set(widths[1:-1])) != 1:
        raise ValueError(f"The hidden widths are {list(widths[1:-1])}; skips need hidden layers, all of one width.")
    first, *middle, last = linear_weights(widths, generator=generator)
    branches = (nn.Sequential(activation(), _linear(gain * weight)) for weight in middle)
    return nn.Sequential(_linear(gain * first), *(Skip(f, factor) for f in branches), activation(), _linear(last))


def _linear(weight: Tensor) -> nn.Linear:
    out, fan_in = weight.shape
    layer = nn.utils.skip_init(nn.Linear, fan_in, out, bias=False, device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
    return layer
