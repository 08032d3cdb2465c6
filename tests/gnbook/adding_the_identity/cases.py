"""Matrices for the tests of singular values and of their bounds."""

import torch


def eye(n):
    return torch.eye(n, dtype=torch.float64)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)
