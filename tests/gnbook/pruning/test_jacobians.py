"""Gauss-Newton matrices over several batches, and their ends."""

import pytest
import torch
from gnbook.pruning.jacobians import by_the_public_rule, ends, with_running_statistics, with_statistics_of_batches
from gnbook.pruning.masks import masks_of_every_tensor
from gnbook.pruning.networks import VGG
from gnbook.shared.networks import ResidualNetwork
from torch import nn

from tests.gnbook.shared.network_cases import seeded
from tests.strategies import derivatives

NETWORKS = {
    "residual": lambda: ResidualNetwork(1, 2, 3),
    "vgg": lambda: VGG((3, "M", 4, "M"), 8, 3),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3)),
}


def in_double(network, masks, batches):
    return with_statistics_of_batches(network, masks, batches, torch.float64)


WAYS = {"train": in_double, "eval": with_running_statistics}


@pytest.mark.parametrize("mode", WAYS)
@pytest.mark.parametrize("name", NETWORKS)
def test_batches_are_coupled_within_and_columns_are_those_of_the_masks(name, mode):
    network, x = seeded(NETWORKS[name])
    batches = [x, 2 * x.flip(0) + 1]
    masks = masks_of_every_tensor(network, 0.6)
    with torch.no_grad():
        for key, kept in masks.items():
            network.get_parameter(key).mul_(kept)
    found = WAYS[mode](network, masks, batches)
    network.train(mode == "train")
    jacobian = torch.cat([derivatives(network(batch), list(network.parameters())) for batch in batches])
    kept = jacobian[:, torch.cat([mask.flatten() for mask in masks.values()])]
    n = 2 * len(x)
    torch.testing.assert_close(found["all"], jacobian @ jacobian.mT / n, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found["kept"], kept @ kept.mT / n, rtol=1e-8, atol=1e-10)
    rows = len(jacobian) // 2
    assert found["all"][:rows, rows:].abs().max() > 1e-3 * found["all"].abs().max()


@pytest.mark.parametrize("name", ["residual", "vgg"])  # the Jacobian of a linear network is its images
def test_single_precision_is_as_good_as_it_says(name):
    network, x = seeded(NETWORKS[name])
    single, double = (
        ends(with_statistics_of_batches(network, {}, x.split(2), dtype)["all"], dtype)
        for dtype in (torch.float32, torch.float64)
    )
    assert double.error < 1e-9
    assert single.rank == double.rank
    assert single.kappa == pytest.approx(double.kappa, rel=20 * single.error)
    assert single.kappa != double.kappa


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
