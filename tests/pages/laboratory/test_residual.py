"""The findings of "Residual networks" and of its further experiments, by their tables and by the kept one."""

import numpy as np

from tests.pages.pages import cells, kappas, kept, named

PAGE = "laboratory/residual"
SIZES = sorted({(row["images"], row["width"], row["depth"]) for row in kept("residual")})


def pairs(skip, *size):
    """Condition numbers without a skip and with it, of networks of a size."""
    images, width, depth = size
    return [np.array(kappas("residual", images=images, width=width, depth=depth, skip=s)) for s in ("no skip", skip)]


def gains(skip, sizes=SIZES):
    """By how much the mean condition number of a size is larger without the skip."""
    return [without.mean() / found.mean() for without, found in (pairs(skip, *size) for size in sizes)]


def off_the_mean():
    """Per cent that skips of full strength take off the mean of a width and depth."""
    return [100 * (1 - 1 / gain) for gain in gains(1)]


def off_each():
    """Per cent that they take off each network."""
    both = (pairs(1, *size) for size in SIZES)
    return np.concatenate([100 * (1 - found / without) for without, found in both])


def test_full_strength_helps_every_network_and_the_gain_stops_growing():
    assert min(off_each()) > 0
    assert all(1.35 < gain < 1.65 for gain in gains(1, [size for size in SIZES if size[1] != 1600 and size[2] >= 6]))


def trained(kind):
    """Of colour images: κ and the steps to a tenth and to a hundredth, each from no skip to the strongest."""
    rows = [row[-3:] for row in cells(PAGE, "60 images, rate one over the largest") if row[:2] == ["CIFAR-10", kind]]
    assert len(rows) == 4
    return zip(*rows, strict=True)


def test_on_standardised_images_skips_save_steps_and_on_raw_images_they_save_none():
    kappa, *both = trained("standardised")
    assert [*kappa] == sorted(kappa, reverse=True) and all(max(steps[1:]) < steps[0] for steps in both)
    _, tenth, hundredth = trained("raw")
    assert all([*steps] == sorted(steps) for steps in (tenth, hundredth)) and 1.9 < tenth[3] / tenth[0] < 2.1


def test_what_counts_is_whether_the_mean_image_is_gone():
    found = named(PAGE, "κ, geometric mean of 3 networks, L = 8", 2)
    assert len(found) == 9
    for (_, kind), (left, plain, *skips) in found.items():
        if kind != "raw, no ReLUs":
            assert max(skips) < plain if left <= 5 else left >= 32 and min(skips) > plain
        else:
            assert max(skips) < plain
