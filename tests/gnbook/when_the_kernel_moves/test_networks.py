"""Networks side by side, their kernels, and outputs that are not linear."""

import pytest
import torch
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, swish
from gnbook.when_the_kernel_moves.networks import StackedNetworks, bottleneck, identity, shallow

from gnlib import GaussNewton
from tests.gnbook.when_the_kernel_moves.helpers import half_square, hess
from tests.strategies import gaussian

CASES = {
    "shallow": lambda seed: shallow(1 + seed % 7, 1 + seed % 3, seeds=[seed]),
    "smooth": lambda seed: shallow(4, 2, activation=torch.tanh, seeds=[seed]),
    "bottleneck": lambda seed: bottleneck(5, 1 + seed % 4, 3, scaled=seed % 2 == 0, seeds=[seed]),
    "square": lambda seed: bottleneck(3, 1, 1, activation=half_square, seeds=[seed]),
    "width one": lambda seed: bottleneck(1, 1, 1, seeds=[seed]),
    "no hidden layer": lambda seed: StackedNetworks([gaussian(seed, 1, 2, 2)], [0.5], []),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(2))
def test_the_kernel_by_layers_is_that_of_the_jacobian(name, seed):
    network, x = CASES[name](seed), gaussian(seed, 1 + seed % 4, 2)
    kernel = network.kernel(x)
    assert kernel.shape[0] == 1
    assert torch.allclose(
        kernel[0], GaussNewton(network, x, output=lambda y: y[0]).tangent_kernel(), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("build", [lambda s: shallow(6, seeds=s), lambda s: bottleneck(5, 2, seeds=s)])
def test_side_by_side_is_one_by_one(build):
    together, x = build([3, 1, 4]), gaussian(0, 3, 5, 2)
    for run, seed in enumerate([3, 1, 4]):
        alone = build([seed])
        assert torch.allclose(together(x)[run], alone(x[run])[0], rtol=1e-13)
        assert torch.allclose(together.kernel(x)[run], alone.kernel(x[run])[0], rtol=1e-12)
        assert torch.equal(together.only([run])(x[[run]]), alone(x[[run]]))
    assert len(together) == 3 and len(together.only([2, 0])) == 2


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shared", [False, True])
def test_a_step_is_along_the_gradient_that_autograd_finds(name, shared):
    network = CASES[name](3)
    x, rates = gaussian(1, 4, 2) if shared else gaussian(1, 1, 4, 2), torch.tensor([0.25]).double()
    passes = network.passes(x)
    slopes = gaussian(2, *passes.outputs.shape)
    gradients = torch.autograd.grad((slopes * passes.outputs).sum(), list(network.weights))
    expected = [w.detach() - 0.25 * g for w, g in zip(network.weights, gradients, strict=True)]
    network.step(passes, slopes, rates)
    assert all(torch.allclose(w, e, rtol=1e-12, atol=1e-14) for w, e in zip(network.weights, expected, strict=True))


@pytest.mark.parametrize("head", [Softmax(), Entrywise(swish), Entrywise(identity), Entrywise(torch.sin)])
@pytest.mark.parametrize("seed", range(2))
def test_slopes_and_curvatures_of_outputs_against_autograd(head, seed):
    f = 3 * gaussian(seed, 4, 3)
    targets = torch.eye(3).double()[[0, 1, 2, 0]]
    slopes = head.slopes(f)
    for i in range(4):
        assert torch.allclose(slopes[i], torch.func.jacrev(head.outputs)(f[i : i + 1])[0, :, 0], atol=1e-13)
    # of the squared error without a residual, so that Gauss-Newton is all
    blocks = hess(lambda f: head.loss(f, targets if isinstance(head, Softmax) else head.outputs(f).detach()), f)
    for i in range(4):
        assert torch.allclose(head.curvature(f)[i], blocks[i, :, i], atol=1e-13)
