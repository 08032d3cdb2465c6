"""Bounds on the singular values of a layer with a skip, on a subspace of its inputs."""

import pytest
import torch
from gnbook.shared.skips import skip_bounds

from tests.oracles import normal, orthogonal, with_skip


@pytest.mark.parametrize("shape", [(5, 5), (8, 5)])
@pytest.mark.parametrize("skip", [-1.0, 0.4, 3.0])
def test_on_a_subspace_only_its_inputs_count(shape, skip):
    weight, q = normal(*shape, seed=4), orthogonal(shape[1], 2, seed=5)
    singular = torch.linalg.svdvals(with_skip(weight, skip) @ q)
    lower, upper = skip_bounds(weight, skip, q)
    assert lower <= singular[-1] and singular[0] <= upper
    whole = skip_bounds(weight, skip)
    assert whole.lower <= lower and upper <= whole.upper
    turned = orthogonal(2, 2, seed=6)
    assert skip_bounds(weight, skip, q @ turned) == pytest.approx((lower, upper))
    assert skip_bounds(weight, skip, torch.eye(shape[1])) == pytest.approx(whole)
