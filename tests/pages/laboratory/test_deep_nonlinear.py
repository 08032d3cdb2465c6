"""The findings of "Deep networks that are not linear", by the tables of its pages."""

from gnbook.deep_nonlinear.networks import ACTIVATIONS, network  # noqa: F401 (the page has the gain)
from gnbook.deep_nonlinear.wide_limit import deep_relu_condition  # noqa: F401 (the page has it)

import gnlib
from tests.pages.pages import kept, named

PAGE = "laboratory/deep-nonlinear-further"


def images():
    return gnlib.load("mnist", 60, stride=2)


def of_many(column="kappa"):
    """By images, activation and depth, of 500 images."""
    rows = [row for row in kept("deep-nonlinear") if row["shape"] == "chain"]
    return {(row["data"], row["activation"], row["depth"]): row[column] for row in rows}


def of_sharper():
    """The sharper bound over the condition number, of raw images."""
    kappas, sharper = of_many(), of_many("sharper")
    return [sharper[key] / kappas[key] for key in kappas if key[0] == "raw" and key[1] != "linear"]


def of_three_seeds(start):
    """By kind of images, from each network to what it has with each seed."""
    found = named(PAGE, start, 2)
    shapes = [name for name, kind in found if kind == "raw"]
    assert len(shapes) == 5 and [shapes[0], *shapes[3:]] == ["2 layers", "8, branches / L", "8, LayerNorm"]
    return ([found[name, kind] for name in shapes] for kind in ("raw", "less"))


def test_steps_do_not_follow_kappa():
    """By the tables of three seeds, whose first column is what the figure shows."""
    (kappa_raw, kappa_less), (raw, less) = (
        [[runs[0] for runs in kind] for kind in of_three_seeds(start)]
        for start in ("κ at the start, three", "steps down to a loss")
    )
    assert kappa_raw[4] < kappa_raw[1] < min(kappa_raw[2:4])
    assert max(before / after for before, after in zip(raw, less, strict=True)) == raw[0] / less[0]
    assert kappa_less[3] == max(kappa_less)
    assert less[3] == min(less[1:]) and less[0] == min(raw + less)


def test_where_the_bound_is_tight():
    found = named(PAGE, "bounds over the condition number", 2)
    sharper = {name: ratios for (name, bound), ratios in found.items() if bound == "sharper"}
    assert max(ratio for name, ratios in sharper.items() if name.startswith("white") for ratio in ratios) < 3
    assert 10 < max(sharper["raw, ReLU"]) < 100
    assert max(ratios[-1] for ratios in sharper.values()) < 1.9
