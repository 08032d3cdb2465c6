"""What "Residual networks" says in passing is so."""

import re

import numpy as np
import pytest
import torch

import gnlib
from gnlib.chapters import results
from gnlib.chapters.deep_nonlinear.chain import kernel, layers_of
from gnlib.chapters.deep_nonlinear.networks import network
from tests.book.pages import prose, table, texts
from tests.strategies import gaussian


@pytest.fixture(scope="module")
def page():
    return prose("notebooks/residual")


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


def condition_without_skips_at_the_ends(weights, z, factor, trained):
    """κ of linear layers; those in the middle are z + factor W z, and the factor may be a weight itself."""
    first, *inner, last = weights
    layers = [first, *(torch.eye(len(w)).double() + factor * w for w in inner), last]
    scales, kernel = [1.0, *(factor for _ in inner), 1.0], 0
    for at, (scale, w) in enumerate(zip(scales, weights, strict=True)):
        below, above = z, torch.eye(len(last)).double()
        for layer in layers[:at]:
            below = below @ layer.mT
        for layer in layers[:at:-1]:
            above = above @ layer
        kernel = kernel + scale**2 * torch.kron(below @ below.mT, above @ above.mT)
        if trained and 0 < at < len(inner) + 1:
            by_factor = (below @ (above @ w).mT).flatten()
            kernel = kernel + by_factor.outer(by_factor)
    values = torch.linalg.eigvalsh(kernel)
    return (values[-1] / values[0]).item()


def test_without_skips_at_both_ends_kappa_tends_to_that_of_one_hidden_layer(page):
    moment = gnlib.SecondMoment.from_data(gnlib.whiten(gnlib.load("mnist", 300, stride=3)[0]))
    z = (moment.basis * moment.eigenvalues.sqrt()).mT  # fewer samples of the same second moment, but for a factor
    weights = gnlib.linear_weights([len(moment.basis), 300, 300, 300, 10], generator=torch.Generator().manual_seed(0))
    factors = 1.0, 0.5, 0.1, 0.01
    shared = [
        float(gnlib.condition_number(gnlib.linear_gauss_newton(weights, moment, 1 / factor))) for factor in factors
    ]
    middle, trained = (
        [condition_without_skips_at_the_ends(weights, z, factor, learned) for factor in factors]
        for learned in (False, True)
    )
    alone = float(gnlib.condition_number(gnlib.linear_gauss_newton([weights[0], weights[-1]], moment)))
    assert middle[-1] == pytest.approx(alone, rel=1e-2) and trained[-1] > 1.4 * alone
    assert f"With the two outer layers alone it has a $\\kappa$ of {alone:.1f}." in page
    said = "a factor of 1/100 takes $\\kappa$ from {:.1f} to {:.1f}. Counted as a weight, it takes it to {:.1f}."
    assert said.format(middle[0], middle[-1], trained[-1]) in page
    for kappas, digits in ((shared, (1, 1, 1, 2)), (middle, (1,) * 4), (trained, (1,) * 4)):
        assert f"| {' | '.join(f'{kappa:.{digit}f}' for kappa, digit in zip(kappas, digits, strict=True))} |" in page


@pytest.mark.parametrize("depth", [2, 5])
def test_weak_branches_are_strong_skips(depth, page):
    x, identity = gaussian(0, 40, 12), torch.eye(12).double()
    weights = [gaussian(seed, 12, 12) / 12**0.5 for seed in range(1, depth + 1)]
    weak, strong = (
        float(gnlib.condition_number(gnlib.linear_gauss_newton(layers, gnlib.second_moment(x))))
        for layers in ([identity + w / depth**0.5 for w in weights], [w + depth**0.5 * identity for w in weights])
    )
    assert weak == pytest.approx(strong, rel=1e-9)
    assert "has the condition number of one with the strong skip $\\beta = 1 / c$" in page


def test_full_strength_helps_every_network(page):
    means, by_network = [], []
    for size in (("MNIST", 800), ("MNIST", 1600), ("CIFAR-10", 3100)):
        means += [100 * (1 - 1 / gain) for (_, _, skip), (gain, *_) in gains_of({size}).items() if skip == "1"]
        kappas = kappas_of({size})
        by_network += [
            100 * (1 - kappa / kappas[images, depth, "no skip"][seed])
            for (images, depth, skip), runs in kappas.items()
            if skip == "1"
            for seed, kappa in runs.items()
        ]
    assert min(by_network) > 0
    assert f"takes {min(means):.0f} to {max(means):.0f} per cent off the mean $\\kappa$" in page
    assert f"$\\beta = 1$ takes {min(means):.0f} to {max(means):.0f} per cent off $\\kappa$" in page
    assert f"In single networks of this size it is {min(by_network):.0f} to {max(by_network):.0f} per cent" in page


