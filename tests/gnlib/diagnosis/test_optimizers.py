"""Optimisers of torch with all their settings, on models that are linear in what is trained, and their rates."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop, Rprop

import gnlib
from gnlib import GaussNewton
from gnlib.diagnosis import foretell
from gnlib.diagnosis.descent import Rule
from gnlib.diagnosis.preconditioner import FLOOR, optimizer_of, preconditioned_gram, preconditioner_of
from gnlib.diagnosis.rates import StableRate
from gnlib.jacobian.passes import vjp
from gnlib.jacobian.plan import BudgetError
from gnlib.jacobian.trial import networks_of
from tests.gnlib.derivatives import by_name, rows_of
from tests.gnlib.diagnosis.networks import LOSSES, page, train
from tests.gnlib.networks import perceptron

N, K, STEPS, F64 = 8, 3, 150, torch.float64


class Additive(nn.Module):
    """A table of classes, fixed features, and an offset."""

    def __init__(self):
        super().__init__()
        self.table, self.features, self.offset = nn.Embedding(4, K), nn.Linear(5, K), nn.Parameter(torch.ones(K))

    def forward(self, x):
        return self.table(x[:, 0].abs().mul(2).long() % 4) + self.features(x.sin()) + 2 * self.offset

    def parts(self):
        return [self.table.parameters(), self.features.parameters(), [self.offset]]


class Reservoir(nn.Module):
    """A frozen recurrent network with heads on its last state, on its mean, and on the input."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.RNN(1, 6, batch_first=True).requires_grad_(False)
        self.heads = nn.ModuleList([nn.Linear(6, K), nn.Linear(6, K, bias=False), nn.Linear(5, K, bias=False)])

    def forward(self, x):
        states = self.frozen(x[..., None])[0]
        inputs = states[:, -1], states.mean(1), x
        return sum(head(each) for head, each in zip(self.heads, inputs, strict=True))

    def parts(self):
        return [head.parameters() for head in self.heads]


def problem(kind="mse", make=Additive):
    torch.manual_seed(3)
    module, x, y = make().double(), torch.randn(N, 5).double(), torch.randn(N, K).double()
    return module, x, y if kind == "mse" else y.argmax(1)


def groups_of(module, *settings):
    return [{"params": [*own], **setting} for own, setting in zip(module.parts(), settings, strict=True)]


LINEAR = {
    "decay": lambda m: SGD(m.parameters(), 0.05, weight_decay=0.3),
    "momentum and decay": lambda m: SGD(m.parameters(), 0.02, momentum=0.9, weight_decay=0.05),
    "Nesterov and decay": lambda m: SGD(m.parameters(), 0.02, momentum=0.8, nesterov=True, weight_decay=0.2),
    "dampening": lambda m: SGD(m.parameters(), 0.1, momentum=0.9, dampening=0.6),
    "dampening and decay": lambda m: SGD(m.parameters(), 0.1, momentum=0.7, dampening=0.9, weight_decay=0.1),
    "dampening without momentum": lambda m: SGD(m.parameters(), 0.05, dampening=0.9),
    "rates": lambda m: SGD(groups_of(m, {"lr": 0.1}, {"lr": 0.003}, {"lr": 0.03})),
    "rates with momentum": lambda m: SGD(groups_of(m, {"lr": 0.01}, {"lr": 0.03}, {"lr": 0.001}), momentum=0.9),
    "no decay of one": lambda m: SGD(
        groups_of(m, {"weight_decay": 0.0}, {"weight_decay": 0.4}, {"weight_decay": 0.0}), 0.03, momentum=0.9
    ),
    "Nesterov in one": lambda m: SGD(
        groups_of(m, {"nesterov": True}, {"momentum": 0.5}, {"momentum": 0.0, "lr": 0.1}), 0.02, momentum=0.9
    ),
    "all at once": lambda m: SGD(
        groups_of(
            m,
            {"lr": 0.05, "weight_decay": 0.1},
            {"lr": 0.01, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.02},
            {"lr": 0.02, "momentum": 0.8, "nesterov": True},
        )
    ),
    "parts that stand still": lambda m: SGD(groups_of(m, {"lr": 0.0}, {"lr": 0.05}, {})[:2], momentum=0.5),
}


