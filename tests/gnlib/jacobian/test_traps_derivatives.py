"""Modules whose outputs look harmless and whose derivatives do not, and derivatives that torch has its own way with."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib import GaussNewton
from tests.gnlib.jacobian.helpers import D, K, Net, assert_refused, assert_right, data, jacobian, made
from tests.gnlib.networks import Whole

DERIVATIVES = "derivatives of the outputs of a sample depend on the other samples of the batch"


def stopped(f):
    """Something of the whole batch that has the value zero, and a derivative."""
    return lambda self, h: h + f(h) - f(h).detach()


class Straight(torch.autograd.Function):
    """Batch normalisation whose forward pass is left out."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient - gradient.mean(0)


def gated_by_a_zero(self, h):
    """A mean over the batch, times a parameter that is zero, and again without its value."""
    return h + self.gate * h.mean(0) - (self.gate * h.mean(0)).detach()


IN_THE_DERIVATIVE = {
    "mean": stopped(lambda h: h.mean(0)),
    "neighbour": stopped(lambda h: h.roll(1, 0)),
    "one pair": stopped(lambda h: torch.cat([h[:-1] * 0, h[-1:] * h[:1]])),
    "a function of its own": lambda self, h: Straight.apply(h),
    "gate that is zero": gated_by_a_zero,
}


@pytest.mark.parametrize("zero_head", [False, True])
@pytest.mark.parametrize("name", IN_THE_DERIVATIVE)
def test_what_couples_samples_in_the_derivative_alone_is_seen(name, zero_head):
    gate = nn.Parameter(torch.zeros(()))
    net = made(lambda: Net(IN_THE_DERIVATIVE[name], zero_head=zero_head, gate=gate))
    assert_refused(net, data(14), DERIVATIVES)
    assert_right(net, data(14), mode="train")


def shifted(offset):
    """Outputs that differ by about one, far away from zero."""

    def forward(self, x):
        return self.head(self.body(x).softmax(0)) + offset

    return Whole(forward, body=nn.Linear(D, D), head=nn.Linear(D, K))


@pytest.mark.parametrize("offset", [1.7e9, 3e6, -1e10, 5e7, torch.tensor([1e9, 0.0, 0.0]), 2.0**40])
def test_an_offset_of_the_outputs_hides_nothing(offset):
    net = made(lambda: shifted(offset))
    assert_refused(net, data(14), "depend on the other samples")
    assert_right(net, data(14), mode="train")


# Parameters that have a domain


def border(function, between=lambda h: h):
    """A head of zeros, and a parameter at the border of the domain of a function."""
    return Net(lambda self, h: between(h) * function(self.w).sum(), zero_head=True, w=nn.Parameter(ONES.clone()))


def normalised(h):
    return (h - h.mean(0)) / (h.std(0, correction=0) + 1e-3)


ONES, NEARLY_ONE = torch.ones(D), 0.02 * torch.eye(D) + 0.98 * torch.ones(D, D)
BORDERS = {
    "logarithm": lambda w: torch.log(w - 0.99),
    "root": lambda w: torch.sqrt(w - 0.995),
    "inverse hyperbolic": lambda w: torch.atanh(w * 0.9999),
    "power": lambda w: (1.001 - w) ** 0.3,
}


@pytest.mark.parametrize("name", BORDERS)
def test_what_is_not_a_number_beyond_the_border_is_no_agreement(name):
    net = made(lambda: border(BORDERS[name], normalised))
    assert_refused(net, data(14), "depend on the other samples")
    assert_right(net, data(14), mode="train")
    assert_right(made(lambda: border(BORDERS[name])), data(14))


def checked(w):
    if not torch.allclose(w @ w.mT, torch.eye(D, dtype=w.dtype), atol=1e-2):
        raise RuntimeError("not orthogonal")
    return w


