"""Three clusters on a line (Liu 2020, appendix B)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

CENTRES = (0.0, 10.0, -10.0)
"""Means of the three classes; their standard deviation is one."""


def three_clusters(seeds: Sequence[int], samples: int = 60) -> tuple[Float[Tensor, "s n 1"], Float[Tensor, "s n 3"]]:
    """Draw samples and one-hot targets, a set for each seed (Liu 2020, Eq. 42)."""
    sets = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(3, (samples,), generator=generator, device=generator.device)
        noise = torch.randn(samples, generator=generator, dtype=torch.float64, device=generator.device)
        x = noise + noise.new_tensor(CENTRES)[labels]
        sets.append((x[:, None], torch.nn.functional.one_hot(labels, 3).double()))
    x, targets = zip(*sets, strict=True)
    return torch.stack(x), torch.stack(targets)


def with_one(x: Float[Tensor, "*runs n d"]) -> Float[Tensor, "*runs n e"]:
    """Append an entry of one to each sample: the weights that meet it are biases."""
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)
