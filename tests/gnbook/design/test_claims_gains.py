"""What gains do to a kernel, to a training and to its linear model: automatic differentiation and training itself."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.gnbook.design.helpers import chain, condition, jacobians, kernel, kernels, scaled
from tests.oracles import relative
from tests.strategies import gaussian, seeds

GAINS = st.floats(0.05, 20.0)
close = {"rtol": 1e-9, "atol": 1e-12}


@pytest.mark.claim("Sum over layers", verdict="holds")
@given(st.data())
def test_the_kernel_under_gains_is_a_sum_over_layers(data):
    depth, seed = data.draw(st.integers(1, 5)), data.draw(seeds)
    activation = data.draw(st.sampled_from([nn.ReLU, lambda: nn.LeakyReLU(0.2), nn.Identity]))
    gains = torch.tensor(data.draw(st.lists(GAINS, min_size=depth, max_size=depth)), dtype=torch.float64)
    network = chain([4, *[6] * (depth - 1), 2], activation, seed=seed)
    x = gaussian(seed + 5, 3, 4)
    parts = kernels(network, x).values()
    expected = gains.prod() ** 2 * sum(part / g**2 for part, g in zip(parts, gains, strict=True))
    found = kernel(scaled(network, gains), x)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item() + 1e-300)
    again = kernel(scaled(network, [3.0] * depth), x)  # another product
    if condition(expected) < 1e6:
        assert condition(again) == pytest.approx(condition(expected), rel=1e-6)


@pytest.mark.claim("Biases at zero", verdict="holds")
@given(seeds, st.lists(GAINS, min_size=3, max_size=3))
def test_biases_at_zero_follow_the_gains_before_them(seed, gains):
    network, x = chain([4, 6, 5, 2], bias=True, seed=seed), gaussian(seed + 5, 3, 4)
    parts, gains = [*kernels(network, x).values()], torch.tensor(gains, dtype=torch.float64)
    so_far = gains.cumprod(0)
    weights, biases = parts[::2], parts[1::2]
    terms = [k / g**2 + b / h**2 for k, b, g, h in zip(weights, biases, gains, so_far, strict=True)]
    expected = so_far[-1] ** 2 * sum(terms)
    assert relative(kernel(scaled(network, gains), x), expected) < 1e-9


X, Y = gaussian(7, 8, 4), gaussian(8, 8, 2)


def train(network, optimizer, batches, factor=1.0):
    """The outputs before each of thirty steps, on batches in turn."""
    seen = []
    for step in range(30):
        some = batches[step % len(batches)]
        seen.append(network(X).detach())
        optimizer.zero_grad()
        (factor * network(X[some]) - Y[some]).square().sum().backward()
        optimizer.step()
    return torch.stack(seen)


def groups(network, rates):
    return [{"params": [p], "lr": rate} for p, rate in zip(network.parameters(), rates, strict=True)]


@pytest.mark.claim("Gains are rates by layer", verdict="holds")
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("size", "gains"), [(8, [2.0, 0.5, 0.25]), (3, [2.0, 0.25, 2.0])])
def test_descent_under_gains_is_descent_with_rates_by_layer_and_their_product_multiplies_the_outputs(
    momentum, size, gains
):
    gains, rate = torch.tensor(gains, dtype=torch.float64), 2e-3
    network, batches = chain([4, 10, 10, 2]), torch.arange(8).split(size)
    other, product = scaled(copy.deepcopy(network), gains), gains.prod()
    rates = groups(network, (rate / gains**2).tolist())
    here = train(network, torch.optim.SGD(rates, momentum=momentum), batches, factor=product)
    there = train(other, torch.optim.SGD(other.parameters(), rate, momentum=momentum), batches)
    torch.testing.assert_close(product * here, there, **close)
    assert (here[-1] - here[0]).norm() > 0.3 * here[0].norm()  # they have moved


@pytest.mark.claim("Gains are rates by layer", verdict="holds")
def test_adam_divides_by_the_gain_once():
    gains, rate = torch.tensor([2.0, 0.25, 2.0], dtype=torch.float64), 1e-3
    network = chain([4, 10, 10, 2], lambda: nn.LeakyReLU(0.2))
    other, batches = scaled(copy.deepcopy(network), gains), [torch.arange(8)]
    here = train(network, torch.optim.Adam(groups(network, (rate / gains).tolist()), eps=0.0), batches)
    there = train(other, torch.optim.Adam(other.parameters(), rate, eps=0.0), batches)
    torch.testing.assert_close(here, there, rtol=1e-6, atol=1e-9)
    assert (here[-1] - here[0]).norm() > 0.03 * here[0].norm()


@pytest.mark.claim("Gains and Adam's kernel", verdict="holds")
@given(seeds, st.lists(GAINS, min_size=3, max_size=3))
def test_the_kernel_of_adam_is_a_sum_with_the_gains_themselves(seed, gains):
    network = chain([4, 6, 5, 2], lambda: nn.LeakyReLU(0.2), seed=seed)
    x, gains = gaussian(seed + 5, 3, 4), torch.tensor(gains, dtype=torch.float64)

    def preconditioned(jacobian):
        return jacobian / (jacobian.square().sum(0) / len(x)).sqrt() @ jacobian.mT / len(x)

    parts = [preconditioned(jacobian) for jacobian in jacobians(network, x).values()]
    expected = gains.prod() * sum(part / g for part, g in zip(parts, gains, strict=True))
    found = sum(preconditioned(jacobian) for jacobian in jacobians(scaled(network, gains), x).values())
    assert relative(found, expected) < 1e-9


@pytest.mark.claim("The product of the gains", verdict="holds")
@pytest.mark.parametrize("product", [0.01, 1.0, 30.0])
def test_the_linear_model_sees_the_product_in_its_first_residual_and_moves_as_its_inverse(product):
    network, x, y, share = chain([4, 20, 2]), gaussian(1, 3, 4), gaussian(2, 3, 2).flatten(), 0.7
    gains = torch.tensor([1.6, product / 1.6], dtype=torch.float64)
    parts, first = kernels(network, x), network(x).detach().flatten()
    one, two = jacobians(network, x).values()
    weighed = sum(part / g**2 for part, g in zip(parts.values(), gains, strict=True))
    scaled(network, gains)
    jacobian, residual = torch.cat([*jacobians(network, x).values()], 1), network(x).detach().flatten() - y
    rate, moved, before = share / torch.linalg.eigvalsh(kernel(network, x))[-1], 0.0, residual
    for _ in range(25):
        moved = moved - rate * jacobian.mT @ residual / len(x)
        residual = before + jacobian @ moved
    contraction = torch.eye(6) - share * weighed / torch.linalg.eigvalsh(weighed)[-1]
    expected = torch.linalg.matrix_power(contraction, 25) @ (product * first - y)
    torch.testing.assert_close(residual, expected, rtol=1e-6, atol=1e-9)
    c = torch.linalg.solve(weighed, product * first - y - expected)
    own = torch.cat([part / g for part, g in zip(moved.split([80, 40]), gains, strict=True)])
    parts = [-j.mT @ c / (g**2 * product * len(x)) for j, g in zip((one, two), gains, strict=True)]
    torch.testing.assert_close(own, torch.cat(parts), rtol=1e-6, atol=1e-9)
