"""A batch-normalised layer: its Gram matrix, its bounds, its limit of many units, and the networks of the chapter."""

import math

import pytest
import torch
from gnbook.batch_normalization import bounds, networks
from gnbook.batch_normalization.bounds import batch_norm_bound, batch_norm_limit, sharp_batch_norm
from gnbook.batch_normalization.gauss_newton import batch_norm_gram
from torch import nn
from torch.nn import functional

from gnlib import SecondMoment
from tests.oracles import autograd_gram, network, normal, samples


def case(shape):
    """A network of this size, and samples."""
    d, m, k, n = shape
    return network((d, m, k), seed=1), samples(n, d, seed=2)


@pytest.mark.parametrize("shape", [(3, 9, 2, 12), (4, 6, 4, 6), (4, 4, 4, 6)])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shifted", [0.0, 0.1])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 2.0])
def test_each_bound_is_that_of_the_best_share(shape, affine, shifted, eps, monkeypatch):
    weights, x = case(shape)
    how = {"eps": eps, "scale": 1 + normal(shape[1], seed=3).abs()}
    shift, shares = shifted * normal(shape[1], seed=4), torch.linspace(0.01, 1, 200).tolist()

    def both():
        return sharp_batch_norm(weights, x, affine=affine, shift=shift, **how), batch_norm_bound(weights, x, **how)

    found, shares = both(), [0.0, *torch.logspace(-6, -2, 50).tolist(), *shares]
    monkeypatch.setattr(bounds, "_best_share", lambda smallest: max(map(smallest, shares)))
    assert found == pytest.approx(both(), rel=1e-3) and math.isfinite(found[1])


def test_the_limit_where_it_is_known():
    one = SecondMoment(torch.ones(1, 1).double(), torch.tensor([5.0]).double())
    assert batch_norm_limit(one) == 1
    # two inputs: the mean of a / (a + b) is sqrt(s_1) / (sqrt(s_1) + sqrt(s_2))
    two = SecondMoment(torch.eye(2).double(), torch.tensor([9.0, 4e-10], dtype=torch.float64))
    assert batch_norm_limit(two) == pytest.approx((9.0 / 4e-10) ** 0.5, rel=1e-12)
    assert batch_norm_limit(two, eps=1e9) == pytest.approx(9.0 / 4e-10, rel=1e-6)
    assert batch_norm_limit(two, eps=1e9) == batch_norm_limit(two, eps=1e9, variance=0.5)


@pytest.mark.parametrize("shape", [(3, 9, 2, 12), (4, 2, 3, 5), (2, 1, 1, 3)])
def test_the_gram_matrix_is_that_of_autograd(shape):
    weights, x = case(shape)

    def outputs(v, w):  # such an eps is lost in the sum; torch refuses 0
        return functional.batch_norm(x @ v.T, None, None, training=True, eps=1e-300) @ w.T

    gram = batch_norm_gram(weights, x)
    torch.testing.assert_close(gram, autograd_gram(outputs, weights, len(x)), rtol=1e-11, atol=1e-11)
    assert torch.equal(gram, gram.T)


def test_the_two_halves_make_the_whole():
    x = normal(6, 3, 8, 8, seed=0)
    halves = networks.Half(3, subtract=False)(networks.Half(3, subtract=True)(x))
    torch.testing.assert_close(halves, nn.BatchNorm2d(3, affine=False, eps=1e-30).double()(x))
