"""Networks with second derivatives for the tests of Hessians and of their extreme eigenvalues."""

from torch import nn

from tests.strategies import gaussian


def seeded(seed, *layers):
    """Build a module with parameters that depend on the seed alone, in double precision."""
    module = nn.Sequential(*layers).double()
    for index, p in enumerate(module.parameters()):
        p.data = gaussian(seed + index, *p.shape) / p.shape[-1] ** 0.5
    return module


def perceptron(seed, activation=nn.Tanh, inputs=3, width=4, outputs=1):
    return seeded(
        seed, nn.Linear(inputs, width), activation(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, outputs)
    )
