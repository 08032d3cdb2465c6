"""The numbers in the text of "One hidden layer" are those of its tables."""

import math

from tests.book.pages import prose, table


def test_how_slowly_width_helps():
    kappas = {
        int(line.split()[0]): float(line.split()[1]) for line in table("one-hidden-layer", "whitened MNIST, means")
    }
    power = math.log((kappas[4500] - 1) / (kappas[2000] - 1)) / math.log(4500 / 2000)
    page = prose("notebooks/one-hidden-layer")
    assert (
        f"from 2,000 units to 4,500 the condition number falls from {kappas[2000]:.1f} to {kappas[4500]:.1f},"
        in page.lower()
    )
    assert f"its excess over one with the power ${power:.2f}$ of the width" in page


def test_what_raw_images_cost():
    page = prose("notebooks/one-hidden-layer")
    white, raw = (
        [float(line.split()[2]) for line in table("one-hidden-layer", start)]
        for start in ("whitened MNIST, n = 1000", "raw MNIST")
    )
    assert "six orders of magnitude on CIFAR-10 and nine on MNIST" in page
    assert round(math.log10(math.prod(raw) / math.prod(white)) / len(raw)) == 9
    photos = {
        line.split()[0]: float(line.split()[1]) for line in table("one-hidden-layer", "condition number, mean")[:2]
    }
    assert round(math.log10(photos["raw"] / photos["whitened"])) == 6
