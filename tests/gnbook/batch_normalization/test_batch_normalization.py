"""A batch-normalised layer: its matrix, its bounds, its limit of many units, and the networks of the chapter."""

import math

import pytest
import torch
from gnbook.batch_normalization import networks
from gnbook.batch_normalization.bounds import batch_norm_bound, batch_norm_limit, sharp_batch_norm
from gnbook.batch_normalization.gauss_newton import batch_norm_gram
from hypothesis import assume, given, settings
from torch import nn
from torch.nn import functional

import gnlib
from gnlib import SecondMoment
from tests.gnbook.hidden_layers import (
    assert_equal_to,
    case,
    large,
    problems,
)
from tests.oracles import autograd_gram, batch_norm_units, literal_eq_10, normal, spectrum


def literal_bound(weights, x, t, eps=0.0, scale=None):
    """The counterpart of Lemma 1 for one t, written out in matrices of samples."""
    v, w = weights
    scale = torch.ones(len(v)).double() if scale is None else scale
    centred = x - x.mean(0)
    sigma = centred.T @ centred / len(x)
    variance = torch.einsum("ud,de,ue->u", v, sigma, v) + eps
    tau = w.square().sum(0) * torch.einsum("ud,de,ue->u", v, sigma @ sigma, v) / variance**2
    diagonal = (scale**2 / variance).diag()
    kept = diagonal @ (t / (t + tau)).diag()
    largest = spectrum(w @ diagonal @ w.T)[0] + spectrum(v.T @ diagonal @ v)[0]
    smallest = spectrum(w @ kept @ w.T)[-1] + (1 - t) * spectrum(v.T @ diagonal @ v)[-1]
    return (spectrum(sigma)[0] / spectrum(sigma)[-1] * largest / smallest).item()


epsilons = pytest.mark.parametrize("eps", [0.0, 1e-5, 2.0])


def literal_sharp(weights, x, t, eps, scale, shift, affine):
    """The bound that keeps the data whole for one t, written out."""
    v, w = weights
    centred = x - x.mean(0)
    s, q = torch.linalg.eigh(centred.T @ centred / len(x))
    variance = (centred @ v.T).square().mean(0) + eps
    e = v @ q * s.sqrt() / variance.sqrt()[:, None]
    length, norms, d = e.square().sum(1), w.square().sum(0), len(s)
    features = torch.cat([scale[:, None] * e, shift[:, None]], 1)
    tau, most = norms * (e.square() @ s) / variance, scale**2 / variance * s[-1]
    paid = t + norms / scale**2 if affine else t
    kept = (scale**2 / variance * paid / (paid + tau)).diag()
    least = features.T @ features
    least[:d, :d] *= 1 - t
    least[:d, :d] += spectrum(w @ kept @ w.T)[-1] * s.diag()
    top = spectrum(features.T @ features)[0]
    if affine:
        most = torch.maximum(most, most * (1 - length) ** 2 + length)
        least[d, d] += spectrum(w @ w.T)[-1]
        top = top + torch.maximum(spectrum(w @ most.diag() @ w.T)[0], spectrum(w @ w.T)[0])
    else:
        top = top + spectrum(w @ most.diag() @ w.T)[0]
    bottom = spectrum(least if affine or shift.any() else least[:d, :d])[-1]
    return (top / bottom).item() if bottom > 0 else math.inf


@pytest.mark.parametrize("shape", [(3, 9, 2, 12), (4, 6, 4, 6)])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shifted", [0.0, 0.1])
@epsilons
def test_the_sharper_bound_is_the_best_of_its_family(shape, affine, shifted, eps):
    weights, x = case(shape)
    scale, shift = 1 + normal(shape[1], seed=3).abs(), shifted * normal(shape[1], seed=4)
    found = sharp_batch_norm(weights, x, eps=eps, scale=scale, shift=shift, affine=affine)
    shares = torch.cat([torch.logspace(-6, -2, 50), torch.linspace(0.01, 1, 200)]).tolist()
    family = [literal_sharp(weights, x, t, eps, scale, shift, affine) for t in [0.0, *shares]]
    assert found == pytest.approx(min(family), rel=1e-3)


