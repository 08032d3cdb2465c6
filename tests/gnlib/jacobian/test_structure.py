"""Modules of many kinds have the Gram matrix and the Jacobian of plain autograd, in any memory."""

import pytest

from tests.gnlib.jacobian.kinds import N, assert_as_autograd
from tests.gnlib.jacobian.kinds_layers import COUPLED, LAYERS
from tests.gnlib.jacobian.kinds_passes import PASSES
from tests.gnlib.jacobian.kinds_sharing import SHARING
from tests.gnlib.jacobian.kinds_traps import TRAPS

pytestmark = pytest.mark.slow

KINDS = {**LAYERS, **SHARING, **PASSES, **TRAPS}


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_layers_of_weights_and_of_passes(name):
    make, data = KINDS[name]
    assert_as_autograd(make, data(N))


@pytest.mark.parametrize("name", COUPLED)
def test_kinds_of_layers_that_couple_the_samples(name):
    make, data = COUPLED[name]
    assert_as_autograd(make, data(N), mode="train")