DOMAINS = {
    "factor of a covariance": (NEARLY_ONE, lambda w, h: h @ torch.linalg.cholesky(w)),
    "probabilities": (
        torch.full((D,), 0.99),
        lambda w, h: h * torch.distributions.Bernoulli(w).log_prob(torch.ones_like(w)),
    ),
    "orthogonal": (torch.eye(D), lambda w, h: h @ checked(w)),
    "scale of a density": (
        torch.full((D,), 1e-3),
        lambda w, h: torch.distributions.Laplace(0.0, w - 9.5e-4).log_prob(h).tanh(),
    ),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_parameters_stay_in_their_domain(name):
    value, function = DOMAINS[name]
    net = made(lambda: Net(lambda self, h: function(self.w, h), w=nn.Parameter(value.clone())))
    assert_right(net, data(14))


# Functions whose backward pass takes another branch where samples are taken together


def square(h):
    return h[:, :4].unflatten(1, (2, 2))


def definite(h):
    return h[:, :, None] * h[:, None] + 3 * torch.eye(D, dtype=h.dtype)


BRANCHES = {
    "determinant of a slice": lambda h: torch.linalg.det(square(h))[:, None],
    "sample by sample": lambda h: torch.stack([torch.linalg.det(row[:4].view(2, 2)) for row in h])[:, None],
    "inverse of a slice": lambda h: torch.linalg.inv(definite(h)[:, 1:4, 1:4]).diagonal(dim1=1, dim2=2).repeat(1, 2),
    "solution": lambda h: torch.linalg.solve(definite(h)[:, ::2, ::2], h[:, :3]).repeat(1, 2),
    "pseudo-inverse": lambda h: torch.linalg.pinv(definite(h)[:, :, :3]).sum(1),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_functions_of_slices_have_the_derivative_of_a_plain_backward_pass(name):
    assert_right(made(lambda: Net(lambda self, h: h * BRANCHES[name](h))).double(), data(12).double())


# Derivatives within a forward pass


class Force(nn.Module):
    """The derivative of an energy, as in Hamiltonian networks and models of molecules."""

    def __init__(self, derivative):
        super().__init__()
        self.energy, self.derivative = nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, 1)), derivative
        self.head = nn.Linear(D, K)

    def forward(self, x):
        return self.head(torch.vmap(self.derivative(lambda z: self.energy(z)[0]))(x))


def plain_force(net, x, order):
    """The same by `torch.autograd.grad` of the whole batch."""
    x = x.clone().requires_grad_()
    first, *_ = torch.autograd.grad(net.energy(x).sum(), x, create_graph=True)
    if order == 1:
        return net.head(first)
    second = [torch.autograd.grad(first[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(D)]
    return net.head(torch.stack(second, 1))


WITHIN = {
    "gradient": (torch.func.grad, 1),
    "forwards": (torch.func.jacfwd, 1),
    "by a product": (lambda f: lambda z: torch.func.vjp(f, z)[1](torch.ones((), dtype=z.dtype))[0], 1),
    "second derivatives": (lambda f: lambda z: torch.func.hessian(f)(z).diagonal(), 2),
}


@pytest.mark.filterwarnings("ignore:`torch.jit")  # which torch itself calls at the first forward derivative
@pytest.mark.parametrize("name", WITHIN)
def test_derivatives_within_a_forward_pass_are_right(name):
    derivative, order = WITHIN[name]
    net = made(lambda: Force(derivative))
    meant = type("Meant", (Force,), {"forward": lambda self, x: plain_force(self, x, order)})(derivative)
    meant.load_state_dict(net.state_dict())
    assert_right(net, data(8), meant)


# Products with the Jacobian where a forward pass stops gradients


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


STOPPED = {
    "rounded weights": rounded_weights,
    "equilibrium": equilibrium,
    "straight through": straight_through,
    "its own data": lambda self, h: h @ self.w * self.w.data.norm(),
}


@pytest.mark.parametrize("name", STOPPED)
def test_products_stop_where_gradients_do(name):
    weight = nn.Parameter(torch.randn(D, D, generator=torch.Generator().manual_seed(4)))
    net = made(lambda: Net(STOPPED[name], w=weight))
    assert_right(net, data(8))
    rows = jacobian(net, data(8))
    expected = rows @ rows.mT / 8
    operator = GaussNewton(net, data(8)).operator()
    torch.testing.assert_close(operator.dense(), expected, rtol=0, atol=1e-11 * expected.abs().max().item())


@pytest.mark.bad_input
def test_a_product_that_cannot_be_had_says_what_can():
    net = made(lambda: Net(lambda self, h: torch.cdist(h, self.c), c=nn.Parameter(torch.randn(D, D))))
    with pytest.raises(ValueError, match=r"_cdist_backward.*Take the Gram matrix or both ends"):
        GaussNewton(net, data(8)).operator().dense()
    assert_right(net, data(8))


def test_angles_of_the_border_are_what_they_seem():
    """The borders above are within the domain, and a tenth further is not."""
    for function in BORDERS.values():
        assert torch.isfinite(function(ONES)).all()
        assert not torch.isfinite(function(torch.cat([0.8 * ONES, 1.2 * ONES]))).all()
    assert math.isclose(float(NEARLY_ONE.diagonal().min()), 1.0)
