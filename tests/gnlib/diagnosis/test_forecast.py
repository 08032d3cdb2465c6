"""Forecasts against real training, and what they say of themselves."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam

from gnlib import GaussNewton
from gnlib.diagnosis.model import follow, linearise, trusted
from gnlib.diagnosis.preconditioner import optimizer_of, rules_at
from gnlib.diagnosis.standing import Whole, longest_step
from gnlib.jacobian.passes import outputs_of
from gnlib.jacobian.trial import networks_of
from gnlib.losses import loss_of
from tests.gnlib.diagnosis import networks as kinds
from tests.gnlib.diagnosis.networks import CASES, classes, loss_at, page, train
from tests.gnlib.networks import perceptron

N, K, STEPS = 6, 3, 120


def data(kind="mse", scale=1.0):
    generator = torch.Generator().manual_seed(4)
    x, y = torch.randn(N, 4, generator=generator).double(), scale * torch.randn(N, K, generator=generator).double()
    return x, y if kind == "mse" else y.argmax(1)


def network(width=16, *, last_alone=False, seed=0):
    module = perceptron(4, K, width=width, seed=seed).double()
    module[0].requires_grad_(not last_alone)
    return module


def drawn(name):
    """A network with inputs, targets and a loss."""
    net, x = kinds.drawn("mlp" if name == "a head of zeros" else name, 12)
    if name == "a head of zeros":
        nn.init.zeros_(net[2].weight), nn.init.zeros_(net[2].bias)
    loss = "mse" if name in ("mlp", "batch norm") else "cross_entropy"
    return net, x, torch.randn(12, 3).double() if loss == "mse" else classes(12, net(x).shape[1]), loss


def parts(net, x, y, loss, optimizer="sgd"):
    """What a forecast is made of: networks, the loss, the optimiser, and leaves in the place of the parameters."""
    networks, leaves = networks_of(net, x), {name: p.detach().clone() for name, p in net.named_parameters()}
    of = loss_of(loss, y, outputs_of(networks, 4.0))
    return networks, of, optimizer_of(optimizer, networks[0], leaves, 1), leaves


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [SGD, Adam])
@pytest.mark.parametrize("name", [*CASES, "a head of zeros"])
def test_nothing_is_trusted_where_it_is_off(name, optimizer):
    net, x, y, loss = drawn(name)
    found = GaussNewton(net, x, y, loss, optimizer=optimizer.__name__.lower()).forecast()
    real = train(net, x, y, loss, optimizer(net.parameters(), found.rate), 100)
    for a, b in list(zip(real, found.losses.tolist(), strict=False))[: found.trusted + 1]:
        a, b = a + 1e-7 * real[0], b + 1e-7 * real[0]
        assert max(a / b, b / a) <= 1.51
    assert found.followed.tolist() == pytest.approx(real[1 : len(found.followed) + 1], rel=1e-6)


@pytest.mark.slow
def test_a_head_of_zeros_is_not_trusted_beyond_what_was_followed():
    net, x, y, loss = drawn("a head of zeros")
    found = GaussNewton(net, x, y, loss).forecast()
    assert found.trusted < 30
    networks, target, sgd, leaves = parts(net, x, y, loss)
    linear = linearise(networks, target, sgd, leaves, 4.0)
    _, kept = follow(linear.space, rules_at(linear.parts, found.rate), 1000)
    assert trusted(linear, kept) <= found.trusted  # by gradients, without a step
    best, step = float(found.followed.min()), int(found.followed.argmin()) + 1
    assert step > found.trusted and found.steps_to(best) == step
    off = float(found.followed[found.trusted] / found.losses[found.trusted + 1])
    told = f"until step {found.trusted}, off by {max(off, 1 / off):.3g} at step {found.trusted + 1}"
    assert f"followed 30 real steps: within {found.within:.3g} of the forecast {told}" in page(found)


def test_a_network_is_trusted_up_to_the_first_step_at_which_it_is_off():
    """By going through all the steps that are looked at, one by one."""
    networks, loss, sgd, leaves = parts(network(20), data()[0], 3 * torch.ones(N, K), "mse")
    linear = linearise(networks, loss, sgd, leaves, 4.0)
    _, kept = follow(linear.space, rules_at(linear.parts, 0.02 * linear.stable_rate), 200)
    found = trusted(linear, kept)
    alone = [step for step in kept if trusted(linear, {step: kept[step]}) == step]
    assert 0 < found < 200
    assert found == max(step for step in kept if all(other in alone for other in kept if other <= step))


@pytest.mark.slow
def test_the_range_is_honest():
    """On 20 small networks, against the first step at which the root of the real loss is off by a quarter."""
    ratios = []
    for seed in range(20):
        module, (x, y) = network(width=(4, 8, 16, 32)[seed % 4], seed=seed), data(scale=(0.5, 2.0)[seed % 2])
        found = GaussNewton(module, x, y).forecast(steps=400)
        assert found.rate == pytest.approx(found.stable_rate / 2)
        real = train(module, x, y, "mse", SGD(module.parameters(), lr=found.rate), 400)
        roots = torch.tensor(real).double().sqrt(), found.losses.sqrt()
        off = ((roots[0] - roots[1]).abs() > 0.25 * roots[1]).nonzero()
        ratios.append(max(found.trusted, 1) / (int(off[0]) if len(off) else math.inf))
    assert sum(ratio <= 1 for ratio in ratios) >= 15  # 17
    assert sum(ratio <= 2 for ratio in ratios) == 20
    assert sum(1 / 4 <= ratio for ratio in ratios) >= 14  # 16, so that it is not too cautious either


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CASES, "a head of zeros"])
def test_adam_is_stable_below_its_rate_and_not_far_above(name):
    """Against the largest rate of a grid at which no loss of 30 steps is ten times that at the start."""
    net, x, y, loss = drawn(name)
    found = GaussNewton(net, x, y, loss, optimizer="adam").stable_rate().rate

    def rises(rate):
        moved = copy.deepcopy(net)
        losses = train(moved, x, y, loss, Adam(moved.parameters(), rate), 30)
        return not max(losses) < 10 * losses[0] or not math.isfinite(losses[-1])

    rate = next(r for r in (found * 2.0**j for j in range(8, -8, -1)) if not rises(r))
    assert rate / 12 <= found <= rate


def test_the_first_step_of_adam_is_that_of_signs_or_of_its_state():
    net, x, y, loss = drawn("mlp")
    networks, target, adam, leaves = parts(net, x, y, loss, "adam")
    found, value = 6 * longest_step(Whole(networks, target, 4.0), adam, leaves), loss_at(net, x, y, loss)
    gradients = torch.autograd.grad(value, [*net.parameters()])

    def after(rate):
        moved = copy.deepcopy(net)
        with torch.no_grad():
            for p, g in zip(moved.parameters(), gradients, strict=True):
                p -= rate * g.sign()
        return loss_at(moved, x, y, loss).item()

    assert after(found) < 10 * value.item() < after(1.1 * found)
    optimizer = Adam(net.parameters(), 1e-3)
    train(net, x, y, loss, optimizer, 5)
    before = GaussNewton(net, x, y, loss, optimizer=optimizer).stable_rate()
    for state in optimizer.state.values():  # a mean of squares that is large makes the first step short
        state["exp_avg_sq"] *= 1e8
    longest = GaussNewton(net, x, y, loss, optimizer=optimizer).stable_rate().longest
    assert longest == pytest.approx(1e4 * before.longest, rel=0.15)


@pytest.mark.parametrize("dtype", [None, torch.float64])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_after_a_few_real_steps_it_goes_on_from_there(optimizer, dtype):
    (x, y), module, rate = data(), network(), 0.02
    found = GaussNewton(module, x, y, optimizer=optimizer, dtype=dtype).forecast(rate=rate, after=20, steps=60)
    trainer = {"momentum": lambda p: SGD(p, rate, momentum=0.9), "adam": lambda p: Adam(p, rate)}[optimizer]
    trainer = trainer(module.parameters())
    real = train(module, x, y, "mse", trainer, 19)
    assert found.losses[:20].tolist() == pytest.approx(real, rel=1e-10)
    rest = GaussNewton(module, x, y, optimizer=trainer, dtype=dtype).forecast(steps=40)
    assert found.losses[20:].tolist() == pytest.approx(rest.losses.tolist(), rel=1e-9)
    assert found.trusted == 20 + rest.trusted and "the first 20 steps are real" in page(found)


def test_goals_are_reached_unknown_or_out_of_reach():
    (x, y), module = data(), network(last_alone=True)
    found = GaussNewton(module, x, y).forecast(steps=STEPS)
    reached = found.steps_to(float(found.losses[60]))
    assert reached == 60 and found.steps_to(2 * float(found.losses[0])) == 0
    assert found.steps_to(0.5 * float(found.losses[-1])) is None  # not in these steps
    narrow = replace(found, trusted=59)
    assert narrow.steps_to(float(found.losses[60])) is None  # beyond the range
    assert "trusted until step 59; beyond it, unknown" in page(narrow)
    assert "steps 1 to a half of the loss, unknown to a tenth: a tenth is not reached by step 59, the" in page(narrow)


def test_what_no_step_reaches_is_said():
    """Six samples, of which two are equal, with other targets."""
    (x, y), module = data(), network(width=64, last_alone=True)
    x[1] = x[0]
    found = GaussNewton(module, x, y).forecast(rate=0.05, steps=20_000)
    residual = module(x).detach() - y
    lost = (residual[0] - residual[1]).square().sum() / 2 / residual.square().sum()
    assert found.unreachable == pytest.approx(float(lost), rel=1e-8)
    assert found.losses[-1] == pytest.approx(float(lost) * float(found.losses[0]), rel=1e-6)


@pytest.mark.parametrize(("second", "lost"), [([1.0, 0.0, 0.0], 2 / 3), ([0.0, 1.0, 0.0], 0.0)])
def test_what_is_out_of_reach_by_cross_entropy(second, lost):
    """Two samples of three have opposite gradients: nothing moves them if they are equal."""
    module = nn.Linear(3, 2, bias=False).double()
    nn.init.zeros_(module.weight)
    x, y = torch.tensor([[1.0, 0.0, 0.0], second, [0.0, 0.0, 1.0]]).double(), torch.tensor([0, 1, 0])
    assert GaussNewton(module, x, y, "cross_entropy").forecast(steps=1).unreachable == pytest.approx(lost, rel=1e-12)


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_where_there_is_nothing_to_foretell(dtype):
    (x, _), module = data(), network()
    found = GaussNewton(module, x, module(x).detach(), dtype=dtype).forecast(steps=3)  # a perfect fit
    assert found.losses.tolist() == found.upper.tolist() == [0.0] * 4
    assert (found.unreachable, found.trusted) == (0.0, 3)
    with torch.no_grad():
        module[2].bias.copy_(torch.tensor([2000.0, 0.0, 0.0]))  # probabilities of 1 and 0
    g = GaussNewton(module, x, torch.zeros(N).long(), "cross_entropy", dtype=dtype)
    with pytest.raises(ValueError, match="no curvature along any parameter"):
        g.forecast()
    found = g.forecast(rate=0.1, steps=2)
    assert found.losses.tolist() == [0.0] * 3 and found.trusted == 2


@pytest.mark.parametrize("dtype", [None, torch.float32])
def test_the_module_and_the_optimiser_are_left_as_they_are(dtype):
    (x, y), module = data(), network().float()
    optimizer = Adam(module.parameters(), 0.01)
    train(module, x.float(), y.float(), "mse", optimizer, 0)
    optimizer.zero_grad()
    before = copy.deepcopy((module.state_dict(), optimizer.state_dict()["state"]))
    GaussNewton(module, x.float(), y.float(), optimizer=optimizer, dtype=dtype).forecast(rate=0.02, after=3, steps=5)
    torch.testing.assert_close((module.state_dict(), optimizer.state_dict()["state"]), before, rtol=0, atol=0)
    assert all(p.grad is None for p in module.parameters()) and optimizer.param_groups[0]["lr"] == 0.01


def test_a_budget_is_what_real_steps_may_take():
    g = GaussNewton(*drawn("mlp"))
    assert len(g.forecast(budget=1e-9).followed) == 1
    assert len(g.forecast(budget=100.0, steps=45).followed) == 45


@pytest.mark.bad_input
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_what_makes_no_sense_is_refused(dtype):
    (x, y), module = data(), network()
    still, other = SGD(module.parameters(), 0.0), SGD(nn.Linear(1, 1).parameters(), 0.1)
    for options, error, message in (
        ({"optimizer": 0.1}, TypeError, "optimizer is of type float; SGD, Adam"),
        ({"optimizer": still}, ValueError, "optimizer has a learning rate of 0, with which nothing moves; pass rate="),
        ({"optimizer": other}, ValueError, "optimizer has parameters that module"),
        ({"y": None}, ValueError, "y is missing"),
    ):
        with pytest.raises(error, match=message):
            GaussNewton(module, x, **{"y": y, "dtype": dtype, **options}).forecast()
    g = GaussNewton(module, x, y, dtype=dtype)
    for options, message in (
        ({"rate": 0.0}, "rate is 0.0; a positive number"),
        ({"rate": math.nan}, "rate is nan; a positive number"),
        ({"steps": 10.5}, "steps is 10.5; a whole number"),
        ({"after": -1}, "after is -1; a whole number of at least 0"),
        ({"after": 20, "steps": 20}, "steps is 20; a whole number of at least 21"),
        ({"budget": 0.0}, "budget is 0.0; a positive number"),
    ):
        with pytest.raises(ValueError, match=message):
            g.forecast(**options)
    assert GaussNewton(module, x, y, optimizer=still, dtype=dtype).forecast(rate=0.1, steps=2).rate == 0.1
