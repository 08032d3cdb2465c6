"""Networks that imitate others: their matrices against automatic differentiation, their steps against small cases."""

import math

import pytest
import torch
from gnbook.convolution.descent import (
    linear_steps,
    losses_of,
    relu_gauss_newton,
    relu_loss_left,
    relu_outputs,
)

from tests.strategies import gaussian


@pytest.mark.parametrize("stride", [1, 2])
def test_the_matrix_with_a_relu_is_that_of_the_jacobian(stride):
    x, weights = gaussian(0, 4, 1, 9, 9), (gaussian(1, 3, 1, 2, 2), gaussian(2, 1, 3, 2, 2))
    parts = torch.autograd.functional.jacobian(lambda *w: relu_outputs(w, x, stride).flatten(), weights)
    ordered = [
        parts[0].reshape(-1, 3, 4).mT.flatten(1),
        parts[1].flatten(1),
    ]  # taps, then filters, as the matrix has it
    jacobian = torch.cat(ordered, 1)
    found = torch.linalg.eigvalsh(relu_gauss_newton(weights, x, stride))
    assert torch.allclose(found, torch.linalg.eigvalsh(jacobian.mT @ jacobian / len(x)), atol=1e-10)


def test_losses_are_those_of_gradient_descent():
    losses = losses_of([torch.tensor(3.0)], [torch.tensor(1.0)], lambda w: w[0], 0.5, 0.1, 10)
    assert losses == [2.0, 0.5, 0.125]


@pytest.mark.parametrize("stride", [1, 2])
def test_steps_by_patches_are_those_on_all_images(stride):
    x = gaussian(0, 6, 1, 6, 6)
    weights, other = ([gaussian(seed, 3, 1, 2, 2), gaussian(seed + 1, 1, 3, 2, 2)] for seed in (1, 5))
    shares = (0.5, 0.1)
    by_patches = linear_steps(weights, other, x, [stride, 1], shares)

    def forward(w):
        return torch.conv2d(torch.conv2d(x, w[0], stride=stride), w[1]) / len(x) ** 0.5

    parts = torch.autograd.functional.jacobian(lambda *w: forward(w).flatten(), tuple(weights))
    largest = torch.linalg.svdvals(torch.cat([part.flatten(1) for part in parts], 1))[0].item() ** 2
    losses = losses_of(weights, other, forward, 1 / largest, shares[-1], 10**4)
    assert by_patches == [
        next(step for step, loss in enumerate(losses) if loss < share * losses[0]) for share in shares
    ]


def test_a_network_that_cannot_imitate_takes_for_ever():
    x = gaussian(0, 6, 1, 5, 5)
    weights, other = ([torch.zeros(1, 1, 2, 2).double(), torch.zeros(1, 1, 2, 2).double()] for _ in range(2))
    weights[0] += 1
    other = [w + 1 for w in other]
    weights[1][0, 0, 0, 0] = 1e-3
    assert linear_steps(weights, other, x, shares=(0.999999,), most=0) == [math.inf]


def test_the_loss_that_is_left_with_a_relu():
    x = gaussian(0, 4, 1, 6, 6)
    weights, other = ([gaussian(seed, 3, 1, 2, 2), gaussian(seed + 1, 1, 3, 2, 2)] for seed in (1, 5))
    rate = 1 / torch.linalg.eigvalsh(relu_gauss_newton(weights, x))[-1].item()
    start, *later = relu_loss_left(weights, other, x, rate, [0, 5, 20])
    assert start == 1 and 1 > later[0] > later[1] > 0
