"""Units that no output reacts to, by a backward pass for each output; and zeros that have yet to move."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

from gnlib import GaussNewton
from tests.gnlib.derivatives import by_name
from tests.gnlib.networks import Whole

OFF = -100.0  # a bias that no input makes up for


class Lora(nn.Linear):
    """A frozen weight, and an adapter of low rank beside it."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.weight.requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(2, inputs)), nn.Parameter(torch.randn(outputs, 2))

    def forward(self, x):
        return super().forward(x) + x @ self.down.T @ self.up.T


class AdaptedConv(nn.Conv1d):
    """A convolution with a bottleneck beside it, whose parameters have shapes of their own."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, 3, padding=1)
        self.down, self.up = nn.Parameter(torch.randn(7, inputs, 1)), nn.Parameter(torch.randn(outputs, 7, 1))

    def forward(self, x):
        return super().forward(x) + functional.conv1d(functional.conv1d(x, self.down), self.up)


class OnlyTheAdapter(nn.Linear):
    """A layer that does not use its weight at all: its units are alive nevertheless."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.own = nn.Parameter(torch.randn(inputs, outputs))

    def forward(self, x):
        return x @ self.own + self.bias


class Transposed(nn.Linear):
    """The rows of the weight are no units of the result."""

    def forward(self, x):
        return x @ self.weight


