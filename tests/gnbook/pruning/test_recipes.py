"""The set-ups of the public code, and the small ones that two pages share."""

import numpy as np
import pytest
import torch
from gnbook.pruning import experiment, jacobians, recipes, small
from gnbook.pruning.masks import apply_masks, magnitude_masks
from gnbook.pruning.recipes import images, recipe
from torch import nn

SMALL = {"channels": 2, "vgg_layers": [3, "M", 4, "M"], "patch": 2, "token_width": 8, "hidden": [5, 4]}
NAMES = ("ResNet20", "ResNet32", "VGG5", "ViT", "FcNN")


def size(name):
    return sum(p.numel() for p in recipe(name).network().parameters())


def test_sizes_of_the_networks():
    assert size("FcNN") == 3072 * 128 + 128 + 2 * (128 * 128 + 128) + 128 * 10 + 10
    assert [size(name) for name in ("ResNet20", "ResNet32")] == [272_474, 466_906]


@pytest.mark.parametrize("name", NAMES)
def test_rates(name):
    how = recipe(name, 8, SMALL)
    optimizer, schedule = how.steps(how.network().parameters(), factor=0.5)
    rates = []
    for _ in range(100):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    first, last = {"ViT": (5e-3, 5e-3), "FcNN": (5e-3, 5e-3), "VGG5": (5e-2, 5e-2)}.get(name, (5e-2, 5e-3))
    assert rates[:91] == pytest.approx([first] * 91)
    assert rates[91:] == pytest.approx([last] * 9)


def test_how_networks_begin():
    torch.manual_seed(0)
    transformer = dict(recipe("ViT").network().named_parameters())
    for name, parameter in transformer.items():
        if parameter.ndim > 1:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.2), name
        else:
            assert (parameter == (name.endswith("weight"))).all(), name  # LayerNorm has scales of one
    weights = [p for p in recipe("FcNN").network().parameters() if p.ndim == 2]
    for weight in weights:
        assert weight.std().item() == pytest.approx((2 / weight.shape[1]) ** 0.5, rel=0.1)


def test_images_of_the_full_set(monkeypatch):
    pixels = torch.randint(256, (500, 3, 32, 32), generator=torch.Generator().manual_seed(0)).byte().numpy()
    classes = (torch.arange(500) % 10).byte().numpy()
    monkeypatch.setattr("gnlib.data.training_set", lambda name: (pixels, classes))
    x, labels = images(100)
    more, _ = images(200)
    coarse, _ = images(100, stride=4)
    assert torch.equal(more[:100], x)
    assert torch.equal(coarse, x[:, :, ::4, ::4])
    whole = (torch.from_numpy(pixels) / 255).flatten(1)
    at = [(whole == image).all(1).nonzero().item() for image in x.flatten(1)]
    assert at != sorted(at)
    assert labels.tolist() == [place % 10 for place in at]


def test_how_images_are_scaled():
    x, _ = images(40, 4, "balanced")
    scaled = recipe("ResNet20").scale(x, x)
    torch.testing.assert_close(scaled.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(scaled.std((0, 2, 3)), torch.ones(3))
    torch.testing.assert_close(recipe("FcNN").scale(x[:3], x), scaled[:3])
    torch.testing.assert_close(recipe("ViT").scale(x[:3], x), (x[:3] - 0.5) / 0.5)


X, TARGETS = small.images(8, 4)


def test_images_are_standardised_channel_by_channel():
    assert X.shape == (8, 3, 8, 8) and X.dtype == torch.float64 and TARGETS.sum(1).tolist() == [1.0] * 8
    assert X.mean((0, 2, 3)).tolist() == pytest.approx([0.0] * 3, abs=1e-12)
    assert X.std((0, 2, 3)).tolist() == pytest.approx([1.0] * 3)
    assert small.images(2, 3)[0].shape == (2, 3, 11, 11)  # every third of 32 pixels


def test_a_pruned_mlp_is_the_whole_one_with_zeros():
    whole, pruned = small.mlp(1, 8, [5, 4]), small.mlp(1, 8, [5, 4], 0.5)
    apply_masks(whole, magnitude_masks(whole, 0.5))
    assert torch.equal(whole(X), pruned(X)) and not torch.equal(pruned(X), small.mlp(1, 8, [5, 4])(X))
    assert sum(p.numel() for p in small.mlp(0, 8, [5, 4]).parameters()) == 192 * 5 + 5 * 4 + 4 * 10


def test_several_rates_are_plain_gradient_descent():
    """With a batch of all images an epoch is one step; two networks side by side are what each is alone."""
    how = {"hidden": [6], "epochs": 3, "batch_size": 8}
    both = small.losses_at(0.5, [(0.0, 0), (0.5, 1)], X, TARGETS, **how)
    for (fraction, seed), found in zip([(0.0, 0), (0.5, 1)], both, strict=True):
        net = small.mlp(seed, 8, [6], fraction)
        descent = torch.optim.SGD(net.parameters(), lr=0.5)
        for _ in range(3):
            descent.zero_grad()
            nn.functional.mse_loss(net(X), TARGETS).backward()
            descent.step()
        assert found == pytest.approx(nn.functional.mse_loss(net(X), TARGETS).item(), rel=1e-9)


def test_the_spectrum_has_gaps_where_directions_are_lost():
    values = small.spectrum_of_resnet20(X, 8, "every tensor", 0.8)
    net, masks = experiment.pruned(
        recipes.recipe("ResNet20", 8, recipes.FULL | {"channels": 8}), "every tensor", 0.8, seed=0
    )
    ends = jacobians.ends(jacobians.with_statistics_of_batches(net, masks, [X], torch.float64)["kept"], torch.float64)
    assert len(values) == 80 and np.isfinite(values).sum() == ends.rank < 80
    assert values[0] == pytest.approx(ends.largest) and np.nanmin(values) == pytest.approx(ends.smallest)
    whole = small.spectrum_of_resnet20(X, 8, "weights", 0.0)
    assert np.isfinite(whole).all() and (np.diff(whole) <= 0).all()


@pytest.mark.bad_input
def test_another_order_is_refused():
    with pytest.raises(ValueError, match=r"order is 'first'; 'random' or 'balanced' was expected"):
        images(5, order="first")
