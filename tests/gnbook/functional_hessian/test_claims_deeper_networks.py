"""The functional Hessian of deeper linear networks."""

import math
from itertools import combinations

import pytest
import torch
from gnbook.functional_hessian.bounds import functional_hessian_norm
from gnbook.functional_hessian.hessian import functional_hessian, residual_moment
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.functional_hessian.helpers import loss_hessian, norm, outer_half, size
from tests.strategies import a_hundred, exact, gaussian, instances, matrices, networks, problems, seeds


@pytest.mark.claim("Functional Hessian of deep linear networks", verdict="holds")
@a_hundred
@given(problems(2, 4), seeds)
def test_the_blocks_of_a_deep_network(problem, seed):
    weights, x = problem
    y = gaussian(seed, len(x), len(weights[-1]))
    second = loss_hessian(weights, x, y) - outer_half(weights, x)
    closed = functional_hessian(weights, residual_moment(weights, x, y))
    assert (second - closed).abs().max() <= 1e-11 * size(weights, x, y)
    assert closed.trace() == 0


@pytest.mark.claim("Functional Hessian of deep linear networks", verdict="holds")
def test_from_three_layers_on_the_spectrum_need_not_be_symmetric():
    ones = torch.ones(1, 1).double()
    for depth in (2, 3, 5):
        values = torch.linalg.eigvalsh(functional_hessian([ones] * depth, ones))
        assert torch.allclose(values, exact([-1] * (depth - 1) + [depth - 1]))


@pytest.mark.claim("Norm of the functional Hessian", verdict="holds")
@instances
@given(st.data(), networks(2, 5))
def test_the_norm_of_the_functional_hessian(data, weights):
    omega = data.draw(matrices(len(weights[-1]), weights[0].shape[1]))
    value, bound = norm(functional_hessian(weights, omega)), functional_hessian_norm(weights, omega)
    scale = norm(omega) * max(1.0, *(norm(w) for w in weights)) ** (len(weights) - 2)
    assert value <= bound * (1 + 1e-9) + 1e-12 * scale
    norms = exact([norm(w) for w in weights])
    rest = [norms[[i for i in range(len(norms)) if i not in pair]] for pair in combinations(range(len(norms)), 2)]
    product = max(some.prod().item() for some in rest)
    assert bound <= (len(weights) - 1) * norm(omega) * product * (1 + 1e-9) + 1e-12 * scale
    if len(weights) == 2:
        assert math.isclose(value, norm(omega), rel_tol=1e-9, abs_tol=1e-12)
        assert math.isclose(bound, norm(omega), rel_tol=1e-9, abs_tol=1e-12)
