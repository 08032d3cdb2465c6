"""Liu, Zhu and Belkin 2020, section 6 and appendix B: the experiments."""

import pytest
import scipy
import torch
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, output_kernel, swish
from gnbook.when_the_kernel_moves.networks import bottleneck
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
