import copy
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune

from gnlib import linear_gauss_newton, second_moment
from gnlib.gauss_newton.module import COLUMNS, TILE, BudgetError, _plan, gauss_newton_gram, jacobian_blocks
from gnlib.gauss_newton.network import Network
from gnlib.gauss_newton.trial import GIB


class Lambda(nn.Module):
    """A network whose forward pass is written in the test, with a linear layer and whatever else it is given."""

    def __init__(self, forward, **modules):
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.function = forward
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.function(self, x)


class Residual(nn.Module):
    def __init__(self, stride):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, 1, 1, groups=2)
        self.skip = nn.Conv2d(3, 4, 1, stride)

    def forward(self, x):
        return functional.relu(self.second(functional.gelu(self.norm(self.first(x)))) + self.skip(x))


class Tokens(nn.Module):
    def __init__(self, dropout=0.0, tie=False):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True)
        self.head = nn.Linear(8, 11 if tie else 3)
        if tie:
            self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.encoder(self.embedding(x)).mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells = kind(4, 5, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


def mlp(*norms):
    return nn.Sequential(nn.Linear(5, 7), *norms, nn.Tanh(), nn.Linear(7, 3))


def cnn(norm=None):
    layers = [nn.Conv2d(3, 4, 3, 2, 1), norm, nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.SiLU()]
    return nn.Sequential(*[layer for layer in layers if layer], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))


def warmed(net, shape):
    """Give the running statistics of batch normalisation something to say."""
    with torch.no_grad():
        net.train()(torch.randn(16, *shape) * 2 + 1)
    return net.eval()


def pruned():
    net = mlp()
    prune.l1_unstructured(net[0], "weight", 0.6)
    prune.random_structured(net[2], "weight", 1, dim=0)
    return net


def frozen():
    net = mlp()
    net[0].bias.requires_grad_(False)
    net[2].weight.requires_grad_(False)
    return net


def tied():
    shared = nn.Linear(5, 5)
    return nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(5, 2))


def attention():
    return Lambda(
        lambda self, x: self.linear(self.attention(x, x, x)[0].mean(1)),
        attention=nn.MultiheadAttention(5, 1, dropout=0.3, batch_first=True),
    ).eval()


def vector(*shape):
    return lambda n: torch.randn(n, *shape)


def tokens(n):
    return torch.randint(0, 11, (n, 4))


