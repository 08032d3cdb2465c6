"""What the tests of batch normalisation share."""

import pytest

from tests.oracles import normal

LAYERS = ["plain", "fixed scale and shift", "affine", "affine at its start", "scales of zero", "shifts of zero"]
layers = pytest.mark.parametrize("layer", LAYERS)
epsilons = pytest.mark.parametrize("eps", [0.0, 1e-5, 2.0])


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
