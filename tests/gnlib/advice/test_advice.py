"""Advice: the changes that are thought of, what they do to a network, their order, and the runs that prove them."""

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam

from gnlib import GaussNewton
from gnlib.advice.advice import Suggestion
from gnlib.advice.candidates import Setting, arguments_of, changed, changes_for
from gnlib.advice.layers import NORMALISATION
from gnlib.advice.runs import Run, Trainer, best_of, loss_on
from gnlib.advice.wrappers import Affine, by_feature, whitened
from tests.gnlib.networks import Whole

GENERATOR = torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def seeded():
    GENERATOR.manual_seed(0)


def random(*shape):
    return torch.randn(shape, generator=GENERATOR)


def setting(module, x, y=None, loss="mse"):
    return Setting(module, [arguments_of(x)], y, loss)


def changes(module, x, y=None, loss="mse"):
    return {change.what: change for change in changes_for(setting(module, x, y, loss))}


def perceptron(inputs=3, outputs=1, hidden=nn.Tanh):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), hidden(), nn.Linear(8, outputs))


def after(module, what, x, y=None, loss="mse"):
    return changed(module, [changes(module, x, y, loss)[what]])


# Inputs


def test_inputs_are_standardised_by_feature_and_a_constant_one_is_moved_only():
    x = random(50, 3) * torch.tensor([1.0, 100.0, 0.0]) + torch.tensor([5.0, 0.0, 7.0])
    z = after(perceptron(), "standardise the inputs, each feature by itself", x).maps["input_0"](x)
    torch.testing.assert_close(z.mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(z.std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]))


@pytest.mark.parametrize(
    "first, shape, axis",
    [(nn.Conv1d(2, 3, 3), (9, 2, 5), 1), (nn.GRU(5, 3), (9, 2, 5), 2), (nn.Flatten(), (9, 2, 5, 4), 1)],
)
def test_a_feature_is_a_channel_for_convolutions_and_images_and_the_last_axis_for_sequences(first, shape, axis):
    module = Whole(lambda self, x: self.first(x), first=first, other=nn.Linear(1, 1))
    x = 3 + random(*shape) * (1 + torch.arange(shape[axis])).view(*(-1 if a == axis else 1 for a in range(len(shape))))
    (what,) = (what for what in changes(module, x) if "each" in what and "standardise" in what)
    z = after(module, what, x).maps["input_0"](x)
    others = [a for a in range(len(shape)) if a != axis]
    torch.testing.assert_close(z.std(others, correction=0), torch.ones(shape[axis]))


def test_whitening_makes_the_second_moment_one_and_leaves_directions_without_spread():
    x = (random(60, 3) @ random(3, 3)).double()
    x = torch.cat([x, x[:, :1] + 2], 1)
    z = whitened(x)(x)
    values = torch.linalg.eigvalsh(z.mT @ z / 60)
    torch.testing.assert_close(values, torch.tensor([0.0, 1, 1, 1]).double(), atol=1e-8, rtol=0)


def test_integers_masks_and_what_is_standardised_already_are_left_alone():
    forward = lambda self, ids, x, mask: self.head((self.embed(ids) + x) * mask)  # noqa: E731
    net = Whole(forward, embed=nn.Embedding(5, 3), head=nn.Linear(3, 1))
    ids, x, mask = torch.randint(5, (20,)), 10 + random(20, 3), torch.ones(20, 1)
    assert list(after(net, "standardise the inputs by one number", (ids, x, mask)).maps) == ["input_1"]
    own = ids, whitened(x)(x), mask
    assert not [what for what in changes(net, own) if "inputs" in what]


# Targets


def test_outputs_of_standardised_targets_have_the_units_of_the_raw_ones():
    net, x, y = (
        perceptron(outputs=2),
        random(40, 3),
        random(40, 2) * torch.tensor([50.0, 0.1]) + torch.tensor([100.0, 0.0]),
    )
    scaled = after(net, "standardise the targets", x, y)
    torch.testing.assert_close(scaled(x), net(x) * y.std(0, correction=0) + y.mean(0))
    constant = after(net, "standardise the targets", x, torch.ones(40, 2))
    torch.testing.assert_close(constant(x), net(x) + 1)


