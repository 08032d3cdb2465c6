"""What is planted in networks is found in all of them, and nothing else."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from gnlib import GaussNewton
from tests.gnlib.networks import Whole

SEEDS = range(8)
OFF = -100.0  # a bias that no input makes up for


def planted(seed):
    """Networks of two kinds by turns, and 12 samples."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    if seed % 2:
        layers = nn.Conv2d(1, 12, 3), nn.ReLU(), nn.Conv2d(12, 8, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 9, 4)
    else:
        layers = nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 4)
    net = nn.Sequential(*layers).double()
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.bias.uniform_(0.2, 0.5, generator=generator)  # so that hardly a unit is dead by chance
    shape = (12, 1, 6, 6) if seed % 2 else (12, 6)
    return net, torch.randn(shape, generator=generator, dtype=torch.float64), generator


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_and_nearly_equal_samples_are_found(seed):
    net, x, generator = planted(seed)
    assert GaussNewton(net, x).culprits().equal_samples == ()
    first, second = sorted(torch.randperm(12, generator=generator)[:2].tolist())
    for noise in (0.0, 1e-3):
        x[second] = x[first] + noise * torch.randn(x[first].shape, generator=generator, dtype=torch.float64)
        found = GaussNewton(net, x).culprits()
        (pair,) = found.equal_samples
        assert (pair.first, pair.second, pair.equal) == (first, second, not noise)
        assert 1e-5 < pair.distance < 1e-2 if noise else pair.distance == 0.0
        how = "near each other" if noise else "equal: drop one of them"
        assert f"samples {first} and {second} are {how}" in str(found) and ("keep both" in str(found)) == bool(noise)
        assert {i for i, _ in found.samples[:2]} == {first, second}
        assert noise or sum(share for _, share in found.samples[:2]) > 0.99


@pytest.mark.parametrize("seed", SEEDS)
def test_outputs_that_are_constant_unmoved_or_equal_are_found(seed):
    net, x, generator = planted(seed)
    assert GaussNewton(net, x).culprits().constant_outputs == ()
    a, b = sorted(torch.randperm(4, generator=generator)[:2].tolist())
    mask = (torch.arange(4) != a).double()
    found = GaussNewton(net, x, output=lambda y: y * mask).culprits()
    assert found.unmoved_outputs == (a,) and f"output {a} reacts to no parameter" in str(found)
    assert found.outputs[0][0] == a and found.outputs[0][1] > 0.99
    found = GaussNewton(net, x, output=lambda y: torch.stack([y[:, b if i == a else i] for i in range(4)], 1))
    assert [(pair.first, pair.second, pair.distance) for pair in found.culprits().equal_outputs] == [(a, b, 0.0)]
    with torch.no_grad():
        net[-1].weight[a] = 0
    found = GaussNewton(net, x).culprits()
    assert found.constant_outputs == (a,) and found.unmoved_outputs == ()
    assert f"output {a} is the same for all samples" in str(found)


def test_texts_that_differ_are_kept_and_equal_ones_dropped():
    torch.manual_seed(8)
    net = Whole(
        lambda self, ids: self.head(self.embed(ids).mean(1).tanh()), embed=nn.Embedding(9, 4), head=nn.Linear(4, 2)
    )
    texts = torch.tensor([[1, 2, 3], [3, 2, 1], [4, 5, 6], [4, 5, 6], [7, 8, 0], [2, 2, 4]])
    found = GaussNewton(net, texts).culprits()
    equal, alike = found.equal_samples  # equal ones first, so that no number of others hides them
    assert (equal.first, equal.second, equal.equal, alike.first, alike.second, alike.equal) == (2, 3, True, 0, 1, False)
    assert "the network does not tell 0 and 1 apart yet: their inputs differ: keep both" in str(found)


@pytest.mark.parametrize("kind", ["batches", "dict", "signed zero"])
def test_equal_inputs_are_equal_however_they_are_passed(kind):
    torch.manual_seed(10)
    x = torch.randn(6, 3).double()
    x[4], x[1, 0] = x[1], 0.0
    x[4, 0] = -0.0 if kind == "signed zero" else 0.0
    net = nn.Bilinear(3, 2, 2) if kind == "dict" else nn.Linear(3, 2)
    given = {"batches": [x[:2], x[2:]], "dict": {"input1": x, "input2": x[:, :2]}}.get(kind, x)
    pairs = GaussNewton(net, given).culprits().equal_samples
    assert [(pair.first, pair.second, pair.equal) for pair in pairs] == [(1, 4, True)]


class Transposed(nn.Linear):
    """The rows of the weight are no units of the result."""

    def forward(self, x):
        return x @ self.weight


def checkpointed():
    part = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4))
    forward = lambda self, x: self.head(checkpoint(self.part, x, use_reentrant=False))  # noqa: E731
    return Whole(forward, part=part, head=nn.Linear(4, 2))


def twice():
    """A layer that is called twice: its units are alive if one of the calls reaches an output."""
    forward = lambda self, x: self.head(self.layer(self.layer(x).relu() - 1).relu()[:, :3])  # noqa: E731
    return Whole(forward, layer=nn.Linear(4, 4), head=nn.Linear(3, 2))


def chain(first, width=5, between=nn.ReLU, inputs=4):
    return nn.Sequential(first(inputs, width), between(), nn.Linear(width, 3))


def starved():
    """Layers without biases behind units that are all zero: no gradient by their weights, and yet none is dead."""
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6, bias=False), nn.Sigmoid(), nn.Linear(6, 3))
    net[0].requires_grad_(False)
    return net


