"""Networks in tangent-kernel parameterisation, and what their layers contribute to a Hessian."""

import math

import pytest
import torch
from torch import nn

from gnlib.chapters.shared.hessian import Hessian, hessian_ends
from gnlib.chapters.transition_to_linearity.ball import (
    TANH,
    Smoothness,
    Start,
    ball_norms,
    likely_start,
    measured_start,
)
from gnlib.chapters.transition_to_linearity.linearity import (
    LayerNorms,
    layer_norms,
    layered_bound,
    liu_proposition_2_3,
    liu_proposition_3_1,
    liu_theorem_3_1,
)
from gnlib.chapters.transition_to_linearity.tensor_norm import norm_221
from gnlib.chapters.transition_to_linearity.wide_network import WideNetwork, normal_weights


def gaussian(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw(widths, seed=0, **options):
    return normal_weights(widths, generator=torch.Generator().manual_seed(seed), **options)


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


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 2), (1, 4, 14), (4, 1, 14), (2, 2, 13)])
def test_the_221_norm_of_tensors_of_many_shapes(shape):
    tensor = gaussian(0, *shape)
    bounds = norm_221(tensor)
    if 1 in shape[:2]:  # a matrix: sup of |A x|_1 over unit x, the largest norm of a signed sum of rows
        assert bounds.lower <= bounds.upper * (1 + 1e-12)
    if shape == (1, 1, 1):
        assert bounds.lower == bounds.upper == pytest.approx(tensor.abs().item())
    assert norm_221(torch.zeros(shape)) == (0, 0)


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


def test_a_ball_without_extent_and_a_fixed_output_layer():
    network, x = WideNetwork(draw([3, 8, 6, 1])), gaussian(1, 1, 3)
    at_start, in_ball = layer_norms(network, x), ball_norms(measured_start(network, x), TANH, 0.0)
    assert [a.gradient_max for a in at_start] == pytest.approx([b.gradient_max for b in in_ball])
    assert layered_bound(at_start, None) <= layered_bound(at_start, 6) <= layered_bound(in_ball, 6)
    network.last.requires_grad_(False)
    assert hessian_ends(network, x).norm <= layered_bound(at_start, None)


def test_a_smaller_failure_costs_a_little():
    norms = [likely_start([3, 100, 100], 1.0, TANH, failure=failure) for failure in (1e-1, 1e-6)]
    assert all(a < b < 2 * a for a, b in zip(norms[0].maxima, norms[1].maxima, strict=True))


def test_the_bounds_of_two_layers_by_hand():
    layers = [LayerNorms(0.5, 0.0, 2.0, 0.0, 0.0, 1.0), LayerNorms(0.25, 3.0, 1.0, 5.0, 1.0, 1.0)]
    assert liu_theorem_3_1(layers, 4) == pytest.approx(2 * (4 * 3**4 + 2 * 3**2 + 1) * 20 * 0.5 + 2 * 3**2 * 2 / 2)
    assert liu_proposition_3_1(layers) == pytest.approx((2**2 * 5 + 2 * 2 * 1 + 1) * 0.25 + 1 * 0.5)
    hidden = 0.5 * 1 + 0.25 * torch.linalg.eigvalsh(torch.tensor([[20.0, 2.0], [2.0, 1.0]]).double())[-1].item()
    side = (3**2 * 2**2 + 1**2) ** 0.5 / 2
    whole = torch.linalg.eigvalsh(torch.tensor([[hidden, side], [side, 0.0]], dtype=torch.float64))[-1].item()
    assert layered_bound(layers, None) == pytest.approx(hidden) and layered_bound(layers, 4) == pytest.approx(whole)


@pytest.mark.parametrize("skip", [False, True])
def test_the_norms_in_a_ball_by_hand(skip):
    start = Start([4, 9, 9], [2.0, 3.0], [1.0, 0.5], [0.7, 0.6], [0.3, 0.2])
    first, second = ball_norms(start, Smoothness(1.5, 0.8, 0.0), 2.0, skip=skip)
    # preactivations move by 2 * 1 and 3 * 3 + 2 * (0.5 + 3 / 3), gradients by 2 / 3 and what follows
    moved = 2 / 3 * 1.5 * (0.6 + 2 / 3) + 3 * (0.8 * 0.2 * 12 + 1.5 * 2 / 3) + skip * 2 / 3
    s = 3 + 2 / 3
    assert first == pytest.approx((0.3 + moved, 0, 1.5, 0, 0, 0.8))
    by_hand = (0.2 + 2 / 3, 1.5 * s + skip, 1.5 * 1.5, 0.8 * s**2, 0.8 * s * 1.5 + 1.5, 0.8 * 1.5**2)
    assert second == pytest.approx(by_hand)


def test_the_likely_start_by_hand():
    slack = (2 * math.log(5 / 0.05)) ** 0.5
    start = likely_start([4, 9, 16], 0.5, Smoothness(2.0, 1.0, 0.1), failure=0.05)
    first, second = (3 + 2 + slack) / 2, (4 + 3 + slack) / 3
    assert start.weights == pytest.approx([first, second])
    assert start.values == pytest.approx([0.5, 2 * first * 0.5 * 2 / 3 + 0.1])
    assert start.gradients == pytest.approx([2 * second * (1 + slack / 4), 1 + slack / 4])
    largest = [(2 * math.log(2 * m * 5 / 0.05) / 16) ** 0.5 for m in (9, 16)]
    assert start.maxima == pytest.approx([2 * second * largest[0], largest[1]])
