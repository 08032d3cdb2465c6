"""Networks side by side: kernels, outputs that are not linear, descent, and bounds for a bottleneck."""

import math

import pytest
import torch
from gnbook.when_the_kernel_moves.bottleneck import Cubic, ball_floor, cubics, vanishing_probability
from gnbook.when_the_kernel_moves.descent import descend
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, swish
from gnbook.when_the_kernel_moves.networks import FrozenKernels, StackedNetworks, bottleneck, identity, shallow
from gnbook.when_the_kernel_moves.on_a_line import three_clusters, with_one

from gnlib import GaussNewton
from tests.gnbook.transition_to_linearity.helpers import hess
from tests.strategies import gaussian

X, Y = three_clusters([0, 1, 2], 12)
X = with_one(X)


def test_it_is_gradient_descent_with_the_rates_that_it_reports():
    networks, plain = shallow(6, seeds=[0]), shallow(6, seeds=[0])
    descent = torch.optim.SGD(plain.parameters())
    (result,) = descend(networks, X[:1], Y[:1], Entrywise(swish), most_steps=8)
    for row in result.rows[:-1]:  # one look a step, so early on
        loss = Entrywise(swish).loss(plain(X[:1]), Y[:1])
        assert loss.item() == pytest.approx(row["loss"], rel=1e-12)
        descent.param_groups[0]["lr"] = row["rate"]
        descent.zero_grad()
        loss.sum().backward()
        descent.step()
    assert all(row["rate"] > 0 for row in result.rows)
    assert len(result.rows) == 9 and result.rows[-1]["time"] == pytest.approx(sum(r["rate"] for r in result.rows[:-1]))
    assert all(torch.allclose(a, b, rtol=1e-10) for a, b in zip(networks.weights, plain.weights, strict=True))


@pytest.mark.parametrize("far", [True, False])
def test_the_rate_is_the_inverse_of_the_largest_curvature_or_less(far):
    networks, head = bottleneck(20, 3, seeds=[5]), Entrywise(swish)
    f = networks(X[:1])
    targets = Y[:1] if far else head.outputs(f).detach() + 1e-3
    (slope,) = torch.autograd.grad(head.loss(f, targets).sum(), f)
    kernel = networks.kernel(X[:1])[0]
    curvature = torch.block_diag(*head.curvature(f.detach())[0])
    largest = torch.linalg.eigvals(curvature @ kernel).real.max().item()
    move = (kernel @ slope.flatten()).abs().max().item()
    assert (move > 2 * largest) == far and (largest > 2 * move) == (not far)
    (result,) = descend(networks, X[:1], targets, head, most_steps=1, goal=1e-9)
    assert result.rows[0]["rate"] == pytest.approx(1 / max(largest, move), rel=0.05)


@pytest.mark.parametrize("head", [Softmax(), Entrywise(swish)])
def test_a_network_without_a_hidden_layer_trains_as_its_kernel_says(head):
    networks = StackedNetworks([gaussian(0, 2, 3, 2)], [0.5], [])
    model = FrozenKernels(networks(X[:2]).detach(), networks.kernel(X[:2]))
    real, ahead = (descend(n, X[:2], Y[:2], head, most_steps=200, goal=0.05) for n in (networks, model))
    for one, other in zip(real, ahead, strict=True):
        assert (one.status, len(one.rows)) == (other.status, len(other.rows))
        assert [row["loss"] for row in other.rows] == pytest.approx([row["loss"] for row in one.rows], rel=1e-8)
        assert one.largest("change") == 0 == other.largest("change") < other.largest("output_change")
    assert torch.allclose(model(X[:2]), networks(X[:2]), rtol=1e-8)


