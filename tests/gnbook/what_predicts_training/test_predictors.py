"""What is computed of a network at its start, against training by torch and dense derivatives."""

import math

import pytest
import torch
from gnbook.what_predicts_training.predictors import Start
from gnbook.what_predicts_training.spectral import alignment, of_spectrum, weighted_residual
from torch import nn

from tests.gnbook.what_predicts_training.cases import LOSSES, K, N, both, inputs, small, whole


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
