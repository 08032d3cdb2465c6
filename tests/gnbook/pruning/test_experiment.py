"""Trainings as in the public code, Gauss-Newton matrices over several batches, and what is printed of both."""

import numpy as np
import pytest
import torch
from gnbook.pruning import printed, small
from gnbook.pruning.experiment import pruned, run
from gnbook.pruning.jacobians import by_the_public_rule, ends, with_running_statistics, with_statistics_of_batches
from gnbook.pruning.masks import masks_of_every_tensor
from gnbook.pruning.networks import VGG
from gnbook.pruning.recipes import images, recipe
from gnbook.shared.networks import ResidualNetwork
from gnbook.shared.training import one_hot
from torch import nn

from tests.gnbook.shared.network_cases import seeded
from tests.gnlib.diagnosis.networks import train
from tests.oracles import with_spectrum
from tests.strategies import derivatives

SMALL = {"channels": 2, "vgg_layers": [3, "M", 4, "M"], "patch": 4, "token_width": 4, "hidden": [5, 4]}
PRUNINGS = ("every tensor", "weights", "scales and biases")
NAMES = ("ResNet20", "VGG5", "ViT", "FcNN")
LAST = {"ResNet20": 5e-3, "VGG5": 5e-2, "ViT": 5e-3, "FcNN": 5e-3}
"""The rates after epoch 91, halved; those of ResNet20 were ten times as large."""


def data(n=24):
    x, labels = images(n, 4, "balanced")
    return x, one_hot(labels, 10, torch.float32)


def trained(name, pruning="every tensor", fraction=0.5, epochs=2, **options):
    how = recipe(name, 8, SMALL)
    network, masks = pruned(how, pruning, fraction, 3)
    settings = {"batch_size": 10, "measured": 8, "measured_at": [0, 2], "every": 1} | options
    return network, masks, run(how, network, masks, *data(), seed=5, epochs=epochs, **settings)


def test_the_public_code_leaves_as_many_parameters():
    """Its notebooks print 54,358 of 271,690 parameters of a ResNet20 that are not zero."""
    counts = [
        sum(int(p.count_nonzero()) for p in pruned(recipe("ResNet20"), "every tensor", fraction, 0)[0].parameters())
        for fraction in (0.0, 0.8)
    ]
    assert counts == [271_690, 54_358]