CASES = {
    "shallow": lambda seeds: shallow(1 + seeds[0] % 7, 1 + seeds[0] % 3, seeds=seeds),
    "smooth": lambda seeds: shallow(4, 2, activation=torch.tanh, seeds=seeds),
    "bottleneck": lambda seeds: bottleneck(5, 1 + seeds[0] % 4, 3, scaled=seeds[0] % 2 == 0, seeds=seeds),
    "square": lambda seeds: bottleneck(3, 1, 1, activation=torch.square, seeds=seeds),
    "width one": lambda seeds: bottleneck(1, 1, 1, seeds=seeds),
    "no hidden layer": lambda seeds: StackedNetworks([gaussian(seeds[0], len(seeds), 2, 2)], [0.5], []),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_kernels_are_those_of_jacobians_and_steps_along_the_gradients_that_autograd_finds(name, seed):
    networks, x = CASES[name]([seed, 7]), gaussian(seed, 2, 1 + seed % 4, 2)
    x = x if seed % 2 else x[0]  # a run's own samples, or samples for all
    kernels = networks.kernel(x)
    for run, kernel in enumerate(kernels):
        alone, own = networks.only([run]), x[run] if seed % 2 else x
        expected = GaussNewton(alone, own, output=lambda y: y[0]).tangent_kernel()
        assert torch.allclose(kernel, expected, rtol=1e-10, atol=1e-12)
        assert torch.allclose(networks(x)[run], alone(own)[0], rtol=1e-13)
    assert name == "no hidden layer" or torch.equal(CASES[name]([seed])(x[:1]), networks.only([0])(x[:1]))
    passes, rates = networks.passes(x), torch.tensor([0.25, 0.0]).double()
    slopes = gaussian(2, *passes.outputs.shape)
    gradients = torch.autograd.grad((slopes * passes.outputs).sum(), list(networks.weights))
    expected = [w.detach() - rates[:, None, None] * g for w, g in zip(networks.weights, gradients, strict=True)]
    networks.step(passes, slopes, rates)
    assert all(torch.allclose(w, e, rtol=1e-12, atol=1e-14) for w, e in zip(networks.weights, expected, strict=True))


@pytest.mark.parametrize("head", [Softmax(), Entrywise(swish), Entrywise(identity), Entrywise(torch.sin)])
@pytest.mark.parametrize("seed", range(2))
def test_slopes_and_curvatures_of_outputs_against_autograd(head, seed):
    f = 3 * gaussian(seed, 4, 3)
    slopes = torch.func.vmap(torch.func.jacrev(lambda row: head.outputs(row[None])[0]))(f)
    assert torch.allclose(head.slopes(f), slopes, atol=1e-13)
    # of the squared error without a residual, so that Gauss-Newton is all
    targets = torch.eye(3).double()[[0, 1, 2, 0]] if isinstance(head, Softmax) else head.outputs(f)
    blocks = hess(lambda f: head.loss(f, targets))(f)
    assert torch.allclose(head.curvature(f), torch.stack([blocks[i, :, i] for i in range(4)]), atol=1e-13)


@pytest.mark.parametrize("radius", [0.0, 0.3, 1.2])
def test_two_linear_factors_give_way_together(radius):
    straight = Cubic(value=1.0, gradient=1.0, largest=0.0, scale=0.0)
    assert ball_floor(straight, straight, radius) == pytest.approx(1 - radius / 2**0.5, rel=1e-9)
    bent = Cubic(value=5.0, gradient=1.0, largest=1.0, scale=0.5)  # a Hessian of norm 3 within the root of two
    assert bent.least(2**0.5) == pytest.approx((5 - 2**0.5 - 3, 0.0))


def test_how_often_the_hessian_vanishes_in_a_ball():
    """The distances to h = 0 and to c = 0 are at a right angle, and nearly straight where the network is wide."""
    distances = []
    for seed in range(400):
        h, c = cubics(list(gaussian(seed, 4 * 3000).view(4, 3000)), 1.0)
        distances.append(math.hypot(h.value / h.gradient, c.value / c.gradient))
    for radius in (0.3, 0.7, 1.0, 1.5):
        share = sum(distance <= radius for distance in distances) / 400
        assert share == pytest.approx(vanishing_probability(radius), abs=0.07)  # 2.8 standard deviations at most
