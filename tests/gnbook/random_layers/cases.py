"""What the tests of random matrices share."""

import torch


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def exact(entries):
    return torch.tensor(entries, dtype=torch.float64)
