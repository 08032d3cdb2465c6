"""A batch-normalised layer: its Gram matrix, its bounds, its limit of many units, and the networks of the chapter."""

import math

import pytest
import torch
from gnbook.batch_normalization import networks
from gnbook.batch_normalization.bounds import batch_norm_bound, batch_norm_limit, sharp_batch_norm
from gnbook.batch_normalization.gauss_newton import batch_norm_gram
from hypothesis import assume, given, settings
from torch import nn
from torch.nn import functional

from gnlib import SecondMoment
from tests.gnbook.hidden_layers import case, problems
from tests.oracles import autograd_gram, ends, normal, spectrum


def literal_bound(weights, x, t, eps, scale):
    """The counterpart of Lemma 1 for one t, written out in matrices of samples."""
    v, w = weights
    sigma = torch.cov(x.T, correction=0)
    variance = torch.einsum("ud,de,ue->u", v, sigma, v) + eps
    tau = w.square().sum(0) * torch.einsum("ud,de,ue->u", v, sigma @ sigma, v) / variance**2
    diagonal = scale**2 / variance
    first, most = ends(v.T * diagonal @ v)
    smallest = ends(w * diagonal * t / (t + tau) @ w.T)[0] + (1 - t) * first
    (low, high), (_, largest) = ends(sigma), ends(w * diagonal @ w.T)
    return high / low * (largest + most) / smallest


def literal_sharp(weights, x, t, eps, scale, shift, affine):
    """The bound that keeps the data whole for one t, written out."""
    v, w = weights
    s, q = torch.linalg.eigh(torch.cov(x.T, correction=0))
    variance = ((x - x.mean(0)) @ v.T).square().mean(0) + eps
    e = v @ q * s.sqrt() / variance.sqrt()[:, None]
    length, norms, d = e.square().sum(1), w.square().sum(0), len(s)
    features = torch.cat([scale[:, None] * e, shift[:, None]], 1)
    least, by_weights = features.T @ features, scale**2 / variance
    paid, (_, top) = t + affine * norms / scale**2, ends(least)
    least[:d, :d] *= 1 - t
    least[:d, :d] += ends(w * by_weights * paid / (paid + norms * (e.square() @ s) / variance) @ w.T)[0] * s.diag()
    most = by_weights * s[-1]
    if affine:
        most = torch.maximum(most, most * (1 - length) ** 2 + length)
        least[d, d] += ends(w @ w.T)[0]
        top += max(ends(w * most @ w.T)[1], ends(w @ w.T)[1])
    else:
        top += ends(w * most @ w.T)[1]
    bottom = ends(least if affine or shift.any() else least[:d, :d])[0]
    return top / bottom if bottom > 0 else math.inf


@pytest.mark.parametrize("shape", [(3, 9, 2, 12), (4, 6, 4, 6), (4, 4, 4, 6)])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shifted", [0.0, 0.1])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 2.0])
def test_each_bound_is_the_best_of_its_family(shape, affine, shifted, eps):
    weights, x = case(shape)
    scale, shift = 1 + normal(shape[1], seed=3).abs(), shifted * normal(shape[1], seed=4)
    shares = torch.cat([torch.logspace(-6, -2, 50), torch.linspace(0.01, 1, 200)]).tolist()
    found = sharp_batch_norm(weights, x, eps=eps, scale=scale, shift=shift, affine=affine)
    family = [literal_sharp(weights, x, t, eps, scale, shift, affine) for t in [0.0, *shares]]
    assert found == pytest.approx(min(family), rel=1e-3)
    if not (affine or shifted):
        family = [literal_bound(weights, x, t, eps, scale) for t in shares]
        assert batch_norm_bound(weights, x, eps=eps, scale=scale) == pytest.approx(min(family), rel=1e-3)


def test_the_limit_where_it_is_known():
    one = SecondMoment(torch.ones(1, 1).double(), torch.tensor([5.0]).double())
    assert batch_norm_limit(one) == 1
    # two inputs: the mean of a / (a + b) is sqrt(s_1) / (sqrt(s_1) + sqrt(s_2))
    two = SecondMoment(torch.eye(2).double(), torch.tensor([9.0, 4e-10], dtype=torch.float64))
    assert batch_norm_limit(two) == pytest.approx((9.0 / 4e-10) ** 0.5, rel=1e-12)
    assert batch_norm_limit(two, eps=1e9) == pytest.approx(9.0 / 4e-10, rel=1e-6)
    assert batch_norm_limit(two, eps=1e9) == batch_norm_limit(two, eps=1e9, variance=0.5)


@settings(deadline=None, max_examples=50)
@given(problems())
def test_batch_norm_is_autograd_on_integers(problem):
    weights, x = problem
    hidden = x @ weights[0].T
    assume((hidden.amax(0) > hidden.amin(0)).all())

    def outputs(v, w):  # such an eps is lost in the sum; torch refuses 0
        return functional.batch_norm(x @ v.T, None, None, training=True, eps=1e-300) @ w.T

    gram = batch_norm_gram(weights, x)
    torch.testing.assert_close(gram, autograd_gram(outputs, weights, len(x)), rtol=1e-11, atol=1e-11)
    assert torch.equal(gram, gram.T)
    assert spectrum(gram)[-1] >= -1e-12 * max(1, spectrum(gram)[0])


def test_the_two_halves_make_the_whole():
    x = normal(6, 3, 8, 8, seed=0)
    halves = networks.Half(3, subtract=False)(networks.Half(3, subtract=True)(x))
    torch.testing.assert_close(halves, nn.BatchNorm2d(3, affine=False, eps=1e-30).double()(x))
