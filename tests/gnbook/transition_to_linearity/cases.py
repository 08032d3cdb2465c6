"""What the tests of wide networks and their bounds share."""

import torch
from gnbook.transition_to_linearity.wide_network import normal_weights


def gaussian(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw(widths, seed=0, **options):
    return normal_weights(widths, generator=torch.Generator().manual_seed(seed), **options)
