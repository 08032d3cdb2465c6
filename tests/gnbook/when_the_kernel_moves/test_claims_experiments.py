"""Liu, Zhu and Belkin 2020, section 6, appendix B and Table 1: the experiments, and orders of the Hessian."""

import math

import pytest
import scipy
import torch
from gnbook.shared.hessian import hessian_ends
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, output_kernel, swish
from gnbook.when_the_kernel_moves.networks import bottleneck, identity, shallow
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.when_the_kernel_moves.helpers import SLACK, norm
from tests.strategies import exact, gaussian, instances, seeds


@pytest.mark.claim("Liu Section 6, swish as an instance", verdict="fails")
def test_the_slope_of_swish_has_a_zero():
    z = exact([[-12.78464542761074]])
    assert abs(Entrywise(swish).slopes(z).item()) < 1e-12
    assert Entrywise(swish).slopes(z - 5).item() < 0 < Entrywise(swish).slopes(z + 5).item()


@pytest.mark.claim("Liu Section 6, swish as an instance", verdict="fails")
def test_from_beyond_the_zero_descent_goes_the_wrong_way():
    f, label, rate = exact([[-14.0]]), 1.0, 1.0
    for _ in range(1000):
        error = swish(f) - label
        f = f - rate * error * Entrywise(swish).slopes(f)[..., 0]
    assert f.item() < -30 and (swish(f) - label).square().item() > 1


@pytest.mark.claim("A softmax that is sure", verdict="holds")
@instances
@given(seeds, st.integers(1, 5), st.integers(2, 4), st.sampled_from([0.1, 1.0, 10.0, 40.0]))
def test_the_kernel_of_a_softmax_vanishes_with_the_loss(seed, n, k, size):
    f, labels = size * gaussian(seed, n, k), torch.randint(k, (n,), generator=torch.Generator().manual_seed(seed))
    y = torch.nn.functional.one_hot(labels, k).double()
    a = gaussian(seed + 1, n * k, n * k)
    kernel = a @ a.mT
    doubt = 1 - (Softmax().outputs(f) * y).sum(-1)
    tilde = output_kernel(kernel, Softmax().slopes(f))
    for measure in (norm, lambda t: t.norm().item()):
        assert measure(tilde) <= 4 * doubt.max().item() ** 2 * measure(kernel) * SLACK + 1e-14
    assert doubt.max() <= n * Softmax().loss(f, y) * SLACK + 1e-15


@pytest.mark.claim("Liu Appendix B, training of the bottleneck", verdict="fails")
@instances
@given(seeds, st.integers(1, 5), st.integers(1, 5), st.floats(0, 20), st.floats(-3, 3))
def test_without_biases_the_network_is_homogeneous_in_its_input(seed, m, narrow_width, scale, x):
    network = bottleneck(m, narrow_width, inputs=1, seeds=[seed])
    assert torch.allclose(network(exact([[scale * x]])), scale * network(exact([[x]])), rtol=1e-10, atol=1e-10)


def least_loss(x, labels):
    """The least cross entropy of outputs that are |x| times one vector for each sign: a convex problem."""
    x, y = exact(x), torch.nn.functional.one_hot(torch.tensor(labels), 3).double()

    def loss(u):
        u = torch.tensor(u, dtype=torch.float64).view(2, 3).requires_grad_()
        value = Softmax().loss(x.abs()[:, None] * u[(x > 0).long()], y)
        return value.item(), torch.autograd.grad(value, u)[0].numpy().ravel()

    return scipy.optimize.minimize(loss, [0.0] * 6, jac=True).fun


@pytest.mark.claim("Liu Appendix B, training of the bottleneck", verdict="fails")
@pytest.mark.parametrize("seed", range(3))
def test_one_positive_sample_of_the_middle_class_keeps_the_loss_up(seed):
    floor = least_loss([1.0, 10.0], [0, 1])  # the smallest counterexample
    assert floor > 0.15
    network = bottleneck(5, 3, inputs=1, seeds=[seed])
    for scale in (0.1, 1.0, 3.0):
        value = Softmax().loss(scale * network(exact([[1.0], [10.0]])), exact([[[1.0, 0, 0], [0, 1.0, 0]]]))
        assert value.item() >= floor * (1 - 1e-6)


def means(widths, phi, build=None, runs=8):
    """Mean over networks of the norm of the Hessian of one output."""
    build = build or (lambda m, seed: shallow(m, 1, activation=torch.tanh, seeds=[seed]))
    sample = exact([[1.0, 1.0]])
    values = []
    for m in widths:
        ends = [hessian_ends(build(m, s), sample, output=lambda y: phi(y[0]), tolerance=1e-3) for s in range(runs)]
        values.append(sum(end.norm for end in ends) / runs)
    return values


def kernels(widths, build, runs=8):
    sample = exact([[1.0, 1.0]])
    return [sum(build(m, s).kernel(sample).item() for s in range(runs)) / runs for m in widths]


def slope_of(widths, values):
    return math.log(values[-1] / values[0]) / math.log(widths[-1] / widths[0])


@pytest.mark.claim("Liu Table 1, linear output layer", verdict="holds")
def test_the_row_of_a_linear_output_layer():
    widths = (64, 4096)
    assert -0.5 - 0.05 < slope_of(widths, means(widths, identity)) < -0.3
    assert abs(slope_of(widths, kernels(widths, lambda m, s: shallow(m, 1, activation=torch.tanh, seeds=[s])))) < 0.1


@pytest.mark.claim("Liu Table 1, non-linear output layer", verdict="fails")
def test_the_row_of_a_non_linear_output_layer():
    widths = (64, 4096)
    assert abs(slope_of(widths, means(widths, torch.exp, runs=12))) < 0.25


@pytest.mark.claim("Liu Table 1, bottleneck", verdict="holds")
def test_the_row_of_a_bottleneck():
    widths = (64, 4096)

    def build(m, seed):
        return bottleneck(m, 1, 1, activation=torch.tanh, seeds=[seed])

    norms = means(widths, identity, build, runs=16)
    assert abs(slope_of(widths, norms)) < 0.2 and norms[1] > 0.3
    assert abs(slope_of(widths, kernels(widths, build, runs=16))) < 0.2