def test_evenness_with_the_gain_of_torch(page):
    weight = gaussian(0, 1000, 1000) * (2 / 1000) ** 0.5
    bare, skipped = (torch.linalg.svdvals(layer).square() for layer in (weight, weight + torch.eye(1000).double()))
    off = 1 - (skipped.var() / skipped.mean() ** 2) / (bare.var() / bare.mean() ** 2)
    assert "strength one then takes off 11 per cent" in page and off.item() == pytest.approx(0.11, abs=0.005)


@pytest.mark.parametrize(("depth", "width"), [(2, 50), (2, 200), (4, 50), (4, 200), (8, 50), (8, 200)])
def test_how_many_small_networks_get_worse(depth, width, page):
    worse = 0
    for seed in range(30):
        weights = gnlib.linear_weights(
            [40] + [width] * (depth - 1) + [10], generator=torch.Generator().manual_seed(seed)
        )
        without, with_skip = (
            float(gnlib.condition_number(gnlib.linear_gauss_newton(weights, torch.eye(40).double(), skip)))
            for skip in (0.0, 1.0)
        )
        worse += with_skip > without
    assert "and none gets worse; of [small ones](#against-the-paper) up to three in thirty do." in page
    assert "makes three of the thirty networks worse at two layers of width 50, and at most one in each of" in page
    assert worse == 3 if (depth, width) == (2, 50) else worse <= 1


def test_the_gain_stops_growing(gains, page):
    assert "by 1.2 at two layers and by 1.4 at six" in page and "it stays between 1.4 and 1.6" in page
    full = {(images, depth): gain for (images, depth, skip), (gain, _, _) in gains.items() if skip == "1"}
    for images in ("MNIST", "CIFAR-10"):
        assert (round(full[images, 2], 1), round(full[images, 6], 1)) == (1.2, 1.4)
    assert {round(gain, 1) for (_, depth), gain in full.items() if depth >= 6} <= {1.4, 1.5, 1.6}


def test_weak_skips_do_next_to_nothing(gains, page):
    weak = [gain for (_, _, skip), (gain, _, _) in gains.items() if skip != "1"]
    assert "divide it by 1.08 at most in this table" in page and f"{max(weak):.2f}" == "1.08"
    tosses = [
        better / networks
        for (images, depth, skip), (_, better, networks) in gains.items()
        if (images, skip) == ("MNIST", "1 / L") and depth > 2
    ]
    assert "$1/L$ is close to a coin toss on MNIST" in page and np.mean(tosses) == pytest.approx(0.5, abs=0.1)


def test_twice_as_wide(page):
    gains = {(depth, skip): gain for (_, depth, skip), (gain, _, _) in gains_of({("MNIST", 1600)}).items()}
    full, root = ([gain for (_, skip), gain in gains.items() if skip == name] for name in ("1", "1 / sqrt(L)"))
    said = "full strength divides the condition number by {:.1f} to {:.1f}, and $1 / \\sqrt L$ by {:.2f} at most"
    assert said.format(min(full), max(full), max(root)) in page
    weak = [gain for (_, skip), gain in gains.items() if skip not in ("1", "no skip")]
    assert f"and by {max(weak):.2f} at width 1,600." in page


def test_branches_of_relu_networks(page):
    shapes = ("chain", "skips", "skips / root of L", "skips / L")
    rows = [row for row in results.kept("deep-nonlinear") if (row["activation"], row["depth"]) == ("ReLU", 8)]
    kappas = {(row["data"], row["shape"]): row["kappa"] for row in rows if row["n"] == 500}
    white, raw = ([kappas[data, shape] for shape in shapes] for data in ("white", "raw"))
    said = "{} without skips, {} for branches of factor 1, {} for $1 / \\sqrt L$ and {} for $1 / L$"
    assert said.format(*(f"{float(f'{kappa:.2g}'):,.0f}" for kappa in white)) in page
    rounded = [f"{float(f'{kappa:.2g}'):,.0f}" for kappa in raw]
    assert "{}, {}, {} and {}".format(*rounded) in page


def test_skips_of_relu_networks_help_on_white_images_and_harm_on_raw_ones(page):
    lines = [line.split() for line in table("residual", "κ of one network of width 800")]
    found = {(name, depth): [int(cell.replace(",", "")) for cell in cells] for name, depth, *cells in lines}
    assert len(found) == 6
    for (name, _), values in found.items():
        assert values == sorted(values, reverse=name == "whitened")
    raw = np.array([found["raw", depth] for depth in "358"])
    rises = np.diff(raw, axis=0) > 0
    assert "With $c = 1$ and $c = 1 / \\sqrt L$ it still does." in page and not rises[:, :3].any()
    assert "with branches of $1/L$ alone depth raises $\\kappa$." in page and rises[:, 3].all()
    cost = 100 * (raw[:, 1] / raw[:, 0] - 1)
    assert f"of full strength cost {cost.min():.0f} to {cost.max():.0f} per cent, in one network each" in page