NETWORKS = {  # with the number of the units that are switched off
    "transposed": (lambda: chain(Transposed, 4), (4,), []),
    "weight norm": (lambda: chain(lambda i, o: parametrizations.weight_norm(nn.Linear(i, o))), (4,), [1, 4]),
    "in place": (lambda: chain(nn.Linear, between=lambda: nn.ReLU(inplace=True)), (4,), [1, 4]),
    "checkpoint": (checkpointed, (4,), [1, 4]),
    "twice": (twice, (4,), [1]),
    "starved": (starved, (4,), range(5)),
    "groups": (
        lambda: nn.Sequential(nn.Conv2d(2, 6, 2, groups=2), nn.ReLU6(), nn.Flatten(), nn.Linear(24, 3)),
        (2, 3, 3),
        [1, 4],
    ),
    "batch normalisation": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)),
        (4,),
        [1, 4],
    ),
}


def units_without_effect(net, x):
    """By a backward pass for each output on each sample, from copies of what layers return."""
    probes, reached = [], {}

    def hook(layer, inputs, result):
        probes.append((names[layer], -1 if isinstance(layer, nn.Linear) else 1, torch.zeros_like(result)))
        return result + probes[-1][2].requires_grad_()

    kinds = nn.Linear | nn.Conv2d
    layers = {name: layer for name, layer in net.named_modules() if isinstance(layer, kinds)}
    layers = {name: layer for name, layer in layers.items() if any(p.requires_grad for p in layer.parameters())}
    names = {layer: name for name, layer in layers.items()}
    handles = [layer.register_forward_hook(hook) for layer in names]
    y, options = net(x), dict(retain_graph=True, allow_unused=True, materialize_grads=True)
    known = [*probes]  # a checkpoint calls its part again
    for entry in y.flatten():
        gradients = torch.autograd.grad(entry, [probe for *_, probe in known], **options)
        for (name, axis, _), g in zip(known, gradients, strict=True):
            reached[name] = reached.get(name, 0) + g.movedim(axis, 0).flatten(1).abs().sum(1)
    for handle in handles:
        handle.remove()
    return {name: tuple((r == 0).nonzero()[:, 0].tolist()) for name, r in reached.items() if (r == 0).any()}


@pytest.mark.parametrize("kind", NETWORKS)
def test_units_that_no_output_reacts_to(kind):
    torch.manual_seed(3)
    make, shape, off = NETWORKS[kind]
    net = make().double()
    layer = next(m for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d))
    with torch.no_grad():
        (net[1] if kind == "batch normalisation" else layer).bias[off] = OFF
    x, mode = torch.randn(6, *shape, dtype=torch.float64), "train" if kind == "batch normalisation" else None
    found = GaussNewton(net, x, mode=mode).culprits()
    assert found.dead_units == units_without_effect(net, x)
    assert found.waiting is None
    if off == [1, 4]:
        assert {1, 4} <= {*found.dead_units[next(iter(found.dead_units))]}


def zero(layer):
    for p in layer.parameters(recurse=False):
        nn.init.zeros_(p)
    return layer


def modulated():
    """A branch whose gate is made by a layer of zeros (adaLN-zero)."""
    parts = dict(inner=nn.Linear(4, 4), gate=zero(nn.Linear(4, 4)), head=nn.Linear(4, 2))
    return Whole(lambda self, x: self.head(x + self.gate(x) * self.inner(x).tanh()), **parts)


def rezero():
    scale = nn.Parameter(torch.zeros(1))
    return Whole(lambda self, x: x + self.branch(x) * self.scale, branch=nn.Linear(4, 4), scale=scale)


WAITING = {
    "head": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.GELU(), zero(nn.Linear(5, 2))),
        "no output reacts to anything before 4 yet: normal for a layer of zeros",
    ),
    "rezero": (
        lambda: nn.Sequential(nn.Linear(4, 4), rezero(), nn.Linear(4, 2)),
        "no output reacts to 1.branch yet: normal behind the zeros in 1: ",
    ),
    "norm": (
        lambda: nn.Sequential(nn.Linear(4, 6), zero(nn.LayerNorm(6)), nn.Linear(6, 2)),
        "no output reacts to anything before 1 yet",
    ),
    "gate": (modulated, "no output reacts to inner yet: normal behind the zeros in gate"),
    "two in a row": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), zero(nn.Linear(6, 5)), nn.Tanh(), zero(nn.Linear(5, 2))),
        "no output reacts to 0, 2 yet: normal behind the zeros in 4, 2",
    ),
}


@pytest.mark.parametrize("kind", WAITING)
def test_layers_behind_zeros_wait_and_are_not_dead(kind):
    torch.manual_seed(5)
    make, line = WAITING[kind]
    net, x = make().double(), torch.randn(7, 4, dtype=torch.float64)
    if kind == "two in a row":  # the outputs do not react to the zeros in the middle either
        nn.init.constant_(net[2].bias, 0.1)
    found = GaussNewton(net, x).culprits()
    assert found.dead_units == {}
    lines = [text for text in str(found).splitlines() if "no output reacts" in text]
    assert len(lines) == 1 and lines[0].startswith(line)


def test_behind_zeros_in_a_head_only_dead_units_are_dead():
    torch.manual_seed(6)
    net, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), zero(nn.Linear(6, 2))), torch.randn(9, 4)
    with torch.no_grad():
        net[0].weight[2], net[0].bias[2], net[0].bias[5] = 0, 0, OFF  # of which one does not move either
    found = GaussNewton(net, x).culprits()
    assert found.dead_units == {"0": (2, 5)}
    assert found.waiting.zeros == ("2",) and found.waiting.all_before
    net = chain(nn.Linear, between=nn.Tanh)
    with torch.no_grad():
        net[2].weight[:, 3] = 0
    found = GaussNewton(net, x).culprits()
    assert found.dead_units == {} and found.waiting is None
