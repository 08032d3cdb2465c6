"""The set-up of the public code."""

import pytest
import torch
from gnbook.pruning.recipes import images, recipe

import gnlib

SMALL = {"channels": 2, "vgg_layers": [3, "M", 4, "M"], "patch": 2, "token_width": 8, "hidden": [5, 4]}
NAMES = ("ResNet20", "ResNet32", "VGG5", "ViT", "FcNN")


def size(name):
    return sum(p.numel() for p in recipe(name).network().parameters())


def test_sizes_of_the_networks():
    assert size("FcNN") == 3072 * 128 + 128 + 2 * (128 * 128 + 128) + 128 * 10 + 10
    assert [size(name) for name in ("ResNet20", "ResNet32")] == [272_474, 466_906]


@pytest.mark.parametrize("name", NAMES)
def test_small_networks_have_ten_outputs(name):
    x, _ = images(4, 4, "balanced")
    network = recipe(name, 8, SMALL).network()
    assert network(x).shape == (4, 10)
    assert {p.dtype for p in network.parameters()} == {torch.float32}


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


def test_bundled_images():
    x, labels = images(20, 4, "balanced")
    expected, classes = gnlib.load("cifar10", 20, stride=4)
    torch.testing.assert_close(x.flatten(1), expected.float(), rtol=0, atol=0)
    assert x.shape == (20, 3, 8, 8)
    assert torch.equal(labels, classes)


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


@pytest.mark.bad_input
def test_what_is_not_known():
    with pytest.raises(
        ValueError, match=r"There is no recipe for 'VGG6'; there are those for ResNet20, ResNet32, VGG5"
    ):
        recipe("VGG6")
    with pytest.raises(ValueError, match=r"order is 'first'; 'random' or 'balanced' was expected"):
        images(5, order="first")