IMAGE = (3, 6, 6)
INDEPENDENT = {
    "mlp": (mlp, vector(5)),
    "one output": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Sigmoid(), nn.Linear(4, 1)), vector(5)),
    "cnn": (cnn, vector(*IMAGE)),
    "layer norm": (lambda: mlp(nn.LayerNorm(7)), vector(5)),
    "group norm": (lambda: cnn(nn.GroupNorm(2, 4)), vector(*IMAGE)),
    "batch norm 1d": (lambda: warmed(mlp(nn.BatchNorm1d(7)), (5,)), vector(5)),
    "batch norm 2d": (lambda: warmed(cnn(nn.BatchNorm2d(4, affine=False)), IMAGE), vector(*IMAGE)),
    "residual": (
        lambda: warmed(nn.Sequential(Residual(2), nn.Flatten(), nn.Linear(36, 3)), IMAGE),
        vector(*IMAGE),
    ),
    "attention": (attention, vector(4, 5)),
    "transformer": (Tokens, tokens),
    "transformer, dropout": (lambda: Tokens(0.5).eval(), tokens),
    "transformer, tied": (lambda: Tokens(tie=True), tokens),
    "lstm": (lambda: Recurrent(nn.LSTM), vector(3, 4)),
    "gru": (lambda: Recurrent(nn.GRU), vector(3, 4)),
    "tied": (tied, vector(5)),
    "pruned": (pruned, vector(5)),
    "frozen": (frozen, vector(5)),
    "weight norm": (lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(5, 4)), nn.Tanh()), vector(5)),
    "spectral norm": (
        lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(5, 4)), nn.Tanh()).eval(),
        vector(5),
    ),
    "unused layer": (lambda: Lambda(lambda self, x: self.linear(x), idle=nn.Linear(2, 2)), vector(5)),
    "dead units": (lambda: Lambda(lambda self, x: self.linear(x).clamp_max(-9).relu() + self.linear(x)), vector(5)),
    "in place": (lambda: Lambda(lambda self, x: self.linear(torch.zeros(len(x), 5).add_(x))), vector(5)),
    "control flow": (
        lambda: Lambda(lambda self, x: torch.stack([self.linear(r) if r[0] > 0 else self.linear(r).exp() for r in x])),
        vector(5),
    ),
    "constants": (
        lambda: Lambda(lambda self, x: self.linear(x) @ torch.ones(3, 2) + torch.linspace(0, 1, 2)),
        vector(5),
    ),
}
COUPLED = {
    "batch norm 1d": (lambda: mlp(nn.BatchNorm1d(7)), vector(5)),
    "batch norm 1d, not affine": (lambda: mlp(nn.BatchNorm1d(7, affine=False)), vector(5)),
    "batch norm first": (lambda: nn.Sequential(nn.BatchNorm1d(5), *mlp()), vector(5)),
    "batch norm last": (lambda: nn.Sequential(*mlp(), nn.BatchNorm1d(3)), vector(5)),
    "batch norm 2d": (lambda: cnn(nn.BatchNorm2d(4)), vector(*IMAGE)),
    "batch norm, no statistics": (lambda: mlp(nn.BatchNorm1d(7, track_running_stats=False)), vector(5)),
    "residual": (lambda: nn.Sequential(Residual(1), nn.Flatten(), nn.Linear(144, 2)), vector(*IMAGE)),
    "mean of the batch": (lambda: Lambda(lambda self, x: self.linear(x - x.mean(0)).tanh()), vector(5)),
}


def draw(make, data, n, seed=0):
    torch.manual_seed(seed)
    return make(), data(n)


def plain_jacobian(make, data, n, mode=None, dtype=torch.float32):
    """Every row by a backward pass of its own, through the whole batch; last parameters first."""
    net, x = draw(make, data, n)
    net.to(dtype).double()
    if mode is not None:
        net.train(mode == "train")
    torch.set_default_dtype(torch.float64)
    y = net(x.to(dtype).double() if x.is_floating_point() else x)
    torch.set_default_dtype(torch.float32)
    wanted = [p for p in net.parameters() if p.requires_grad][::-1]
    rows = []
    for entry in y.flatten():
        found = torch.autograd.grad(entry, wanted, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in found]))
    return torch.stack(rows), n


