"""gnlib: a product on the side of the parameters, as the others have it; the eigenvalue from the smaller side."""

import torch
from torch import nn

from gnlib import GaussNewton
from gnlib.products.curvature import CrossEntropy
from gnlib.products.side import ByParameters
from gnlib.products.trial import passes_of
from tests.benchmarks.peers.networks import array, gradient, in_torch, vector  # noqa: F401

PACKAGES = ("torch",)
MEMORY = 12.0


def product(problem):
    module, x, y = in_torch(problem)
    loss = CrossEntropy(nn.CrossEntropyLoss())
    mode = "train" if module.training else None
    passes = passes_of(module, x, y, loss, output=None, mode=mode, memory=MEMORY, dtype=torch.float32)
    operator, v = ByParameters(passes, loss, y.numel(), passes.size), vector(problem)
    return lambda: array(operator @ v)


def largest(problem):
    module, x, y = in_torch(problem)
    options = dict(mode="train" if module.training else None, dtype=torch.float32, memory=MEMORY)
    g = GaussNewton(module, x, y, nn.CrossEntropyLoss(), **options)

    def found():
        pairs = g.eigenpairs(1)
        return float(pairs.values[0]), pairs.products

    return found


def gram(problem):
    module, x, _ = in_torch(problem)
    return lambda: array(GaussNewton(module, x).gram())