def linear(name):
    return (Additive, Reservoir)[[*LINEAR].index(name) % 2]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, F64])
@pytest.mark.parametrize("taken", [0, 4])
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("name", LINEAR)
def test_what_is_linear_is_foretold_exactly(name, kind, taken, dtype):
    module, x, y = problem(kind, linear(name))
    optimizer = LINEAR[name](module)
    train(module, x, y, kind, optimizer, taken - 1)
    found = GaussNewton(module, x, y, kind, optimizer=optimizer, dtype=dtype).forecast(steps=STEPS, budget=100.0)
    real = train(module, x, y, kind, optimizer, STEPS)
    assert found.losses.tolist() == pytest.approx(real, rel=1e-9 if torch.equal(found.lower, found.upper) else 1e-6)
    assert found.followed.tolist() == pytest.approx(real[1:], rel=1e-9)
    assert found.trusted == STEPS and found.left_out == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(LINEAR) - {"parts that stand still"}))
def test_below_the_largest_stable_rate_it_settles_and_above_it_explodes(name):
    module, x, y = problem(make=linear(name))
    optimizer = LINEAR[name](module)
    g, products = (GaussNewton(module, x, y, optimizer=optimizer, dtype=dtype) for dtype in (None, F64))
    rate = g.stable_rate().rate
    assert g.forecast(steps=1).stable_rate == pytest.approx(rate, rel=1e-6)
    assert products.forecast(steps=1).stable_rate == pytest.approx(rate, rel=2e-3)
    for factor, stable in ((0.95, True), (1.05, False)):
        moved = copy.deepcopy(module)
        trainer = LINEAR[name](moved)
        for group in trainer.param_groups:
            group["lr"] *= factor * rate / optimizer.param_groups[0]["lr"]
        losses = train(moved, x, y, "mse", trainer, 799)
        assert (max(losses[-100:]) < 10 * losses[0]) == stable
        found = g.forecast(rate=factor * rate, steps=799)
        assert found.diverges != stable and ("it diverges; take a rate below" in page(found)) != stable
    found = g.forecast(rate=1e3 * rate, steps=1000)
    assert len(found.losses) == 1001 and found.losses[-1] == float("inf")


ADAPTIVE = {
    "AdamW": lambda m: AdamW(
        groups_of(
            m,
            {"lr": 0.02, "weight_decay": 0.0},
            {"lr": 0.01, "weight_decay": 3.0, "eps": 0.1},
            {"lr": 0.005, "betas": (0.5, 0.9), "weight_decay": 1.0},
        )
    ),
    "AMSGrad": lambda m: Adam(m.parameters(), 0.01, betas=(0.7, 0.95), amsgrad=True),
    "RMSprop": lambda m: RMSprop(groups_of(m, {"lr": 0.002}, {"eps": 0.2}, {}), 0.001),
    "RMSprop with momentum": lambda m: RMSprop(m.parameters(), 0.001, momentum=0.5, centered=True),
}


def divisor_and_mean(optimizer, group, p):
    """By what an optimiser divides the gradient of a parameter after its steps, and the mean that it keeps of it."""
    state = optimizer.state[p]
    if isinstance(optimizer, RMSprop):
        squares = state["square_avg"] - (state["grad_avg"].square() if group["centered"] else 0)
        divisor = squares.sqrt() + group["eps"]
        return divisor, divisor * state.get("momentum_buffer", torch.zeros_like(p))
    squares = state["max_exp_avg_sq"] if group["amsgrad"] else state["exp_avg_sq"]
    return (squares / (1 - group["betas"][1] ** int(state["step"]))).sqrt() + group["eps"], state["exp_avg"].clone()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, F64])
