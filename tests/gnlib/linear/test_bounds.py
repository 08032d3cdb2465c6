"""Bounds for linear networks are the formulas of the paper; the claims of `deep_linear` have their order."""

import math

import numpy as np
import pytest
import torch

from gnlib import SecondMoment, second_moment
from gnlib.linear.bounds import sharp_linear, zhao_lemma_1, zhao_lemma_2, zhao_lemma_2_terms
from tests.oracles import network, normal, orthogonal, products

WIDTHS = [(3, 4), (4, 6, 3), (3, 5, 5), (4, 7, 6, 3), (2, 3, 4, 5, 2), (3, 8, 7, 6, 5, 4), (1, 1, 1)]
networks = pytest.mark.parametrize("widths", WIDTHS, ids=lambda widths: "-".join(map(str, widths)))


def case(widths):
    return network(widths, seed=1), second_moment(normal(12, widths[0], seed=2))


def squares(matrix, size):
    """Largest and smallest of `size` squared singular values, continued by zeros."""
    s = np.linalg.svd(matrix.numpy(), compute_uv=False) ** 2
    return s[0], s[-1] if len(s) >= size else 0.0


def extremes(weights, skip=0.0):
    """Largest and smallest eigenvalues of each A_l A_l^T, then of each B_l^T B_l."""
    d, k = weights[0].shape[1], weights[-1].shape[0]
    return np.array([squares(a, k) + squares(b, d) for a, b in products(weights, skip)]).T


@networks
@pytest.mark.parametrize("skip", [0.0, 0.3, 1.0])
def test_bounds_and_their_terms_are_the_formulas_of_the_paper(widths, skip):
    weights, moment = case(widths)
    terms, data = zhao_lemma_2_terms(weights, moment, skip), np.linalg.cond(moment.numpy())
    a_max, a_min, b_max, b_min = extremes(weights, skip)
    alpha = a_min * b_min
    expected = dict(above_largest=a_max, above_smallest=a_min, below_largest=b_max, below_smallest=b_min)
    expected |= dict(alpha=alpha, gamma=alpha / alpha.sum(), kappa_above=a_max / a_min, kappa_below=b_max / b_min)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(terms, name).numpy(), value, rtol=1e-9, err_msg=name)
    assert terms.data == pytest.approx(data, rel=1e-9)
    first, second = zhao_lemma_2(weights, moment, skip)
    assert first == pytest.approx(data * (alpha / alpha.sum() * a_max * b_max / alpha).sum(), rel=1e-9)
    assert second == pytest.approx(data * (a_max * b_max / alpha).max(), rel=1e-9)
    values, vectors = np.linalg.eigh(moment.numpy())
    root = vectors * np.sqrt(values) @ vectors.T
    factors = np.stack([root @ b.numpy().T @ b.numpy() @ root for _, b in products(weights, skip)])
    top, bottom = (np.linalg.eigvalsh(np.einsum("l,lij->ij", c, factors)) for c in (a_max, a_min))
    assert sharp_linear(weights, moment, skip) == pytest.approx(top[-1] / bottom[0], rel=1e-8)


@networks
def test_bounds_see_the_range_of_the_data_only(widths):
    """Inputs Q z with orthonormal columns Q have the bounds of the network that takes z."""
    weights, z = network((widths[0] + 2, *widths[1:]), seed=5), normal(12, widths[0], seed=6)
    q = orthogonal(widths[0] + 2, widths[0], seed=7)
    reduced, x = [weights[0] @ q, *weights[1:]], z @ q.T
    for moment in (second_moment(x), SecondMoment.from_data(x)):
        for bound in (zhao_lemma_2, sharp_linear):
            assert bound(weights, moment) == pytest.approx(bound(reduced, second_moment(z)), rel=1e-8)


@pytest.mark.parametrize("widths", [(2, 3, 4), (4, 3, 2), (3, 4, 2, 3, 2)])
def test_a_layer_narrower_than_inputs_or_outputs_makes_the_second_bound_infinite_alone(widths):
    weights, moment = case(widths)
    first, second = zhao_lemma_2(weights, moment)
    a_max, a_min, b_max, b_min = extremes(weights)
    expected = np.linalg.cond(moment.numpy()) * (a_max * b_max).sum() / (a_min * b_min).sum()
    assert first == pytest.approx(expected, rel=1e-9)
    assert second > 1e12  # singular up to rounding where it is a product
    assert sharp_linear(weights, moment) <= first * (1 + 1e-9)


@pytest.mark.parametrize("widths", [(3, 2, 3), (4, 3, 4), (4, 5, 3, 5, 4)])
def test_a_bottleneck_makes_all_bounds_infinite_if_it_is_no_product_not_only_up_to_rounding(widths):
    weights, moment = case(widths)
    least = min(*zhao_lemma_2(weights, moment), sharp_linear(weights, moment))
    assert least > 1e12
    if len(weights) == 2:
        assert least == zhao_lemma_1(weights, moment) == math.inf


@networks
@pytest.mark.parametrize("power", [2.0**-600, 2.0**-250, 2.0**600])
def test_no_bound_knows_the_scale_of_all_weights_or_of_the_data(widths, power):
    weights, moment = case(widths)
    for bound in (zhao_lemma_2, sharp_linear):
        expected = bound(weights, moment)
        assert bound([w * power for w in weights], moment) == pytest.approx(expected, rel=1e-12)
        assert bound(weights, moment * power) == pytest.approx(expected, rel=1e-9)


@pytest.mark.bad_input
@pytest.mark.parametrize("layers", [1, 3])
def test_lemma_1_is_about_two_layers(layers):
    with pytest.raises(ValueError, match=f"two weight matrices, and {layers} were given; zhao_lemma_2"):
        zhao_lemma_1([torch.eye(2)] * layers, torch.eye(2))
