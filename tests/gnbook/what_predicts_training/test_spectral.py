"""Numbers of a spectrum, and of what lies where in it."""

import math

import pytest
import torch
from gnbook.what_predicts_training.predictors import Start
from gnbook.what_predicts_training.spectral import alignment, of_spectrum, weighted_residual

from tests.gnbook.what_predicts_training.cases import LOSSES, K, N, both, inputs, small, whole


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