@pytest.mark.parametrize("taken", [0, 5])
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("name", ADAPTIVE)
def test_with_its_denominators_held_an_adaptive_optimiser_is_foretold_exactly(name, kind, taken, dtype, monkeypatch):
    """A literal loop over groups, with the denominators of its state (or those of a fresh one), and its corrections."""
    monkeypatch.setattr(foretell, "PATIENCE", 1e3)  # whatever else takes the time
    module, x, y = problem(kind)
    optimizer = ADAPTIVE[name](module)
    train(module, x, y, kind, optimizer, taken - 1)
    g = GaussNewton(module, x, y, kind, optimizer=optimizer)
    found = GaussNewton(module, x, y, kind, optimizer=optimizer, dtype=dtype).forecast(steps=STEPS)
    assert found.stable_rate == pytest.approx(g.stable_rate().rate, rel=2e-3 if dtype else 1e-6)
    assert found.trusted <= len(found.followed) == 30  # for the denominators of real steps change
    names, fresh = {p: n for n, p in module.named_parameters()}, fresh_factors(optimizer, module, x, y, kind)
    held = []
    for group in optimizer.param_groups:
        b, averaged = group.get("momentum", 0) or group.get("betas", (0,))[0], "betas" in group
        for p in group["params"]:
            start = divisor_and_mean(optimizer, group, p) if taken else (1 / fresh[names[p]], torch.zeros_like(p))
            held.append((p, group["lr"], group["weight_decay"], b, averaged, *start))
    losses = []
    for step in range(taken + 1, taken + STEPS + 2):
        loss = LOSSES[kind](module(x), y)
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, [p for p, *_ in held])
        with torch.no_grad():
            for (p, rate, decay, b, averaged, divisor, mean), gradient in zip(held, gradients, strict=True):
                mean.mul_(b).add_((1 - b if averaged else 1) * gradient)
                p.mul_(1 - rate * decay).sub_(rate * mean / (1 - b**step if averaged else 1) / divisor)
    assert found.losses.tolist() == pytest.approx(losses, rel=1e-9 if torch.equal(found.lower, found.upper) else 1e-6)
    assert found.decay == pytest.approx(1 - (1 - 0.01 * 3.0) ** STEPS if name == "AdamW" else 0)


def fresh_factors(optimizer, module, x, y=None, kind="mse"):
    """The factors that an optimiser has: those of its state, or what stands in for them at its first step."""
    networks = networks_of(module, x)
    leaves = {name: p.detach().clone() for name, p in module.named_parameters()}
    f = module(x).detach().requires_grad_()
    loss = LOSSES[kind](f, torch.zeros_like(f) if y is None else y)
    gradient = vjp(networks, 4.0)(len(x) * torch.autograd.grad(loss, f)[0])
    made = optimizer_of(optimizer, networks[0], leaves, 0.1)
    return preconditioner_of(made, networks, leaves, gradient, 4.0).factors


def test_without_a_state_it_is_the_root_of_the_diagonal_of_the_size_of_the_gradient():
    """With the eps of each group."""
    module, x = perceptron(3, 2, width=7).double(), torch.randn(5, 3).double()
    with torch.no_grad():
        module[0].weight[0] *= 1e3  # a unit that is saturated, with derivatives far below the floor
    groups = [{"params": module[0].parameters(), "eps": 0.3}, {"params": module[2].parameters()}]
    found = fresh_factors(Adam(groups), module, x)
    whole = rows_of(module, x).square().sum(0) / len(x)
    assert whole.min() < FLOOR**2 * whole.mean()
    p = whole.clamp_min(FLOOR**2 * whole.mean()).sqrt()
    f = module(x)
    g = torch.cat([g.flatten() for g in torch.autograd.grad(f.square().sum() / 10, [*module.parameters()])])
    eps = torch.tensor([0.3] * 28 + [1e-8] * 16).double()
    torch.testing.assert_close(torch.cat([f.flatten() for f in found.values()]), 1 / (p * g.norm() / p.norm() + eps))


