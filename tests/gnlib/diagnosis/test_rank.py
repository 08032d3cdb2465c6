"""A change is measured as the present state is; a rate of its own leaves the rank; no conclusion without a gap."""

import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from gnlib.eigen.dense import BY_FACTOR, ends_of, singular_value_ends
from tests.gnlib.derivatives import by_name
from tests.gnlib.diagnosis.kinds import page
from tests.gnlib.networks import Whole
from tests.oracles import with_spectrum


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


@pytest.mark.parametrize("kind", ANALYTIC)
def test_a_rate_of_its_own_changes_no_rank_and_is_measured_as_the_present_state_is(kind):
    net, x = given(kind)
    problem = GaussNewton(net, x)._problem
    now = problem.condition
    columns = {name: block / len(x) ** 0.5 for name, block in by_name(net, x).items()}
    for layer in {name.rpartition(".")[0] for name in columns}:
        for factor in (0.1, 10.0):
            own = {name: factor for name in columns if name.rpartition(".")[0] == layer}
            scaled = torch.cat([own.get(name, 1.0) ** 0.5 * block for name, block in columns.items()], 1)
            found = problem.changed_ends(lambda scaled=scaled: scaled @ scaled.T, rates=own)
            assert (found.rank, found.method) == (now.rank, now.method)
            values = torch.linalg.svdvals(scaled)
            assert found.largest == pytest.approx(values[0].item() ** 2, rel=1e-10)
            assert found.smallest == pytest.approx(values[now.rank - 1].item() ** 2, rel=4 * found.residual)
            assert 0.05 < found.value / now.value < 20  # by no more than the factor changes the ends


def suggestions(net, x, y=None):
    report = GaussNewton(net, x, y).report()
    return report, {s.what: s.after for s in report.suggestions}


@pytest.mark.parametrize("kind", ["tanh", "sine", "layer norm"])
def test_what_is_suggested_by_rates_has_the_rank_of_now(kind):
    report, found = suggestions(*given(kind))
    for what, after in found.items():
        assert after.method == report.condition.method
        if "learning rate" in what:
            assert after.rank == report.condition.rank


def test_dropping_samples_is_measured_as_the_present_state_is():
    """Every sample twice, of a network whose smallest eigenvalues the Gram matrix loses."""
    net, x = mlp(nn.Tanh(), d=3)(), torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        net[0].weight.mul_(3e-4)
    x = torch.cat([x, x[:4]])
    report, found = suggestions(net.double(), x)
    after = found["drop samples 9, 10, 11, 12"]
    alone = GaussNewton(net, x[:9]).condition_number(method="jacobian")
    assert after.method == report.condition.method == BY_FACTOR
    assert (after.rank, after.largest) == (alone.rank, pytest.approx(alone.largest, rel=1e-10))
    assert after.smallest == pytest.approx(alone.smallest, rel=4 * after.residual + 1e-10)


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
    blocks = [with_spectrum([1.0, 0.5], seed=1), torch.zeros(2, 2).double()]
    blocks = [torch.cat([block, torch.zeros(1, 2).double()]) for block in blocks]
    lost = singular_value_ends(blocks, rank=3)
    assert not lost.resolved and lost.rank == 3 and lost.smallest > 0
