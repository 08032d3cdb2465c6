"""The condition number of some of the samples, beside networks that are asked about these alone."""

import math

import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from gnlib.diagnosis.growth import growth_of


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 2)).double()


def data(n):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 6, generator=generator).double(), torch.randn(n, 2, generator=generator).double()


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_it_is_what_the_samples_have_alone(loss):
    x, y = data(40)
    y = y if loss == "mse" else (y[:, 0] > 0).long()
    g = GaussNewton(network(), x, y, loss)
    found = growth_of(g._problem)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    for n, kappa, effective in zip(found.samples, found.kappas, found.effective, strict=True):
        some = order[:n].sort().values
        alone = GaussNewton(network(), x[some], y[some], loss)
        assert kappa == pytest.approx(float(alone.condition_number()), rel=1e-6)
        assert effective == pytest.approx(alone.effective_condition_number(), rel=1e-6)
    assert found.samples == (10, 20, 40) and found.kappas[0] < found.kappas[1] < found.kappas[2]
    assert found.exponent == pytest.approx(math.log2(found.kappas[2] / found.kappas[1]))
    what, of = found.words
    assert what == f"kappa grows like n^{found.exponent:.1f}" and f"{found.kappas[0]:.3g} of 10, " in of
    assert g.report(budget=1e-3).growth == found


def test_nothing_is_said_where_it_is_not_known():
    x, y = data(40)
    assert growth_of(GaussNewton(network(), x[:16], y[:16])._problem) is None  # too few
    assert growth_of(GaussNewton(nn.Linear(6, 2).double(), x, y)._problem) is None  # no full rank
    normalised = nn.Sequential(nn.Linear(6, 40), nn.BatchNorm1d(40), nn.Tanh(), nn.Linear(40, 2)).double()
    assert growth_of(GaussNewton(normalised, x, y, mode="train")._problem) is None  # no matrix of the samples alone
    assert growth_of(GaussNewton(network(), x)._problem).effective == ()
