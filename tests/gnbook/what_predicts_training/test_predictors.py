"""What is computed of a network at its start, scores without training among it, against dense derivatives."""

import math

import numpy as np
import pytest
import torch
from gnbook.what_predicts_training.curvature import differentiated
from gnbook.what_predicts_training.drift import drift
from gnbook.what_predicts_training.predictors import Start
from gnbook.what_predicts_training.spectral import alignment, of_spectrum, weighted_residual
from gnbook.what_predicts_training.zero_cost import (
    chi_1,
    gradient_quotient,
    naswot,
    synflow,
    te_nas,
    zico,
)
from torch import nn

from gnlib.jacobian.gram import gram_of
from gnlib.jacobian.passes import vjp
from gnlib.jacobian.trial import network_of, networks_of
from gnlib.losses import loss_of
from tests.gnbook.what_predicts_training.cases import LOSSES, K, N, both, inputs, small, whole
from tests.strategies import gaussian


@both
@pytest.mark.parametrize("norm", [nn.Identity, lambda: nn.BatchNorm1d(12)], ids=["", "BatchNorm"])
def test_what_derivatives_of_the_whole_batch_say(loss, norm):
    net, x, (function, y) = small(norm), inputs(4), LOSSES[loss]
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    found = Start(net, x, y, loss).predictors([0.1], torch.Generator().manual_seed(0))
    assert net.training and all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    gradient, jacobian, matrix, hessian = whole(net, x, loss)
    assert found["gradient_norm"] == pytest.approx(gradient.norm().item(), rel=1e-9)
    assert found["initial_loss"] == pytest.approx(function(net(x), y).item(), rel=1e-9)
    assert found["sharpness"] == pytest.approx(torch.linalg.eigvalsh(hessian)[-1].item(), rel=1e-3)
    away = gradient + torch.where(gradient >= 0, 1e-5, -1e-5)
    quotient = ((gradient - hessian @ gradient) / away - 1).abs().mean().item()
    assert found["gradient_quotient"] == pytest.approx(quotient, rel=1e-6)
    kernel = torch.linalg.svdvals(jacobian).square() / N
    rank = int((kernel > 1e-10 * kernel[0]).sum())
    assert found["largest"] == pytest.approx(kernel[0].item(), rel=1e-9)
    assert found["smallest"] == pytest.approx(kernel[rank - 1].item(), rel=1e-5)
    assert found["kappa"] == pytest.approx((kernel[0] / kernel[rank - 1]).item(), rel=1e-5)
    assert found["trace_over_largest"] == pytest.approx((kernel.sum() / kernel[0]).item(), rel=1e-9)
    own = torch.linalg.eigvalsh(matrix)
    assert found["kappa_loss"] == pytest.approx((own[-1] / own[own > 1e-10 * own[-1]][0]).item(), rel=1e-5)


@both
@pytest.mark.parametrize("optimizer", ["descent", "momentum", "adam"])
def test_real_steps_are_those_of_torch(loss, optimizer):
    net, x, (function, y) = small(), inputs(4), LOSSES[loss]
    gradient, jacobian, matrix, _ = whole(net, x, loss)
    if optimizer == "adam":
        p = jacobian.square().sum(0).sqrt()
        p = p * gradient.norm() / p.norm()
        matrix = matrix / p.sqrt() / p.sqrt()[:, None]
    largest = torch.linalg.eigvalsh(matrix)[-1].item()
    found = Start(net, x, y, loss).after(20, optimizer)
    steps = {
        "descent": lambda: torch.optim.SGD(net.parameters(), lr=1 / largest),
        "momentum": lambda: torch.optim.SGD(net.parameters(), lr=1.9 / largest, momentum=0.9),
        "adam": lambda: torch.optim.Adam(net.parameters(), lr=19 / largest),
    }[optimizer]()
    losses = []
    for _ in range(20):
        steps.zero_grad()
        value = function(net(x), y)
        losses.append(value.item())
        value.backward()
        steps.step()
    assert found["loss_after_20"] == pytest.approx(function(net(x), y).item() / losses[0], rel=1e-7)
    jacobian = whole(net, x, loss)[1]
    targets = y if loss == "mse" else nn.functional.one_hot(y, 3).double()
    centred = (targets - targets.mean(0)).flatten()
    kernel = jacobian @ jacobian.mT
    expected = centred @ kernel @ centred / kernel.norm() / centred.square().sum()
    assert found["alignment_after_20"] == pytest.approx(expected.item(), rel=1e-7)


@both
def test_where_targets_and_residuals_lie(loss):
    net, x, (function, y) = small(), inputs(4), LOSSES[loss]
    _, jacobian, _, _ = whole(net, x, loss)
    start = Start(net, x, y, loss).kernel
    kernel = jacobian @ jacobian.mT / N
    outputs = net(x).detach().requires_grad_()
    residual = N * torch.autograd.grad(function(outputs, y), outputs)[0]
    r = residual.flatten()
    by_inverse = r @ torch.linalg.solve(kernel, r) * torch.linalg.matrix_norm(kernel, 2) / (r @ r)
    assert weighted_residual(*start.spectrum, residual) == pytest.approx(by_inverse.item(), rel=1e-6)
    targets = y if loss == "mse" else torch.eye(K, dtype=torch.float64)[y]
    ideal = torch.outer(*[(targets - targets.mean(0)).flatten()] * 2)
    aligned = (kernel * ideal).sum() / kernel.norm() / ideal.norm()
    assert alignment(start.matrix, start.targets) == pytest.approx(aligned.item(), rel=1e-9)


