"""What the tests of batch normalisation share."""

import pytest

from tests.oracles import network, normal, samples

LAYERS = ["plain", "fixed scale and shift", "affine", "affine at its start", "scales of zero", "shifts of zero"]
layers = pytest.mark.parametrize("layer", LAYERS)
epsilons = pytest.mark.parametrize("eps", [0.0, 1e-5, 2.0])


def case(shape, kind="plain"):
    d, m, k, n = shape
    x = samples(n, d, rank=2 if kind == "low rank" else None, seed=2)
    if kind == "constant feature":
        x[:, 0] = 0.7
    elif kind == "repeated samples":
        x[n // 2] = x[0]
    elif kind == "a sample at zero":
        x[0] = 0
    elif kind == "off centre":
        x += 100
    return network((d, m, k), seed=1), x


def options(layer, m):
    """What the layer multiplies by and adds, and whether it learns that."""
    scale, shift = normal(m, seed=5), normal(m, seed=6)
    scale[0], shift[-1] = -abs(scale[0]), 0.0
    if layer == "scales of zero":
        scale[::2] = 0
    if layer == "shifts of zero":
        return {"scale": scale, "affine": True}
    if layer in ("plain", "affine at its start"):
        return {"affine": layer != "plain"}
    return {"scale": scale, "shift": shift, "affine": layer == "affine"}