@pytest.mark.parametrize("pruning", PRUNINGS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_pruned_stays_zero_and_the_rest_moves(name, pruning):
    network, masks, rows = trained(name, pruning, measured_at=[])
    start, _ = pruned(recipe(name, 8, SMALL), pruning, 0.5, 3)
    moved = 0
    for key, parameter in network.named_parameters():
        if key in masks:
            assert (parameter[~masks[key]] == 0).all(), key
        moved += not torch.equal(parameter, start.get_parameter(key))
    assert moved > len(masks) / 2
    assert [row["epoch"] for row in rows if "loss" in row] == [0, 1, 2]


def test_a_training_without_masks_is_a_plain_one():
    network, _, rows = trained("FcNN", fraction=0.0, epochs=3)
    other, _ = pruned(recipe("FcNN", 8, SMALL), "weights", 0.0, 3)
    x, targets = data()
    steps, order, losses = torch.optim.SGD(other.parameters(), lr=0.01), torch.Generator().manual_seed(5), []
    z = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
    for _ in range(3):
        some = torch.randperm(24, generator=order).split(10)
        of_epoch = []
        for batch in some:
            loss = nn.functional.cross_entropy(other(z[batch]), targets[batch].argmax(1))
            steps.zero_grad()
            loss.backward()
            steps.step()
            of_epoch.append(loss.item())
        losses.append(sum(of_epoch) / 3)
    torch.testing.assert_close(dict(network.state_dict()), dict(other.state_dict()), rtol=1e-5, atol=1e-6)
    assert [row["loss"] for row in rows if "loss" in row][1:] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize(("name", "stop"), [("VGG5", 1), ("FcNN", 0), ("FcNN", 2)])
def test_an_interrupted_training_ends_with_the_same_bits(tmp_path, name, stop):
    whole, _, rows = trained(name, epochs=3)
    path = tmp_path / "some" / "run.checkpoint"
    trained(name, epochs=stop, checkpoint=path)
    there = path.read_bytes()
    on, _, again = trained(name, epochs=3, checkpoint=path)
    assert again == rows
    torch.testing.assert_close(dict(on.state_dict()), dict(whole.state_dict()), rtol=0, atol=0)
    assert path.read_bytes() != there
    assert trained(name, epochs=3, checkpoint=path)[2] == rows  # nothing is left to do


@pytest.mark.parametrize("name", NAMES)
def test_rates(name):
    how = recipe(name, 8, SMALL)
    optimizer, schedule = how.steps(how.network().parameters(), factor=0.5)
    rates = []
    for _ in range(100):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates[:91] == pytest.approx([10 * LAST[name] if name == "ResNet20" else LAST[name]] * 91)
    assert rates[91:] == pytest.approx([LAST[name]] * 9)


def test_several_rates_are_plain_gradient_descent():
    """With a batch of all images an epoch is one step; two networks side by side are what each is alone."""
    x, targets = small.images(8, 4)
    kinds = [(0.0, 0), (0.5, 1)]
    both = small.losses_at(0.5, kinds, x, targets, hidden=[6], epochs=3, batch_size=8)
    for (fraction, seed), found in zip(kinds, both, strict=True):
        net = small.mlp(seed, 8, [6], fraction)
        losses = train(net, x, targets, nn.functional.mse_loss, torch.optim.SGD(net.parameters(), lr=0.5), 3)
        assert found == pytest.approx(losses[3], rel=1e-9)


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
    assert single.kappa != double.kappa
    assert single.kappa == pytest.approx(double.kappa, rel=20 * single.error)


def test_ends_and_the_public_rule_on_a_known_spectrum():
    values = torch.logspace(0, -9, 20, dtype=torch.float64)
    gram = 100 * with_spectrum(values, seed=0)
    found = ends(gram)
    assert (found.rank, found.kappa) == (20, pytest.approx(1e9, rel=1e-5))
    assert (found.largest, found.error) == (pytest.approx(100), pytest.approx(2 * 2**-52 * 1e9**0.5 + 2**-52 * 1e9))
    coarse = ends(gram, torch.float32)
    assert coarse.rank == 20
    assert coarse.error == pytest.approx(2 * 2**-23 * 1e9**0.5, rel=1e-3)
    values[10:] *= 1e-8  # below the square of the epsilon of single precision
    coarse = ends(100 * with_spectrum(values, seed=0), torch.float32)
    assert (coarse.rank, coarse.kappa) == (10, pytest.approx((1 / values[9]).item(), rel=1e-4))

    diagonal = torch.diag(torch.tensor([50.0, 1.0, 1e-3, 5e-8, -1.0]))
    assert by_the_public_rule(diagonal) == (pytest.approx(5e4, rel=1e-4), 3)


@pytest.mark.parametrize(("share", "logarithm"), [(0.2, 10.36555738), (0.4, 10.68632317)])
def test_the_curves_are_the_largest_eigenvalues_over_one_number(share, logarithm):
    """The notebook prints the logarithm of each curve's sum; no other eigenvalue would give that."""
    assert np.log(printed.ratios("ResNet20", share).drawn.sum()) == pytest.approx(logarithm, abs=1e-5)
    assert np.log(printed.ratios("ResNet20", share).own.sum()) > logarithm + 1


def test_the_other_notebook_divides_by_eigenvalues_of_the_same_spectrum():
    sums = 16.08322677, 16.76273067, 16.42153564, 17.60638548
    for share, logarithm in zip(printed.SHARES, sums, strict=False):
        line = printed.SHARES.index(share)
        largest, smallest = (np.array(ends["ResNet32"][line]) for ends in (printed.LARGEST, printed.SMALLEST))
        assert np.log((largest / smallest).sum()) == pytest.approx(logarithm, abs=1e-5)
