"""Modules around a module: scales of its inputs and of its outputs, in buffers that are saved with it."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Affine(nn.Module):
    r"""The map :math:`x \mapsto (x - m) S`.

    Examples
    --------
    >>> Affine(torch.tensor([1.0]), torch.tensor([2.0]))(torch.tensor([[3.0]]))
    tensor([[4.]])
    """

    mean: Tensor  # m, which broadcasts against samples
    scale: Tensor  # S, which does as well, or a matrix for the last axis

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self._by_matrix = scale.shape != mean.shape

    def forward(self, x: Float[Tensor, " n *d"]) -> Float[Tensor, " n *d"]:
        """Return the samples, moved and scaled."""
        moved = x - self.mean.to(x)
        return moved @ self.scale.to(x) if self._by_matrix else moved * self.scale.to(x)


class Prepared(nn.Module):
    """A module that prepares some of its inputs first.

    Parameters
    ----------
    module
        the module
    maps
        of its arguments, by their place or their name

    Examples
    --------
    >>> double = Affine(torch.zeros(1, 1), torch.tensor([[2.0]]))
    >>> Prepared(nn.Identity(), {0: double})(torch.ones(1, 1))
    tensor([[2.]])
    """

    def __init__(self, module: nn.Module, maps: Mapping[int | str, Affine]) -> None:
        super().__init__()
        self.module, self.training = module, module.training
        self.maps = nn.ModuleDict({f"input_{key}": each for key, each in maps.items()})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module makes of its prepared inputs."""
        places = (self._prepared(key, value) for key, value in enumerate(args))
        return self.module(*places, **{key: self._prepared(key, value) for key, value in kwargs.items()})

    def _prepared(self, key: int | str, value: Any) -> Any:
        name = f"input_{key}"
        return self.maps[name](value) if name in self.maps else value


class Scaled(nn.Module):
    r"""A module whose outputs f are standardised targets; it returns :math:`f s + m`, in the units of raw targets.

    Examples
    --------
    >>> Scaled(nn.Identity(), torch.tensor(100.0), torch.tensor(50.0))(torch.tensor([[2.0]]))
    tensor([[200.]])
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, module: nn.Module, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.module, self.training = module, module.training
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the outputs in the units of the targets."""
        return self.restored(self.module(*args, **kwargs))

    def restored(self, f: Float[Tensor, " n *k"]) -> Float[Tensor, " n *k"]:
        """Return standardised targets in the units of the raw ones."""
        return f * self.scale.to(f) + self.mean.to(f)


def is_within(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module, or one that it is around, is of a kind.

    Examples
    --------
    >>> is_within(nn.Sequential(nn.Linear(1, 1)), nn.Linear)
    True
    """
    return any(isinstance(m, kind) for m in module.modules())


@torch.no_grad()
def by_feature(x: Float[Tensor, " n *d"], axis: int, *, scaled: bool = True) -> Affine:
    """Return the map to mean 0, and standard deviation 1, of each entry of an axis; constant ones are moved only.

    Examples
    --------
    >>> by_feature(torch.tensor([[9.0, 7.0], [11.0, 7.0]]), 1)(torch.tensor([[12.0, 7.0]]))
    tensor([[2., 0.]])
    """
    others = [a for a in range(x.ndim) if a != axis]
    mean = x.mean(others, keepdim=True)
    spread = (x - mean).square().mean(others, keepdim=True).sqrt()
    moves = spread > 1e-9 * x.abs().amax()
    return Affine(mean, torch.where(moves, 1 / spread, 1.0) if scaled else torch.ones_like(mean))


@torch.no_grad()
def by_one_number(x: Float[Tensor, " n *d"]) -> Affine:
    """Return the map to mean 0 and standard deviation 1 of all entries together.

    Examples
    --------
    >>> by_one_number(torch.tensor([[9.0], [11.0]]))(torch.tensor([[12.0]]))
    tensor([[2.]])
    """
    one, spread = x.new_ones((1,) * x.ndim), x.std(correction=0)
    return Affine(x.mean() * one, one / spread if spread > 0 else one)


@torch.no_grad()
def whitened(x: Float[Tensor, "n d"], cutoff: float = 1e-6) -> Affine:
    """Return the map to a second moment of one, but for directions below the cutoff, relative to the largest.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 9.0], [0.0, -9.0]])
    >>> z = whitened(x)(x)
    >>> torch.allclose(z.mT @ z / 4, torch.eye(2), atol=1e-6)
    True
    """
    mean = x.mean(0, keepdim=True)
    _, s, v = torch.linalg.svd(x - mean, full_matrices=False)
    factors = torch.where(s > cutoff * s[0], len(x) ** 0.5 / s, 1.0)
    return Affine(mean, (v.mT * factors) @ v)