def assert_gram(gram, jacobian, n, tolerance=1e-10):
    expected = jacobian @ jacobian.mT / n
    assert gram.dtype == torch.float64
    assert torch.equal(gram, gram.mT)
    torch.testing.assert_close(gram, expected, rtol=0, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("name", INDEPENDENT)
def test_gram_is_that_of_plain_autograd(name, n):
    make, data = INDEPENDENT[name]
    assert_gram(gauss_newton_gram(*draw(make, data, n)), *plain_jacobian(make, data, n))


@pytest.mark.parametrize("name", INDEPENDENT)
def test_samples_are_differentiated_together_where_vmap_can(name):
    assert Network(*draw(*INDEPENDENT[name], 3)).vmapped == (name not in ("lstm", "gru", "in place", "control flow"))


@pytest.mark.parametrize("name", COUPLED)
def test_gram_of_samples_that_depend_on_each_other(name):
    make, data = COUPLED[name]
    assert_gram(gauss_newton_gram(*draw(make, data, 5), mode="train"), *plain_jacobian(make, data, 5, "train"))


def test_batch_norm_has_two_meanings():
    make, data = lambda: warmed(mlp(nn.BatchNorm1d(7)), (5,)), vector(5)
    for mode in ("eval", "train"):
        assert_gram(gauss_newton_gram(*draw(make, data, 6), mode=mode), *plain_jacobian(make, data, 6, mode))
    net, x = draw(make, data, 6)
    assert torch.equal(gauss_newton_gram(net, x), gauss_newton_gram(net.train(), x, mode="eval"))


def test_batch_norm_without_running_statistics_couples_samples_in_eval_mode_too():
    make, data = COUPLED["batch norm, no statistics"]
    assert_gram(gauss_newton_gram(*draw(make, data, 5), mode="eval"), *plain_jacobian(make, data, 5, "eval"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_precision_of_the_module_does_not_matter(dtype):
    net, x = draw(cnn, vector(*IMAGE), 4)
    assert_gram(gauss_newton_gram(net.to(dtype), x.to(dtype)), *plain_jacobian(cnn, vector(*IMAGE), 4, dtype=dtype))


def test_output_picks_what_is_differentiated():
    net, x = draw(lambda: Lambda(lambda self, x: {"logits": self.linear(x), "loss": 0}), vector(5), 4)
    gram = gauss_newton_gram(net, x, output=lambda result: result["logits"][:, :2])
    jacobian, n = plain_jacobian(lambda: Lambda(lambda self, x: self.linear(x)[:, :2]), vector(5), 4)
    assert_gram(gram, jacobian, n)


def test_rows_are_sample_major():
    net, x = draw(lambda: nn.Linear(2, 3, bias=False), vector(2), 4)
    x = x.double()
    torch.testing.assert_close(gauss_newton_gram(net, x), torch.kron(x @ x.mT, torch.eye(3).double()) / 4)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.integers(1, 12), st.integers(1, 3))
def test_linear_networks_have_the_spectrum_of_their_kronecker_sum(d, width, k, n, depth):
    torch.manual_seed(d + 10 * width + 100 * k + 1000 * n)
    sizes = [d, *[width] * (depth - 1), k]
    weights = [torch.randn(o, i, dtype=torch.float64) for i, o in pairwise(sizes)]
    net = nn.Sequential(*[nn.Linear(i, o, bias=False) for i, o in pairwise(sizes)]).double()
    for layer, w in zip(net, weights, strict=True):
        layer.weight.data = w
    x = torch.randn(n, d, dtype=torch.float64)
    gram = torch.linalg.eigvalsh(gauss_newton_gram(net, x)).flip(0)
    sums = torch.linalg.eigvalsh(linear_gauss_newton(weights, second_moment(x)).dense()).flip(0)
    common = min(len(gram), len(sums))
    torch.testing.assert_close(gram[:common], sums[:common], rtol=1e-9, atol=1e-12 * gram[0].item())
    for rest in (gram[common:], sums[common:]):
        assert (rest.abs() <= 1e-12 * gram[0]).all()


# blocks and memory


def wide():
    return nn.Sequential(nn.Linear(60, 90), nn.Tanh(), nn.Linear(90, 40, bias=False), nn.Tanh(), nn.Linear(40, 4))


@pytest.mark.parametrize("memory", [0.0016, 0.0018, 0.002, 0.003, 0.01, 1.0])
def test_result_does_not_depend_on_memory(memory):
    net, x = draw(wide, vector(60), 9)
    blocks = list(jacobian_blocks(net, x, memory=memory))
    assert (len(blocks) > 1) == (memory < 0.01)
    jacobian, n = plain_jacobian(wide, vector(60), 9)
    torch.testing.assert_close(torch.cat(blocks, 1), jacobian, rtol=0, atol=1e-12 * jacobian.abs().max().item())
    assert_gram(gauss_newton_gram(net, x, memory=memory), jacobian, n, 1e-12)


@pytest.mark.parametrize("name", ["in place", "lstm"])
@pytest.mark.parametrize("memory", [0.001, 1.0])
def test_blocks_of_samples_one_by_one(name, memory):
    make, data = INDEPENDENT[name]
    jacobian, _ = plain_jacobian(make, data, 7)
    blocks = torch.cat(list(jacobian_blocks(*draw(make, data, 7), memory=memory)), 1)
    torch.testing.assert_close(blocks, jacobian, rtol=0, atol=1e-12)


def test_blocks_of_coupled_samples():
    make, data = lambda: nn.Sequential(nn.Linear(60, 90), nn.BatchNorm1d(90), nn.Linear(90, 4)), vector(60)
    jacobian, _ = plain_jacobian(make, data, 6, "train")
    blocks = list(jacobian_blocks(*draw(make, data, 6), mode="train", memory=0.0012))
    assert len(blocks) > 1
    torch.testing.assert_close(torch.cat(blocks, 1), jacobian, rtol=0, atol=1e-11 * jacobian.abs().max().item())


def test_many_rows():
    """More rows than a tile of the Gram matrix."""
    make, data = lambda: nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 6)), vector(5)
    assert_gram(gauss_newton_gram(*draw(make, data, 190)), *plain_jacobian(make, data, 190), 1e-12)


