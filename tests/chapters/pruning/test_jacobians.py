"""Gauss-Newton matrices over several batches, and their ends."""

import pytest
import torch
from torch import nn

import gnlib
from gnlib.chapters.pruning.jacobians import (
    by_the_public_rule,
    ends,
    grams,
    kept_columns,
    with_running_statistics,
    with_statistics_of_batches,
)
from gnlib.chapters.pruning.masks import masks_of_every_tensor
from gnlib.chapters.pruning.vgg import VGG
from gnlib.chapters.shared.residual_network import ResidualNetwork
from tests.chapters.pruning.cases import seeded

NETWORKS = {
    "residual": lambda: ResidualNetwork(1, 2, 3),
    "vgg": lambda: VGG((3, "M", 4, "M"), 8, 3),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3)),
}


def all_kept(network):
    return kept_columns(network, {})


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_one_batch_is_what_the_library_finds(name, seed):
    network, x = seeded(NETWORKS[name], seed)
    found = grams(with_statistics_of_batches(network, [x], torch.float64), all_kept(network), 3)
    expected = gnlib.gauss_newton_gram(network, x, mode="train")
    torch.testing.assert_close(found["all"], expected, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found["kept"], expected, rtol=1e-8, atol=1e-10)
    running = grams(with_running_statistics(network, [x[:1], x[1:]]), all_kept(network), 3)
    expected = gnlib.gauss_newton_gram(network, x, mode="eval")
    torch.testing.assert_close(running["all"], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_batches_are_coupled_within_and_share_parameters(name):
    network, x = seeded(NETWORKS[name])
    x = torch.cat([x, 2 * x.flip(0) + 1])
    batches = x.split(4)
    found = grams(with_statistics_of_batches(network, batches, torch.float64), all_kept(network), 3)["all"]
    parameters = list(network.train().parameters())
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(output, parameters, retain_graph=True)])
        for batch in batches
        for output in network(batch).flatten()
    ]
    jacobian = torch.stack(rows)
    torch.testing.assert_close(found, jacobian @ jacobian.mT / 8, rtol=1e-8, atol=1e-10)
    assert found[:12, 12:].abs().max() > 1e-3 * found.abs().max()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("way", [with_statistics_of_batches, with_running_statistics])
def test_kept_columns_are_those_of_the_masks(name, way):
    network, x = seeded(NETWORKS[name])
    masks = masks_of_every_tensor(network, 0.6)
    batches = x.split(2)
    found = grams(way(network, batches), kept_columns(network, masks), 3)
    columns = {key: mask for key, mask in reversed(masks.items())}
    jacobian = torch.cat([block.double() for block in way(network, batches)], 1)
    kept = torch.cat([mask.flatten() for mask in columns.values()])
    torch.testing.assert_close(found["all"], jacobian @ jacobian.mT / 4, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found["kept"], jacobian[:, kept] @ jacobian[:, kept].mT / 4, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found["public"].double(), jacobian @ jacobian.mT, rtol=1e-4, atol=1e-4)
    for parameter, mask in zip(list(network.parameters())[::-1], columns.values(), strict=True):
        assert parameter.shape == mask.shape


@pytest.mark.parametrize("name", ["residual", "vgg"])  # the Jacobian of a linear network is its images
def test_single_precision_is_as_good_as_it_says(name):
    network, x = seeded(NETWORKS[name])
    single, double = (
        ends(grams(with_statistics_of_batches(network, x.split(2), dtype), all_kept(network), 3)["all"], dtype)
        for dtype in (torch.float32, torch.float64)
    )
    assert double.error < 1e-9
    assert single.rank == double.rank
    assert single.kappa == pytest.approx(double.kappa, rel=20 * single.error)
    assert single.kappa != double.kappa


def test_a_network_is_left_as_it_is():
    network, x = seeded(NETWORKS["residual"])
    network.eval()
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    for way in (with_statistics_of_batches, with_running_statistics):
        list(way(network, x.split(2)))
    torch.testing.assert_close(dict(network.state_dict()), before, rtol=0, atol=0)
    assert not network.training
    assert all(parameter.grad is None for parameter in network.parameters())


def test_ends_and_the_public_rule_on_a_known_spectrum():
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(20, 20, generator=generator, dtype=torch.float64)).Q
    values = torch.logspace(0, -9, 20, dtype=torch.float64)
    gram = 100 * basis @ torch.diag(values) @ basis.mT
    found = ends(gram)
    assert (found.rank, found.kappa) == (20, pytest.approx(1e9, rel=1e-5))
    assert (found.largest, found.error) == (pytest.approx(100), pytest.approx(2 * 2**-52 * 1e9**0.5 + 2**-52 * 1e9))
    coarse = ends(gram, torch.float32)
    assert coarse.rank == 20
    assert coarse.error == pytest.approx(2 * 2**-23 * 1e9**0.5, rel=1e-3)
    values[10:] *= 1e-8  # below the square of the epsilon of single precision
    coarse = ends(100 * basis @ torch.diag(values) @ basis.mT, torch.float32)
    assert (coarse.rank, coarse.kappa) == (10, pytest.approx((1 / values[9]).item(), rel=1e-4))

    diagonal = torch.diag(torch.tensor([50.0, 1.0, 1e-3, 5e-8, -1.0]))
    assert by_the_public_rule(diagonal) == (pytest.approx(5e4, rel=1e-4), 3)
