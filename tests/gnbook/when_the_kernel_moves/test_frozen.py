"""Linear models that know their kernel alone."""

import pytest
import torch
from gnbook.when_the_kernel_moves.clusters import three_clusters, with_one
from gnbook.when_the_kernel_moves.descent import descend
from gnbook.when_the_kernel_moves.frozen import FrozenKernels
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, swish
from gnbook.when_the_kernel_moves.networks import StackedNetworks, shallow

from tests.gnbook.when_the_kernel_moves.cases import gaussian

X, Y = three_clusters([0, 1], 12)
X = with_one(X)


def frozen(networks):
    return FrozenKernels(networks(X).detach(), networks.kernel(X))


@pytest.mark.parametrize("head", [Softmax(), Entrywise(swish)])
def test_a_network_without_a_hidden_layer_trains_as_its_kernel_says(head):
    networks = StackedNetworks([gaussian(0, 2, 3, 2)], [0.5], [])
    model = frozen(networks)
    real, ahead = (descend(n, X, Y, head, most_steps=200, goal=0.05) for n in (networks, model))
    for one, other in zip(real, ahead, strict=True):
        assert (one.status, len(one.rows)) == (other.status, len(other.rows))
        assert [row["loss"] for row in other.rows] == pytest.approx([row["loss"] for row in one.rows], rel=1e-8)
        assert other.largest("change") == 0 < other.largest("output_change")
    assert torch.allclose(model(X), networks(X), rtol=1e-8)


def test_it_forecasts_a_wide_network_better_than_a_narrow_one():
    errors = []
    for width in (10, 10_000):
        networks = shallow(width, seeds=[0, 1])
        model = frozen(networks)
        for some in (networks, model):
            descend(some, X, Y, Softmax(), most_steps=50)
        errors.append((model(X) - networks(X)).norm() / networks(X).norm())
    assert errors[1] < 0.05 < errors[0]
