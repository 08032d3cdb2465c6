"""Modules of many kinds have the Gram matrix and the Jacobian of plain autograd, in any memory: layers and weights."""

import pytest

from tests.gnlib.jacobian.kinds import N, assert_as_autograd
from tests.gnlib.jacobian.kinds_layers import COUPLED, LAYERS
from tests.gnlib.jacobian.kinds_sharing import SHARING

pytestmark = pytest.mark.slow

KINDS = {**LAYERS, **SHARING}


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_layers_and_of_weights(name):
    make, data = KINDS[name]
    assert_as_autograd(make, data(N))


@pytest.mark.parametrize("name", COUPLED)
def test_kinds_of_layers_that_couple_the_samples(name):
    make, data = COUPLED[name]
    assert_as_autograd(make, data(N), mode="train")
