"""Random crops and flips of images, as usual for CIFAR-10."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import affine_grid, grid_sample, pad


def shifted(images: Float[Tensor, "n c s s"], generator: Generator, padding: int = 4) -> Float[Tensor, "n c s s"]:
    """Return each image moved by up to `padding` pixels in either direction, black where it came from outside, or not.

    Half of them, at random, are flipped left to right.
    """
    n, _, side, _ = images.shape
    rows, columns = (torch.randint(2 * padding + 1, (n, 1), generator=generator) for _ in range(2))
    wide, steps = pad(images, (padding,) * 4), torch.arange(side)
    moved = wide[torch.arange(n)[:, None, None], :, (rows + steps)[:, :, None], (columns + steps)[:, None]]
    return _flipped(moved.movedim(-1, 1), generator)


def zoomed(images: Float[Tensor, "n c s s"], generator: Generator, least: float = 0.8) -> Float[Tensor, "n c s s"]:
    """Return of each image a part with at least this share of its area, bilinearly enlarged to the size of the whole.

    The aspect ratio lies between 3 : 4 and 4 : 3, uniformly on a logarithmic scale; parts that would be larger than the
    image in one direction are cut there. Half of them, at random, are flipped left to right.
    """
    n = len(images)
    area, ratio, across, down = torch.rand(4, n, generator=generator)
    area, ratio = least + (1 - least) * area, (4 / 3) ** (2 * ratio - 1)
    width, height = ((area * r).sqrt().clamp(max=1) for r in (ratio, 1 / ratio))
    maps = torch.zeros(n, 2, 3)
    maps[:, 0, 0], maps[:, 0, 2] = width, (1 - width) * (2 * across - 1)
    maps[:, 1, 1], maps[:, 1, 2] = height, (1 - height) * (2 * down - 1)
    grid = affine_grid(maps.to(images), list(images.shape), align_corners=False)
    return _flipped(grid_sample(images, grid, padding_mode="border", align_corners=False), generator)


def _flipped(images: Float[Tensor, "n c s s"], generator: Generator) -> Float[Tensor, "n c s s"]:
    flip = (torch.rand(len(images), generator=generator) < 0.5).to(images.device)
    return torch.where(flip[:, None, None, None], images.flip(-1), images)
