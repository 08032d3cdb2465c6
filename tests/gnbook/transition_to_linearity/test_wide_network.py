"""Networks in tangent-kernel parameterisation, their Hessian on its range, and refusals."""

import pytest
import torch
from gnbook.shared.hessian import Hessian, hessian_ends
from gnbook.transition_to_linearity.ball import TANH, ball_norms, measured_start
from gnbook.transition_to_linearity.linearity import layer_norms, liu_proposition_2_3
from gnbook.transition_to_linearity.tensor_norm import norm_221
from gnbook.transition_to_linearity.wide_network import WideNetwork
from torch import nn

from tests.gnbook.transition_to_linearity.helpers import draws
from tests.strategies import gaussian


def test_weights_are_standard_normal_whatever_the_width():
    weights, again = (draws([3, 50, 2000, 2], 0, filter_size=(3, 1), pixels=4) for _ in range(2))
    assert [tuple(w.shape) for w in weights] == [(50, 9), (2000, 150), (2, 8000)]
    assert all(abs(w.mean()) < 0.2 and abs(w.std() - 1) < 0.1 for w in weights)
    assert all(torch.equal(a, b) for a, b in zip(weights, again, strict=True))


@pytest.mark.parametrize("kernel", [(1, 3), (3, 1), (5, 3)])
def test_outputs_of_images(kernel):
    weights = draws([2, 3, 4, 2], 0, filter_size=kernel, pixels=20)
    x = gaussian(0, 6, 2, 4, 5)
    h = x
    for w in weights[:-1]:
        filters = w.view(len(w), h.shape[1], *kernel)
        padding = (kernel[0] // 2, kernel[1] // 2)
        h = torch.tanh(nn.functional.conv2d(h, filters, padding=padding) / h.shape[1] ** 0.5)
    by_hand = h.flatten(1) @ weights[-1].mT / h.shape[1] ** 0.5
    assert torch.allclose(WideNetwork(weights, filter_size=kernel)(x), by_hand, rtol=1e-12)


def partly_frozen():
    network = WideNetwork(draws([3, 5, 4, 1], 0))
    network.last.requires_grad_(False)
    network.hidden[0].requires_grad_(False)
    return network


NETWORKS = {
    "filters": (
        WideNetwork(draws([2, 9, 8, 1], 0, filter_size=(1, 3), pixels=3), filter_size=(1, 3)),
        gaussian(1, 1, 2, 1, 3),
    ),
    "more pixels than channels": (
        WideNetwork(draws([1, 2, 2, 1], 0, filter_size=(3, 3), pixels=6), filter_size=(3, 3)),
        gaussian(1, 1, 1, 2, 3),
    ),
    "partly frozen": (partly_frozen(), gaussian(1, 1, 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("output", [None, torch.tanh])
def test_on_its_range_the_hessian_keeps_all_non_zero_eigenvalues(name, output):
    network, x = NETWORKS[name]
    reduced = network.on_its_range(x)
    assert torch.allclose(reduced(x), network(x), rtol=1e-12)
    full, part = (torch.linalg.eigvalsh(Hessian(n, x, output=output).dense()) for n in (network, reduced))
    nonzero = [v[v.abs() > 1e-10 * full.abs().max()] for v in (full, part)]
    assert len(nonzero[0]) == len(nonzero[1]) and torch.allclose(*nonzero, rtol=1e-7)


def test_the_range_grows_like_the_width_and_has_the_ends_of_the_hessian():
    network, x = WideNetwork(draws([3, 40, 40, 1], 0)), gaussian(1, 1, 3)
    reduced = network.on_its_range(x)
    assert Hessian(reduced, x).shape[0] == 40 + 80 + 40
    full, part = hessian_ends(network, x), hessian_ends(reduced, x)
    assert part.norm == pytest.approx(full.norm, rel=1e-9)
    assert part.smallest == pytest.approx(full.smallest, rel=1e-9)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2, 13)])
def test_the_221_norm_of_zero(shape):
    assert norm_221(torch.zeros(shape)) == (0, 0)


def small():
    return WideNetwork(draws([3, 2, 1], 0))


REFUSED = [
    ("layers of one width", lambda: WideNetwork(draws([1, 2, 3, 1], 0), skip=True)),
    ("one of each", lambda: small().on_its_range(gaussian(0, 2, 3))),
    ("one output and no convolution", lambda: layer_norms(small(), gaussian(0, 2, 3))),
    ("none of them negative", lambda: liu_proposition_2_3(torch.ones(2), torch.ones(2), -1.0)),
    ("radius is -1", lambda: ball_norms(measured_start(small(), gaussian(0, 1, 3)), TANH, -1.0)),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_refusals(message, call):
    with pytest.raises(ValueError, match=message):
        call()
