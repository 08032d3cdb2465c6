"""What cannot be measured, each with one clear sentence."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gnlib import condition_number
from tests.gnlib.jacobian.cases import (
    D,
    K,
    Net,
    Tokens,
    by_numpy,
    custom,
    data,
    embedded,
    gram_matrix,
    integers,
    made,
    mlp,
    tokens,
)
from tests.gnlib.jacobian.helpers import assert_refused, assert_right
from tests.gnlib.networks import Whole

pytestmark = [
    pytest.mark.bad_input,
    *(pytest.mark.filterwarnings(f"ignore::{kind}Warning") for kind in ("Future", "Deprecation", "User")),
]
IMAGES, X, FIVE = integers(3, 8, 8, high=255)(4).to(torch.uint8), data(8), torch.ones(2, 5)


def linear(use, outputs=K, **parts):
    return lambda: Whole(lambda self, x: use(self.linear(x)), linear=nn.Linear(D, outputs), **parts)


def between(use, **parts):
    """A layer between two others, in double precision: where nothing else tells what is wrong."""
    return lambda: Net(use, fc=nn.Linear(D, D), **parts).double()


# Arguments and parameters


def quantised():
    from torch.ao.nn.quantized import dynamic

    return nn.Sequential(nn.Linear(D, D), dynamic.Linear(D, K))


def with_nan():
    net = mlp()
    net[2].weight.data[0, 0] = math.nan
    return net


def kept(zero_head):
    """Parameters that are kept where they are not registered, too."""
    net = Net(lambda self, h: h @ self.kept[0], zero_head=zero_head).double()
    net.kept = [net.body.weight]
    return net


REGISTERED = "depend on the parameter body.weight in a place where it is not registered"
LATE = linear(lambda y: y + torch.where(y[:, :1].abs() > 1e3, math.nan, 0.0)), torch.cat([data(10), 1e6 * data(2)])
ARGUMENTS = [
    ("x is empty", mlp, torch.ones(0, 5)),
    ("first axis of x must count samples", mlp, torch.tensor(1.0)),
    ("x has 10 entries that are NaN", mlp, torch.full((2, 5), math.nan)),
    ("module fails on the first 2 samples of x.*Check the shape", mlp, torch.ones(2, 4)),
    ("x is on meta but the module on cpu", mlp, torch.ones(2, 5, device="meta")),
    (r"x is of torch.uint8, and integers are passed on.*x.double\(\)", lambda: nn.Conv2d(3, 2, 3), IMAGES),
    ("module fails on .* samples of x", embedded, tokens(8) + 9),
    ("no parameter that requires a gradient", lambda: mlp().requires_grad_(False), FIVE),
    ("The parameter 2.weight has 1 entries that are NaN", with_nan, FIVE),
    ("The parameter none.0 is empty", lambda: Net(none=nn.ParameterList([torch.zeros(0)])), X),
    ("body.weight is on the meta device, where it has no values", lambda: Net().to("meta"), X),
    ("body.weight is on the meta device", lambda: Net().to("meta"), X.to("meta")),
    ("0.weight has no shape yet; call the module", lambda: nn.Sequential(nn.LazyLinear(4)), X),
    (r"1 \(Linear\) is quantised", quantised, X),
    (r"module \(RecursiveScriptModule\) is scripted", lambda: torch.jit.script(nn.Linear(D, K)), X),
    (r"fc \(\w+Module\) is scripted", lambda: Net(fc=torch.jit.trace(nn.Linear(D, D), X)), X),
    (r"1 \(Dropout\) is in training mode; say which", lambda: mlp(nn.Dropout(0.5)), FIVE),
    (REGISTERED, lambda: kept(False), X.double()),
    (REGISTERED, lambda: kept(True), X.double()),
    ("outputs have NaN or infinite entries from sample 10 on", *LATE),
    (r"outputs of 1 samples are of shape \(3,\)", linear(lambda y: y.squeeze(0)), X[:2]),
]
OPTIONS = [
    ("mode is 'test'", dict(mode="test")),
    ("memory is 0.0; a positive number", dict(memory=0.0)),
    ("memory is inf; a positive number", dict(memory=math.inf)),
]
OUTPUTS = [
    (r"outputs of 2 samples are of shape \(2,\); a tensor of shape \(2, k\)", lambda y: y.argmax(1)),
    (r"shape \(2, 0\)", lambda y: y[:, :0]),
    (r"shape \(1, 3\)", lambda y: y[:1]),
    ("type tuple", lambda y: (y, y)),
    ("outputs are of torch.int64", lambda y: y.argmax(1, keepdim=True)),
    ("can be differentiated", lambda y: y.detach()),
    ("outputs have NaN or infinite entries", lambda y: y * math.inf),
    ("change from call to call", lambda y: y + torch.randn(len(y), 1)),
    ("depend on the other samples of the batch", lambda y: y - y.mean(0)),
    ("Jacobian with respect to .* has NaN", lambda y: (y - y).abs().sqrt()),
]

# What changes while it runs, what a backward pass finds overwritten, and what computes in a lower precision


def changed_afterwards(self, h):
    y = self.fc(h).sin()
    self.fc.weight.data.mul_(0.9)
    return y


def changed_for_many(self, h):
    self.fc.weight.data.mul_(0.9 if len(h) > 3 else 1)
    return self.fc(h).sin()


def frozen_part_changed(self, h):
    self.frozen.data.add_(1)
    return self.fc(h + self.frozen).sin()


def overwritten(self, h):
    """The tensor that the layer was given serves for its activation too."""
    y = self.fc(h)
    functional.relu_(h)
    return y.sin() + h


ROUNDED_BACKWARDS = custom(torch.sin, lambda x, gradient: (gradient.float() * x.float().cos()).double())


def rounded_sine(x):
    return x.float().sin().to(x.dtype)


with warnings.catch_warnings(action="ignore"):  # of scripting, which is found in older networks
    scripted_sine = torch.jit.script(rounded_sine)
    NESTED, QUANTISED = torch.nested.nested_tensor([X[:1], X[1:]]), torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)


def stored(self, h):
    kept = torch.from_numpy(np.zeros((len(h), D), dtype=np.float32))
    kept[:] = h
    return kept.double().sin()


def rounded(array):
    return array.astype(np.float32).astype(np.float64)


CHANGES = r"The forward pass changes the parameter (fc.weight|frozen) in place"
FAILS = "cannot be differentiated"
LOWER, SIGHT = "computes in a lower precision than double", r"where it cannot be changed \(out of sight of torch\)"
FROZEN = nn.Parameter(torch.zeros(D), requires_grad=False)
BY_NUMPY = [
    by_numpy(np.sin, np.cos, np.float32),
    by_numpy(lambda x: rounded(np.sin(x)), np.cos, np.float64),  # in the values alone
    by_numpy(np.square, lambda x: 2 * x, np.float32),
]
RUNNING = [
    *((CHANGES, between(f), X.double()) for f in (changed_afterwards, changed_for_many)),
    (CHANGES, between(frozen_part_changed, frozen=FROZEN), X.double()),
    ("changes the parameter 0.weight in place", lambda: embedded(max_norm=0.5).double(), tokens(8)),
    (f"module {FAILS}.*modified by an inplace operation", between(overwritten), X.double()),
    (f"module {FAILS}.*modified by an inplace", between(lambda self, h: self.fc(h).exp().mul_(2) + h), X.double()),
    (FAILS, between(lambda self, h: checkpoint(self.fc, h, use_reentrant=True)), X.double()),
    (
        "None of the inputs have requires_grad=True",
        lambda: Whole(lambda self, x: checkpoint(self.net, x, use_reentrant=True), net=embedded()),
        tokens(8),
    ),
    (
        r"in double precision \(line \d+ of <lambda>: .*ones\(9, 9\)",
        lambda: Net(lambda self, h: h @ torch.ones(9, 9)),
        X,
    ),
    (LOWER, linear(scripted_sine), X),
    (LOWER, lambda: Net(stored), X),
    (LOWER, lambda: Net(stored, zero_head=True), X),
    (LOWER, lambda: Net(lambda self, h: ROUNDED_BACKWARDS(h)), X),
    *((f"{LOWER} {SIGHT}", lambda f=f: Net(lambda self, h: f(h)), X) for f in BY_NUMPY),
]


@pytest.mark.parametrize("message, make, x", [*ARGUMENTS, *RUNNING])
def test_what_cannot_be_measured_gets_one_clear_sentence(message, make, x):
    assert_refused(made(make), x, message)


CELLS = nn.GRU(5, 4, num_layers=2, dropout=0.5)


@pytest.mark.parametrize(
    "make, x", [(lambda: mlp(nn.Dropout(0.5)), FIVE), (lambda: Tokens(0.1), tokens(8)), (lambda: CELLS, FIVE)]
)
def test_what_drops_out_in_training_is_refused(make, x):
    assert_refused(made(make), x, r"\(\w+\) drops out in training mode", mode="train")


@pytest.mark.parametrize("message, options", [*OPTIONS, *((message, dict(output=f)) for message, f in OUTPUTS)])
def test_bad_options_are_refused(message, options):
    assert_refused(made(mlp), torch.randn(2, 5), message, **options)


@pytest.mark.parametrize("where", [(), (-1,)])
def test_outputs_without_an_axis_of_their_own_are_refused_with_a_hint_that_works(where):
    net = made(linear(lambda y: y.squeeze(*where), 1))
    for n in (8, 1):
        assert "such as lambda y: y.reshape(-1, 1)." in assert_refused(net, data(n), "samples are of shape")
    assert_right(net, X, output=lambda y: y.reshape(-1, 1))


# Of another type

NAMED = Whole(lambda self, x, mask: self.head(x * mask.abs()), head=nn.Linear(D, K))
C, W = X.to(torch.complex64), nn.Parameter(torch.ones(D, D, dtype=torch.complex128), requires_grad=False)
TYPES = [
    ("x is of type list; pass a torch tensor", lambda: gram_matrix(Net(), [[1.0] * D])),
    ("x is of type list; pass a torch tensor", lambda: gram_matrix(Net(), [X, X.tolist()])),
    ("x is complex", lambda: gram_matrix(Net(), C)),
    (r"The parameter w is complex \(torch.complex128\)", lambda: gram_matrix(Net(w=W), X)),
    ("memory is '4GB'; a positive number of GiB", lambda: condition_number(Net(), X, memory="4GB")),
    ("module is of type type; pass a torch.nn.Module", lambda: gram_matrix(nn.Linear, X)),
    ("operand is of type function; a function has no parameters", lambda: condition_number(lambda x: x, X)),
    ("x is missing; a network is measured on samples", lambda: condition_number(Net())),
    *(
        (r"complex tensor among its arguments.*torch\.view_as_real", lambda x=x: gram_matrix(NAMED, x))
        for x in ((X, C), {"x": X, "mask": C}, [(X, C), (X, C)])
    ),
    *(
        (f"x is {kind}; pass a dense tensor", lambda x=x: gram_matrix(Net(), x))
        for other, kind in ((NESTED, "nested"), (X.to_sparse(), "sparse"), (QUANTISED, "quantised"))
        for x in (other, [other, other])
    ),
]


@pytest.mark.parametrize("message, ask", TYPES)
def test_what_is_of_another_type_is_refused(message, ask):
    with pytest.raises(TypeError, match=message):
        ask()
