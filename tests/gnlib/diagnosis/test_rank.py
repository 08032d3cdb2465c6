"""A report draws no conclusion from a rank without a gap."""

import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from gnlib.eigen.dense import BY_FACTOR, ends_of
from tests.gnlib.diagnosis.kinds import page
from tests.gnlib.networks import Whole


def line(n, d=1):
    return torch.linspace(-1, 1, n * d, dtype=torch.float64).view(n, d)


def mlp(inner, d=1, width=30, k=1):
    return lambda: nn.Sequential(nn.Linear(d, width), inner, nn.Linear(width, k))


ANALYTIC = {  # at distinct points: of full rank, which double precision does not show
    "tanh": (mlp(nn.Tanh()), line(40)),
    "sigmoid, two outputs": (mlp(nn.Sigmoid(), k=2), line(24)),
    "sine": (mlp(Whole(lambda self, h: (3 * h).sin())), line(40)),  # as in SIREN
    "softplus": (mlp(nn.Softplus(), d=2), line(40, 2)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv1d(1, 8, 3), nn.SiLU(), nn.Flatten(), nn.Linear(24, 1)),
        torch.stack([t + torch.arange(5.0).double() / 9 for t in line(40)])[:, None],
    ),
    "layer norm": (lambda: nn.Sequential(nn.Linear(1, 20), nn.LayerNorm(20), nn.GELU(), nn.Linear(20, 1)), line(40)),
}


def given(kind):
    torch.manual_seed(2)
    make, x = ANALYTIC[kind]
    return make().double(), x


@pytest.mark.parametrize("kind", ANALYTIC)
def test_a_rank_without_a_gap_is_not_determined(kind):
    report = GaussNewton(*given(kind)).report()
    text = page(report)
    assert report.condition.method == BY_FACTOR and not report.condition.resolved
    assert f"numerically {report.condition.rank} of {report.full}: not determined" in text
    assert "cannot fit all targets" not in text and "can fit any targets" not in text


def test_a_gap_determines_the_rank():
    torch.manual_seed(4)
    net, x = nn.Sequential(nn.Linear(3, 40), nn.ReLU(), nn.Linear(40, 2)), torch.randn(8, 3)
    assert "rank 16 of 16: linearised, the network can fit any targets" in page(GaussNewton(net, x).report())
    x = torch.cat([x, x[:2]])
    report = GaussNewton(net, x).report()
    assert report.condition.resolved
    assert "16 of 20: linearised, the network cannot fit all targets" in page(report)


@pytest.mark.parametrize("smallest", [-1e-17, 0.0, 1e-18])
def test_a_given_rank_beyond_rounding_is_a_lower_bound(smallest):
    values = torch.tensor([smallest, 0.5, 1.0], dtype=torch.float64)
    found = ends_of(values, 3, method="by hand")
    assert not found.resolved and found.smallest > 0 and found.value <= 1 / 1e-16
