"""Modules that look harmless and are not: each is refused with a sentence, or measured right.

The oracle is automatic differentiation of the whole batch in double precision, of the function that is meant, written
out where that is not what the module says.
"""

import copy
import functools
import math
import pickle
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from gnlib import condition_number
from gnlib.gauss_newton.module import gauss_newton_gram
from gnlib.gauss_newton.network import Network

N, D, K = 40, 6, 3
RANDOM = "change from call to call: a random function has no Jacobian"
COUPLED = "depend on the other samples of the batch"
HELD = torch.Generator().manual_seed(3)


class Net(nn.Module):
    """Two linear layers, with whatever is written in the test between them."""

    def __init__(self, between=lambda self, h: h, *, zero_head=False, **parts):
        super().__init__()
        self.body, self.head, self.between = nn.Linear(D, D), nn.Linear(D, K), between
        for name, part in parts.items():
            setattr(self, name, part)
        if zero_head:
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def forward(self, x):
        return self.head(self.between(self, self.body(x).tanh()))


def data(n=N, seed=1):
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed))


def made(make, seed=0):
    torch.manual_seed(seed)
    return make()


def jacobian(net, x):
    """The whole batch at once, one backward pass a row, in double precision."""
    net = copy.deepcopy(net).double()
    wanted = [p for p in net.parameters() if p.requires_grad]
    rows = []
    for entry in net(x.double() if x.is_floating_point() else x).flatten():
        found = torch.autograd.grad(entry, wanted, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([g.to_dense().flatten() for g in found]))
    return torch.stack(rows)


def assert_right(net, x, meant=None, **arguments):
    rows = jacobian(net if meant is None else meant, x)
    expected = rows @ rows.mT / len(x)
    state, before = copy.deepcopy(net.state_dict()), generators()
    gram = gauss_newton_gram(net, x, **arguments)
    torch.testing.assert_close(gram, expected, rtol=0, atol=1e-11 * expected.abs().max().item())
    assert generators() == before
    for key, value in net.state_dict().items():
        assert torch.equal(value, state[key])


def generators():
    """The states of all generators of random numbers that a network may find."""
    legacy = pickle.dumps(np.random.get_state())  # noqa: NPY002
    return torch.get_rng_state().tolist(), HELD.get_state().tolist(), random.getstate(), legacy


def assert_refused(net, x, message, error=ValueError, **arguments):
    state, flags = copy.deepcopy(net.state_dict()), [m.training for m in net.modules()]
    before = generators()
    with pytest.raises(error, match=message) as refused:
        gauss_newton_gram(net, x, **arguments)
    assert generators() == before
    assert [m.training for m in net.modules()] == flags
    for key, value in net.state_dict().items():
        assert torch.equal(value, state[key])
    return str(refused.value)


# random functions


class StochasticDepth(nn.Module):
    """As in torchvision: a sample (row) or the whole batch is dropped."""

    def __init__(self, p, mode):
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        size = [x.shape[0] if self.mode == "row" else 1] + [1] * (x.ndim - 1)
        noise = torch.empty(size, dtype=x.dtype, device=x.device).bernoulli_(1 - self.p)
        return x * noise.div_(1 - self.p)


class DropPath(nn.Module):
    """As in timm."""

    def __init__(self, drop_prob):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        if self.drop_prob == 0 or not self.training:
            return x
        random_tensor = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - self.drop_prob)
        return x * random_tensor.div_(1 - self.drop_prob)


class Block(nn.Module):
    def __init__(self, drop_path):
        super().__init__()
        self.norm1, self.norm2, self.drop_path = nn.LayerNorm(D), nn.LayerNorm(D), DropPath(drop_path)
        self.attention = nn.MultiheadAttention(D, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(D, 8), nn.GELU(), nn.Linear(8, D))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.drop_path(self.attention(h, h, h, need_weights=False)[0])
        return x + self.drop_path(self.mlp(self.norm2(x)))


class ViT(nn.Module):
    def __init__(self, drop_path):
        super().__init__()
        self.embed, self.head = nn.Linear(2, D), nn.Linear(D, K)
        self.token = nn.Parameter(torch.zeros(1, 1, D))
        self.blocks = nn.Sequential(Block(drop_path), Block(drop_path))
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        x = self.embed(x.unflatten(1, (3, 2)))
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return self.head(self.blocks(x)[:, 0])


