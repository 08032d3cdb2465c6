"""The core makes tensors on the device of what it is given; :mod:`tests.test_condition` tries condition numbers so."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import nn

from gnlib import (
    GaussNewton,
    SecondMoment,
    bounds,
    condition_number,
    leaky_relu_gram,
    linear_gauss_newton,
    linear_network,
    linear_weights,
    load,
    second_moment,
    whiten,
)
from tests.devices import assert_made_where_its_arguments_are, assert_same, default_device
from tests.oracles import network, normal, samples, with_spectrum


def module(*widths):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        parts = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.Tanh())]
        return nn.Sequential(*parts[:-1]).double()


def kappa(weights, moment, skip, method):
    return condition_number(linear_gauss_newton(weights, moment, skip), method=method)


def through_scipy(weights, moment, start):
    operator = linear_gauss_newton(weights, moment).to_scipy()
    return operator @ start, eigsh(operator, 2, which="LA", v0=start, tol=1e-5, return_eigenvectors=False)


X, FLAT = normal(20, 6, seed=1), samples(20, 6, rank=4, seed=1)
MOMENT = X.mT @ X / len(X)
DEEP, PAIR, ONE = network((6, 9, 7, 3), seed=2), network((6, 9, 3), seed=3), network((6, 3), seed=4)
DEAD = [0 * DEEP[0], *DEEP[1:]]
WIDE = network((30, 40, 30, 12), seed=5), torch.eye(30, dtype=torch.float64)

CASES = {
    "second moment": (second_moment, X),
    "whitening": (whiten, X),
    "whitening, deficient": (whiten, FLAT),
    "range of the data": (SecondMoment.from_data, FLAT),
    "range of a second moment": (SecondMoment.from_matrix, MOMENT),
    "linear network": (linear_network, DEEP, X),
    "linear network, skips": (linear_network, DEEP, X, 0.5),
    "linear Gauss-Newton matrix": (lambda *case: linear_gauss_newton(*case).dense(), DEEP, MOMENT),
    "the same, skips": (lambda *case: linear_gauss_newton(*case).dense(), DEEP, MOMENT, 0.5),
    "the same, one layer": (lambda *case: linear_gauss_newton(*case).dense(), ONE, MOMENT),
    "the same, factored moment": (lambda *case: linear_gauss_newton(*case).dense(), PAIR, SecondMoment.from_data(FLAT)),
    "in SciPy": (through_scipy, DEEP, MOMENT, np.ones(18)),
    "Lemma 1": (bounds.zhao_lemma_1, PAIR, MOMENT),
    "Lemma 2": (bounds.zhao_lemma_2, DEEP, MOMENT),
    "Lemma 2, skips": (bounds.zhao_lemma_2, DEEP, MOMENT, 0.5),
    "Lemma 2, infinite": (bounds.zhao_lemma_2, DEAD, MOMENT),
    "Lemma 2, terms": (bounds.zhao_lemma_2_terms, DEEP, MOMENT),
    "sharper bound": (bounds.sharp_linear, DEEP, MOMENT),
    "leaky ReLU": (leaky_relu_gram, PAIR, X, 0.1),
    "ReLU, deficient": (leaky_relu_gram, PAIR, FLAT, 0.0),
    "tangent kernel": (lambda *case: GaussNewton(*case).tangent_kernel(), module(6, 8, 3), X),
    "Jacobian": (lambda *case: list(GaussNewton(*case).jacobian()), module(6, 8, 3), X),
    "one layer": (kappa, ONE, MOMENT, 0.0, None),
    "first layer": (kappa, network((40, 9, 30), seed=6), torch.eye(40, dtype=torch.float64), 0.0, "first layer"),
    "layers": (kappa, PAIR, torch.eye(6, dtype=torch.float64), 0.0, "layers"),
    "blocks": (kappa, PAIR, MOMENT, 0.0, "blocks"),
    "iteration": (kappa, *WIDE, 0.0, "iteration"),
    "iteration, skips": (kappa, *WIDE, 0.5, "iteration"),
    "dense": (kappa, DEEP, MOMENT, 0.0, "dense"),
    "network": (condition_number, module(6, 8, 3), X),
    "network, few parameters": (condition_number, module(6, 2, 3), X),
    "matrix": (condition_number, with_spectrum([1.0, 2.0, 5.0], seed=7)),
    "matrix, singular": (condition_number, with_spectrum([0.0, 2.0, 5.0], seed=7)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_tensors_are_made_on_the_device_of_the_arguments(case):
    assert_made_where_its_arguments_are(case)


MAKERS = {
    "MNIST": lambda: load("mnist", 20, stride=4),
    "CIFAR-10 in gray": lambda: load("cifar10", 20, stride=4, grayscale=True),
    "linear weights": lambda: linear_weights([3, 5, 2], generator=torch.Generator().manual_seed(0)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_data_come_on_the_cpu_and_weights_on_the_device_of_their_generator(make):
    expected = make()
    with default_device("meta"):
        found = make()
    assert_same(found, expected)
