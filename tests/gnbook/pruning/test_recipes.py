"""The set-ups of the public code, and the small ones that two pages share."""

import pytest
import torch
from gnbook.pruning import small
from gnbook.pruning.recipes import recipe
from torch import nn

SMALL = {"channels": 2, "vgg_layers": [3, "M", 4, "M"], "patch": 2, "token_width": 8, "hidden": [5, 4]}
NAMES = ("ResNet20", "ResNet32", "VGG5", "ViT", "FcNN")


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


X, TARGETS = small.images(8, 4)


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