def test_the_preconditioned_matrix_is_what_it_says_in_many_blocks():
    module, x, _ = problem()
    networks = networks_of(module, x)
    factors = {name: torch.rand_like(p) + 0.1 for name, p in networks[0].parameters.items()}
    expected = sum(j * factors[name].flatten() @ j.mT for name, j in by_name(module, x).items()) / len(x)
    torch.testing.assert_close(preconditioned_gram(networks, factors, 1e-3), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", [Adam, RMSprop, AdamW])
def test_the_matrix_is_scaled_by_the_state(make):
    net, x, y = problem()
    optimizer = make(net.parameters(), 1e-3)
    train(net, x, y, "mse", optimizer, 2)
    blocks, total = by_name(net, x), 0.0
    for name, p in net.named_parameters():
        divisor, _ = divisor_and_mean(optimizer, optimizer.param_groups[0], p)
        total = total + blocks[name] / divisor.flatten() @ blocks[name].mT / len(x)
    found = GaussNewton(net, x, optimizer=optimizer).stable_rate()
    damping = 19 * 1e-2 if make is AdamW else 0  # the curvature that its weight decay stands for
    assert found.largest == pytest.approx(torch.linalg.eigvalsh(total)[-1].item() + damping, rel=1e-10)
    assert found.rate * found.largest == pytest.approx(2 if make is RMSprop else 38)  # momentum 0.9, averaged
    some = GaussNewton(net, x, optimizer=SGD([net.offset], 0.1)).stable_rate().largest  # what it leaves out stays out
    assert some == pytest.approx(torch.linalg.eigvalsh(blocks["offset"] @ blocks["offset"].mT / len(x))[-1].item())


@pytest.mark.parametrize("after_step", [0, 3])
def test_a_scheduler_that_begins_at_nothing_has_its_rate_to_come(after_step):
    module, x, y = problem()
    optimizer = SGD(module.parameters(), 0.04)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 8, 1))
    for _ in range(after_step):
        optimizer.step()
        scheduler.step()
    found = GaussNewton(module, x, y, optimizer=optimizer).forecast(steps=20)
    assert found.rate == pytest.approx(0.04 * (after_step / 8 or 1))
    assert "left out the scheduler: the rate is held" in page(found)
    same = GaussNewton(module, x, y, optimizer=SGD(module.parameters(), found.rate)).forecast(steps=20)
    assert torch.equal(found.losses, same.losses)


def test_rates_keep_their_proportion():
    module, x, y = problem()
    optimizer = SGD(groups_of(module, {"lr": 0.1}, {"lr": 0.02}, {"lr": 0.05}))
    found = GaussNewton(module, x, y, optimizer=optimizer).forecast(rate=0.05, steps=30)
    halved = SGD(groups_of(module, {"lr": 0.05}, {"lr": 0.01}, {"lr": 0.025}))
    assert found.losses.tolist() == pytest.approx(train(module, x, y, "mse", halved, 30), rel=1e-10)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda p: Adam(p, 1e-3, weight_decay=0.1), "the weight decay, which comes to gradients before"),
        (lambda p: RMSprop(p, 1e-3, weight_decay=0.1), "the weight decay, which comes to gradients before"),
        (lambda p: RMSprop(p, 1e-3, centered=True), "that it is centred"),
    ],
)
def test_what_is_left_out_is_said(make, what):
    module, x, y = problem()
    found = GaussNewton(module, x, y, optimizer=make(module.parameters())).forecast(steps=5)
    assert f"left out {what}" in page(found)