@pytest.mark.parametrize("with_gram", [False, True])
@pytest.mark.parametrize(("vmapped", "batch", "held"), [(True, 8, 4), (False, 1, 2)])
def test_a_plan_takes_all_of_the_memory_and_no_more(with_gram, vmapped, batch, held):
    """Counted in numbers of eight bytes: the result, a tile and what it takes to update it, a block, gradients."""
    n, k, sizes, saved = 2000, 3, (5000, 900), 100
    network = Network.__new__(Network)  # what a plan asks of it, and no module
    vars(network).update(
        x=torch.empty(n),
        outputs=k,
        parameters={str(size): torch.empty(size) for size in sizes},
        copied=8 * sum(sizes),
        bytes_per_sample=8 * saved,
        coupled=False,
        vmapped=vmapped,
    )

    def needed(columns, batch, held):
        result = (n * k) ** 2 + 3 * TILE**2 if with_gram else 0
        sample = 2 * saved + 2 * max(sizes)  # the backward pass with its margin, and gradients whole
        return 8 * (sum(sizes) + result + batch * sample + columns * (n * k + batch * held)) / GIB

    all_at_once = needed(sum(sizes), batch, held)
    groups, together = _plan(network, all_at_once, with_gram)
    assert (len(groups), together) == (1, batch)
    groups, together = _plan(network, all_at_once * (1 - 1e-6), with_gram)
    assert (len(groups), together) == (2, batch)
    least = needed(COLUMNS, 1, held)
    assert len(_plan(network, least, with_gram)[0]) == math.ceil(sum(sizes) / COLUMNS)
    with pytest.raises(BudgetError) as refused:
        _plan(network, least * (1 - 1e-6), with_gram)
    assert 0 <= refused.value.needed - least <= 1e-3


PEAK = """
import resource, torch
from torch import nn
from gnlib.gauss_newton.network import Network
from gnlib.gauss_newton.module import gauss_newton_gram
def net(width, kernel):
    return nn.Sequential(
        nn.Conv2d(3, width, kernel, padding="same"), nn.ReLU(), nn.Conv2d(width, width, kernel, padding="same"),
        nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(width * 36, 300), nn.ReLU(), nn.Linear(300, 10))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
gauss_newton_gram(net(2, 3), torch.randn(20, 3, 24, 24))  # what torch itself takes
module, x = net({width}, {kernel}), torch.randn({n}, 3, 24, 24)
before = peak()
gauss_newton_gram(module, x, memory={memory})
print(peak() - before)
"""


@pytest.mark.parametrize("width, kernel, n, memory", [(16, 3, 20, 0.125), (16, 3, 20, 0.25), (32, 7, 6, 0.2)])
def test_memory_is_honoured(width, kernel, n, memory):
    code = PEAK.format(width=width, kernel=kernel, n=n, memory=memory)
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert float(run.stdout) < memory + 0.05


@pytest.mark.bad_input
def test_too_little_memory_says_how_much_is_needed():
    net, x = draw(wide, vector(60), 9)
    with pytest.raises(ValueError, match=r"memory is 0.0005 GiB but .* are needed") as refused:
        gauss_newton_gram(net, x, memory=0.0005)
    needed = float(str(refused.value).split(" but ")[1].split()[0])
    gauss_newton_gram(net, x, memory=needed)


