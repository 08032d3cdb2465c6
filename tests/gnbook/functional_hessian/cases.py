"""What the tests of the functional Hessian share."""

import pytest
import torch

from tests.oracles import network, normal

WIDTHS = [  # m = 1, k = d, k < d, k > d, narrow and wide hidden layers, no hidden layer, deeper
    (3, 1, 3),
    (4, 1, 2),
    (2, 1, 4),
    (1, 1, 1),
    (1, 3, 1),
    (3, 5, 3),
    (3, 2, 3),
    (4, 6, 2),
    (4, 2, 3),
    (2, 5, 4),
    (1, 4, 3),
    (3, 4, 1),
    (3, 2),
    (3, 4, 5, 2),
    (2, 1, 3, 4),
    (2, 3, 2, 3, 2),
]
seeds = pytest.mark.parametrize("seed", [1, 2])


def problem(widths, residual, seed):
    """Weights, samples and targets; the residual moment is of any, of low, or of no rank."""
    weights, x = network(widths, seed=seed), normal(9, widths[0], seed=seed + 20)
    if residual == "any":
        return weights, x, normal(9, widths[-1], seed=seed + 40)
    product = torch.linalg.multi_dot(weights[::-1]) if len(weights) > 1 else weights[0]
    if residual == "low rank":
        product = product + normal(widths[-1], 1, seed=seed + 40) @ normal(1, widths[0], seed=seed + 60)
    return weights, x, x @ product.T
