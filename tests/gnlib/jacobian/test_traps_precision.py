"""Modules that cast, round or count in integers: measured in double precision, or refused."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib import condition_number
from gnlib.jacobian.trial import network_of
from tests.gnlib.jacobian.cases import gram_matrix
from tests.gnlib.jacobian.helpers import IMAGES, D, K, Net, assert_refused, assert_right, data, jacobian, made
from tests.gnlib.networks import Whole


def rms_norm(cast):
    """As in transformers: in single precision, whatever it is given."""

    def forward(self, x):
        given = x.dtype
        if cast:
            x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(given)

    return Whole(forward, weight=nn.Parameter(torch.ones(D)))


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
    "bfloat16": lambda self, h: h.bfloat16().sin(),
    "to, by name": lambda self, h: h.to(dtype=torch.float16).sin(),
    "to a device": lambda self, h: h.to("cpu", torch.float32).sin(),
    "to another": lambda self, h: h.to(torch.from_numpy(np.ones(1, dtype=np.float32))).sin(),
    "type": lambda self, h: h.type(torch.float32).sin(),
    "type, old": lambda self, h: h.type(torch.FloatTensor).sin(),
    "type as": lambda self, h: h.type_as(torch.from_numpy(np.ones(1, dtype=np.float32))).sin(),
    "softmax": lambda self, h: functional.softmax(h, -1, dtype=torch.float32),
    "sum": lambda self, h: h + h.sum(-1, keepdim=True, dtype=torch.float32),
    "mean": lambda self, h: h - torch.mean(h, -1, True, dtype=torch.float32),
    "new": lambda self, h: torch.zeros(h.shape, dtype=torch.float32).add(h),
    "complex": lambda self, h: torch.view_as_real(as_complex(h).cfloat() ** 2).flatten(1),
}
WITHOUT = {
    "softmax": lambda self, h: h.softmax(-1),
    "sum": lambda self, h: h + h.sum(-1, keepdim=True),
    "mean": lambda self, h: h - h.mean(-1, True),
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
    assert network_of(net, data(8)).vmapped
    together = net.between
    net.between = lambda self, h: together(self, torch.zeros(len(h), D).add_(h))  # in place, so one by one
    assert not network_of(net, data(8)).vmapped
    assert_right(net, data(8), meant)


def test_autocasting_leaves_double_precision_alone():
    net = made(lambda: Net(autocast))
    meant = copy.deepcopy(net)
    meant.between = lambda self, h: h @ self.body.weight
    assert_right(net, data(8), meant)


@pytest.mark.parametrize("output", [lambda y: y.float(), lambda y: y.to(torch.bfloat16)])
def test_a_cast_of_the_outputs_loses_nothing(output):
    net = made(Net)
    assert torch.equal(gram_matrix(net, data(8), output=output), gram_matrix(net, data(8)))


def nearly_the_same(points):
    return torch.linspace(-0.5, 0.5, points, dtype=torch.float64)[:, None] * torch.ones(D) / math.sqrt(D)


def deep(cast):
    first, second = (nn.Linear(D, 20), nn.Tanh(), nn.Linear(20, D)), (nn.Linear(D, 20), nn.Tanh(), nn.Linear(20, 1))
    return nn.Sequential(*first, rms_norm(cast), *second).double()


@pytest.mark.parametrize("points", [8, 10, 14])
def test_a_norm_in_single_precision_keeps_the_digits_of_large_condition_numbers(points):
    found, meant = (
        condition_number(made(make), nearly_the_same(points)) for make in (lambda: deep(True), lambda: deep(False))
    )
    assert found.resolved == meant.resolved
    assert found.value > 1e7
    assert found.value == pytest.approx(meant.value, rel=2 * (found.residual + meant.residual))


ROUNDED = {
    "scripted": lambda: Whole(lambda self, x: scripted(self.linear(x)), linear=nn.Linear(D, K)),
    "stored": lambda: Net(stored),
    "stored, zero head": lambda: Net(stored, zero_head=True),
    "backwards": lambda: Net(lambda self, h: RoundedBackwards.apply(h)),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_that_cannot_be_undone_is_refused(name):
    assert_refused(made(ROUNDED[name]), data(8), "computes in a lower precision than double")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_autograd_functions_of_the_old_form_are_right(dtype):
    net = made(lambda: Net(lambda self, h: Old.apply(h))).to(dtype)
    meant = made(lambda: Net(lambda self, h: functional.silu(h))).to(dtype)
    assert_right(net, data(8), meant)


def test_integers_among_the_weights_stay_integers():
    def forward(self, x):
        assert self.codes.dtype == torch.int8
        return self.head(x @ (self.codes * self.scale))

    codes = nn.Parameter(torch.randint(-8, 8, (D, D), dtype=torch.int8), requires_grad=False)
    net = Whole(forward, codes=codes, scale=nn.Parameter(torch.rand(D)), head=nn.Linear(D, K))
    rows = jacobian(net, data(8))
    torch.testing.assert_close(gram_matrix(net, data(8)), rows @ rows.mT / 8)


def test_images_as_bytes_are_right_where_the_network_takes_them():
    over_255 = Whole(lambda self, x: x.float() / 255)
    net = made(lambda: nn.Sequential(over_255, nn.Conv2d(3, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(72, K)))
    expected = gram_matrix(net[1:], IMAGES.double() / 255)
    torch.testing.assert_close(gram_matrix(net, IMAGES), expected, rtol=1e-12, atol=0)


# Functions that hide from torch what they round, plain tensors, and what depends on the precision of its input


def by_numpy(function, derivative, dtype):
    """A function of NumPy in some precision, with its derivative."""

    class OfNumPy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(function(x.detach().numpy().astype(dtype)).astype(np.float64))

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * torch.from_numpy(derivative(x.numpy().astype(dtype)).astype(np.float64))

    return OfNumPy.apply


def single(array):
    return array.astype(np.float32)


HIDDEN = {
    "sine": by_numpy(np.sin, np.cos, np.float32),
    "in the values alone": by_numpy(lambda x: single(np.sin(x)).astype(np.float64), np.cos, np.float64),
    "square": by_numpy(np.square, lambda x: 2 * x, np.float32),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", HIDDEN)
def test_rounding_out_of_sight_of_torch_is_refused(name):
    net = made(lambda: Net(lambda self, h: HIDDEN[name](h)))
    assert_refused(net, data(8), r"lower precision than double where it cannot be changed \(out of sight of torch\)")


def test_functions_of_numpy_in_double_precision_are_right():
    sine = by_numpy(np.sin, np.cos, np.float64)
    assert_right(made(lambda: Net(lambda self, h: sine(h))), data(8), made(lambda: Net(lambda self, h: h.sin())))


PLAIN = torch.linspace(-1, 1, D * D).view(D, D) / 3
HELD = {
    "product": lambda self, h: h @ self.plain,
    "weight": lambda self, h: functional.linear(h, self.plain).sin(),
    "in a list": lambda self, h: torch.cat([h[:, :3], self.plain[0, :3].expand(len(h), 3)], 1),
    "filter": lambda self, h: functional.conv1d(h[:, None], self.plain[None, :1, :3], padding=1)[:, 0],
}


@pytest.mark.parametrize("name", HELD)
def test_plain_tensors_in_single_precision_are_taken_in_double(name):
    net = made(lambda: Net(HELD[name], plain=PLAIN))
    meant = made(lambda: Net(HELD[name], plain=PLAIN.double()))
    assert_right(net, data(8), meant)


SINGLE = torch.finfo(torch.float32)


def rms(self, h, eps):
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)


OF_THE_INPUT = {
    "RMSNorm": (lambda eps: nn.RMSNorm(D, eps=eps), None, SINGLE.eps),
    "by hand": (lambda eps: None, lambda self, h: rms(self, h, torch.finfo(h.dtype).eps), SINGLE.eps),
    "default": (lambda eps: None, lambda self, h: rms(self, h, torch.finfo().eps), SINGLE.eps),
    "mask": (lambda eps: None, lambda self, h: h + torch.finfo(h.dtype).min * 1e-38, SINGLE.min * 1e-38),
    "functional": (lambda eps: None, lambda self, h: functional.rms_norm(h, (D,)), SINGLE.eps),
}


@pytest.mark.parametrize("name", OF_THE_INPUT)
def test_what_depends_on_the_precision_of_the_input_is_that_of_training(name):
    make, between, eps = OF_THE_INPUT[name]
    written = {"mask": lambda self, h: h + eps, "functional": lambda self, h: functional.rms_norm(h, (D,), eps=eps)}
    as_given = between or (lambda self, h: self.norm(h))
    meant = (lambda self, h: self.norm(h)) if between is None else written.get(name, lambda self, h: rms(self, h, eps))
    x = 1e-3 * data(8)  # or a small number would not matter
    net = made(lambda: Net(lambda s, h: as_given(s, 1e-3 * h), norm=make(None)))
    other = made(lambda: Net(lambda s, h: meant(s, 1e-3 * h), norm=make(eps)))
    assert_right(net, x, other)
    if name != "mask":  # which is out of all proportion there
        double = made(lambda: Net(lambda s, h: as_given(s, 1e-3 * h), norm=make(None))).double()
        assert_right(double, x.double())
