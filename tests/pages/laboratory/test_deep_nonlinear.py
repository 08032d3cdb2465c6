"""The numbers in the text of "Deep networks that are not linear" and of its further experiments."""

from functools import cache
from itertools import pairwise

import pytest
import torch
from gnbook.deep_nonlinear.networks import ACTIVATIONS, network
from gnbook.deep_nonlinear.wide_limit import deep_relu_condition, wide_kernel

import gnlib
from tests.pages.pages import cells, kept, named, prose, says, span

FIRST, SECOND = "laboratory/deep-nonlinear", "laboratory/deep-nonlinear-further"
TEXT, FURTHER = prose(f"notebooks/{FIRST}"), prose(f"notebooks/{SECOND}")
LESS_MEAN = "less the mean image, at rms 1"


def images():
    return gnlib.load("mnist", 60, stride=2)


@cache
def chains():
    """By images, activation and depth: κ, its limit, the bound from below, the sharper and the plain one."""
    return named(SECOND, "condition number and its bounds", 3)


def prepared_images():
    """By activation and images: κ for each depth."""
    return named(SECOND, "κ of networks of width 800, prepared", 2)


def of_many(column="kappa"):
    """By images, activation and depth, of 500 images."""
    rows = [row for row in kept("deep-nonlinear") if row["shape"] == "chain"]
    return {(row["data"], row["activation"], row["depth"]): row[column] for row in rows}


def of_three_seeds(start):
    """By kind of images, from each network to what it has with each seed."""
    found = named(SECOND, start, 2)
    shapes = [name for name, kind in found if kind == "raw"]
    assert len(shapes) == 5 and [*shapes[:2], *shapes[3:]] == [
        "2 layers",
        "8, no skips",
        "8, branches / L",
        "8, LayerNorm",
    ]
    return ([found[name, kind] for name in shapes] for kind in ("raw", "less"))


def test_late_layers_spoil_the_sum():
    first, whole = named(FIRST, "ReLU networks of width 800, raw").values()
    assert first == sorted(first, reverse=True) and whole == sorted(whole, reverse=True)
    assert all(alone < together for alone, together in zip(first[1:], whole[1:], strict=True))
    raw, standard, less = named(FIRST, "κ of ReLU networks of width").values()
    assert raw == whole and all(a > b > c for a, b, c in zip(raw, standard, less, strict=True))


def test_what_depth_gains_in_training_comes_late():
    shallow, deep = named(FIRST, "steps until that share").values()
    assert 4.5 < shallow[0] / deep[0] < 5
    assert all(many >= few for few, many in zip(shallow[1:3], deep[1:3], strict=True))
    assert f"by {100 * (1 - deep[3] / shallow[3]):.0f} %." in TEXT
    weights = [sum(a * b for a, b in pairwise([196, *[200] * (depth - 1), 10])) for depth in (2, 8)]
    assert 6.5 < weights[1] / weights[0] < 7 and all(few < 6.5 * many for few, many in zip(shallow, deep, strict=True))
    found = named(SECOND, "steps until that share", 2)
    pairs = [(found[seed, 2], found[seed, 8]) for seed in range(3)]
    ends = [deep[3] for _, deep in pairs]
    assert f"{min(ends):,.0f} to {max(ends):,.0f} steps," in FURTHER
    assert max(ends) <= 0.75 * 2500 and all(shallow[3] is None for shallow, _ in pairs)


def test_steps_do_not_follow_kappa():
    """By the tables of three seeds, whose first column is what the figure shows."""
    (kappa_raw, kappa_less), (raw, less), (loss, _) = (
        [[runs[0] for runs in kind] for kind in of_three_seeds(start)]
        for start in ("κ at the start, three", "steps down to a loss", "loss at the start, three")
    )
    assert kappa_raw[4] < kappa_raw[1] < min(kappa_raw[2:4])
    assert f"need {less[0]:.0f} steps in place of {raw[0]:.0f}," in TEXT
    assert max(before / after for before, after in zip(raw, less, strict=True)) == raw[0] / less[0]
    assert kappa_less[3] == max(kappa_less)
    assert f"with {less[3]:.0f} steps" in TEXT and less[3] == min(less[1:]) and less[0] == min(raw + less)
    assert says(TEXT, f"at {loss[2]:.0f} on ... at {loss[0]:.1f}.")


def test_where_the_bound_is_tight():
    found = named(SECOND, "bounds over the condition number", 2)
    sharper = {name: ratios for (name, bound), ratios in found.items() if bound == "sharper"}
    assert max(ratio for name, ratios in sharper.items() if name.startswith("white") for ratio in ratios) < 3
    assert f"to {max(sharper['raw, tanh']):.0f} with" in FURTHER and 10 < max(sharper["raw, ReLU"]) < 100
    assert max(ratios[-1] for ratios in sharper.values()) < 1.9