def test_the_bias_begins_with_the_log_odds_of_rare_classes():
    net, x, y = perceptron(outputs=3), random(40, 3), torch.tensor([0] * 30 + [1] * 9 + [2])
    net = after(net, "begin with a bias of the log odds of the classes", x, y, "cross_entropy")
    torch.testing.assert_close(net[2].bias.softmax(0), torch.tensor([31.0, 10.0, 2.0]) / 43)
    balanced = changes(perceptron(outputs=2), x, torch.arange(40) % 2, "cross_entropy")
    assert not any("odds" in what for what in balanced)


# Normalisation and weights


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(x + self.norm(self.b(torch.relu(self.a(x)))))


def test_layers_without_a_normalisation_get_one_inside_blocks_too_and_the_last_one_none():
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), Block(), *head).eval()
    x = random(6, 1, 8, 8)
    (what,) = (what for what in changes(net, x) if what.startswith("add batch"))
    assert what == "add batch normalisation after 0, 2.a"
    new = after(net, what, x)
    for layer in (new[0], new[2].a):  # outputs have mean 0 and variance 1 in each channel of the batch
        seen = []
        layer.register_forward_hook(lambda m, i, out, seen=seen: seen.append(out))
        new(x)
        torch.testing.assert_close(seen[0].var((0, 2, 3), correction=0), torch.ones(4), atol=2e-2, rtol=0)
    assert not hasattr(net[0], NORMALISATION) and len(new.state_dict()) > len(net.state_dict())
    torch.testing.assert_close(changed(new, [])(x), new(x))  # a copy normalises too


def test_recurrent_weights_are_made_orthogonal_gate_by_gate():
    forward = lambda self, x: self.head(self.rnn(x)[0][:, -1])  # noqa: E731
    net = Whole(forward, rnn=nn.GRU(2, 4, batch_first=True), head=nn.Linear(4, 1))
    new = after(net, "orthogonal weights", random(9, 5, 2))
    for gate in new.rnn.weight_hh_l0.split(4):
        torch.testing.assert_close(gate @ gate.mT, torch.eye(4))
    torch.testing.assert_close(new.rnn.weight_ih_l0, net.rnn.weight_ih_l0)


def test_changes_are_made_from_within_outwards_and_a_wrapped_module_gets_no_second_wrapper():
    x, y = 5 + random(30, 3), 100 + random(30, 1)
    found = changes(perceptron(), x, y)
    some = "standardise the inputs by one number", "standardise the targets", "Xavier's weights"
    new = changed(perceptron(), [found[what] for what in some])
    assert [type(m).__name__ for m in (new, new.module, new.module.module)] == ["Prepared", "Scaled", "Sequential"]
    assert not {"inputs", "targets"} & {change.kind for change in changes(new, x, y).values()}


# Runs


def test_runs_are_compared_by_the_steps_to_the_goal_and_those_that_explode_come_last():
    fast, slow, never = (Run(1.0, (1.0, *[0.5] * n, 0.05, *[0.04] * (12 - n))) for n in (2, 5, 11))
    dead, short = Run(1.0, (1.0, math.inf)), Run(1.0, (1.0, 0.01))
    assert best_of([never, slow, dead, fast, short], 0.1) is fast and fast.steps_to(0.1) == 3
    assert not dead.is_sound and not short.is_sound and dead.steps_to(0.1) == math.inf


def test_a_run_takes_the_steps_of_the_optimiser_in_its_groups_for_at_least_ten():
    net, x, y = perceptron(), random(20, 3), random(20, 1)

    def descent(net, rate):
        second = {"params": net[2].parameters(), "lr": rate / 5, "momentum": 0.5}
        return SGD([{"params": net[0].parameters(), "lr": rate}, second])

    groups = {"0.weight": 0, "0.bias": 0, "2.weight": 1, "2.bias": 1}
    batches = [(arguments_of(x[part]), y[part]) for part in (slice(8), slice(8, None))]
    trainer = Trainer(batches, loss_on("mse", None), descent(net, 0.1), groups)
    run = trainer.run(net, 0.2, 1e9, math.inf)
    hand, losses = perceptron(), []
    own = descent(hand, 0.2)
    for _ in range(11):
        loss = (hand(x) - y).square().sum() / 40
        losses.append(loss.item())
        own.zero_grad()
        loss.backward()
        own.step()
    assert run.losses == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(net(x), perceptron()(x))  # of a copy


def test_classes_under_the_squared_error_are_vectors_with_a_one():
    f, y = random(4, 3), torch.tensor([0, 2, 1, 1])
    expected = (f - torch.eye(3)[y]).square().sum() / 8
    assert loss_on("mse", None)(f, y) == expected == loss_on("mse", None)(f, torch.eye(3)[y])


