"""Shares of layers, against plain autograd."""

import pytest
import torch

from gnlib import GaussNewton
from tests.gnlib.derivatives import by_name
from tests.gnlib.diagnosis.networks import CASES, classes, drawn


def end_of(whole, column):
    """An eigenvector in the parameters, from the side of the outputs."""
    values, vectors = torch.linalg.eigh(whole @ whole.mT)
    rank = int((values > len(values) * 2.3e-16 * values[-1]).sum())
    w = whole.mT @ vectors[:, [-1, -rank][column]]
    return w / w.norm()


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("name", CASES)
def test_shares_are_those_of_the_columns_of_the_jacobian(name, loss):
    net, x = drawn(name)
    if name == "mlp":
        x = torch.cat([x, x])  # the same spectrum, and zeros
    blocks, f = by_name(net, x), net(x).detach()
    n, k = f.shape
    if loss == "cross_entropy":
        p = f.softmax(1)
        values, vectors = torch.linalg.eigh(torch.diag_embed(p) - p[:, :, None] * p[:, None])
        root = torch.block_diag(*(vectors * values.clamp_min(0).sqrt()[:, None]))
        blocks = {key: root.mT @ block for key, block in blocks.items()}
    whole = torch.cat([*blocks.values()], 1)
    top, bottom = (
        dict(zip(blocks, end_of(whole, i).split([b.shape[1] for b in blocks.values()]), strict=True)) for i in range(2)
    )
    found = GaussNewton(net, x, classes(n, k), loss).by_layer()
    for share in found.layers:
        own = [key for key in blocks if key.rpartition(".")[0] == share.layer]
        assert share.parameters == sum(blocks[key].shape[1] for key in own)
        trace = sum(blocks[key].square().sum() for key in own) / whole.square().sum()
        assert share.trace == pytest.approx(trace.item(), rel=1e-10)
        assert share.largest == pytest.approx(sum(top[key].square().sum().item() for key in own), rel=1e-8, abs=1e-12)
        assert share.smallest == pytest.approx(
            sum(bottom[key].square().sum().item() for key in own), rel=1e-4, abs=1e-6
        )
        assert share.layer in str(found) and share.layer in found._repr_html_()
    assert sum(share.trace for share in found.layers) == pytest.approx(1, abs=1e-12)


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
