"""Bounds on the Hessian of a wide network, by hand and at their edges."""

import pytest
import torch
from gnbook.transition_to_linearity.ball import TANH, ball_norms, measured_start
from gnbook.transition_to_linearity.linearity import (
    LayerNorms,
    layer_norms,
    layered_bound,
    liu_proposition_2_3,
    liu_proposition_3_1,
    liu_theorem_3_1,
)
from gnbook.transition_to_linearity.tensor_norm import norm_221
from gnbook.transition_to_linearity.wide_network import WideNetwork

from tests.gnbook.transition_to_linearity.cases import draw, gaussian


@pytest.mark.bad_input
def test_one_sample_and_one_output():
    for network, x in (
        (WideNetwork(draw([3, 2, 1])), gaussian(0, 2, 3)),
        (WideNetwork(draw([3, 2, 2])), gaussian(0, 1, 3)),
    ):
        with pytest.raises(ValueError, match="one of each"):
            network.on_its_range(x)
        for norms in (layer_norms, measured_start):
            with pytest.raises(ValueError, match="one output and no convolution"):
                norms(network, x)


@pytest.mark.bad_input
def test_bounds_refuse_what_makes_no_sense():
    network = WideNetwork(draw([1, 2, 1]))
    layers = layer_norms(network, gaussian(0, 1, 1))
    with pytest.raises(ValueError, match="is about two"):
        liu_proposition_3_1(layers)
    with pytest.raises(ValueError, match="none of them negative"):
        liu_proposition_2_3(torch.ones(2), torch.ones(2), -1.0)
    with pytest.raises(ValueError, match="two vectors of one length"):
        liu_proposition_2_3(torch.ones(2), torch.ones(3), 1.0)
    with pytest.raises(ValueError, match="radius is -1"):
        ball_norms(measured_start(network, gaussian(0, 1, 1)), TANH, -1.0)
    with pytest.raises(ValueError, match="three axes"):
        norm_221(torch.ones(2, 2))


def test_the_bounds_of_two_layers_by_hand():
    layers = [LayerNorms(0.5, 0.0, 2.0, 0.0, 0.0, 1.0), LayerNorms(0.25, 3.0, 1.0, 5.0, 1.0, 1.0)]
    assert liu_theorem_3_1(layers, 4) == pytest.approx(2 * (4 * 3**4 + 2 * 3**2 + 1) * 20 * 0.5 + 2 * 3**2 * 2 / 2)
    assert liu_proposition_3_1(layers) == pytest.approx((2**2 * 5 + 2 * 2 * 1 + 1) * 0.25 + 1 * 0.5)
    hidden = 0.5 * 1 + 0.25 * torch.linalg.eigvalsh(torch.tensor([[20.0, 2.0], [2.0, 1.0]]).double())[-1].item()
    side = (3**2 * 2**2 + 1**2) ** 0.5 / 2
    whole = torch.linalg.eigvalsh(torch.tensor([[hidden, side], [side, 0.0]], dtype=torch.float64))[-1].item()
    assert layered_bound(layers, None) == pytest.approx(hidden) and layered_bound(layers, 4) == pytest.approx(whole)
