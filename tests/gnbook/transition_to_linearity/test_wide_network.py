"""Networks in tangent-kernel parameterisation, and their Hessian on its range."""

import pytest
import torch
from gnbook.shared.hessian import Hessian
from gnbook.transition_to_linearity.wide_network import WideNetwork
from torch import nn

from tests.gnbook.transition_to_linearity.helpers import draws
from tests.strategies import gaussian


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