def test_what_counts_is_whether_the_mean_image_is_gone(page):
    lines = [re.split(r"  +", line.strip()) for line in table("residual", "κ, geometric mean of 3 networks, L = 8")]
    found = {(name, how): [float(cell.replace(",", "")) for cell in cells] for name, how, _, *cells in lines}
    share = {(name, how): cell for name, how, cell, *_ in lines}
    for images in ("MNIST", "CIFAR-10"):
        for how in ("centred", "whitened"):
            plain, full, *weak = found[images, how]
            assert int(share[images, how].rstrip("%")) <= 2 and max(weak) < full < plain
    said = "skips lower $\\kappa$, as without ReLUs, and weak branches most, by factors of {:.0f} and {:.0f}."
    assert (
        said.format(*(found[name, "whitened"][0] / found[name, "whitened"][3] for name in ("MNIST", "CIFAR-10")))
        in page
    )
    said = "they lower it too, by factors of {:.1f} and {:.1f}."
    assert (
        said.format(*(found[name, "centred"][0] / min(found[name, "centred"]) for name in ("MNIST", "CIFAR-10")))
        in page
    )
    plain, *skips = found["MNIST", "standardised"]
    assert min(skips) > plain and share["MNIST", "standardised"] == "32%"
    plain, *skips = found["CIFAR-10", "standardised"]
    assert max(skips) < plain and share["CIFAR-10", "standardised"] == "5%"
    assert "5 per cent are left, of MNIST's 32." in page
    assert "lower $\\kappa$ where 5 per cent or less are left, and raise it at 32 and more." in page
    for which, (plain, *skips) in found.items():
        if which[1] != "raw, no ReLUs":
            left = int(share[which].rstrip("%"))
            assert max(skips) < plain if left <= 5 else left >= 32 and min(skips) > plain
    plain, *skips = found["MNIST", "raw"]
    assert min(skips) > plain and f"with branches of $1/L$ to {skips[2] / plain:.1f} times what it is." in page
    added = 100 * (skips[0] / plain - 1)
    assert f"(With 60 images, and a narrower network, they cost {added:.0f} per cent.)" in page
    plain, full, *weak = found["CIFAR-10", "raw"]
    assert "a skip of full strength hardly changes it, and weak branches raise it by a third." in page
    assert 0.9 < full / plain < 1.1 and [kappa / plain for kappa in weak] == pytest.approx([4 / 3] * 2, abs=0.05)
    without = found["MNIST", "raw, no ReLUs"]
    assert "Skips lower $\\kappa$ on raw images of MNIST too".lower() in page.lower() and max(without[1:]) < without[0]


def test_the_kernel_of_relu_networks_is_that_of_their_chapter():
    """One cell of the table, by the derivatives that torch takes."""
    images, kappas = gnlib.load("mnist", 60)[0], []
    for seed in range(3):
        drawn = network("ReLU", "skips / L", [784, *[200] * 7, 10], generator=torch.Generator().manual_seed(seed))
        values = torch.linalg.eigvalsh(kernel(layers_of(drawn, images)))
        kappas.append((values[-1] / values[0]).item())
    (line,) = (line for line in table("residual", "κ, geometric mean of 3") if re.match(r"MNIST +raw  ", line))
    assert line.endswith(f"{np.exp(np.mean(np.log(kappas))):,.0f}")


def test_the_weaker_the_branches_the_smaller_is_kappa(page):
    lines = [[float(cell) for cell in line.split()[1:]] for line in table("residual", "κ, mean of 2 networks")]
    lines = [[plain, *strong] for plain, _, _, *strong in lines]
    assert len(lines) == 3 and all(values == sorted(values, reverse=True) for values in lines)
    assert "From $\\beta = 1$ on, the stronger the skip, the smaller is $\\kappa$, at each depth" in page
    assert "at four layers $c = 1/2$ takes it from 25 to 8" in page
    assert (round(lines[1][0]), round(lines[1][2])) == (25, 8)
    assert "and $\\beta = 2$ two thirds at four layers." in page and 0.64 < 1 - lines[1][2] / lines[1][0] < 0.69


def test_what_the_first_order_leaves_out(page):
    """Of exercise 2: the formula and the table where the skip is the root of the depth."""
    (shown,) = (text.splitlines() for text in texts("residual") if text.startswith("one network, MNIST, L = 4; q ="))
    first_order = 1 + float(re.search(r"q = ([\d.]+)", shown[0])[1]) / 2
    (measured,) = (float(line.split()[2]) for line in shown[2:] if line.split()[0] == "2")
    assert f"at $L = 4$ and $\\beta = 2$ it says {first_order:.1f}, and {measured:.1f} is measured." in page