# Advice


def test_features_of_different_scales_and_raw_targets_are_found_and_the_chain_ends():
    torch.manual_seed(0)
    x = random(64, 4) * torch.tensor([1.0, 100.0, 0.01, 1.0]) + torch.tensor([0.0, 300.0, 1.0, 0.0])
    z = by_feature(x, 1)(x)
    y = 150 + 70 * torch.tanh(z[:, :1] + z[:, 1:2] * z[:, 2:3])
    net = perceptron(4, hidden=nn.ReLU)
    g = GaussNewton(net, x, y, optimizer=Adam(net.parameters(), lr=0.01))
    advice = g.advice(budget=30)
    assert "the outputs" in str(advice).splitlines()[0]
    first = advice.suggestions[0]
    assert "standardise the targets" in first.what and "inputs" in first.what
    assert first.run.is_sound and first.gain >= 5
    least = min(s.run.losses[0] for s in (*advice.suggestions,))
    assert first.goal >= 0.1 * min(least, first.before.losses[0]) * (1 - 1e-6)
    new = advice.apply(0)
    loss = (new(x) - y).square().sum() / 128
    assert first.run.losses[0] == pytest.approx(loss.item(), rel=1e-5)
    again = GaussNewton(new, x, y, mode="train", optimizer=Adam(new.parameters(), lr=0.01)).advice(budget=30)
    assert not again.targets and not any("inputs" in what or "targets" in what for what in again.tried)


def test_a_network_that_is_well_prepared_is_left_alone_and_what_had_no_time_is_named():
    x = random(30, 4)
    x = (x - x.mean(0)) / x.std(0)
    q = torch.linalg.qr(x)[0] * 30**0.5
    net = nn.Linear(4, 1)
    advice = GaussNewton(net, q, q @ random(4, 1)).advice(budget=30)
    assert not advice.suggestions and "nothing new" in str(advice) and len(advice.tried) > 1
    with pytest.raises(IndexError, match="There are 0 suggestions"):
        advice.apply(0)
    hurried = GaussNewton(net, 10 + q, q @ random(4, 1)).advice(budget=1e-6)
    assert len(hurried.tried) == 1 and "no time for it" in str(hurried)


def test_a_network_without_a_quadratic_model_whose_units_die_is_advised_all_the_same():
    torch.manual_seed(0)
    x, y = 1e4 * random(30, 3), torch.arange(30) % 3
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    with torch.no_grad():
        x += y[:, None] * 1e4
    advice = GaussNewton(net, x, y, "cross_entropy", optimizer=SGD(net.parameters(), lr=0.1)).advice(budget=30)
    first = advice.suggestions[0]
    assert first.before.least == pytest.approx(math.log(3), rel=1e-2)  # it only learns that all classes are alike
    assert first.gain >= 10 and first.run.least < 0.2
    nothing = Run(0.1, (1.0, math.inf))
    exploded = Suggestion(first.what, first.module, first.run, nothing, 0.2, first.waiting, "SGD")
    assert exploded.gain == math.inf and "where without it 1 do not" in str(exploded)


@pytest.mark.bad_input
def test_advice_needs_targets_and_some_seconds():
    with pytest.raises(ValueError, match="y is missing; a change is tried by training"):
        GaussNewton(nn.Linear(2, 1), random(5, 2)).advice()
    with pytest.raises(ValueError, match="budget is -1; a positive number of seconds"):
        GaussNewton(nn.Linear(2, 1), random(5, 2), random(5, 1)).advice(budget=-1)


def test_what_is_refused_is_named_with_the_reason():
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    advice = GaussNewton(net, random(20, 3), random(20, 1), mode="eval").advice(budget=30)
    (what,) = (what for what in advice.left_out if what.startswith("add batch"))
    assert "drops out in training mode" in advice.left_out[what]


def test_networks_of_tokens_are_advised_by_products():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 9))
    with torch.no_grad():
        net[1].weight.mul_(0.01)
    tokens = torch.randint(9, (8, 5))
    advice = GaussNewton(net, tokens, (tokens + 1) % 9, "cross_entropy", optimizer="adam").advice(budget=60)
    assert advice.suggestions and advice.suggestions[0].gain >= 1.25


def test_affine_maps_take_the_precision_of_what_they_map():
    x = random(5, 3).bfloat16()
    assert Affine(torch.zeros(1, 3), torch.ones(1, 3))(x).dtype == torch.bfloat16