def test_with_more_images():
    kappas, sharper = of_many(), of_many("sharper")
    gains = {name: kappas["raw", name, 2] / kappas["raw", name, 8] for name in ("ReLU", "GELU", "linear")}
    assert round(gains["ReLU"]) == 3 and 1 / gains["linear"] == pytest.approx(3, abs=0.3)
    assert f"of {1 / gains['GELU']:.1f} with GELU" in FURTHER
    ends = [float(f"{kappas['raw', name, depth]:.3g}") for name in ("ReLU", "tanh") for depth in (2, 8)]
    assert "{:,.0f} to {:,.0f} with".format(*ends[:2]) in FURTHER
    assert "{:,.0f} to {:,.0f} with".format(*ends[2:]) in FURTHER
    raw = [sharper[key] / kappas[key] for key in kappas if key[0] == "raw" and key[1] != "linear"]
    assert f"is {min(raw):.0f} to {max(raw):.0f} times" in FURTHER
    assert 8 < max(sharper[key] / kappas[key] for key in kappas if key[0] == "white") < 9
    shown = named(SECOND, "κ, 500 images at full resolution", 2)
    assert len(shown) == 10
    for key, row in shown.items():
        assert row == [pytest.approx(kappas[*key, depth], rel=0.006, abs=0.05) for depth in (2, 3, 5, 8)]


def test_layer_norm_does_what_one_norm_does():
    rows = cells(SECOND, "condition number of ReLU networks, raw")
    factors = [end for row in rows for end in span(row[4])]
    said = f"of {min(factors):.1f} to {max(factors):.1f} "
    assert f"{said}on" in FURTHER and f"{said}in" in TEXT
    for _, chain, scaled, normalised, factor in rows:
        least, most = span(factor)
        assert least - 0.01 < chain / normalised < most + 0.01 and 1 < scaled / normalised < 1.25  # most of it


def test_what_preparing_raw_images_does():
    found, photos = prepared_images(), images()[0]
    gains = {key: kappas[0] / kappas[-1] for key, kappas in found.items()}
    assert gains["GELU", "at rms 1"] > 6
    assert gains["ReLU", LESS_MEAN] < gains["ReLU", "standardised"] < gains["ReLU", "raw"]
    assert f"whose rms is {photos.square().mean().sqrt().item():.2f}." in FURTHER
    assert f"{ACTIVATIONS['GELU'].gain:.2f} that" in FURTHER
    assert all(gains["GELU, gain √2", kind] < gains["GELU", kind] for kind in ("standardised", LESS_MEAN))
    assert found["ReLU", "raw"] == [float(f"{chains()['raw', 'ReLU', depth][0]:.3g}") for depth in (2, 3, 5, 8)]
    relu = network("ReLU", "chain", [196, 100, 100, 5], generator=torch.Generator().manual_seed(0))
    three, one = (float(gnlib.condition_number(relu, scale * photos)) for scale in (3, 1))
    assert three == pytest.approx(one, rel=1e-6)


def test_the_limit_of_wide_networks():
    falls = [wide / narrow for _, narrow, _, wide in cells(SECOND, "deviation")]
    assert len(falls) == 2 and 1 / 3 < min(falls) < max(falls) < 0.4
    norms = images()[0].norm(dim=1)
    limits = deep_relu_condition(norms), deep_relu_condition(norms / norms)
    assert "is {:.0f}, not {:.0f}.".format(*limits) in FURTHER
    white, relu = gnlib.whiten(images()[0]), ACTIVATIONS["ReLU"]
    wide = wide_kernel(white / white.norm(dim=1, keepdim=True), relu.dual, [0, 1], gain=relu.gain)
    kappa = torch.linalg.cond(wide).item()
    assert says(FURTHER, f"of {kappa:.0f} on ... of {chains()['white', 'ReLU', 2][1]:.1f} there")


def test_what_skips_keep_of_depth():
    rows = named(SECOND, "ReLU networks of 8 layers, lowest")
    found = {name: [span(cell) for cell in row if cell is not None] for name, row in rows.items()}
    branches = list(found.values())[1:4]  # of strength 1, over the root of L, over L
    raw, white = ([shape[column] for shape in branches] for column in (1, 3))
    larger, smaller = [100 * (ratio - 1) for ratio in raw[0]], [100 * (1 - ratio) for ratio in reversed(white[0])]
    said = "{:.0f} to {:.0f} % ... and {:.0f} to {:.0f} %"
    assert says(FURTHER, said, *larger, *smaller)
    assert all(before[1] < after[0] for before, after in pairwise(raw))
    assert all(before[0] > after[1] for before, after in pairwise(white[:2]))
