"""The Gram matrix of a batch-normalised layer, against autograd and the literal sum of Kronecker products."""

import torch
from gnbook.batch_normalization.gauss_newton import batch_norm_gram
from hypothesis import assume, given, settings
from torch.nn import functional

from tests.gnbook.hidden_layers import (
    assert_equal_to,
    case,
    large,
    problems,
)
from tests.oracles import autograd_gram, batch_norm_units, literal_eq_10, spectrum


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
