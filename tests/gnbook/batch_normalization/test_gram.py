"""The Gram matrix of a batch-normalised hidden layer, against autograd and the literal sum of Kronecker products."""

import pytest
import torch
from gnbook.batch_normalization.gauss_newton import batch_norm_gram
from hypothesis import assume, given, settings
from torch.nn import functional

from tests.gnbook.hidden_layers import (
    assert_equal_to,
    assert_follows_the_order_of_samples_outputs_and_units,
    assert_takes_single_precision_and_parameters,
    case,
    large,
    problems,
)
from tests.oracles import autograd_gram, batch_norm_units, literal_eq_10, normal, spectrum


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


def test_samples_outputs_units_and_types_of_tensors():
    assert_follows_the_order_of_samples_outputs_and_units(batch_norm_gram)
    assert_takes_single_precision_and_parameters(batch_norm_gram)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "v, x, unit",
    [
        (torch.ones(3, 2), torch.tensor([[0.3, 0.7]]), 0),
        (torch.ones(3, 2), torch.full((7, 2), 0.1), 0),
        (torch.tensor([[1.0, 1.0], [0.0, 0.3], [0.0, 1.0]]), torch.tensor([[0.3, 0.7], [0.5, 0.7], [0.1, 0.7]]), 1),
        (torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), normal(5, 2, seed=1), 2),
        (torch.tensor([[1.0, 0.0], [0.3, -0.1], [1.0, 1.0]]), normal(5, 1, seed=1) * torch.tensor([0.1, 0.3]), 1),
    ],
    ids=["one sample", "equal samples", "constant feature", "zero weights", "orthogonal weights"],
)
def test_a_unit_that_is_constant_over_the_batch_is_refused(v, x, unit):
    with pytest.raises(ValueError, match=rf"Hidden unit {unit} is constant over the batch \(n = {len(x)}\)"):
        batch_norm_gram([v.double(), torch.ones(4, 3)], x.double())
