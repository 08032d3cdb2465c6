"""How wide one hidden layer of ReLUs must be."""

import math

import pytest
import torch
from gnbook.deep_nonlinear.width import (
    bernstein_width,
    chernoff_width,
    hidden_layer_kernel,
    smallest_shares,
    unit_spread,
)

from tests.devices import assert_made_where_its_arguments_are
from tests.gnbook.deep_nonlinear.wide_helpers import jacobian_kernel
from tests.strategies import exact, gaussian

X = gaussian(0, 5, 4)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_mean_of_a_unit_is_that_of_a_sample_of_units():
    hidden = gaussian(1, 200_000, 4)
    active = (hidden @ X.mT > 0).double()
    assert torch.allclose(X @ X.mT * (active.mT @ active) / 200_000, hidden_layer_kernel(X), atol=0.02)


def test_shares_are_those_of_the_kernel_by_the_hidden_weights():
    draws = generator()
    found = smallest_shares(X, 50, 1, generator=draws)[0].item()
    hidden = torch.randn(50, 4, generator=generator(), dtype=torch.float64)
    signs = gaussian(2, 1, 50).sign()
    whole = jacobian_kernel([hidden, signs], X, torch.relu)
    values = (hidden @ X.mT).relu()
    kernel = whole - values.mT @ values  # what the output layer adds
    limit = 50 * torch.linalg.eigvalsh(hidden_layer_kernel(X))[0]
    assert found == pytest.approx((torch.linalg.eigvalsh(kernel)[0] / limit).item(), rel=1e-8)


def test_twins_have_no_width():
    twins = torch.cat([X, X[:1]])
    assert chernoff_width(twins, shortfall=0.5, failure=0.01) == math.inf
    with pytest.raises(ValueError, match="is singular"):
        unit_spread(twins, generator=generator())


def test_one_sample_needs_few_units():
    assert unit_spread(X[:1], 20_000, generator=generator()) == pytest.approx(2.0, rel=0.05)
    assert chernoff_width(X[:1], shortfall=0.5, failure=0.01) == 61  # 2 ln(100) / (1 - ln 2) * 2 is 60.03


def test_widths_stay_on_their_device():
    assert_made_where_its_arguments_are((hidden_layer_kernel, X))
    assert_made_where_its_arguments_are((lambda x: chernoff_width(x, shortfall=0.5, failure=0.1), X))
    assert_made_where_its_arguments_are((lambda x: unit_spread(x, 10, generator=generator()), X))
    assert_made_where_its_arguments_are((lambda x: list(smallest_shares(x, 9, 3, generator=generator())), X))


@pytest.mark.bad_input
def test_what_asks_for_no_width():
    for wrong in ({"shortfall": 1.0, "failure": 0.1}, {"shortfall": 0.5, "failure": 0.0}):
        with pytest.raises(ValueError, match="two numbers between 0 and 1"):
            chernoff_width(X, **wrong)
    with pytest.raises(ValueError, match="a number from 1 on"):
        bernstein_width(5, 0.5, shortfall=0.5, failure=0.1)
    with pytest.raises(ValueError, match="variance zero"):
        hidden_layer_kernel(exact([[1.0, 0.0], [0.0, 0.0]]))
