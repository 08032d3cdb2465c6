"""Modules that look as if they had no derivative, or another one: measured as the function that is meant."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
import torch.ao.quantization as tq
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from gnlib import GaussNewton, condition_number
from gnlib.jacobian.intercept import fake_quantize, grouped_product
from gnlib.jacobian.trial import network_of
from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import D, K, Net, by_numpy, custom, data, embedded, gram_matrix, integers, made, tokens
from tests.gnlib.jacobian.helpers import assert_near, assert_refused, assert_right, jacobian
from tests.gnlib.networks import Whole

X, ONES, EYE = data(8), torch.ones(D), torch.eye(D)
CODES = torch.randint(-8, 8, (D, D), dtype=torch.int8, generator=torch.Generator().manual_seed(2))
SINGLE = torch.finfo(torch.float32)


def case(make, meant=None, x=X):
    """Return what is compared: a network with another one that says what is meant, or with itself, on some samples."""
    return make, meant or make, x


def within(function, meant=None, **parts):
    """Functions of what is between two layers, and of the network."""
    return case(partial(Net, function, **parts), partial(Net, meant or function, **parts))


def linear(use, **parts):
    return lambda: Whole(lambda self, x: self.linear(use(self, x)), linear=nn.Linear(D, K), **parts)


def parameter(value):
    return nn.Parameter(value.clone())


# Parameters that have a domain


def checked(w):
    if not torch.allclose(w @ w.mT, torch.eye(D, dtype=w.dtype), atol=1e-2):
        raise RuntimeError("not orthogonal")
    return w


BERNOULLI, LAPLACE = torch.distributions.Bernoulli, torch.distributions.Laplace
RIGHT = {
    "factor": within(lambda self, h: h @ torch.linalg.cholesky(self.w), w=parameter(0.02 * EYE + 0.98)),
    "probabilities": within(lambda self, h: h * BERNOULLI(self.w).log_prob(ONES.to(h)), w=parameter(0.99 * ONES)),
    "orthogonal": within(lambda self, h: h @ checked(self.w), w=parameter(EYE)),
    "scale of a density": within(
        lambda self, h: LAPLACE(0.0, self.w - 9.5e-4).log_prob(h).tanh(), w=parameter(1e-3 * ONES)
    ),
}

# Functions whose backward pass takes another branch where samples are taken together


def definite(h):
    return h[:, :, None] * h[:, None] + 3 * torch.eye(D, dtype=h.dtype)


BRANCHES = {
    "determinant of a slice": lambda h: torch.linalg.det(h[:, :4].unflatten(1, (2, 2)))[:, None],
    "determinants": lambda h: torch.stack([torch.linalg.det(row[:4].view(2, 2)) for row in h])[:, None],
    "inverse of a slice": lambda h: torch.linalg.inv(definite(h)[:, 1:4, 1:4]).diagonal(dim1=1, dim2=2).repeat(1, 2),
    "solution": lambda h: torch.linalg.solve(definite(h)[:, ::2, ::2], h[:, :3]).repeat(1, 2),
    "pseudo-inverse": lambda h: torch.linalg.pinv(definite(h)[:, :, :3]).sum(1),
}
RIGHT |= {
    name: case(lambda f=f: Net(lambda self, h: h * f(h)).double(), x=data(12).double()) for name, f in BRANCHES.items()
}

# Derivatives within a forward pass, as in Hamiltonian networks and models of molecules


def by_product(f):
    return lambda z: torch.func.vjp(f, z)[1](torch.ones((), dtype=z.dtype))[0]


def second(f):
    return lambda z: torch.func.hessian(f)(z).diagonal()


def force(self, h, derivative):
    return torch.vmap(derivative(lambda z: self.read(self.hidden(z).tanh())[0]))(h)


def written_force(self, h, derivative):
    t, w, v = self.hidden(h).tanh(), self.hidden.weight, self.read.weight
    return (-2 * t * (1 - t * t) * v) @ (w * w) if derivative is second else ((1 - t * t) * v) @ w


for f in (torch.func.grad, torch.func.jacfwd, by_product, second):
    both, layers = (partial(of, derivative=f) for of in (force, written_force)), (nn.Linear(D, 8), nn.Linear(8, 1))
    RIGHT[f"force, {f.__name__}"] = within(*both, hidden=layers[0], read=layers[1])

# Functions of the user's own, and of the precision of the input


def silu(x):
    return x * x.sigmoid()


def slope_of_silu(x, gradient):
    return gradient * (x.sigmoid() + silu(x) * (1 - x.sigmoid()))


def autocast(self, h):
    with torch.autocast("cpu", torch.bfloat16):
        return h @ self.body.weight


def rms(h, eps=SINGLE.eps):
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)


def with_codes(self, x):
    assert self.codes.dtype == torch.int8
    return x @ (self.codes * self.w)


def sine(self, h):
    return h.sin()


OF_THE_INPUT = {  # in training; small numbers, or it would not matter
    "by hand": lambda self, h: rms(1e-6 * h, torch.finfo(h.dtype).eps),
    "default": lambda self, h: rms(1e-6 * h, torch.finfo().eps),
    "function": lambda self, h: functional.rms_norm(1e-6 * h, (D,)),
    "module": lambda self, h: self.norm(1e-6 * h),
}
RIGHT |= {
    f"precision, {name}": within(f, lambda self, h: rms(1e-6 * h), norm=nn.RMSNorm(D, elementwise_affine=False))
    for name, f in OF_THE_INPUT.items()
}
RIGHT |= {
    "mask": within(lambda self, h: h + torch.finfo(h.dtype).min * 1e-38, lambda self, h: h + SINGLE.min * 1e-38),
    "old function": within(lambda self, h: custom(silu, slope_of_silu)(h), lambda self, h: functional.silu(h)),
    "function of NumPy": within(lambda self, h: by_numpy(np.sin, np.cos, np.float64)(h), sine),
    "autocast": within(autocast, lambda self, h: h @ self.body.weight),
    "precision, double": case(lambda: Net(OF_THE_INPUT["by hand"]).double(), x=X.double()),
    "half precision": case(lambda: Net(sine).half()),
    "brain floats": case(lambda: Net(sine).bfloat16()),
    "constants": within(lambda self, h: h @ torch.ones(D, D), lambda self, h: h.sum(1, keepdim=True).expand(-1, D)),
    "integers": case(linear(with_codes, codes=nn.Parameter(CODES, False), w=parameter(ONES))),
}

# Tensors that are no parameters, gradients that stop, are hooked, or are asked about

PLAIN = torch.linspace(-1, 1, D * D).view(D, D) / 3
HELD = {
    "product": lambda self, h: h @ self.plain,
    "weight": lambda self, h: functional.linear(h, self.plain).sin(),
    "in a list": lambda self, h: torch.cat([h[:, :3], self.plain[0, :3].expand(len(h), 3)], 1),
    "filter": lambda self, h: functional.conv1d(h[:, None], self.plain[None, :1, :3], padding=1)[:, 0],
}
RIGHT |= {
    f"plain tensor, {name}": case(partial(Net, f, plain=PLAIN), partial(Net, f, plain=PLAIN.double()))
    for name, f in HELD.items()
}


def rounded_weights(self, h):
    with torch.no_grad():
        rounded = (self.w * 8).round() / 8 - self.w
    return functional.linear(h, self.w + rounded)


def equilibrium(self, h):
    with torch.no_grad():
        z = torch.zeros_like(h)
        for _ in range(10):
            z = (z @ self.w / 4 + h).tanh()
    return (z @ self.w / 4 + h).tanh()


def straight_through(self, h):
    soft = (h @ self.w).softmax(1)
    return functional.one_hot(soft.argmax(1), D).to(h.dtype) - soft.detach() + soft


STOPPED = {f.__name__: f for f in (rounded_weights, equilibrium, straight_through)}
STOPPED["its own data"] = lambda self, h: h @ self.w * self.w.data.norm()
W = torch.randn(D, D, generator=torch.Generator().manual_seed(4))
RIGHT |= {name: within(f, w=parameter(W)) for name, f in STOPPED.items()}
ASKED = {
    "gradients are enabled": lambda self, h: h.sin() if torch.is_grad_enabled() else h.cos(),
    "a weight is trained": lambda self, h: h.sin() if self.body.weight.requires_grad else h.cos(),
    "values are tracked": lambda self, h: h.sin() if h.requires_grad else h.cos(),
    "inference": lambda self, h: h.cos() if torch.is_inference_mode_enabled() else h.sin(),
    "a leaf": lambda self, h: h.cos() if h.is_leaf else h.sin(),
}
RIGHT |= {f"whether {name}": within(f, sine) for name, f in ASKED.items()}


def hooked(kind, layer):
    net = Net()
    getattr(net.get_submodule(layer), f"register_{kind}_hook")(lambda m, *given: (given[0][0] * 0,))
    return net


def linear_bag(sparse):
    return nn.Sequential(nn.EmbeddingBag(11, D, sparse=sparse), nn.Linear(D, K))


HOOKS = ("full_backward", "body"), ("full_backward_pre", "head"), ("backward", "body")
RIGHT |= {f"hook, {hook[0]}": case(partial(hooked, *hook), Net) for hook in HOOKS}
IMAGES = integers(3, 8, 8, high=255)(4).to(torch.uint8)


def of_bytes(cast):
    convolution = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(72, K))
    return Whole(lambda self, x: self.layers(cast(x) / 255), layers=convolution)


RIGHT |= {
    "bytes": case(partial(of_bytes, torch.Tensor.float), partial(of_bytes, torch.Tensor.double), IMAGES),
    "checkpoint": within(
        lambda self, h: checkpoint(self.block, h, use_reentrant=False),
        lambda self, h: self.block(h),
        block=nn.Sequential(nn.Linear(D, D), nn.Tanh()),
    ),
    "embedding, sparse": case(partial(embedded, sparse=True), embedded, tokens(8)),
    "embedding, scaled": case(partial(embedded, scale_grad_by_freq=True), embedded, tokens(8)),
    "embedding, padded": case(partial(embedded, padding_idx=3), x=tokens(8)),
    "bag, sparse": case(lambda: linear_bag(True), lambda: linear_bag(False), tokens(8)),
    "input changed in place": case(linear(lambda self, x: x.sub_(1).mul_(2)), linear(lambda self, x: (x - 1) * 2)),
    "backwards once": within(lambda self, h: functional.hardsigmoid(h)),  # as the gates of GhostNet
}
PRODUCTS = {*STOPPED, "backwards once"}  # products stop where gradients do, and go forward without a second derivative


# Torch itself calls what it warns of, at the first forward derivative.
FORWARD = pytest.mark.filterwarnings("ignore:`torch.jit")


@FORWARD
@pytest.mark.parametrize("name", RIGHT)
def test_modules_are_measured_as_the_function_that_is_meant(name):
    make, meant, x = RIGHT[name]
    net, kept = made(make), x.clone()
    assert_right(net, x, made(meant))
    assert torch.equal(x, kept)
    if name in PRODUCTS:
        rows = jacobian(net, x)
        assert_near(GaussNewton(net, x).operator().dense(), rows @ rows.mT / len(x), 1e-11)


@FORWARD
@pytest.mark.bad_input
def test_a_product_that_cannot_be_had_says_what_can():
    net = made(lambda: Net(lambda self, h: torch.cdist(h, self.c), c=nn.Parameter(torch.randn(D, D))))
    with pytest.raises(ValueError, match=r"_cdist_backward.*Take the Gram matrix or both ends"):
        GaussNewton(net, X).operator().dense()
    assert_right(net, X)


# Casts


def as_complex(h):
    return torch.view_as_complex(h.unflatten(1, (3, 2)))


CASTS = {
    "float": lambda h: h.float().sin(),
    "bfloat16": lambda h: h.bfloat16().sin(),
    "to, by name": lambda h: h.to(dtype=torch.float16).sin(),
    "to a device": lambda h: h.to("cpu", torch.float32).sin(),
    "to another": lambda h: h.to(torch.from_numpy(np.ones(1, dtype=np.float32))).sin(),
    "type": lambda h: h.type(torch.float32).sin(),
    "type, old": lambda h: h.type(torch.FloatTensor).sin(),
    "type as": lambda h: h.type_as(torch.from_numpy(np.ones(1, dtype=np.float32))).sin(),
    "softmax": lambda h: functional.softmax(h, -1, dtype=torch.float32),
    "sum": lambda h: h + h.sum(-1, keepdim=True, dtype=torch.float32),
    "mean": lambda h: h - torch.mean(h, -1, True, dtype=torch.float32),
    "new": lambda h: torch.zeros(h.shape, dtype=torch.float32).add(h),
    "complex": lambda h: torch.view_as_real(as_complex(h).cfloat() ** 2).flatten(1),
    "root mean square, as in transformers": lambda h: rms(h.to(torch.float32), 1e-6).to(h.dtype),
}
WITHOUT = {
    "softmax": lambda h: h.softmax(-1),
    "sum": lambda h: h + h.sum(-1, keepdim=True),
    "mean": lambda h: h - h.mean(-1, True),
    "new": lambda h: h,
    "complex": lambda h: torch.view_as_real(as_complex(h) ** 2).flatten(1),
    "root mean square, as in transformers": lambda h: rms(h, 1e-6),
}


@pytest.mark.parametrize("name", CASTS)
def test_casts_lose_nothing(name):
    """Where samples go together, and where something in place lets them go one by one."""
    meant = made(lambda: Net(lambda self, h: WITHOUT.get(name, torch.sin)(h)))
    for in_place in (False, True):
        net = made(lambda: Net(lambda self, h: CASTS[name](self.copy(h)).to(self.head.weight.dtype)))
        net.copy = (lambda h: torch.zeros(len(h), D).add_(h)) if in_place else torch.clone
        assert_right(net, X, meant)
        assert network_of(net, X).vmapped != in_place


@pytest.mark.parametrize("output", [lambda y: y.float(), lambda y: y.to(torch.bfloat16)])
def test_a_cast_of_the_outputs_loses_nothing(output):
    assert_right(made(Net), X, output=output)


# Inputs and buffers of other kinds


def test_masks_with_infinite_entries_are_arguments_like_others():
    """As of attention, where a mask is added to the scores."""

    def forward(self, x, mask):
        h = self.body(x)
        return self.head((h + mask).softmax(1) + (h + mask).amax(1, keepdim=True) * h * mask.exp())

    net = made(lambda: Whole(forward, body=nn.Linear(D, D), head=nn.Linear(D, K)))
    mask = torch.zeros(8, D)
    mask[::2, D - 2 :] = -torch.inf
    found = gram_matrix(net, (X, mask))
    assert torch.equal(found, gram_matrix(net, {"x": X, "mask": mask}))
    rows = rows_of(net.double(), X, mask)
    assert_near(found, rows @ rows.mT / 8)


BUFFERS = {
    "coordinates": (torch.Tensor.to_sparse, lambda self, x: (self.held @ x.mT).mT),
    "rows": (torch.Tensor.to_sparse_csr, lambda self, x: (self.held @ x.mT).mT),
    "without values": (lambda _: torch.ones(D, device="meta"), lambda self, x: x * len(self.held)),
    "of no size": (lambda _: torch.ones(0), lambda self, x: x + self.held.sum()),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_of_other_kinds_are_what_they_are(name):
    make, use = BUFFERS[name]
    buffer, (net, meant) = make(EYE + EYE.roll(1, 0) / 2), (made(linear(use)) for _ in range(2))
    net.register_buffer("held", buffer)
    meant.register_buffer("held", ONES if buffer.is_meta else buffer.to_dense())
    rows = jacobian(meant, X)
    assert_near(gram_matrix(net, X), rows @ rows.mT / 8)


# Modes, wrappers and inference


def unused(self, h):
    h = self.norm(h).relu()
    unused = self.other(h), self.fc(h)
    return self.fc(h.flip(1)) + unused[0][:, :D] * torch.zeros(D)


def test_results_that_are_no_outputs_beside_normalisation_in_training():
    parts = dict(norm=nn.BatchNorm1d(D), fc=nn.Linear(D, D), other=nn.Linear(D, 9))
    assert_right(made(lambda: Net(unused, **parts)), X, mode="train")


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


def spectral(wrap, zero_head):
    net = Net(zero_head=zero_head)
    wrap(net.body)
    return net


SPECTRAL = parametrizations.spectral_norm, nn.utils.spectral_norm
SWITCH = Whole(lambda self, h: h.sin() if self.training else h.cos())
SWITCHED = partial(Net, lambda self, h: self.switch(h), zero_head=True)


MEANT = "is in training mode.*mode='eval'.*mode='train'"


@pytest.mark.parametrize(
    "make, message",
    [
        *((partial(spectral, wrap, zero), MEANT) for wrap in SPECTRAL for zero in (False, True)),
        (lambda: SWITCHED(switch=nn.BatchNorm1d(D)), rf"switch \(BatchNorm1d\) {MEANT}"),
        (lambda: SWITCHED(switch=SWITCH), rf"switch \(Whole\) {MEANT}"),
        (lambda: SWITCHED(switch=Tracking(False)), r"switch \(Tracking\) changes its mean, on which they depend"),
    ],
)
def test_a_layer_that_is_another_one_in_training_asks_which_is_meant(make, message):
    net = made(make)
    assert_refused(net, X, message)
    assert_right(net, X, copy.deepcopy(net).eval(), mode="eval")
    if "Whole" in message or "BatchNorm" in message:
        assert_right(net, X, mode="train")
    assert_right(net.eval(), X)


def test_a_state_that_outputs_depend_on_is_refused_in_any_mode_but_training():
    net = made(lambda: SWITCHED(switch=Tracking(True)))
    for mode in (None, "eval"):
        assert_refused(net, X, r"switch \(Tracking\) changes its mean, on which they depend", mode=mode)


COMPILED = partial(torch.compile, backend="eager")
WRAPPED = nn.DataParallel, COMPILED, lambda net: nn.DataParallel(COMPILED(net))
WRAPPED += lambda net: nn.Sequential(COMPILED(net)), lambda net: net.compile(backend="eager") or net


@pytest.mark.parametrize("wrap", WRAPPED)
def test_modules_that_are_wrapped_are_unwrapped(wrap):
    net = made(lambda: Net(sine))
    assert torch.equal(gram_matrix(wrap(copy.deepcopy(net)), X), gram_matrix(net, X))
    torch._dynamo.reset()


def test_inference_mode_is_left_for_the_derivatives():
    net, x = made(Net).double(), X.double()
    expected = gram_matrix(net, x)
    with torch.inference_mode():
        assert torch.equal(gram_matrix(net, x), expected)
        found = condition_number(made(Net).double(), x.clone())
        assert torch.is_inference_mode_enabled()
    assert found == condition_number(net, x)
    with torch.no_grad():
        assert torch.equal(gram_matrix(net, x), expected)


# Functions that torch has in single precision alone: the networks that use them, beside their formulas

WARNED = [pytest.mark.filterwarnings(f"ignore:{text}") for text in ("torch.ao.quantization is", "Please use quant_min")]


def quantised():
    """A network in quantisation-aware training, whose observers have seen data."""
    net = nn.Sequential(tq.QuantStub(), nn.Linear(D, 6), nn.ReLU(), nn.Linear(6, 3)).train()
    net.qconfig = tq.get_default_qat_qconfig("fbgemm")
    with torch.no_grad():
        net = tq.prepare_qat(net)
        net(X)
    return net


def rounded(x, by):
    scale, zero = by.scale.double(), by.zero_point
    if by.is_per_channel:
        scale, zero = scale[:, None], zero[:, None]
    level = (x / scale).round() + zero
    low, high = by.activation_post_process.quant_min, by.activation_post_process.quant_max
    y = (level.clamp(low, high) - zero) * scale
    return y.detach() + (x - x.detach()) * ((level >= low) & (level <= high))


def straight_through(self, x):
    """The same network, each rounding written as its formula."""
    x = rounded(x, self.stub.activation_post_process)
    for layer, between in zip(self.layers, (torch.relu, torch.clone), strict=True):
        x = x @ rounded(layer.weight, layer.weight_fake_quant).T + layer.bias
        x = between(rounded(x, layer.activation_post_process))
    return x


@WARNED[0]
@WARNED[1]
def test_a_network_in_quantisation_aware_training_has_the_derivatives_of_its_training():
    net = made(quantised)
    assert_refused(net, X, "disable_observer", mode="train")
    net.apply(tq.disable_observer).eval()
    assert_right(net, X, Whole(straight_through, stub=net[0], layers=nn.ModuleList([net[1], net[3]])).eval())


def experts(self, x):
    """Two experts in one product, as in mixtures of many."""
    n = len(x)
    h = torch._grouped_mm(x.repeat(2, 1), self.w, offs=torch.tensor([n, 2 * n], dtype=torch.int32))
    return (h[:n].sin() + h[n:].tanh()) @ self.head


def test_grouped_products_are_products_of_each_group():
    generator = torch.Generator().manual_seed(2)
    w, head, x = (torch.randn(*shape, generator=generator) for shape in ((2, 16, 16), (16, 3), (8, 16)))
    parts = dict(w=nn.Parameter(w), head=nn.Parameter(head))
    plain = Whole(lambda self, x: ((x @ self.w[0]).sin() + (x @ self.w[1]).tanh()) @ self.head, **parts)
    assert_right(Whole(experts, **parts), x, plain)


def test_grouped_products_of_unequal_groups_and_rows_of_none():
    a, b = X[:7, :4].double(), torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(3)).double()
    expected = torch.cat([a[:2] @ b[0], a[2:2] @ b[1], a[2:6] @ b[2], torch.zeros(1, 2)])
    torch.testing.assert_close(grouped_product(a, b, torch.tensor([2, 2, 6])), expected)


@WARNED[1]
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_fake_quantisation_is_that_of_torch(axis):
    """In single precision, outside of the range too, values and derivatives."""
    size = 1 if axis is None else (5, D)[axis]
    scale = torch.rand(size, generator=torch.Generator().manual_seed(4)) * 0.01 + 0.01
    zero = torch.arange(size, dtype=torch.int32)
    ours, theirs = (data(5).requires_grad_() for _ in range(2))
    y = fake_quantize(ours, scale, zero, axis, -100, 100)
    if axis is None:
        expected = torch.fake_quantize_per_tensor_affine(theirs, scale, zero, -100, 100)
    else:
        expected = torch.fake_quantize_per_channel_affine(theirs, scale, zero, axis, -100, 100)
    torch.testing.assert_close(y, expected)
    for z in (y, expected):
        (z * data(5).cos()).sum().backward()
    assert 0 < (ours.grad == 0).sum() < 30
    torch.testing.assert_close(ours.grad, theirs.grad)
