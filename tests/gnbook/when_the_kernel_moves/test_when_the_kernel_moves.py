"""Networks side by side: kernels, outputs that are not linear, descent, and bounds for a bottleneck."""

import mpmath
import pytest
import torch
from gnbook.when_the_kernel_moves.bottleneck import Cubic, ball_floor, limit_norm, vanishing_probability
from gnbook.when_the_kernel_moves.descent import descend
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, swish
from gnbook.when_the_kernel_moves.networks import FrozenKernels, StackedNetworks, bottleneck, identity, shallow
from gnbook.when_the_kernel_moves.on_a_line import three_clusters, with_one

from gnlib import GaussNewton
from tests.gnbook.when_the_kernel_moves.helpers import half_square
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
    "shallow": lambda seed: shallow(1 + seed % 7, 1 + seed % 3, seeds=[seed]),
    "smooth": lambda seed: shallow(4, 2, activation=torch.tanh, seeds=[seed]),
    "bottleneck": lambda seed: bottleneck(5, 1 + seed % 4, 3, scaled=seed % 2 == 0, seeds=[seed]),
    "square": lambda seed: bottleneck(3, 1, 1, activation=half_square, seeds=[seed]),
    "width one": lambda seed: bottleneck(1, 1, 1, seeds=[seed]),
    "no hidden layer": lambda seed: StackedNetworks([gaussian(seed, 1, 2, 2)], [0.5], []),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_is_that_of_the_jacobian_and_a_step_along_the_gradient_that_autograd_finds(name, seed):
    network, x = CASES[name](seed), gaussian(seed, 1 + seed % 4, 2)
    kernel, expected = network.kernel(x), GaussNewton(network, x, output=lambda y: y[0]).tangent_kernel()
    assert torch.allclose(kernel, expected[None], rtol=1e-10, atol=1e-12)
    x = x if seed % 2 else x[None]  # shared by all runs, or a run's own
    passes, rates = network.passes(x), torch.tensor([0.25]).double()
    slopes = gaussian(2, *passes.outputs.shape)
    gradients = torch.autograd.grad((slopes * passes.outputs).sum(), list(network.weights))
    expected = [w.detach() - 0.25 * g for w, g in zip(network.weights, gradients, strict=True)]
    network.step(passes, slopes, rates)
    assert all(torch.allclose(w, e, rtol=1e-12, atol=1e-14) for w, e in zip(network.weights, expected, strict=True))


@pytest.mark.parametrize("build", [lambda s: shallow(6, seeds=s), lambda s: bottleneck(5, 2, seeds=s)])
def test_side_by_side_is_one_by_one(build):
    together, x = build([3, 1, 4]), gaussian(0, 3, 5, 2)
    for run, seed in enumerate([3, 1, 4]):
        alone = build([seed])
        assert torch.allclose(together(x)[run], alone(x[run])[0], rtol=1e-13)
        assert torch.allclose(together.kernel(x)[run], alone.kernel(x[run])[0], rtol=1e-12)
        assert torch.equal(together.only([run])(x[[run]]), alone(x[[run]]))
    assert len(together) == 3 and len(together.only([2, 0])) == 2


@pytest.mark.parametrize("head", [Softmax(), Entrywise(swish), Entrywise(identity), Entrywise(torch.sin)])
@pytest.mark.parametrize("seed", range(2))
def test_slopes_and_curvatures_of_outputs_against_autograd(head, seed):
    f = 3 * gaussian(seed, 4, 3)
    slopes = torch.func.vmap(torch.func.jacrev(lambda row: head.outputs(row[None])[0]))(f)
    assert torch.allclose(head.slopes(f), slopes, atol=1e-13)
    # of the squared error without a residual, so that Gauss-Newton is all
    targets = torch.eye(3).double()[[0, 1, 2, 0]] if isinstance(head, Softmax) else head.outputs(f)
    blocks = torch.func.hessian(lambda f: head.loss(f, targets))(f)
    assert torch.allclose(head.curvature(f), torch.stack([blocks[i, :, i] for i in range(4)]), atol=1e-13)


@pytest.mark.parametrize("radius", [0.0, 0.3, 1.2])
def test_two_linear_factors_give_way_together(radius):
    straight = Cubic(value=1.0, gradient=1.0, largest=0.0, scale=0.0)
    assert ball_floor(straight, straight, radius) == pytest.approx(1 - radius / 2**0.5, rel=1e-9)


def test_limits_against_forty_digits():
    with mpmath.workdps(40):
        share = 1 - mpmath.exp(-mpmath.mpf(7) / 6 * mpmath.mpf(0.3) ** 2)
        matrix = mpmath.matrix([[0, mpmath.mpf(0.4)], [mpmath.mpf(0.4), mpmath.mpf(-1.1)]])
        norm = max(abs(e) for e in mpmath.eigsy(matrix, eigvals_only=True)) * 7 * mpmath.sqrt(7) / 4
    assert vanishing_probability(0.3) == pytest.approx(float(share), rel=1e-14) and vanishing_probability(0.0) == 0
    assert limit_norm(0.4, -1.1) == pytest.approx(float(norm), rel=1e-14)
