"""What "Residual networks" says in passing is so."""

import re

import numpy as np
import pytest
from gnbook import results

from tests.pages.pages import table


def cells(line, count):
    """The last cells of a line of a table, as numbers."""
    return [float(cell.replace(",", "")) for cell in line.split()[-count:]]


@pytest.fixture(scope="module")
def gains():
    return gains_of({("MNIST", 800), ("CIFAR-10", 3100)})


def kappas_of(sizes):
    """By images, depth and skip: the condition number for each seed."""
    kappas = {}
    for row in results.kept("residual"):
        if (row["images"], row["width"]) in sizes:
            kappas.setdefault((row["images"], row["depth"], str(row["skip"])), {})[row["seed"]] = row["kappa"]
    return kappas


def gains_of(sizes):
    """By images, depth and skip: mean condition number without the skip over that with it, and how many gain."""
    kappas, found = kappas_of(sizes), {}
    for (images, depth, skip), runs in kappas.items():
        plain = kappas[images, depth, "no skip"]
        better = [runs[seed] < plain[seed] for seed in plain]
        found[images, depth, skip] = np.mean([*plain.values()]) / np.mean([*runs.values()]), sum(better), len(better)
    return found


SIZES = ("MNIST", 800), ("MNIST", 1600), ("CIFAR-10", 3100)


def off_the_mean():
    """Per cent that skips of full strength take off the mean of a width and depth."""
    return [
        100 * (1 - 1 / gain) for size in SIZES for (*_, skip), (gain, *_) in gains_of({size}).items() if skip == "1"
    ]


def off_each():
    """Per cent that they take off each network."""
    pairs = []
    for kappas in (kappas_of({size}) for size in SIZES):
        full = {key[:2]: runs for key, runs in kappas.items() if key[2] == "1"}
        pairs += [(runs[seed], kappas[*key, "no skip"][seed]) for key, runs in full.items() for seed in runs]
    return [100 * (1 - kappa / without) for kappa, without in pairs]


def test_full_strength_helps_every_network():
    assert min(off_each()) > 0


@pytest.fixture(scope="module")
def trained():
    """By data and images: κ and the steps to a tenth and to a hundredth, each from no skip to the strongest."""
    return runs_of("laboratory/residual", "60 images, rate one over the largest")


def runs_of(chapter, caption):
    found = {}
    for line in table(chapter, caption):
        name, how, *_ = re.split(r"  +", line.strip())
        found.setdefault((name, how), []).append(cells(line, 3))
    assert len(found) == 3 and all(len(rows) == 4 for rows in found.values())
    return {which: [*zip(*rows, strict=True)] for which, rows in found.items()}


def test_on_standardised_images_skips_save_steps(trained):
    kappa, tenth, hundredth = trained["CIFAR-10", "standardised"]
    assert [*kappa] == sorted(kappa, reverse=True) and max(tenth[1:]) < tenth[0] and max(hundredth[1:]) < hundredth[0]


def test_on_raw_images_they_save_none(trained):
    _, tenth, hundredth = trained["CIFAR-10", "raw"]
    assert all([*steps] == sorted(steps) for steps in (tenth, hundredth))
    assert 1.9 < tenth[3] / tenth[0] < 2.1


def test_the_gain_stops_growing(gains):
    full = {(images, depth): gain for (images, depth, skip), (gain, _, _) in gains.items() if skip == "1"}
    assert {round(gain, 1) for (_, depth), gain in full.items() if depth >= 6} <= {1.4, 1.5, 1.6}


def test_weak_skips_do_next_to_nothing(gains):
    weak = [gain for (_, _, skip), (gain, _, _) in gains.items() if skip != "1"]
    assert f"{max(weak):.2f}" == "1.08"
    tosses = [
        better / networks
        for (images, depth, skip), (_, better, networks) in gains.items()
        if (images, skip) == ("MNIST", "1 / L") and depth > 2
    ]
    assert np.mean(tosses) == pytest.approx(0.5, abs=0.1)


def test_skips_of_relu_networks_help_on_white_images_and_harm_on_raw_ones():
    lines = [line.split() for line in table("laboratory/residual-further", "κ of one network of width 800")]
    found = {(name, depth): [int(cell.replace(",", "")) for cell in cells] for name, depth, *cells in lines}
    assert len(found) == 6
    for (name, _), values in found.items():
        assert values == sorted(values, reverse=name == "whitened")
    raw = np.array([found["raw", depth] for depth in "358"])
    rises = np.diff(raw, axis=0) > 0
    assert not rises[:, :3].any()
    assert rises[:, 3].all()


def test_what_counts_is_whether_the_mean_image_is_gone():
    found, share = {}, {}
    for line in table("laboratory/residual", "κ, geometric mean of 3 networks, L = 8"):
        name, how, left, *_ = re.split(r"  +", line.strip())
        found[name, how], share[name, how] = cells(line, 4), int(left.rstrip("%"))
    assert len(found) == 9
    low, high = set(), set()
    for which, (plain, *skips) in found.items():
        if which[1] != "raw, no ReLUs":
            assert max(skips) < plain if share[which] <= 5 else share[which] >= 32 and min(skips) > plain
            (low if share[which] <= 5 else high).add(which)
    assert high == {("MNIST", "raw"), ("CIFAR-10", "raw"), ("MNIST", "standardised")} and len(low) == 5
    assert share["MNIST", "standardised"] == 32
    assert sorted(share[which] for which in high) == [32, 42, 79]
    plain, *skips = found["MNIST", "raw"]
    plain, full, *strong = found["CIFAR-10", "raw"]
    assert 0.9 < full / plain < 1.1 and [kappa / plain for kappa in strong] == pytest.approx([4 / 3] * 2, abs=0.05)
    without = found["MNIST", "raw, no ReLUs"]
    assert max(without[1:]) < without[0]