def test_a_spectrum_with_zeros():
    found = of_spectrum(torch.tensor([-1e-17, 0.0, 0.1, 0.4, 0.5], dtype=torch.float64))
    assert (found["kappa"], found["smallest"], found["largest"]) == (5.0, 0.1, 0.5)
    entropy = -sum(share * math.log(share) for share in (0.1, 0.4, 0.5))
    assert found["effective_rank"] == pytest.approx(math.exp(entropy), rel=1e-12)
    assert found["trace_over_largest"] == pytest.approx(2.0, rel=1e-12)


def measured(scale):
    """V of a small smooth network, and what it is made of."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    x, y = torch.randn(5, 3).double(), scale * torch.randn(5, 2).double()
    networks = networks_of(module, x)
    residual = module(x).detach() - y
    gradient = vjp(networks, 4.0)(residual)
    loss = float(residual.square().sum() / 10)
    return drift(networks, gram_of(networks, 4.0), loss, gradient, 4.0), module, x, loss, gradient


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_the_drift_is_the_derivative_of_the_kernel(scale):
    found, module, x, loss, gradient = measured(scale)
    parameters = dict(module.named_parameters())

    def kernel(parameters):
        jacobian = torch.func.jacrev(lambda p: torch.func.functional_call(module, p, x).flatten())(parameters)
        flat = torch.cat([j.flatten(1) for j in jacobian.values()], 1)
        return flat @ flat.mT / len(x)

    back = {name: -g for name, g in gradient.items()}
    value, velocity = torch.func.jvp(kernel, ({n: p.detach() for n, p in parameters.items()},), (back,))
    time = loss / sum(float(g.square().sum()) for g in gradient.values())
    assert found == pytest.approx(float(time * velocity.norm() / value.norm()), rel=0.05)


def seeded(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*(layer() for layer in layers)).double()


def draws():
    return torch.Generator().manual_seed(0)


def test_synflow_is_a_product_of_absolute_matrices():
    net = seeded(lambda: nn.Linear(4, 3), nn.ReLU, lambda: nn.Linear(3, 2))
    first, bias, second, _ = (p.detach().numpy() for p in net.parameters())
    into, out = np.abs(first).sum(1), np.abs(second).sum(0)
    by_hand = out @ into + out @ (into + np.abs(bias))  # without the biases' own share
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    assert synflow(net, torch.zeros(7, 4)) == pytest.approx(by_hand, rel=1e-12)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_naswot_counts_units_that_agree():
    net = nn.Sequential(nn.ReLU(), nn.Linear(3, 2, bias=False), nn.GELU()).double()
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [1.0, -2.0, 0.0]]))
    x = torch.tensor([[1.0, -1.0, -1.0], [1.0, 1.0, -1.0], [-1.0, 1.0, 1.0]])
    patterns = np.array([[1, 0, 0, 1, 1], [1, 1, 0, 1, 0], [0, 1, 1, 0, 0]])
    agree = (patterns[:, None] == patterns[None]).sum(2)
    assert naswot(net, x) == pytest.approx(math.log(np.linalg.det(agree)), rel=1e-12)
    assert naswot(net, x[[0, 0]]) == -math.inf
    assert math.isnan(naswot(nn.Linear(3, 1), x))


def test_the_gradient_quotient_of_a_quadratic_is_its_mean_curvature():
    line = nn.Linear(3, 1, bias=False).double()
    curvatures = torch.tensor([0.5, 2.0, 8.0], dtype=torch.float64)
    x, y = (3 * curvatures).sqrt().diag(), 100 * torch.ones(3, 1, dtype=torch.float64)
    network = network_of(line, x)
    with differentiated(network, loss_of("mse", y, line(x).detach())) as (gradient, product):
        found = gradient_quotient(gradient, product(gradient))
    assert found == pytest.approx(curvatures.mean().item(), rel=1e-5)


def test_zico_of_a_line():
    line = nn.Linear(3, 2).double()
    x, y = gaussian(1, 18).view(6, 3), gaussian(2, 12).view(6, 2)
    order = torch.randperm(6, generator=draws())
    gradients = []
    for half in (order[:3], order[3:]):
        residual = (line(x[half]) - y[half]).detach().numpy()
        gradients.append(residual.T @ x[half].numpy() / 3)
    a, b = gradients  # mean (|a| + |b|) / 2 over the deviation |a - b| / 2
    by_hand = math.log(((np.abs(a) + np.abs(b)) / np.abs(a - b)).sum())
    assert zico(line, x, y, "mse", generator=draws()) == pytest.approx(by_hand, rel=1e-10)
    assert math.isnan(zico(line, x[:1], y[:1], "mse", generator=draws()))


def test_te_nas_is_of_the_gradients_of_summed_outputs_by_weights():
    net = seeded(lambda: nn.Linear(5, 4), nn.Tanh, lambda: nn.Linear(4, 3))
    x = gaussian(3, 20).view(4, 5)
    weights = {name: p.detach() for name, p in net.named_parameters() if "weight" in name}
    jacobian = torch.func.jacrev(lambda w: torch.func.functional_call(net, w, (x,)).sum(1))(weights)
    rows = torch.cat([block.flatten(1) for block in jacobian.values()], 1).detach().numpy()
    assert te_nas(net, x) == pytest.approx(np.linalg.cond(rows) ** 2, rel=1e-9)
    assert abs(te_nas(net, x[[0, 0, 1]])) > 1e12  # as coded: nothing is done about a zero


@pytest.mark.parametrize("gain", [0.5, 1.0, 3.0])
def test_chi_1_of_orthogonal_layers_is_their_squared_gain(gain):
    net = seeded(*[lambda: nn.Linear(4, 4)] * 5)
    for layer in net:
        nn.init.orthogonal_(layer.weight, gain)
    found = chi_1(network_of(net, gaussian(5, 12).view(3, 4)), generator=draws())
    assert found == pytest.approx(abs(math.log(gain**2)), rel=1e-10, abs=1e-12)
