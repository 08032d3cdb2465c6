"""Modules of many kinds have the Gram matrix and the Jacobian of plain autograd, in any memory: forward passes."""

import pytest

from tests.gnlib.jacobian.kinds import N, assert_as_autograd
from tests.gnlib.jacobian.kinds_passes import PASSES
from tests.gnlib.jacobian.kinds_traps import TRAPS

pytestmark = pytest.mark.slow

KINDS = {**PASSES, **TRAPS}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_forward_passes(name):
    make, data = KINDS[name]
    assert_as_autograd(make, data(N))