# the caller's module


@pytest.mark.parametrize(
    "name", ["residual", "pruned", "tied", "lstm", "transformer, dropout", "weight norm", "spectral norm"]
)
@pytest.mark.parametrize("mode", ["eval", "train", None])
def test_module_is_left_as_it_was(name, mode):
    make, data = INDEPENDENT[name]
    net, x = draw(make, data, 4)
    if mode == "train" and "dropout" in name:
        net.encoder = nn.Identity()
    state = copy.deepcopy(net.state_dict())
    flags = [m.training for m in net.modules()]
    attributes = [{key: id(value) for key, value in vars(m).items()} for m in net.modules()]
    parameters = [id(p) for p in net.parameters()]
    random, y = torch.get_rng_state(), net.eval()(x)
    for m, flag in zip(net.modules(), flags, strict=True):
        m.training = flag
    gauss_newton_gram(net, x, mode=mode)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.get_default_dtype() == torch.float32
    assert torch.backends.mha.get_fastpath_enabled()
    assert [m.training for m in net.modules()] == flags
    if name not in ("pruned", "lstm"):  # their forward pass sets attributes
        assert [{key: id(value) for key, value in vars(m).items()} for m in net.modules()] == attributes
    for key, value in net.state_dict().items():
        assert value.dtype == state[key].dtype
        assert torch.equal(value, state[key])
    assert [id(p) for p in net.parameters()] == parameters
    assert all(p.grad is None for p in net.parameters())
    assert torch.equal(net.eval()(x), y)
    if name == "pruned":
        assert net[0].weight.dtype == torch.float32


def test_module_is_left_as_it_was_by_blocks_that_nobody_asks_for():
    net, x = draw(wide, vector(60), 9)
    next(jacobian_blocks(net.train(), x, mode="eval", memory=0.0016))
    assert net.training
    assert torch.get_default_dtype() == torch.float32


def test_batch_norm_in_evaluation_mode_is_taken_as_such():
    make, data = INDEPENDENT["residual"]
    assert torch.equal(gauss_newton_gram(*draw(make, data, 4)), gauss_newton_gram(*draw(make, data, 4), mode="eval"))


def test_tqdm_is_not_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert gauss_newton_gram(*draw(mlp, vector(5), 3)).shape == (9, 9)


def test_a_sum_over_no_terminal_shows_no_bar(capfd):
    gauss_newton_gram(*draw(mlp, vector(5), 3))
    assert capfd.readouterr() == ("", "")


# errors

