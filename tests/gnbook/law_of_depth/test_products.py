"""Ends of products and bounds of Lemma 2, against drawn layers, the recursion and limits."""

import mpmath
import numpy as np
import pytest
import torch
from gnbook.law_of_depth.products import lemma_2, lemma_2_of_many, lemma_2_terms, product_ends

from gnlib import linear_weights
from gnlib.laws.recursion import Layer, Point, edge
from gnlib.linear.bounds import zhao_lemma_2, zhao_lemma_2_terms

DRAWN = [(1, 10, 400, 0.05), (5, 10, 400, 0.1), (13, 10, 400, 0.14), (1, 100, 150, 0.05), (4, 100, 150, 0.1)]


@pytest.mark.parametrize(("layers", "size", "width", "off"), [*DRAWN, (3, 100, 105, 0.25)])
def test_products_that_are_drawn_have_the_mean_ends(layers, size, width, off):
    """Mean logarithms of both ends of B'B, which is a chain of matrices of its size."""
    rng, found = np.random.default_rng(0), []
    for _ in range(30):
        factor = np.eye(size)
        for _ in range(layers):
            factor = np.linalg.qr((factor @ rng.standard_normal((size, width))).T / width**0.5, mode="r").T
        found.append(2 * np.log(np.linalg.svd(factor, compute_uv=False)[[-1, 0]]))
    mean = np.mean(found, 0)
    law, limit = (np.log(product_ends(layers, size, width, shift=shift)) for shift in (True, False))
    assert np.abs(law - mean).max() < off
    assert (np.abs(law - mean) < np.abs(limit - mean) + 0.02).all()
    assert limit[0] < law[0] < law[1] < limit[1]


@pytest.mark.parametrize("layers", [1, 2, 7])
@pytest.mark.parametrize("size", [10, 100, 399])
def test_the_closed_form_is_the_recursion_without_shifts(layers, size):
    """A layer multiplies z, and the next one goes on from there."""
    layer = Layer(size, 1.0, 1 / 400)

    def curve(v):
        z, dz, f = (size + v) / v, -size / v**2, layer.a + layer.b * v
        if f <= 0:
            raise ArithmeticError
        for _ in range(layers):
            z, dz = z * f, dz * f + z * layer.b
            yield Point(z, v, dz, 1.0)

    expected = [edge(curve, side, 0.7 * size) for side in (-1, 1)]
    assert product_ends(layers, size, 400) == pytest.approx(expected, rel=1e-9)


def test_lemma_2_is_the_one_of_networks_that_are_drawn():
    """Four layers of 300 units, 100 inputs of which the data reach 80, and 8 outputs."""
    moment = torch.diag((torch.arange(100) < 80).double())
    generators = (torch.Generator().manual_seed(seed) for seed in range(6))
    drawn = [linear_weights([100, 300, 300, 300, 8], generator=generator) for generator in generators]
    terms, law = [zhao_lemma_2_terms(weights, moment) for weights in drawn], (4, 300, 80, 100, 8)
    for name in ("above_largest", "above_smallest", "below_largest", "below_smallest", "kappa_below", "gamma"):
        mean = torch.stack([getattr(term, name) for term in terms]).log().mean(0).exp()
        torch.testing.assert_close(mean, getattr(lemma_2_terms(*law, shift=True), name), rtol=0.1, atol=0)
    first, second = np.exp(np.mean(np.log([zhao_lemma_2(weights, moment) for weights in drawn]), 0))
    assert lemma_2(*law, shift=True) == pytest.approx((first, second), rel=0.1)
    assert lemma_2(4, 300, 80, 100).first < 0.75 * first


@pytest.mark.parametrize("t", [0.01, 0.3, 3.0, 30.0])
def test_the_closed_form_is_the_integral_in_many_digits(t):
    with mpmath.workdps(40):
        roots = [(-t + side * mpmath.sqrt(mpmath.mpf(t) ** 2 + 4 * mpmath.mpf(t))) / 2 for side in (1, -1)]
        sums = [mpmath.quad(lambda y: mpmath.exp(y) * (2 * y - y * y) / (1 - y) ** 3, [0, x]) for x in roots]
        last = [mpmath.exp(x) / (1 - x) for x in roots]
    found = lemma_2_of_many(t)
    assert found.first == pytest.approx(float(sums[0] / sums[1]), rel=1e-9)
    assert found.second == pytest.approx(float(last[0] / last[1]), rel=1e-12)