def test_a_report_goes_on_without_an_optimiser_that_is_not_followed():
    module, x, y = problem()
    found, plain = (
        gnlib.report(module, x, y, optimizer=optimizer, budget=1e-3) for optimizer in (Rprop(module.parameters()), None)
    )
    assert "found Rprop is not followed: all lines are of gradient descent" in page(found)
    assert torch.equal(found.forecast.losses, plain.forecast.losses) and len(found.rates) == 2


def test_the_matrices_of_many_groups_are_counted_before_they_are_made():
    """Each kind of group has a matrix of its own, beside which the next is made."""
    module, x = perceptron(5, 40, width=9), torch.randn(30, 5)
    optimizer = SGD([{"params": [p], "momentum": 0.1 * i} for i, p in enumerate(module.parameters())], 0.01)
    one = 8 * (30 * 40) ** 2 / 2**30
    with pytest.raises(BudgetError, match="of an optimiser that has 4 kinds of groups") as refused:
        GaussNewton(module, x, memory=5 * one, optimizer=optimizer).stable_rate()
    assert 5 * one < refused.value.needed < 12 * one
    enough = GaussNewton(module, x, memory=1.1 * refused.value.needed, optimizer=optimizer).stable_rate()
    assert enough.rate == pytest.approx(GaussNewton(module, x, optimizer=optimizer).stable_rate().rate)


def test_what_is_left_of_the_slowest_direction_has_no_sign():
    assert StableRate("", 4.0, lambda: 1.0, Rule(1.0)).left(100) == pytest.approx(0.75**100)
    assert StableRate("", 4.0, lambda: 1.0, Rule(1.0)).left(3, rate=0.1) == pytest.approx(0.9**3)
    momentum = StableRate(optimizer="", largest=1.0, find_smallest=lambda: 0.1, rule=Rule(1.0, 0.9))  # at 3.8 / 2
    companion = torch.tensor([[1.9 - 0.19, -0.9], [1.0, 0.0]], dtype=torch.float64)
    course = [(torch.linalg.matrix_power(companion, t) @ torch.ones(2).double())[0].item() for t in range(20)]
    assert min(course) < -0.1
    assert [momentum.left(t) for t in range(20)] == pytest.approx([abs(left) for left in course])


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("optimizer", [None, "momentum"])
def test_a_matrix_that_does_not_fit_is_not_made(loss, optimizer):
    """One eigenvalue is enough, and products with vectors have it."""
    net, x = perceptron(5, 40, width=9), torch.randn(30, 5)
    y = torch.randint(40, (30,)) if loss == "cross_entropy" else None
    little, enough = (GaussNewton(net, x, y, loss, memory=memory, optimizer=optimizer) for memory in (0.01, 4.0))
    assert little.stable_rate().rate == pytest.approx(enough.stable_rate().rate, rel=1e-7)
    for ask in (little.condition_number, little.stable_rate().left):
        with pytest.raises(ValueError, match=r"memory is 0\.01 GiB but 0\.0\d+ are needed"):
            ask()


def test_what_has_no_matrix_in_double_precision_has_a_rate():
    """Of outputs times 1e-160 the Gram matrix is zero, the singular values are not."""
    net, x = nn.Linear(3, 1, bias=False).double(), torch.diag(torch.tensor([3.0, 2.0, 1.0])).double()
    rate = GaussNewton(net, x, output=lambda y: y * 1e-152).stable_rate()
    assert rate.largest == pytest.approx(3e-304)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: "newton", "'sgd', 'momentum', 'adam'"),
        (lambda p: Adagrad(p), "optimizer is of type Adagrad; SGD, Adam"),
        (lambda p: Adam(p, maximize=True), "maximize=True; pass one that goes down"),
        (lambda p: Adam(p), "of type Adam, has taken no step and has no state"),
    ],
)
def test_what_cannot_be_followed_is_refused(make, message):
    module, x, _ = problem()
    with pytest.raises((TypeError, ValueError), match=message):
        GaussNewton(module, x, optimizer=make(module.parameters())).stable_rate()
