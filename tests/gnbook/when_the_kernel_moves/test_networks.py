"""Networks side by side, their kernels, and outputs that are not linear."""

import pytest
import torch
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, output_kernel, swish
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


def test_equations_43_and_48_by_hand():
    x = torch.tensor([[2.0, 1.0]]).double()
    weights = [
        torch.tensor(w).double()[None]
        for w in ([[1.0, -1.0], [-1.0, 0.0], [0.5, 0.0], [0.0, 2.0]], [[1.0, 2.0, 3.0, 4.0]])
    ]
    assert StackedNetworks(weights, [1.0, 0.5], [torch.relu])(x).item() == (1 * 1 + 3 * 1 + 4 * 2) / 2
    network = bottleneck(4, 2, seeds=[0])
    w1, w2, w3, w4 = (w[0] for w in network.weights)
    by_hand = w4 @ torch.relu(w3 @ (w2 @ torch.relu(w1 @ x[0])) / 2) / 2
    assert torch.allclose(network(x)[0, 0], by_hand)
    scaled = bottleneck(4, 2, scaled=True, seeds=[0])(x)
    assert torch.allclose(scaled * 2**0.5, network(x))


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


def test_slopes_that_are_not_symmetric():
    kernel, slopes = gaussian(0, 2, 6, 6), gaussian(1, 2, 3, 2, 2)
    for run in range(2):
        whole = torch.block_diag(*slopes[run])
        assert torch.allclose(output_kernel(kernel, slopes)[run], whole @ kernel[run] @ whole.mT, atol=1e-13)


def test_losses_by_hand():
    f, y = torch.tensor([[[1.0, 2.0], [0.0, 0.0]]]).double(), torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]).double()
    entropy = (torch.log1p(torch.exp(torch.tensor(-1.0).double())) + torch.log(torch.tensor(2.0).double())) / 2
    assert torch.allclose(Softmax().loss(f, y)[0], entropy)
    assert Entrywise(identity).loss(f, y).item() == ((1 + 1) + (1 + 0)) / 2


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("shapes", "activations", "message"),
    [
        ([(1, 3, 2), (4, 3, 3)], [identity], "with as many runs in each"),
        ([(3, 2), (3, 3)], [identity], r"\(runs, out, in\) was expected"),
        ([(1, 2, 2), (1, 3, 2)], [], "2 layers, 2 factors and 0 activations"),
        ([(1, 2, 2), (1, 3, 2)], [identity, torch.relu], "2 layers, 2 factors and 2 activations"),
    ],
)
def test_layers_that_do_not_fit_are_refused(shapes, activations, message):
    with pytest.raises(ValueError, match=message):
        StackedNetworks([gaussian(0, *shape) for shape in shapes], [1.0, 1.0], activations)
