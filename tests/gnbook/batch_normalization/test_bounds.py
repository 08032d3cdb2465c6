"""Bounds for a batch-normalised layer, and its limit of many units."""

import math

import pytest
import torch
from gnbook.batch_normalization.bounds import batch_norm_limit, sharp_batch_norm

from gnlib import SecondMoment
from tests.gnbook.hidden_layers import case
from tests.oracles import normal, spectrum

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
