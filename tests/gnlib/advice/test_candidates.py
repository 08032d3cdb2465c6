"""The changes that advice thinks of, and what they do to a network."""

import pytest
import torch
from torch import nn

from gnlib.advice.branches import ends_of_branches
from gnlib.advice.candidates import Setting, arguments_of, changed, changes_for
from gnlib.advice.layers import NORMALISATION
from gnlib.advice.wrappers import by_feature, by_one_number, whitened
from tests.gnlib.networks import Whole, perceptron, recurrent

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
    offered = (
        "standardise the targets" in changes(net, x, by_feature(y, 1)(y)),
        "standardise the targets" in changes(net, x, y),
    )
    assert offered == (False, True)


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
    assert what == "add batch normalisation after 0 (Conv2d), 2.a (Conv2d)"
    new = after(net, what, x)
    for layer in (new[0], new[2].a):  # outputs have mean 0 and variance 1 in each channel of the batch
        seen = []
        layer.register_forward_hook(lambda m, i, out, seen=seen: seen.append(out))
        new(x)
        torch.testing.assert_close(seen[0].var((0, 2, 3), correction=0), torch.ones(4), atol=2e-2, rtol=0)
    assert not hasattr(net[0], NORMALISATION) and len(new.state_dict()) > len(net.state_dict())
    torch.testing.assert_close(changed(new, [])(x), new(x))  # a copy normalises too


def test_recurrent_weights_are_made_orthogonal_gate_by_gate():
    net = recurrent(nn.GRU(2, 4, batch_first=True), 1)
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


def test_names_of_many_layers_are_counted_from_the_first_to_the_last():
    layers = [layer for i in range(6) for layer in (nn.Linear(3, 3), nn.Tanh())]
    what = next(what for what in changes(nn.Sequential(*layers, nn.Linear(3, 1)), random(9, 3)) if "add" in what)
    assert what == "add batch normalisation after 6 hidden layers, 0 (Linear) to 10 (Linear)"


def test_weights_of_the_size_that_a_network_has_are_not_drawn_again():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 1)), random(9, 30)
    again = "the weights that torch draws", "Kaiming's weights"
    assert {*again} & changes(net, x).keys() == {again[1]}
    for layer in net[::2]:
        nn.init.kaiming_normal_(layer.weight)
    assert {*again} & changes(net, x).keys() == {again[0]}


def test_weights_that_are_orthogonal_are_made_so_again_only_at_another_size():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 20)), random(9, 30)
    offered = []
    for gain in (2**0.5, 1.0):
        for layer in net[::2]:
            nn.init.orthogonal_(layer.weight, gain)
        offered.append("orthogonal weights" in changes(net, x))
    assert offered == [False, True]


def test_attention_is_drawn_again_projection_by_projection():
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(0.01)
    found = changes(net, random(5, 7, 16))
    assert "the weights that torch draws" in found
    new = changed(net, [found["orthogonal weights"]])
    for part in (*new.self_attn.in_proj_weight.chunk(3), new.self_attn.out_proj.weight):
        torch.testing.assert_close(part @ part.mT, 2 * torch.eye(16), atol=1e-4, rtol=0)
    fresh = changed(net, [found["the weights that torch draws"]])
    assert fresh.self_attn.in_proj_weight.std().item() == pytest.approx((2 / (16 + 48)) ** 0.5, rel=0.1)


# Layers of other libraries, and branches


class Turned(nn.Module):
    """A linear map with the weight the other way round."""

    def __init__(self, nx, nf):
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.02 * random(nx, nf)), nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return x @ self.weight + self.bias


Turned.__name__ = "Conv1D"  # as in transformers


@pytest.mark.parametrize(
    "what, spread", [("Kaiming's weights", (2 / 30) ** 0.5), ("the weights that torch draws", 90**-0.5)]
)
def test_linear_maps_of_other_libraries_are_drawn_by_what_goes_in_and_normalised(what, spread):
    net, x = nn.Sequential(Turned(30, 400), nn.ReLU(), Turned(400, 2)), random(9, 30)
    assert after(net, what, x)[0].weight.std().item() == pytest.approx(spread, rel=0.05)
    (batch,) = (change for change in changes(net, x) if change.startswith("add batch"))
    assert batch == "add batch normalisation after 0 (Conv1D)"
    assert not after(net, "zero weights in 2 (Conv1D)", x)(x).any()


