"""A small convolutional network as one trains them."""

import pytest
import torch

from gnlib.chapters.piecewise_linear_maps import practice
from gnlib.chapters.piecewise_linear_maps.networks import condition


@pytest.fixture(scope="module")
def images():
    return practice.inputs(10, 4)


def test_what_is_subtracted(images):
    kinds, labels = images
    raw, channel, pixel = (x.double() for x in kinds.values())
    assert raw.shape == (10, 3, 8, 8) and labels.shape == (10,) and raw.min() >= 0
    assert channel.mean((0, 2, 3)).abs().max() < 1e-6 and channel.mean(0).abs().max() > 1e-2
    assert pixel.mean(0).abs().max() < 1e-6
    assert (raw - channel).std((0, 2, 3)).max() < 1e-6  # one number for each channel


@pytest.mark.parametrize("norm", [False, True])
def test_kappa_of_the_last_layer_is_that_of_its_inputs(images, norm):
    x, net = images[0]["as they are"], practice.network(0, norm, 8)
    with torch.no_grad():
        z = net.double()[:-1](x.double())
    kappa = condition(torch.cat([z, torch.ones(len(z), 1)], 1)) ** 2  # the bias is one more input, always 1
    assert practice.layer_kappas(net, x)[2] == pytest.approx(kappa, rel=1e-6)


@pytest.mark.parametrize("optimizer", practice.RATES)
@pytest.mark.parametrize("layer", practice.LAYERS)
def test_one_layer_moves_or_all_do(images, optimizer, layer):
    kinds, labels = images
    net, before = practice.network(0, True, 8), practice.network(0, True, 8)
    found = practice.steps_to(net, kinds["as they are"], labels, layer, optimizer, 0.001, 3)
    assert found == [None] * 3
    moved = [
        any(not torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))
        for one, other in zip(practice.weighted(net), practice.weighted(before), strict=True)
    ]
    assert moved == [layer in (name, "all") for name in "123"]


def test_the_fewest_steps_of_all_rates():
    rows = list(practice.trainings(0, n=10, stride=4, limit=30))
    assert len(rows) == 2 * 3 * 2 * 4
    for row in rows:
        assert (row["kappa"] is None) == (row["layer"] == "all")
        reached = [row[share] for share in practice.SHARES if row[share] is not None]
        assert reached == sorted(reached)
    assert any(row["tenth"] is not None for row in rows if row["layer"] == "all")
