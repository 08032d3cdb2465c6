"""Courses of linear models against literal loops, and against training of networks that are linear."""

import math

import pytest
import torch
from torch import nn

from gnlib.diagnosis.descent import Rule
from gnlib.diagnosis.model import Modes, Outputs, follow, linearise, trusted
from gnlib.diagnosis.preconditioner import optimizer_of
from gnlib.jacobian.passes import outputs_of
from gnlib.jacobian.trial import networks_of
from gnlib.losses import loss_of

N, K = 5, 3


def problem(rank=N * K):
    """A kernel of some rank, outputs, and targets of both kinds."""
    generator = torch.Generator().manual_seed(2)
    root = torch.randn(N * K, rank, generator=generator, dtype=torch.float64)
    outputs, targets = torch.randn(2, N, K, generator=generator, dtype=torch.float64)
    pushed = torch.zeros(N * K, 2, dtype=torch.float64)
    pushed[:, 1] = torch.randn(N * K, generator=generator, dtype=torch.float64)
    return root @ root.mT / N, outputs, targets, pushed


def literal(kernel, outputs, rule, steps, gradient, value, pushed=None):
    """The loop as it is written in textbooks, on outputs alone."""
    f, losses = outputs.flatten(), []
    m = torch.zeros_like(f)
    old = 0.0 if pushed is None else 1.0
    for step in range(1, steps + 2):
        losses.append(value(f.view(N, K)))
        g = kernel @ gradient(f.view(N, K)).flatten()
        old *= rule.momentum
        if rule.averaged:
            m = rule.momentum * m + (1 - rule.momentum) * g
            f = f - rule.rate * m / (1 - rule.momentum ** (step + rule.taken))
        else:
            m = rule.momentum * m + g
            f = f - rule.rate * m
        if pushed is not None:
            f = f - rule.rate * old * pushed[:, 1]
    return losses


@pytest.mark.parametrize("rule", [Rule(0.02), Rule(0.01, 0.9), Rule(0.05, 0.9, averaged=True)], ids=str)
@pytest.mark.parametrize("rank", [N * K, 4])
@pytest.mark.parametrize("name", ["mse", "cross_entropy"])
def test_the_course_is_that_of_a_literal_loop(name, rank, rule):
    kernel, outputs, targets, _ = problem(rank)
    loss = loss_of(name, targets if name == "mse" else targets.softmax(1), outputs)
    nothing = kernel.new_zeros(N * K, 2)
    spaces = [Outputs(outputs, loss, [kernel], [nothing])]
    if name == "mse":
        spaces.append(Modes(outputs, loss, torch.linalg.eigh(kernel), nothing))
    expected = literal(kernel, outputs, rule, 300, loss.gradient, loss.value)
    for space in spaces:
        losses, kept = follow(space, [rule], 300)
        assert losses == pytest.approx(expected, rel=1e-10, abs=1e-20)
        for step, (sums, there) in kept.items():
            torch.testing.assert_close(there.flatten(), outputs.flatten() - kernel @ sums[0, :-2], rtol=1e-8, atol=1e-8)
            assert loss.value(there) == pytest.approx(losses[step], rel=1e-10, abs=1e-18)


def test_momentum_from_before_is_followed_in_both_coordinates():
    kernel, outputs, targets, pushed = problem()
    loss, rule = loss_of("mse", targets, outputs), Rule(0.01, 0.8)
    expected = literal(kernel, outputs, rule, 100, loss.gradient, loss.value, pushed)
    for space in (Outputs(outputs, loss, [kernel], [pushed]), Modes(outputs, loss, torch.linalg.eigh(kernel), pushed)):
        assert follow(space, [rule], 100)[0] == pytest.approx(expected, rel=1e-10)


def test_a_course_that_overflows_ends_at_infinity():
    kernel, outputs, targets, _ = problem()
    loss = loss_of("mse", targets, outputs)
    losses, kept = follow(Outputs(outputs, loss, [kernel], [0 * kernel[:, :2]]), [Rule(10.0)], 1000)
    assert len(losses) == 1001 and losses[-1] == math.inf and max(kept) < 1000


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 100])
def test_the_last_step_is_looked_at(steps):
    kernel, outputs, targets, _ = problem()
    loss = loss_of("mse", targets, outputs)
    losses, kept = follow(Outputs(outputs, loss, [kernel], [0 * kernel[:, :2]]), [Rule(0.01)], steps)
    assert len(losses) == steps + 1 and {1, steps} <= set(kept)


def standing(loss, y, width=20):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, K)).double()
    networks = networks_of(module, torch.randn(N, 4).double())
    leaves = {name: p.clone() for name, p in networks[0].parameters.items()}
    target = loss_of(loss, y, outputs_of(networks, 4.0))
    return networks, target, linearise(networks, target, optimizer_of("sgd", networks[0], leaves, 1.0), leaves, 4.0)


@pytest.mark.parametrize(("second", "lost"), [([1.0, 0.0, 0.0], 2 / 3), ([0.0, 1.0, 0.0], 0.0)])
def test_what_is_out_of_reach_by_cross_entropy(second, lost):
    """Two samples of three have opposite gradients: nothing moves them if they are equal."""
    module = nn.Linear(3, 2, bias=False).double()
    nn.init.zeros_(module.weight)
    networks = networks_of(module, torch.tensor([[1.0, 0.0, 0.0], second, [0.0, 0.0, 1.0]]).double())
    leaves = {name: p.clone() for name, p in networks[0].parameters.items()}
    loss = loss_of("cross_entropy", torch.tensor([0, 1, 0]), outputs_of(networks, 4.0))
    linear = linearise(networks, loss, optimizer_of("sgd", networks[0], leaves, 1.0), leaves, 4.0)
    assert linear.unreachable == pytest.approx(lost, rel=1e-12)


def test_a_network_is_trusted_up_to_the_first_step_at_which_it_is_off():
    """By going through all the steps that are looked at, one by one."""
    networks, loss, linear = standing("mse", 3 * torch.ones(N, K))
    _, kept = follow(linear.space, linear.rules(0.02 * linear.stable_rate), 200)
    found = trusted(networks, loss, linear, kept, 4.0)
    alone = [step for step in kept if trusted(networks, loss, linear, {step: kept[step]}, 4.0) == step]
    assert 0 < found < 200
    assert found == max(step for step in kept if all(other in alone for other in kept if other <= step))