BAD_ARGUMENTS = [
    (dict(module=lambda x: x), TypeError, "pass a torch.nn.Module"),
    (dict(x=[[1.0] * 5]), TypeError, "x is a list; pass a torch tensor"),
    (dict(x=torch.ones(2, 5, dtype=torch.complex64)), TypeError, "x is complex"),
    (dict(x=torch.ones(0, 5)), ValueError, "x is empty"),
    (dict(x=torch.ones(0, 5, dtype=torch.int64)), ValueError, "x is empty"),
    (dict(x=torch.tensor(1.0)), ValueError, "first axis of x must count samples"),
    (dict(x=torch.full((2, 5), math.nan)), ValueError, "x has 10 entries that are NaN"),
    (dict(x=torch.ones(2, 4)), ValueError, "module fails on the first 2 samples of x.*Check the shape"),
    (dict(mode="test"), ValueError, "mode is 'test'"),
    (dict(memory=0.0), ValueError, "memory is 0.0; a positive number"),
    (dict(memory=math.nan), ValueError, "memory is nan"),
    (
        dict(output=lambda y: y.argmax(1)),
        ValueError,
        r"outputs of 2 samples are of shape \(2,\); a tensor of shape \(2, k\)",
    ),
    (dict(output=lambda y: y[:, :0]), ValueError, r"shape \(2, 0\)"),
    (dict(output=lambda y: y[:1]), ValueError, r"shape \(1, 3\)"),
    (dict(output=lambda y: (y, y)), ValueError, "type tuple"),
    (dict(output=lambda y: y.argmax(1, keepdim=True)), ValueError, "outputs are of torch.int64"),
    (dict(memory=math.inf), ValueError, "memory is inf; a positive number"),
    (dict(memory="4GB"), TypeError, "memory is '4GB'; a positive number of GiB"),
    (dict(output=lambda y: y.to(torch.complex128)), ValueError, "outputs are of torch.complex128"),
    (dict(output=lambda y: y.detach()), ValueError, "can be differentiated"),
    (dict(output=lambda y: y * math.inf), ValueError, "outputs have NaN or infinite entries"),
    (dict(output=lambda y: y + torch.randn(len(y), 1)), ValueError, "change from call to call"),
    (dict(output=lambda y: y - y.mean(0)), ValueError, "depend on the other samples of the batch"),
    (dict(output=lambda y: (y - y).abs().sqrt()), ValueError, "Jacobian with respect to .* has NaN"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize("function", [gauss_newton_gram, jacobian_blocks])
@pytest.mark.parametrize("changed, error, message", BAD_ARGUMENTS)
def test_bad_arguments(function, changed, error, message):
    net, x = draw(mlp, vector(5), 2)
    arguments = {"module": net, "x": x, **changed}
    with pytest.raises(error, match=message):
        list(function(**arguments))


def with_weight(value):
    net = mlp()
    with torch.no_grad():
        net[2].weight[0, 0] = value
    return net


BAD_MODULES = [
    (lambda: nn.Flatten(), None, "no parameter that requires a gradient"),
    (lambda: mlp().requires_grad_(False), None, "no parameter that requires a gradient"),
    (lambda: with_weight(math.nan), None, "The parameter 2.weight has 1 entries that are NaN"),
    (lambda: mlp(nn.BatchNorm1d(7)), None, r"1 \(BatchNorm1d\) is in training mode; say which.*mode='eval'"),
    (lambda: mlp(nn.Dropout(0.5)), None, r"1 \(Dropout\) is in training mode; say which"),
    (lambda: mlp(nn.Dropout(0.5)), "train", r"1 \(Dropout\) drops out in training mode"),
    (lambda: Tokens(0.1), "train", "drops out in training mode"),
    (lambda: Lambda(lambda self, x: functional.dropout(self.linear(x))), None, "change from call to call"),
    (lambda: Lambda(lambda self, x: self.linear(x).squeeze(0)), None, r"outputs of 1 samples are of shape \(3,\)"),
    (
        lambda: Lambda(lambda self, x: self.linear(x) @ self.constant, constant=torch.ones(3, 2)),
        None,
        "fails on the first .* same dtype, but got.*tensors made in a forward pass",
    ),
]


@pytest.mark.bad_input
@pytest.mark.parametrize("make, mode, message", BAD_MODULES)
def test_bad_modules(make, mode, message):
    data = tokens if make().__class__ is Tokens else vector(5)
    net, x = draw(make, data, 2)
    with pytest.raises(ValueError, match=message):
        gauss_newton_gram(net, x, mode=mode)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.bad_input
def test_outputs_of_late_samples_are_checked():
    def forward(self, x):
        return self.linear(x) + torch.where(x[:, :1] > 1e3, math.nan, 0.0)

    net, x = draw(lambda: Lambda(forward), vector(5), 12)
    x[10] = 1e4
    with pytest.raises(ValueError, match="outputs have NaN or infinite entries from sample 8 on"):
        gauss_newton_gram(net, x)


@pytest.mark.bad_input
def test_data_elsewhere():
    with pytest.raises(ValueError, match="x is on meta but the module on cpu"):
        gauss_newton_gram(mlp(), torch.ones(2, 5, device="meta"))


def test_dropout_that_drops_nothing():
    net, x = draw(lambda: mlp(nn.Dropout(0.0)), vector(5), 4)
    assert torch.equal(gauss_newton_gram(net, x, mode="train"), gauss_newton_gram(net, x))
