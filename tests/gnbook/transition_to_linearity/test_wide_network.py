"""Networks in tangent-kernel parameterisation, and the Hessian on its range."""

import pytest
import torch
from gnbook.shared.hessian import Hessian, hessian_ends
from gnbook.transition_to_linearity.wide_network import WideNetwork
from torch import nn

from tests.gnbook.transition_to_linearity.cases import draw, gaussian


def test_weights_are_standard_normal_whatever_the_width():
    weights = draw([3, 50, 2000, 2], filter_size=(3, 1), pixels=4)
    assert [tuple(w.shape) for w in weights] == [(50, 9), (2000, 150), (2, 8000)]
    assert all(abs(w.mean()) < 0.2 and abs(w.std() - 1) < 0.1 for w in weights)
    again = draw([3, 50, 2000, 2], filter_size=(3, 1), pixels=4)
    assert all(torch.equal(a, b) for a, b in zip(weights, again, strict=True))


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_outputs_of_vectors(skip, seed):
    width = 1 + seed % 4
    weights = draw([2, width, width, width, 3], seed)
    x = gaussian(seed, 5, 2)
    h = torch.sigmoid(x @ weights[0].mT / 2**0.5)
    for w in weights[1:-1]:
        new = torch.sigmoid(h @ w.mT / width**0.5)
        h = new + h if skip else new
    by_hand = h @ weights[-1].mT / width**0.5
    assert torch.allclose(WideNetwork(weights, activation=torch.sigmoid, skip=skip)(x), by_hand, rtol=1e-12)


@pytest.mark.parametrize("kernel", [(1, 3), (3, 1), (3, 3), (5, 3)])
def test_outputs_of_images(kernel):
    weights = draw([2, 3, 4, 2], filter_size=kernel, pixels=20)
    x = gaussian(0, 6, 2, 4, 5)
    h = x
    for w in weights[:-1]:
        filters = w.view(len(w), h.shape[1], *kernel)
        padding = (kernel[0] // 2, kernel[1] // 2)
        h = torch.tanh(nn.functional.conv2d(h, filters, padding=padding) / h.shape[1] ** 0.5)
    by_hand = h.flatten(1) @ weights[-1].mT / h.shape[1] ** 0.5
    assert torch.allclose(WideNetwork(weights, filter_size=kernel)(x), by_hand, rtol=1e-12)


NETWORKS = {
    "vectors": (WideNetwork(draw([3, 5, 6, 1])), gaussian(1, 1, 3)),
    "skips": (WideNetwork(draw([3, 5, 5, 5, 1]), skip=True), gaussian(1, 1, 3)),
    "filters": (
        WideNetwork(draw([2, 9, 8, 1], filter_size=(1, 3), pixels=3), filter_size=(1, 3)),
        gaussian(1, 1, 2, 1, 3),
    ),
    "more pixels than channels": (
        WideNetwork(draw([1, 2, 2, 1], filter_size=(3, 3), pixels=6), filter_size=(3, 3)),
        gaussian(1, 1, 1, 2, 3),
    ),
    "one unit": (WideNetwork(draw([1, 1, 1])), gaussian(1, 1, 1)),
    "input zero": (WideNetwork(draw([3, 5, 4, 1]), activation=torch.sigmoid), torch.zeros(1, 3).double()),
    "output zero": (WideNetwork([*draw([3, 5, 4, 1])[:-1], torch.zeros(1, 4).double()]), gaussian(1, 1, 3)),
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


def test_what_is_frozen_stays_frozen_on_the_range():
    network, x = WideNetwork(draw([3, 5, 4, 1])), gaussian(1, 1, 3)
    network.last.requires_grad_(False)
    network.hidden[0].requires_grad_(False)
    full, part = (torch.linalg.eigvalsh(Hessian(n, x).dense()) for n in (network, network.on_its_range(x)))
    nonzero = [v[v.abs() > 1e-12] for v in (full, part)]
    assert len(nonzero[0]) == len(nonzero[1]) and torch.allclose(*nonzero, rtol=1e-8)


def test_the_range_grows_like_the_width():
    sizes = [
        Hessian(WideNetwork(draw([3, m, m, 1])).on_its_range(gaussian(0, 1, 3)), gaussian(0, 1, 3)).shape[0]
        for m in (10, 100)
    ]
    assert sizes == [10 + 20 + 10, 100 + 200 + 100]


def test_ends_on_the_range_are_ends():
    network, x = WideNetwork(draw([3, 40, 40, 1])), gaussian(1, 1, 3)
    full, part = hessian_ends(network, x), hessian_ends(network.on_its_range(x), x)
    assert part.norm == pytest.approx(full.norm, rel=1e-9)
    assert part.smallest == pytest.approx(full.smallest, rel=1e-9)


@pytest.mark.bad_input
@pytest.mark.parametrize("widths", [[3, 1], [3, 0, 1], [3, 2.5, 1]])
def test_widths_that_make_no_network(widths):
    with pytest.raises(ValueError, match="at least three widths"):
        draw(widths)


@pytest.mark.bad_input
def test_weights_that_do_not_fit():
    with pytest.raises(ValueError, match="at least two"):
        WideNetwork([gaussian(0, 2, 2)])
    with pytest.raises(ValueError, match="follows 2 channels"):
        WideNetwork([gaussian(0, 2, 3), gaussian(0, 2, 3), gaussian(0, 1, 2)])
    with pytest.raises(ValueError, match="odd sizes"):
        WideNetwork(draw([1, 2, 1]), filter_size=(2, 2))
    with pytest.raises(ValueError, match="layers of one width"):
        WideNetwork(draw([1, 2, 3, 1]), skip=True)
