"""Gradient and Hessian of a loss, against dense ones."""

import pytest
import torch
from gnbook.what_predicts_training.curvature import differentiated, sharpness

from gnlib.jacobian.trial import network_of
from gnlib.losses import loss_of
from tests.gnbook.what_predicts_training.cases import LOSSES, both, inputs, small, whole


@both
def test_products_are_those_of_the_dense_hessian(loss):
    net, x = small(), inputs(4)
    gradient, _, _, hessian = whole(net, x, loss)
    with differentiated(network_of(net, x), loss_of(loss, LOSSES[loss][1], net(x).detach())) as (found, product):
        columns = torch.stack([product(unit) for unit in torch.eye(len(found), dtype=torch.float64)])
    assert torch.allclose(found, gradient, rtol=1e-10, atol=1e-12)
    assert torch.allclose(columns, hessian, rtol=1e-8, atol=1e-10)


def test_sharpness_is_no_norm():
    curvatures = torch.tensor([-9.0, 0.0, 2.0], dtype=torch.float64)
    found = sharpness(lambda v: curvatures * v, 3, generator=torch.Generator().manual_seed(0))
    assert found == pytest.approx(2.0, rel=1e-6)
