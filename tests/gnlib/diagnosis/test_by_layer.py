"""Shares of layers, against plain autograd."""

import pytest
import torch

from gnlib import GaussNewton
from tests.gnlib.derivatives import by_name
from tests.gnlib.diagnosis.networks import CASES, classes, drawn


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("name", CASES)
def test_shares_add_up(name, loss):
    net, x = drawn(name)
    found = GaussNewton(net, x, classes(len(x), net(x).shape[1]), loss=loss).by_layer().layers
    for part in ("trace", "largest", "smallest"):
        assert sum(getattr(share, part) for share in found) == pytest.approx(1, abs=1e-12)
    assert sum(share.difference for share in found) == pytest.approx(0, abs=1e-12)
    assert sum(share.parameters for share in found) == sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize("name", CASES)
def test_shares_are_those_of_the_columns_of_the_jacobian(name):
    net, x = drawn(name)
    blocks = by_name(net, x)
    whole = torch.cat([*blocks.values()], 1)
    values, vectors = torch.linalg.eigh(whole @ whole.mT)
    rank = int((values > len(values) * 2.3e-16 * values[-1]).sum())
    top, bottom = vectors[:, -1], vectors[:, -rank]
    for share in GaussNewton(net, x).by_layer().layers:
        own = torch.cat([block for key, block in blocks.items() if key.rpartition(".")[0] == share.layer], 1)
        assert share.trace == pytest.approx((own.square().sum() / whole.square().sum()).item(), rel=1e-10)
        assert share.largest == pytest.approx(((own.mT @ top).square().sum() / values[-1]).item(), rel=1e-8, abs=1e-12)
        small = (own.mT @ bottom).square().sum() / values[-rank]
        assert share.smallest == pytest.approx(small.item(), rel=1e-4, abs=1e-6)


def test_the_smallest_eigenvalue_is_the_smallest_that_is_not_zero():
    net, x = drawn("mlp")
    twice = [
        share.smallest for share in GaussNewton(net, torch.cat([x, x])).by_layer().layers
    ]  # the same spectrum, and zeros
    assert twice == pytest.approx([share.smallest for share in GaussNewton(net, x).by_layer().layers], rel=1e-8)


def test_the_difference_is_how_the_condition_number_follows_the_rate_of_a_layer():
    net, x = drawn("mlp")
    blocks = by_name(net, x)

    def log_kappa(layer, factor):
        scaled = [block * (factor**0.5 if key.startswith(layer) else 1) for key, block in blocks.items()]
        values = torch.linalg.svdvals(torch.cat(scaled, 1))
        return 2 * (values[0] / values[-1]).log().item()

    for share in GaussNewton(net, x).by_layer().layers:
        slope = (log_kappa(share.layer, 1.001) - log_kappa(share.layer, 0.999)) / 0.002
        assert share.difference == pytest.approx(slope, abs=1e-4)


def test_the_table_names_all_layers():
    net, x = drawn("mlp")
    text = str(GaussNewton(net, x).by_layer())
    assert text.splitlines()[0].split() == ["layer", "parameters", "trace", "largest", "smallest", "difference"]
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["0", "2"]
    assert "<table>" in GaussNewton(net, x).by_layer()._repr_html_()
