"""Random crops and flips: what may come out of an image, and how often."""

import pytest
import torch
from gnbook.pruning.augmentation import shifted, zoomed


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=64, side=8, seed=0):
    return torch.rand(n, 3, side, side, generator=seeded(seed)) + 1  # black is not among them


@pytest.mark.parametrize("padding", [1, 4])
def test_an_image_is_moved_and_perhaps_flipped(padding):
    x = images()
    wide = torch.nn.functional.pad(x, (padding,) * 4)
    places = set()
    for image, moved in zip(wide, shifted(x, seeded(1), padding), strict=True):
        found = [
            (row, column, flip)
            for row in range(2 * padding + 1)
            for column in range(2 * padding + 1)
            for flip, candidate in enumerate((moved, moved.flip(-1)))
            if torch.equal(image[:, row : row + 8, column : column + 8], candidate)
        ]
        assert len(found) == 1
        places.update(found)
    assert len(places) > 8
    assert {place[0] for place in places} >= {0, 2 * padding}
    assert 20 < sum(torch.equal(a, b) for a, b in zip(shifted(x, seeded(2), 0), x, strict=True)) < 44


@pytest.mark.parametrize("seed", range(2))
def test_a_part_is_enlarged(seed):
    side = 32
    ramp = torch.arange(side).float().expand(200, 1, side, side)
    both = torch.cat([ramp, ramp.mT], 1)
    found = zoomed(both, seeded(seed))
    steps = found.diff(dim=3)[:, 0, :, 4:-4].abs().mean((1, 2)), found.diff(dim=2)[:, 1, 4:-4].mean((1, 2))
    for step in steps:  # a share of the side of the image
        assert step.min() > (0.8 * 3 / 4) ** 0.5 - 1e-3
        assert step.max() <= 1 + 1e-4
    area = steps[0] * steps[1]
    assert area.min() < 0.83 < 0.97 < area.max() < 1 + 1e-3
    middles = found[:, 0, 15, 15:17].mean(-1)
    assert middles.std() > 0.5  # not always the part in the middle
    assert 0.4 < (found[:, 0, 0, -1] < found[:, 0, 0, 0]).float().mean() < 0.6