class ReZero(nn.Module):
    def __init__(self):
        super().__init__()
        self.alpha, self.head, self.body = nn.Parameter(torch.zeros(())), nn.Linear(D, K), nn.Linear(D, D)

    def forward(self, x):
        return self.head(x + self.alpha * functional.dropout(self.body(x).tanh(), 0.1, self.training))


class Lazily(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.head = None, nn.Linear(D, K)

    def forward(self, x):
        if self.features is None:
            self.features = torch.randn(D, D)
        return self.head((x @ self.features).cos())


def layer_drop(draw, p=0.1):
    return lambda self, h: h if draw(self) < p else h + h.sin()


def always(p):
    return lambda self, h: functional.dropout(h, p, True)


def counting(self, h):
    self.calls += 1
    return h * self.calls


RANDOM_MODULES = {
    "stochastic depth, rows": lambda: Net(lambda self, h: h + self.drop(h.sin()), drop=StochasticDepth(0.1, "row")),
    "stochastic depth, batch": lambda: Net(lambda self, h: h + self.drop(h.sin()), drop=StochasticDepth(0.1, "batch")),
    "stochastic depth, rarely": lambda: Net(
        lambda self, h: h + self.drop(h.sin()), drop=StochasticDepth(1e-4, "batch"), zero_head=True
    ),
    "drop path": lambda: Net(lambda self, h: h + self.drop(h.sin()), drop=DropPath(0.1)),
    "vision transformer": lambda: ViT(0.2),
    "re-zero": ReZero,
    "dropout, functional": lambda: Net(always(0.5)),
    "dropout, functional, zero head": lambda: Net(always(0.5), zero_head=True),
    "layer drop, Python": lambda: Net(layer_drop(lambda self: random.random())),
    "layer drop, NumPy": lambda: Net(layer_drop(lambda self: np.random.rand())),  # noqa: NPY002
    "layer drop, torch": lambda: Net(layer_drop(lambda self: torch.rand(()), 1e-3)),
    "layer drop, normal": lambda: Net(layer_drop(lambda self: torch.randn(()), -4.0)),
    "layer drop, own generator": lambda: Net(
        layer_drop(lambda self: torch.rand((), generator=self.own)), own=torch.Generator().manual_seed(1)
    ),
    "layer drop, own generator of NumPy": lambda: Net(
        layer_drop(lambda self: self.own.random()), own=np.random.default_rng(0)
    ),
    "layer drop, own generator of Python": lambda: Net(
        layer_drop(lambda self: self.own.random()), own=random.Random(0)
    ),
    "layer drop, generator held elsewhere": lambda: Net(layer_drop(lambda self: torch.rand((), generator=HELD))),
    "noise of the system": lambda: Net(lambda self, h: h * random.SystemRandom().random()),
    "from ten samples on": lambda: Net(lambda self, h: h if len(h) < 10 else h * (torch.rand(()) < 0.99)),
    "reparametrised": lambda: Net(lambda self, h: h + torch.randn_like(h) * (h - 4).exp(), zero_head=True),
    "gumbel": lambda: Net(lambda self, h: functional.gumbel_softmax(h), zero_head=True),
    "rrelu": lambda: Net(lambda self, h: self.act(h), act=nn.RReLU(), zero_head=True),
    "fractional pooling": lambda: Net(
        lambda self, h: self.pool(h.view(-1, 1, 2, 3)).flatten(1).repeat(1, D),
        pool=nn.FractionalMaxPool2d(1, output_size=1),
        zero_head=True,
    ),
    "permuted": lambda: Net(lambda self, h: h[:, torch.randperm(D)], zero_head=True),
    "drawn at the first call": Lazily,
    "counts its calls": lambda: Net(counting, calls=0),
}


@pytest.mark.parametrize("mode", [None, "train"])
@pytest.mark.parametrize("name", RANDOM_MODULES)
def test_random_functions_are_refused(name, mode):
    for n in (N,) if "ten" in name else (N, 1):
        assert_refused(made(RANDOM_MODULES[name]), data(n), RANDOM, mode=mode)


@pytest.mark.parametrize("name", [n for n in RANDOM_MODULES if n.startswith(("stoch", "drop path", "vision", "re-z"))])
def test_what_is_random_in_training_is_right_in_evaluation(name):
    net = made(RANDOM_MODULES[name])
    assert_refused(net, data(4), "or pass mode='eval'")
    assert_right(net, data(8), copy.deepcopy(net).eval(), mode="eval")


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", ["stochastic depth, rows", "stochastic depth, batch", "drop path"])
def test_stochastic_depth_is_refused_whatever_the_seed(name, seed):
    net = made(RANDOM_MODULES[name], seed)
    torch.manual_seed(seed)
    assert_refused(net, data(seed=seed), RANDOM, mode="train")


@pytest.mark.parametrize("seed", range(6))
def test_dropout_under_a_zero_head_is_refused_whatever_the_seed(seed):
    net = made(RANDOM_MODULES["dropout, functional, zero head"], seed)
    torch.manual_seed(seed)
    with pytest.raises(ValueError, match=RANDOM):
        condition_number(net, data(seed=seed))


def seeded(self, h):
    torch.manual_seed(0)
    return h + torch.randn(D)


FIXED_NOISE = {
    "drawn but not used": lambda: Net(layer_drop(lambda self: torch.rand(()), 0.0)),
    "drawn and multiplied by nothing": lambda: Net(lambda self, h: h + 0.0 * torch.rand_like(h)),
    "own seed": lambda: Net(lambda self, h: h + torch.randn(D, generator=torch.Generator().manual_seed(0))),
    "global seed": lambda: Net(seeded),
    "depth of probability 0": lambda: Net(lambda self, h: h + self.drop(h.sin()), drop=StochasticDepth(0.0, "row")),
}


@pytest.mark.parametrize("name", FIXED_NOISE)
def test_noise_that_does_not_matter_or_is_fixed_is_accepted(name):
    net = made(FIXED_NOISE[name])
    meant = copy.deepcopy(net)
    if name == "global seed":
        torch.manual_seed(0)
        noise = torch.randn(D, dtype=torch.float64)
        meant.between = lambda self, h: h + noise
    if name == "own seed":
        noise = torch.randn(D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        meant.between = lambda self, h: h + noise
    assert_right(net, data(8), meant)


# samples that depend on each other


def batch_norm(self, h):
    return (h - h.mean(0)) / (h.var(0, correction=0) + 1e-5).sqrt()


def limited(self, h, capacity=5):
    """Two experts, each of which takes the first few samples that choose it."""
    choice = (h[:, :1] > 0).long()
    place = functional.one_hot(choice[:, 0], 2).cumsum(0).gather(1, choice) - 1
    experts = torch.stack([h.sin(), h.exp()], 1)
    chosen = experts.gather(1, choice[:, :, None].expand(-1, 1, D))[:, 0]
    return h + torch.where(place < capacity, chosen, 0)


def neighbours(self, h):
    return h + h.roll(1, 0) * (torch.arange(len(h)) == 30)[:, None]


def ghost(self, h):
    return torch.cat([batch_norm(self, part) for part in h.split(20)])


def top(self, h):
    kept = h.flatten().topk(h.numel() // 2).values[-1]
    return h * (h >= kept)


class Gated(nn.Module):
    """The mean of the batch, times a parameter that is zero."""

    def __init__(self):
        super().__init__()
        self.linear, self.alpha = nn.Linear(D, K), nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.linear(x) + self.alpha * self.linear(x).mean(0)


COUPLED_MODULES = {
    "batch norm": lambda: Net(batch_norm),
    "batch norm, zero head": lambda: Net(batch_norm, zero_head=True),
    "batch norm, unbiased": lambda: Net(lambda self, h: h / h.std(0), zero_head=True),
    "limited experts": lambda: Net(limited),
    "limited experts, zero head": lambda: Net(limited, zero_head=True),
    "late": lambda: Net(lambda self, h: limited(self, h, 18)),
    "one pair of neighbours": lambda: Net(neighbours, zero_head=True),
    "ghost batch norm": lambda: Net(ghost, zero_head=True),
    "top of the batch": lambda: Net(top, zero_head=True),
    "softmax across": lambda: Net(lambda self, h: h.softmax(0), zero_head=True),
    "sum so far": lambda: Net(lambda self, h: h.cumsum(0) / D),
    "gate that is closed": Gated,
    "only near the given parameters": lambda: Net(
        lambda self, h: h + h.mean(0) * (self.gate.abs() < 1e-5), gate=nn.Parameter(torch.zeros(()))
    ),
    "pairs": lambda: Net(lambda self, h: h + h.unflatten(0, (-1, 2)).flip(1).flatten(0, 1), zero_head=True),
    "attention across": lambda: Net(
        lambda self, h: self.attention(h[:, None], h[:, None], h[:, None])[0][:, 0],
        attention=nn.MultiheadAttention(D, 1),
        zero_head=True,
    ),
    "large and small": lambda: Net(lambda self, h: h + 1e-6 * h.mean(0)),
    "two scales": lambda: nn.Sequential(Net(batch_norm), Scale(torch.tensor([1.0, 1e-3, 1e3]))),
}


class Scale(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.register_buffer("scale", scale)

    def forward(self, x):
        return x * self.scale


@pytest.mark.parametrize("name", COUPLED_MODULES)
def test_coupled_samples_are_refused_or_right(name):
    net = made(COUPLED_MODULES[name])
    for mode in (None, "eval"):
        assert_refused(net, data(), COUPLED if name != "pairs" else f"{COUPLED}|fails on fewer samples", mode=mode)
    assert_right(net, data(), mode="train")


def test_hand_written_batch_norm_under_a_zero_head_has_its_full_rank():
    net = made(COUPLED_MODULES["batch norm, zero head"])
    found = condition_number(net, data(), mode="train")
    values = torch.linalg.svdvals(jacobian(net, data()))
    rank = int((values > 1e-10 * values[0]).sum())
    assert found.rank == rank > K
    assert found.value == pytest.approx((values[0] / values[rank - 1]).item() ** 2, rel=1e-8)


INDEPENDENT_MODULES = {
    "zero head": lambda: Net(zero_head=True),
    "experts without limit": lambda: Net(lambda self, h: limited(self, h, N)),
    "instance norm": lambda: Net(lambda self, h: self.norm(h[:, None])[:, 0], norm=nn.InstanceNorm1d(1)),
    "attention within": lambda: ViT(0.0),
}


@pytest.mark.parametrize("name", INDEPENDENT_MODULES)
def test_independent_samples_stay_independent(name):
    net = made(INDEPENDENT_MODULES[name])
    assert_right(net, data(16))
    assert not Network(net, data(16)).coupled


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(D, K)

    def forward(self, x):
        x.sub_(1).mul_(2)
        return self.linear(x).tanh_()


def test_an_input_that_is_changed_in_place_is_left_as_it_was():
    net, x = made(InPlace).double(), data(8).double()
    meant = copy.deepcopy(net)
    meant.forward = lambda x: meant.linear((x - 1) * 2).tanh()
    kept = x.clone()
    gram = gauss_newton_gram(net, x)
    assert torch.equal(x, kept)
    wanted = tuple(meant.parameters())
    rows = [torch.autograd.grad(y, wanted, retain_graph=True) for y in meant(x).flatten()]
    rows = torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])
    torch.testing.assert_close(gram, rows @ rows.mT / 8, rtol=0, atol=1e-12 * gram.abs().max().item())


# precision


class RMSNorm(nn.Module):
    """As in transformers: in single precision, whatever it is given."""

    def __init__(self, cast=True):
        super().__init__()
        self.weight, self.cast = nn.Parameter(torch.ones(D)), cast

    def forward(self, x):
        given = x.dtype
        if self.cast:
            x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(given)


class Old(torch.autograd.Function):
    """Of the old form, with the context in the forward pass."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.sigmoid() + x * x.sigmoid() * (1 - x.sigmoid()))


class RoundedBackwards(Old):
    """What it returns in the backward pass is of single precision."""

    @staticmethod
    def backward(ctx, gradient):
        return Old.backward(ctx, gradient.float()).double()


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(D, K)

    def forward(self, x):
        return scripted(self.linear(x))


def rounded_sine(x):
    return x.float().sin().to(x.dtype)


with warnings.catch_warnings(action="ignore"):  # scripting is deprecated, and found in older networks
    scripted = torch.jit.script(rounded_sine)


def autocast(self, h):
    with torch.autocast("cpu", torch.bfloat16):
        return h @ self.body.weight


def stored(self, h):
    kept = torch.from_numpy(np.zeros((len(h), D), dtype=np.float32))
    kept[:] = h
    return kept.double().sin()


def as_complex(h):
    return torch.view_as_complex(h.unflatten(1, (3, 2)))


CASTS = {
    "float": lambda self, h: h.float().sin(),
    "half": lambda self, h: h.half().sin(),
    "bfloat16": lambda self, h: h.bfloat16().sin(),
    "to": lambda self, h: h.to(torch.float32).sin(),
    "to, by name": lambda self, h: h.to(dtype=torch.float16).sin(),
    "to a device": lambda self, h: h.to("cpu", torch.float32).sin(),
    "to another": lambda self, h: h.to(torch.from_numpy(np.ones(1, dtype=np.float32))).sin(),
    "type": lambda self, h: h.type(torch.float32).sin(),
    "type, by name": lambda self, h: h.type("torch.FloatTensor").sin(),
    "type, old": lambda self, h: h.type(torch.FloatTensor).sin(),
    "type as": lambda self, h: h.type_as(torch.from_numpy(np.ones(1, dtype=np.float32))).sin(),
    "softmax": lambda self, h: functional.softmax(h, -1, dtype=torch.float32),
    "log softmax": lambda self, h: h.log_softmax(-1, torch.float32),
    "sum": lambda self, h: h + h.sum(-1, keepdim=True, dtype=torch.float32),
    "mean": lambda self, h: h - torch.mean(h, -1, True, dtype=torch.float32),
    "norm": lambda self, h: h / torch.linalg.vector_norm(h, dim=-1, keepdim=True, dtype=torch.float32),
    "cumsum": lambda self, h: h.cumsum(-1, dtype=torch.float32),
    "new": lambda self, h: torch.zeros(h.shape, dtype=torch.float32).add(h),
    "complex": lambda self, h: torch.view_as_real(as_complex(h).cfloat() ** 2).flatten(1),
}
WITHOUT = {
    "softmax": lambda self, h: h.softmax(-1),
    "log softmax": lambda self, h: h.log_softmax(-1),
    "sum": lambda self, h: h + h.sum(-1, keepdim=True),
    "mean": lambda self, h: h - h.mean(-1, True),
    "norm": lambda self, h: h / h.norm(dim=-1, keepdim=True),
    "cumsum": lambda self, h: h.cumsum(-1),
    "new": lambda self, h: h,
    "complex": lambda self, h: torch.view_as_real(as_complex(h) ** 2).flatten(1),
}


def casting_twin(name):
    net = made(lambda: Net(CASTS[name]))
    meant = copy.deepcopy(net)
    meant.between = WITHOUT.get(name, lambda self, h: h.sin())
    back = net.between
    net.between = lambda self, h: back(self, h).to(self.head.weight.dtype)
    return net, meant


@pytest.mark.parametrize("name", CASTS)
def test_casts_lose_nothing(name):
    net, meant = casting_twin(name)
    assert_right(net, data(8), meant)
    assert Network(net, data(8)).vmapped
    together = net.between
    net.between = lambda self, h: together(self, torch.zeros(len(h), D).add_(h))  # in place, so one by one
    assert not Network(net, data(8)).vmapped
    assert_right(net, data(8), meant)


def test_autocasting_leaves_double_precision_alone():
    net = made(lambda: Net(autocast))
    meant = copy.deepcopy(net)
    meant.between = lambda self, h: h @ self.body.weight
    assert_right(net, data(8), meant)


@pytest.mark.parametrize("output", [lambda y: y.float(), lambda y: y.to(torch.bfloat16)])
def test_a_cast_of_the_outputs_loses_nothing(output):
    net = made(Net)
    assert torch.equal(gauss_newton_gram(net, data(8), output=output), gauss_newton_gram(net, data(8)))


def nearly_the_same(points):
    return torch.linspace(-0.5, 0.5, points, dtype=torch.float64)[:, None] * torch.ones(D) / math.sqrt(D)


def deep(cast):
    layers = [
        nn.Linear(D, 20),
        nn.Tanh(),
        nn.Linear(20, D),
        RMSNorm(cast),
        nn.Linear(D, 20),
        nn.Tanh(),
        nn.Linear(20, 1),
    ]
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("points", [8, 10, 14])
def test_a_norm_in_single_precision_keeps_the_digits_of_large_condition_numbers(points):
    found, meant = (
        condition_number(made(make), nearly_the_same(points)) for make in (lambda: deep(True), lambda: deep(False))
    )
    assert found.resolved == meant.resolved
    assert found.value > 1e7
    assert found.value == pytest.approx(meant.value, rel=2 * (found.residual + meant.residual))


ROUNDED = {
    "scripted": Scripted,
    "stored": lambda: Net(stored),
    "stored, zero head": lambda: Net(stored, zero_head=True),
    "backwards": lambda: Net(lambda self, h: RoundedBackwards.apply(h)),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_that_cannot_be_undone_is_refused(name):
    assert_refused(made(ROUNDED[name]), data(8), "computes in a lower precision than double")


# what is wrapped, hooked, stored or kept


def test_spectral_norm_in_training_asks_which_function_is_meant():
    for wrap in (parametrizations.spectral_norm, nn.utils.spectral_norm):
        for zero_head in (False, True):
            net = made(lambda: Net(zero_head=zero_head))  # noqa: B023
            wrap(net.body)
            assert_refused(net, data(8), "is in training mode.*mode='eval'.*mode='train'")
            assert_right(net, data(8), copy.deepcopy(net).eval(), mode="eval")


class Tracking(nn.Module):
    """Normalises by a running mean, which it moves in training, or always."""

    def __init__(self, always):
        super().__init__()
        self.always = always
        self.register_buffer("mean", torch.zeros(D))

    def forward(self, x):
        y = x - self.mean
        if self.training or self.always:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return y.exp()


def test_a_state_that_outputs_depend_on_is_refused_unless_it_is_meant():
    net = made(lambda: Net(lambda self, h: self.norm(h), norm=Tracking(True), zero_head=True))
    for mode in (None, "eval"):
        assert_refused(net, data(8), r"norm \(Tracking\) changes its mean, on which they depend", mode=mode)
    net.norm.always = False
    assert_right(net, data(8), copy.deepcopy(net).eval(), mode="eval")


class Switching(nn.Module):
    def forward(self, x):
        return x.sin() if self.training else x.cos()


def test_a_layer_that_is_another_one_in_training_asks_which_is_meant():
    net = made(lambda: Net(lambda self, h: self.switch(h), switch=Switching(), zero_head=True))
    assert_refused(net, data(8), r"switch \(Switching\) is in training mode, where it is another function")
    assert_right(net, data(8), mode="train")
    assert_right(net, data(8), copy.deepcopy(net).eval(), mode="eval")
    assert_right(net.eval(), data(8))


def tokens(n=8):
    return torch.randint(0, 11, (n, 4), generator=torch.Generator().manual_seed(5))


def embedded(**options):
    return nn.Sequential(nn.Embedding(11, D, **options), nn.Flatten(), nn.Linear(4 * D, K))


@pytest.mark.parametrize("options", [{}, {"sparse": True}, {"scale_grad_by_freq": True}, {"padding_idx": 3}])
def test_embeddings_have_the_derivative_of_their_function(options):
    plain = {key: value for key, value in options.items() if key == "padding_idx"}
    net = made(lambda: embedded(**options))
    assert_right(net, tokens(), made(lambda: embedded(**plain)))


def test_a_sparse_bag_is_right():
    bag = lambda sparse: nn.Sequential(nn.EmbeddingBag(11, D, sparse=sparse), nn.Linear(D, K))  # noqa: E731
    assert_right(made(lambda: bag(True)), tokens(), made(lambda: bag(False)))


@pytest.mark.bad_input
def test_weights_that_a_forward_pass_changes_are_refused_and_left_alone():
    assert_refused(made(lambda: embedded(max_norm=0.5)).double(), tokens(), "changes the parameter 0.weight in place")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_autograd_functions_of_the_old_form_are_right(dtype):
    net = made(lambda: Net(lambda self, h: Old.apply(h))).to(dtype)
    meant = made(lambda: Net(lambda self, h: functional.silu(h))).to(dtype)
    assert_right(net, data(8), meant)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_checkpointed_blocks_are_right_or_refused(reentrant, dtype):
    def between(self, h):
        return checkpoint(self.block, h, use_reentrant=reentrant)

    net = made(lambda: Net(between, block=nn.Sequential(nn.Linear(D, D), nn.Tanh()))).to(dtype)
    meant = copy.deepcopy(net)
    meant.between = lambda self, h: self.block(h)
    if reentrant or dtype == torch.float32:
        assert_refused(net, data(8), "cannot be differentiated")
    else:
        assert_right(net, data(8), meant)


class CheckpointedTokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.head = embedded(), nn.Linear(K, K)

    def forward(self, x):
        return self.head(checkpoint(self.net, x, use_reentrant=True))


def test_a_checkpoint_that_drops_gradients_is_refused():
    assert_refused(made(CheckpointedTokens), tokens(), "None of the inputs have requires_grad=True")


@pytest.mark.parametrize("kind", ["full", "pre", "old"])
def test_hooks_on_gradients_change_nothing(kind):
    net = made(Net)
    meant, calls = copy.deepcopy(net), []
    if kind == "full":
        net.body.register_full_backward_hook(lambda m, given, taken: (given[0] * 0,))
    elif kind == "pre":
        net.head.register_full_backward_pre_hook(lambda m, taken: (taken[0] * 0,))
    else:
        net.body.register_backward_hook(lambda m, given, taken: calls.append(1))
    assert_right(net, data(8), meant)
    assert not calls
    assert len(net.body._backward_hooks) + len(net.head._backward_pre_hooks) == 1


@pytest.mark.parametrize(
    "wrap",
    [
        nn.DataParallel,
        functools.partial(torch.compile, backend="eager"),
        lambda net: nn.DataParallel(torch.compile(net, backend="eager")),
        lambda net: nn.Sequential(torch.compile(net, backend="eager")),
        lambda net: net.compile(backend="eager") or net,
    ],
)
def test_modules_that_are_wrapped_are_unwrapped(wrap):
    net = made(lambda: Net(lambda self, h: h.sin()))
    wrapped = wrap(copy.deepcopy(net))
    assert torch.equal(gauss_newton_gram(wrapped, data(8)), gauss_newton_gram(net, data(8)))
    torch._dynamo.reset()


def test_inference_mode_is_left_for_the_derivatives():
    net, x = made(Net).double(), data(8).double()
    expected = gauss_newton_gram(net, x)
    with torch.inference_mode():
        assert torch.equal(gauss_newton_gram(net, x), expected)
        inside = made(Net).double()
        found = condition_number(inside, x.clone())
        assert torch.is_inference_mode_enabled()
    assert found == condition_number(net, x)
    with torch.no_grad():
        assert torch.equal(gauss_newton_gram(net, x), expected)


class Squeezed(nn.Module):
    def __init__(self, outputs, where=()):
        super().__init__()
        self.linear, self.where = nn.Linear(D, outputs), where

    def forward(self, x):
        return self.linear(x).squeeze(*self.where)


@pytest.mark.bad_input
def test_outputs_without_an_axis_of_their_own_are_refused_with_a_hint_that_works():
    for net in (made(lambda: Squeezed(1)), made(lambda: Squeezed(1, (-1,)))):
        for n in (8, 1):
            assert "such as lambda y: y.reshape(-1, 1)." in assert_refused(net, data(n), "samples are of shape")
        gram = gauss_newton_gram(net, data(8), output=lambda y: y.reshape(-1, 1))
        rows = jacobian(net, data(8))
        torch.testing.assert_close(gram, rows @ rows.mT / 8)


@pytest.mark.bad_input
def test_a_squeeze_that_takes_the_axis_of_the_samples_is_refused_with_the_reason():
    net = made(lambda: Squeezed(K))
    assert_refused(net, data(8), r"fails on fewer samples.*A squeeze\(\) drops the axis of the samples")
    assert_right(net, data(8), mode="train")


def quantised():
    from torch.ao.nn.quantized import dynamic

    return nn.Sequential(nn.Linear(D, D), dynamic.Linear(D, K))


def scripted_module():
    return torch.jit.script(nn.Linear(D, K))


IMAGES = torch.randint(0, 255, (4, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(6))
CLEAR = [
    (lambda: Net().to("meta"), data(4), ValueError, "body.weight is on the meta device, where it has no values"),
    (lambda: Net().to("meta"), data(4).to("meta"), ValueError, "body.weight is on the meta device"),
    (lambda: nn.Sequential(nn.LazyLinear(4)), data(4), ValueError, "0.weight has no shape yet; call the module"),
    (quantised, data(4), ValueError, r"1 \(Linear\) is quantised"),
    (scripted_module, data(4), ValueError, r"module \(RecursiveScriptModule\) is scripted"),
    (lambda: nn.Conv2d(3, 2, 3), IMAGES, ValueError, r"x is of torch.uint8, and integers are passed on.*x.double\(\)"),
    (lambda: embedded(), tokens() + 9, ValueError, "module fails on .* samples of x"),
    (lambda: lambda x: x, data(4), TypeError, "module is of type function; pass a torch.nn.Module"),
    (lambda: nn.Linear, data(4), TypeError, "module is of type type; pass a torch.nn.Module"),
    (Net, None, TypeError, "x is a NoneType; pass a torch tensor"),
]  # fmt: skip


@pytest.mark.bad_input
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("make, x, error, message", CLEAR)
def test_what_cannot_be_measured_gets_one_clear_sentence(make, x, error, message):
    module = made(make)
    with pytest.raises(error, match=message):
        gauss_newton_gram(module, x)
    if isinstance(module, nn.Module) and x is not None:
        with pytest.raises(error, match=message):
            condition_number(module, x)


@pytest.mark.bad_input
def test_the_condition_number_of_a_function_or_of_no_samples_is_refused():
    with pytest.raises(TypeError, match="operand is of type function; a function has no parameters"):
        condition_number(lambda x: x, data(4))
    with pytest.raises(TypeError, match="x is missing; a network is measured on samples"):
        condition_number(Net())
    with pytest.raises(TypeError, match="memory is '4GB'; a positive number of GiB was expected"):
        condition_number(Net(), data(4), memory="4GB")


def test_integers_among_the_weights_stay_integers():
    class Coded(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes = nn.Parameter(torch.randint(-8, 8, (D, D), dtype=torch.int8), requires_grad=False)
            self.scale, self.head = nn.Parameter(torch.rand(D)), nn.Linear(D, K)

        def forward(self, x):
            assert self.codes.dtype == torch.int8
            return self.head(x @ (self.codes * self.scale))

    net = made(Coded)
    wanted = (net.scale.detach().double(), net.head.weight.detach().double(), net.head.bias.detach().double())
    x, codes = data(8).double(), net.codes.double()
    parts = torch.autograd.functional.jacobian(lambda s, w, b: ((x @ (codes * s)) @ w.T + b).flatten(), wanted)
    rows = torch.cat([part.flatten(1) for part in parts], 1)
    torch.testing.assert_close(gauss_newton_gram(net, data(8)), rows @ rows.mT / 8)


def test_images_as_bytes_are_right_where_the_network_takes_them():
    net = made(lambda: nn.Sequential(Scaled(), nn.Conv2d(3, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(72, K)))
    expected = gauss_newton_gram(net[1:], IMAGES.double() / 255)
    torch.testing.assert_close(gauss_newton_gram(net, IMAGES), expected, rtol=1e-12, atol=0)


class Scaled(nn.Module):
    def forward(self, x):
        return x.float() / 255