def test_the_limit_where_it_is_known():
    one = SecondMoment(torch.ones(1, 1).double(), torch.tensor([5.0]).double())
    assert batch_norm_limit(one) == 1
    # two inputs: the mean of a / (a + b) is sqrt(s_1) / (sqrt(s_1) + sqrt(s_2))
    two = SecondMoment(torch.eye(2).double(), torch.tensor([9.0, 4e-10], dtype=torch.float64))
    assert batch_norm_limit(two) == pytest.approx((9.0 / 4e-10) ** 0.5, rel=1e-12)
    assert batch_norm_limit(two, eps=1e9) == pytest.approx(9.0 / 4e-10, rel=1e-6)
    assert batch_norm_limit(two, eps=1e9) == batch_norm_limit(two, eps=1e9, variance=0.5)


def batch_norm(hidden):
    return functional.batch_norm(hidden, None, None, training=True, eps=1e-300)  # lost in the sum; torch refuses 0


def autograd(weights, x):
    return autograd_gram(lambda v, w: batch_norm(x @ v.T) @ w.T, weights, len(x))


@large
def test_the_literal_sum_of_eq_10(shape):
    weights, x = case(shape)
    gram = batch_norm_gram(weights, x)
    assert_equal_to(gram, literal_eq_10(batch_norm_units(weights, x), len(x)), 1e-12)
    assert torch.equal(gram, gram.T)


@settings(deadline=None, max_examples=50)
@given(problems())
def test_batch_norm_is_autograd_on_integers(problem):
    weights, x = problem
    hidden = x @ weights[0].T
    assume((hidden.amax(0) > hidden.amin(0)).all())
    gram = batch_norm_gram(weights, x)
    torch.testing.assert_close(gram, autograd(weights, x), rtol=1e-11, atol=1e-11)
    assert torch.equal(gram, gram.T)
    assert spectrum(gram)[-1] >= -1e-12 * max(1, spectrum(gram)[0])


def images(n=6):
    return torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_two_halves_make_the_whole():
    x = images()
    halves = networks.Half(3, subtract=False)(networks.Half(3, subtract=True)(x))
    torch.testing.assert_close(halves, nn.BatchNorm2d(3, affine=False, eps=1e-30).double()(x))


def test_kappa_of_the_linear_networks_against_modules():
    x = torch.rand(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = networks.linear_network(4, 6, 2, seed=0)
    layers = nn.Sequential(nn.Linear(4, 6, bias=False), nn.Identity(), nn.Linear(6, 2, bias=False))
    layers[0].weight, layers[2].weight = map(nn.Parameter, weights)
    assert networks.without_bn(weights, x) == pytest.approx(float(gnlib.condition_number(layers.double(), x)))
    layers[1] = nn.BatchNorm1d(6, affine=False, eps=1e-30).double()
    found = float(gnlib.condition_number(layers, x, mode="train"))
    assert networks.with_bn(weights, x) == pytest.approx(found)


def test_steps_to_a_tenth_of_the_loss_of_zero():
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(net.weight)
    one = torch.ones(1, 1).double()
    # each step at the rate 1/2 halves the error, and the loss falls by four: below a tenth after two
    assert networks.steps_to(net, one, one, rate=0.5) == 2
    nn.init.zeros_(net.weight)
    assert networks.steps_to(net, one, one, rate=0.0, most=3) == float("inf")


@pytest.mark.parametrize("shape", [(3, 9, 2, 12), (4, 4, 4, 6)])
@epsilons
def test_the_bound_is_the_best_of_its_family(shape, eps):
    weights, x = case(shape)
    scale = 1 + normal(shape[1], seed=3).abs()
    found = batch_norm_bound(weights, x, eps=eps, scale=scale)
    shares = torch.cat([torch.logspace(-6, -2, 50), torch.linspace(0.01, 1, 200)]).tolist()
    family = [literal_bound(weights, x, t, eps, scale) for t in shares]
    assert found == pytest.approx(min(family), rel=1e-3)
