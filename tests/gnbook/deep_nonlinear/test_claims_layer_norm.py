"""Layer normalisation in wide networks, by its own recursion and by networks of finite width."""

import pytest
import torch
from gnbook.deep_nonlinear.networks import ACTIVATIONS, limit_kernel
from gnbook.deep_nonlinear.wide_limit import standard_factors

from tests.gnbook.deep_nonlinear.wide_helpers import relative
from tests.strategies import gaussian

X = torch.tensor([[0.3], [1.0], [1.0], [1.3], [1.6]], dtype=torch.float64) * gaussian(0, 5, 8)


def normalised_recursion(name, widths, x):
    """The induction of the proof, with the divisor of each normalisation."""
    _, gain, dual = ACTIVATIONS[name]
    first, *factors = standard_factors(widths, gain)
    values = gain**2 / x.shape[1] * (x @ x.mT)
    theta = first * values
    for factor in factors:
        sizes = values.diagonal().sqrt()
        both, slopes = (gain**2 * mean for mean in dual(values / torch.outer(sizes, sizes)))
        values, theta = both, factor * both + slopes * theta / torch.outer(sizes, sizes)
    return theta


@pytest.mark.claim("Layer normalisation makes all norms equal", verdict="holds")
@pytest.mark.parametrize("depth", [2, 3, 6])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_layer_normalisation_is_a_chain_on_samples_of_one_norm(name, depth):
    widths = [8, *[50] * (depth - 1), 1]
    torch.testing.assert_close(
        limit_kernel(name, "LayerNorm", widths, X), normalised_recursion(name, widths, X), rtol=1e-11, atol=1e-11
    )
    assert relative(limit_kernel(name, "chain", widths, X), normalised_recursion(name, widths, X)) > 0.05