def test_branches_end_where_they_are_added_and_begin_as_zero_or_over_the_root_of_their_number():
    torch.manual_seed(0)
    add, last = lambda self, x: x + self.branch(x), nn.Dropout(0.0)
    plain = Whole(add, branch=nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), last))
    normed = Whole(add, branch=nn.Sequential(nn.Linear(4, 4, bias=False), nn.LayerNorm(4)))
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, norm_first=True)
    net, x = nn.Sequential(plain, normed, layer, nn.Linear(4, 1)), random(5, 3, 4)
    ends = ends_of_branches(net, lambda m: m(x))
    assert ends == ["0.branch.2", "1.branch.1", "2.self_attn.out_proj", "2.linear2"]
    torch.testing.assert_close(after(net, "zero weights at the end of 4 branches", x)[:3](x), x)
    halved = after(net, "4 branches divided by the root of their number", x)
    torch.testing.assert_close(halved[0](x) - x, (plain(x) - x) / 2)
    assert not ends_of_branches(perceptron(), lambda m: m(random(5, 3)))


def test_what_goes_past_a_branch_is_not_its_end_also_where_it_has_just_left_a_layer_or_a_normalisation():
    first, last = nn.Linear(4, 4), nn.Linear(4, 1)
    for norm_first in (True, False):
        kind = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
        net = nn.Sequential(first, *(nn.TransformerEncoderLayer(4, 2, 8, **kind) for _ in range(2)), last)
        expected = [f"{i}.{name}" for i in (1, 2) for name in ("self_attn.out_proj", "linear2")]
        for mode in (True, False):
            assert ends_of_branches(net.train(mode), lambda m: m(random(5, 3, 4))) == expected
    gelu = Whole(lambda self, x: (f := self.layer(x)) + 0.044715 * f.pow(3), layer=nn.Linear(4, 4))
    down = Whole(lambda self, x: self.past(x) + self.layer(x), past=nn.Linear(4, 4), layer=nn.Linear(4, 4))
    for net in (nn.Sequential(gelu, last), nn.Sequential(down, last)):  # neither is a branch past which x goes
        assert not ends_of_branches(net, lambda m: m(random(5, 4)))


# Bad input


def test_constant_features_and_targets_are_moved_and_never_divided():
    x = torch.cat([random(20, 2), torch.full((20, 1), 7.0)], 1)
    for way in (by_feature(x, 1), by_one_number(torch.full((20, 1), 7.0)), whitened(x)):
        assert way(x[:, : way.mean.shape[-1]]).isfinite().all()
    net, y = perceptron(), torch.full((20, 1), 3.0)
    torch.testing.assert_close(after(net, "standardise the targets", x, y)(x), net(x) + 3)


@pytest.mark.parametrize(
    "batch, why",
    [
        ({"ids": torch.arange(6).view(6, 1)}, "no real numbers"),
        ({"x": torch.ones(6, 2), "mask": torch.tensor([[0.0, 1.0]] * 6)}, "as in a mask"),
        ({"x": torch.ones(6, 2), "mask": torch.tensor([[0.0, -torch.inf]] * 6)}, "as in a mask"),
        ({"x": torch.ones(6, 2), "length": torch.arange(6.0)}, "one number for each sample"),
        ({"x": torch.ones(6, 2), "length": torch.arange(6)}, "no real numbers"),
        ({"x": torch.ones(6, 2), "keep": torch.ones(6, 2).bool()}, "no real numbers"),
    ],
)
def test_tokens_masks_and_lengths_are_left_alone_and_named(batch, why):
    blind = Whole(lambda self, **given: self.head(torch.ones(6, 1)), head=nn.Linear(1, 1))  # whatever it is given
    found = Setting(blind, [batch], None, "mse")
    (key,) = (key for key in batch if key != "x")
    name = "standardise the inputs" if len(batch) == 1 else f"standardise input {key!r}"
    assert why in found.left_out()[name] and key not in found.inputs


@pytest.mark.parametrize(
    "loss, named", [(nn.PoissonNLLLoss(), "PoissonNLLLoss"), (lambda f, y: (f - y).abs().mean(), "<lambda>")]
)
def test_losses_that_do_not_scale_with_the_targets_are_named(loss, named):
    x, y = random(20, 3), 100 + random(20, 1)
    assert "standardise the targets" not in changes(perceptron(), x, y, loss)
    assert f"the loss is {named}" in setting(perceptron(), x, y, loss).left_out()["standardise the targets"]
    assert "standardise the targets" in changes(perceptron(), x, y, nn.MSELoss())


def test_what_has_no_place_is_named():
    x = random(9, 5, 2)
    found = setting(recurrent(nn.GRU(2, 4, batch_first=True), 1), x).left_out()
    assert found.keys() == {"whiten the inputs", "a normalisation", "Kaiming's and Xavier's weights"}
    assert not setting(perceptron(), random(20, 3)).left_out()
