"""Training as in the public code: what is pruned stays so, and an interruption changes nothing."""

import pytest
import torch
from gnbook.pruning.experiment import pruned, run
from gnbook.pruning.recipes import images, recipe
from gnbook.shared.training import one_hot
from torch import nn

SMALL = {"channels": 2, "vgg_layers": [3, "M", 4, "M"], "patch": 4, "token_width": 4, "hidden": [5, 4]}
PRUNINGS = ("every tensor", "weights", "scales and biases")
NAMES = ("ResNet20", "VGG5", "ViT", "FcNN")


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