class Scaled(nn.Linear):
    """A scale for each input, and a scalar for all outputs."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.each, self.all = nn.Parameter(torch.ones(inputs)), nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return super().forward(x * self.each) * self.all


def checkpointed():
    part = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4))
    forward = lambda self, x: self.head(checkpoint(self.part, x, use_reentrant=False))  # noqa: E731
    return Whole(forward, part=part, head=nn.Linear(4, 2))


def gated():
    def forward(self, x):
        value, gate = self.both(x).chunk(2, -1)
        return self.head(value * gate.relu())

    return Whole(forward, both=nn.Linear(4, 10), head=nn.Linear(5, 2))


def twice():
    """A layer that is called twice: its units are alive if one of the calls reaches an output."""
    forward = lambda self, x: self.head(self.layer(self.layer(x).relu() - 1).relu())  # noqa: E731
    return Whole(forward, layer=nn.Linear(4, 4), head=nn.Linear(4, 2))


def chain(first, width=5, between=nn.ReLU, inputs=4):
    return nn.Sequential(first(inputs, width), between(), nn.Linear(width, 3))


def pruned():
    net = chain(nn.Linear)
    prune.ln_structured(net[2], "weight", 0.4, n=2, dim=1)  # units whose outgoing weights are masked
    return net


def starved():
    """Layers without biases behind units that are all zero: no gradient by their weights, and yet none is dead."""
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6, bias=False), nn.Sigmoid(), nn.Linear(6, 3))
    net[0].requires_grad_(False)
    nn.init.constant_(net[0].bias, OFF)
    return net


NETWORKS = {
    "lora": (lambda: chain(Lora), (4,)),
    "adapted convolution": (
        lambda: nn.Sequential(AdaptedConv(2, 5), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3)),
        (2, 4),
    ),
    "only the adapter": (lambda: chain(OnlyTheAdapter), (4,)),
    "transposed": (lambda: chain(Transposed, 4), (4,)),
    "scaled": (lambda: chain(Scaled), (4,)),
    "weight norm": (lambda: chain(lambda i, o: parametrizations.weight_norm(nn.Linear(i, o))), (4,)),
    "old weight norm": (lambda: chain(lambda i, o: nn.utils.weight_norm(nn.Linear(i, o), dim=None)), (4,)),
    "spectral norm": (lambda: chain(lambda i, o: parametrizations.spectral_norm(nn.Linear(i, o))), (4,)),
    "pruned": (pruned, (4,)),
    "in place": (lambda: chain(nn.Linear, between=lambda: nn.ReLU(inplace=True)), (4,)),
    "checkpoint": (checkpointed, (4,)),
    "gate": (gated, (4,)),
    "twice": (twice, (4,)),
    "starved": (starved, (4,)),
    "groups": (
        lambda: nn.Sequential(nn.Conv2d(2, 6, 2, groups=2), nn.ReLU6(), nn.Flatten(), nn.Linear(24, 3)),
        (2, 3, 3),
    ),
    "batch normalisation": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)),
        (4,),
    ),
}


def drawn(kind, n=6):
    torch.manual_seed(3)
    make, shape = NETWORKS[kind]
    net = make().double()
    with torch.no_grad():
        layer = next(m for m in net.modules() if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d))
        if kind == "batch normalisation":
            net[1].bias[[1, 4]] = OFF
        elif kind == "gate":
            layer.bias[[6, 9]] = OFF
        elif kind not in ("transposed", "starved"):
            layer.bias[[1, 4] if len(layer.bias) > 4 else [1]] = OFF
    return net, torch.randn(n, *shape, dtype=torch.float64)


def units_without_effect(net, x):
    """By a backward pass for each output on each sample, from copies of what layers return."""
    kept = {}

    def keep(name):
        def hook(layer, inputs, result):
            kept.setdefault(name, []).append(torch.zeros_like(result, requires_grad=True))
            return result + kept[name][-1]

        return hook

    layers = {
        name: layer
        for name, layer in net.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d) and any(p.requires_grad for p in layer.parameters())
    }
    handles = [layer.register_forward_hook(keep(name)) for name, layer in layers.items()]
    y = net(x)
    probes = [(name, probe) for name, probes in kept.items() for probe in probes]
    reached = {}
    for entry in y.flatten():
        options = dict(retain_graph=True, allow_unused=True, materialize_grads=True)
        for (name, _), g in zip(probes, torch.autograd.grad(entry, [p for _, p in probes], **options), strict=True):
            axis = -1 if isinstance(layers[name], nn.Linear) else 1
            reached[name] = reached.get(name, 0) + g.movedim(axis, 0).flatten(1).abs().sum(1)
    for handle in handles:
        handle.remove()
    return {name: tuple((r == 0).nonzero()[:, 0].tolist()) for name, r in reached.items() if (r == 0).any()}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("kind", NETWORKS)
def test_units_that_no_output_reacts_to(kind):
    net, x = drawn(kind)
    mode = {"batch normalisation": "train", "spectral norm": "eval"}.get(kind)
    net.train(mode != "eval")
    found = GaussNewton(net, x, mode=mode).culprits()
    assert found.dead_units == units_without_effect(net, x)
    assert found.waiting is None
    if kind not in ("starved", "transposed", "twice"):
        assert {1, 4} <= {*found.dead_units[next(iter(found.dead_units))]}


@pytest.mark.parametrize("kind", ["lora", "adapted convolution", "scaled", "only the adapter", "transposed", "twice"])
def test_layers_with_parameters_of_other_shapes_have_a_report(kind):
    net, x = drawn(kind)
    g = GaussNewton(net, x)
    blocks = by_name(net, x)
    squares = {name: block.square().sum().item() for name, block in blocks.items()}
    report = g.report(budget=1e-3)
    for share in report.layers.layers:
        own = [name for name in blocks if name.rpartition(".")[0] == share.layer]
        assert share.parameters == sum(blocks[name].shape[1] for name in own)
        assert share.trace == pytest.approx(sum(squares[name] for name in own) / sum(squares.values()), rel=1e-9)
    largest = torch.linalg.svdvals(torch.cat([*blocks.values()], 1))[0].item() ** 2 / len(x)
    assert g.stable_rate().rate == pytest.approx(2 / largest, rel=1e-9)
    assert str(report)


def zero(layer):
    for p in layer.parameters(recurse=False):
        nn.init.zeros_(p)
    return layer


def residual(branch):
    return Whole(lambda self, x: x + self.branch(x), branch=branch)


def modulated():
    """A branch whose gate is made by a layer of zeros (adaLN-zero)."""
    parts = dict(inner=nn.Linear(4, 4), gate=zero(nn.Linear(4, 4)), head=nn.Linear(4, 2))
    return Whole(lambda self, x: self.head(x + self.gate(x) * self.inner(x).tanh()), **parts)


def recurrent():
    parts = dict(cells=nn.LSTM(1, 5, batch_first=True), head=zero(nn.Linear(5, 2)))
    return Whole(lambda self, x: self.head(self.cells(x[..., None])[0][:, -1]), **parts)


def rounded():
    """Numbers as tokens."""
    return Whole(lambda self, x: x.abs().round().long().clamp_max(4))


def rezero():
    scale = nn.Parameter(torch.zeros(1))
    return Whole(lambda self, x: x + self.branch(x) * self.scale, branch=nn.Linear(4, 4), scale=scale)


def silent_norm():
    norm = nn.LayerNorm(6)
    nn.init.zeros_(norm.weight)
    return norm


WAITING = {
    "head": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.GELU(), zero(nn.Linear(5, 2))),
        "no output reacts to anything before 4 yet: normal for a layer of zeros",
    ),
    "convolution": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Flatten(), zero(nn.Linear(9, 2))
        ),
        "no output reacts to anything before 4 yet",
    ),
    "branch": (
        lambda: nn.Sequential(
            nn.Linear(4, 4),
            *(residual(nn.Sequential(nn.Linear(4, 5), nn.SiLU(), zero(nn.Linear(5, 4)))) for _ in range(2)),
            nn.Linear(4, 2),
        ),
        "no output reacts to 1.branch.0, 2.branch.0 yet: normal behind the zeros in 1.branch.2, 2.branch.2",
    ),
    "recurrent": (recurrent, "no output reacts to anything before head yet"),
    "tokens": (
        lambda: nn.Sequential(rounded(), nn.Embedding(5, 3), nn.LayerNorm(3), nn.Flatten(), zero(nn.Linear(12, 2))),
        "no output reacts to anything before 4 yet",
    ),
    "rezero": (
        lambda: nn.Sequential(nn.Linear(4, 4), rezero(), nn.Linear(4, 2)),
        "no output reacts to 1.branch yet: normal behind the zeros in 1: ",
    ),
    "norm": (
        lambda: nn.Sequential(nn.Linear(4, 6), silent_norm(), nn.Linear(6, 2)),
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


def test_a_dead_unit_behind_a_head_of_zeros_is_dead_all_the_same():
    torch.manual_seed(6)
    net, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), zero(nn.Linear(6, 2))), torch.randn(9, 4)
    nn.init.zeros_(net[0].weight[2:3].detach())  # and with a bias of zero: it does not move either
    with torch.no_grad():
        net[0].bias[2], net[0].bias[5] = 0, OFF
    found = GaussNewton(net, x).culprits()
    assert found.dead_units == {"0": (2, 5)}
    assert found.waiting.zeros == ("2",) and found.waiting.all_before


def test_a_column_of_zeros_in_a_head_makes_no_unit_dead():
    torch.manual_seed(7)
    net, x = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)), torch.randn(9, 4)
    with torch.no_grad():
        net[2].weight[:, 3] = 0
    found = GaussNewton(net, x).culprits()
    assert found.dead_units == {} and found.waiting is None
