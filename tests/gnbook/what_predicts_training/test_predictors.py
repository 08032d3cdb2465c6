"""What is computed of a network at its start, against training by torch and dense derivatives."""

import math

import pytest
import torch
from gnbook.what_predicts_training.curvature import sharpness
from gnbook.what_predicts_training.predictors import SLOWER, Start
from gnbook.what_predicts_training.spectral import alignment, of_spectrum, weighted_residual
from torch import nn

from tests.gnbook.what_predicts_training.cases import LABELS, LOSSES, TARGETS, K, N, both, inputs, line, small, whole


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


def test_a_training_that_diverges_has_an_infinite_loss():
    start = Start(line(2), inputs(2), TARGETS, "mse")
    start.kernel.own = start.kernel.own * 1e-30
    found = start.after(20, "descent")
    assert found["loss_after_20"] == math.inf and math.isnan(found["alignment_after_20"])


@both
def test_every_predictor_has_a_direction_and_a_seed(loss):
    x, y = inputs(4, seed=2), LOSSES[loss][1]

    def again(optimizer, seed):
        start = Start(small(), x, y, loss)
        return start.predictors([0.25, 0.05], torch.Generator().manual_seed(seed)) | start.after(20, optimizer)

    found = again("descent", 0)
    of_goals = {f"{name}_{goal}" for name in ("forecast", "forecast_kp") for goal in ("0.25", "0.05")}
    assert {*found} == {*SLOWER} - {"forecast", "forecast_kp"} | of_goals
    assert [key for key, value in found.items() if not math.isfinite(value)] == []
    assert again("descent", 0) == found
    other = again("momentum", 0)
    assert {key for key in found if found[key] != other[key]} == {"loss_after_20", "alignment_after_20"}


@pytest.mark.bad_input
def test_another_optimizer():
    with pytest.raises(ValueError, match="'rmsprop'; one of 'descent', 'momentum', 'adam'"):
        Start(line(2), inputs(2), TARGETS, "mse").after(20, "rmsprop")


def test_where_a_loss_has_no_curvature_its_own_numbers_are_not_defined():
    net = small()
    with torch.no_grad():
        net[-1].weight.mul_(1e6)  # probabilities of 0 and 1
    start = Start(net, inputs(4), LABELS, "cross_entropy")
    found = start.predictors([0.1], torch.Generator().manual_seed(0))
    assert math.isnan(found["kappa_loss"]) and all(map(math.isnan, start.after(2, "descent").values()))
    assert math.isfinite(found["kappa"]) and found["sharpness"] > 0


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


def test_a_residual_in_one_eigenvector_weighs_as_much_as_it_is_slow():
    values, vectors = torch.tensor([0.0, 0.5, 4.0]), torch.eye(3)
    slow, fast = torch.tensor([[0.0], [3.0], [0.0]]), torch.tensor([[0.0], [0.0], [3.0]])
    assert weighted_residual(values, vectors, slow) == 8.0 and weighted_residual(values, vectors, fast) == 1.0
    assert math.isnan(weighted_residual(values, vectors, torch.zeros(3, 1)))


def test_sharpness_is_no_norm():
    curvatures = torch.tensor([-9.0, 0.0, 2.0], dtype=torch.float64)
    found = sharpness(lambda v: curvatures * v, 3, generator=torch.Generator().manual_seed(0))
    assert found == pytest.approx(2.0, rel=1e-6)
