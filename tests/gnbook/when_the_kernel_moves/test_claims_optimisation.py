"""Liu, Zhu and Belkin 2020, section 5: descent where the kernel moves."""

import math

import pytest
import torch
from gnbook.when_the_kernel_moves.heads import output_kernel
from gnbook.when_the_kernel_moves.networks import shallow
from gnbook.when_the_kernel_moves.nonlinear_output import liu_theorem_5_1
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.when_the_kernel_moves.helpers import SLACK, TINY
from tests.strategies import exact, gaussian, instances, orthogonal, seeds


def output_condition(kappa, slopes):
    return kappa * (slopes.max() / slopes.min()).item() ** 2


@pytest.mark.claim("Liu Section 5, a kernel as well conditioned", verdict="holds if")
@instances
@given(seeds, st.integers(1, 6), st.sampled_from([1.0, 1e3]), st.floats(0.1, 3), st.floats(1, 4))
def test_the_condition_number_of_the_output_is_at_most_a_square_of_slopes_times_that_of_f(seed, n, kappa, low, ratio):
    q = orthogonal(seed, n)
    kernel = q * torch.linspace(1, kappa, n).double() @ q.mT
    first = low * (1 + (ratio - 1) * torch.rand(n, generator=torch.Generator().manual_seed(seed)).double())
    tilde = output_kernel((kernel + kernel.mT) / 2, first[:, None, None])
    values, own = torch.linalg.eigvalsh(tilde), torch.linalg.eigvalsh(kernel)
    assert values[-1] / values[0] <= output_condition((own[-1] / own[0]).item(), first) * (1 + 1e-7)
    assert values[0] >= low**2 * own[0] * (1 - 1e-7)


@pytest.mark.claim("Liu Section 5, a kernel as well conditioned", verdict="holds if")
def test_a_slope_without_an_upper_bound_ruins_the_condition_number():
    slope = exact([1.0, 1000.0])  # phi' = 1 + z^2 at z = 0 and about 31.6: above rho = 1 everywhere
    tilde = output_kernel(torch.eye(2).double(), slope[:, None, None])
    assert torch.linalg.cond(tilde).item() == pytest.approx(1e6) == output_condition(1.0, slope)


def bent(z):
    """A slope between one half and three halves."""
    return z + torch.sin(z) / 2


def half_squared_loss(f, y):
    return (bent(f) - y).square().sum() / 2


@pytest.mark.claim("Liu Theorem 5.1", verdict="holds if")
@pytest.mark.claim("Descent where the kernel stays definite", verdict="holds")
def test_rate_and_radius_by_hand():
    result = liu_theorem_5_1(exact([[8.0, 0.0], [0.0, 18.0]]), exact([3.0, 4.0]), 0.5)  # mu = 4, rho = 1/2, |r_0| = 5
    assert result.rate == pytest.approx(1.0, rel=1e-12)
    assert result.radius == pytest.approx(10.0, rel=1e-12)
    assert 0.9 ** result.steps(0.1, 7.0) == pytest.approx(1 / 7, rel=1e-12)


def regression(seed):
    """Samples with an entry of one for the biases, no two of them close, and labels."""
    n, d = 2 + seed % 3, 1 + seed % 2
    spread = torch.linspace(-1.5, 1.5, n).double()[:, None] * (1 + gaussian(seed, 1, d).abs())
    turned = spread * gaussian(seed + 100, 1, d).sign() + 0.1 * gaussian(seed + 200, n, d)
    return torch.cat([turned, torch.ones(n, 1).double()], 1), gaussian(seed + 300, n, 1)


@pytest.mark.claim("Liu Theorem 5.1", verdict="holds if")
@pytest.mark.parametrize("seed", range(2))
def test_descent_converges_at_the_rate_of_the_smallest_eigenvalue(seed):
    x, y = regression(seed)
    network = shallow(10_000, 1, inputs=x.shape[1], activation=torch.tanh, seeds=[seed])
    f = network(x)[0].detach()
    kernel = network.kernel(x)[0]
    rate = liu_theorem_5_1(kernel, (bent(f) - y).flatten(), 0.5)
    eta = 0.5 / (2 * torch.linalg.eigvalsh(kernel)[-1].item())
    start = [w.detach().clone() for w in network.weights]
    losses = [half_squared_loss(f, y).item()]
    for _ in range(100):
        gradients = torch.autograd.grad(half_squared_loss(network(x)[0], y), list(network.weights))
        with torch.no_grad():
            for w, g in zip(network.weights, gradients, strict=True):
                w -= eta * g
        losses.append(half_squared_loss(network(x)[0], y).item())
        assert losses[-1] <= (1 - eta * rate.rate) * losses[-2]
        assert losses[-1] <= (1 - eta * rate.rate) ** (len(losses) - 1) * losses[0]
        if len(losses) % 10 == 0:
            assert torch.linalg.eigvalsh(network.kernel(x)[0])[0] >= rate.rate / 0.5**2
    distance = sum((w - w0).square().sum() for w, w0 in zip(network.weights, start, strict=True)) ** 0.5
    assert distance <= rate.radius
    assert losses[min(100, math.ceil(rate.steps(eta, 2.0)))] <= losses[0] / 2 or rate.steps(eta, 2.0) > 100


@pytest.mark.claim("Descent where the kernel stays definite", verdict="holds")
@instances
@given(seeds, st.integers(1, 3), st.floats(0.3, 2))
def test_descent_on_a_model_with_a_definite_kernel_stays_within_the_radius(seed, n, low):
    p = n + 2
    q = orthogonal(seed, p)[:, :n]
    start, y = gaussian(seed + 1, p), gaussian(seed + 2, n)

    def model(w):  # slopes between low and 3 low, kernel low^2 to 9 low^2
        z = w @ q
        return low * (2 * z + torch.sin(z))

    def gradient(w):
        return q @ (low * (2 + torch.cos(w @ q)) * (model(w) - y))

    first = model(start) - y
    rate = liu_theorem_5_1(2 * low**2 * torch.eye(n).double(), first, 1.0)  # mu = low^2
    eta = 1 / (9 * low**2 + low * first.norm().item())
    w, losses, way = start, [(first @ first).item() / 2], 0.0
    for _ in range(100):
        step = eta * gradient(w)
        w, way = w - step, way + step.norm().item()
        residual = model(w) - y
        losses.append((residual @ residual).item() / 2)
        assert losses[-1] <= (1 - eta * rate.rate) * losses[-2] * SLACK + 1e-25
    assert (w - start).norm() <= way * SLACK <= rate.radius * SLACK**2 + TINY
    gone = 1 - math.sqrt(losses[-1] / losses[0]) if losses[0] else 0.0
    assert way <= rate.radius * gone * SLACK + TINY  # the steps add up to a share of the radius, as in the proof
