"""What the page on training says of noise, and its table."""

import pytest
from gnbook import results

from tests.pages.pages import prose, table


def test_what_full_batches_and_minibatches_do_to_the_extreme_eigenvalues():
    """The smallest shrinks most, and without noise it rests."""
    text, lines = prose("notebooks/training"), table("training", "unit images, full batches and minibatches")
    steps, *columns = zip(*([float(cell) for cell in line.split()] for line in lines), strict=True)
    for full, mini in zip(columns[::2], columns[1::2], strict=True):
        assert len({*full[1:]}) == 1 and list(mini) == sorted(mini, reverse=True) and mini[-1] < full[-1] < full[0]
    (_, large_full, small_full), (squares, large, small) = columns[::2], columns[1::2]
    said = f"take it from {small[0]:.1f} to {small_full[-1]:.1f} and the largest from {large[0]:.2f} to"
    assert f"{said} {large_full[-1]:.2f};" in text
    said = f"on to {small[-1]:.1f} in 800 epochs, the largest only to {large[-1]:.1f}."
    assert steps[-1] == 4 * 800 and said in text
    assert small[0] / 3 - 0.04 < small[-1] < small[0] / 3
    assert small[-1] == pytest.approx(small_full[-1] / 2, rel=0.1)
    assert "shrink by 3 %" in text and 1 - squares[-1] / squares[0] == pytest.approx(0.03, abs=0.005)


def test_when_to_compute_it_again():
    """The quick test is that of the guide."""
    page, guide = prose("notebooks/training"), prose("notebooks/your-own-network")
    for said in ("If the largest eigenvalue has more than doubled", "at a quarter of the largest stable rate"):
        assert said in page and said in guide
    lines = table("training", "thirty steps of full batches at a quarter of the largest stable rate")
    (unit, *_), (small, *_) = rows = [[float(cell) for cell in line.split()[1:]] for line in lines]
    assert unit < 1 and small > 2
    (_, start, _, grown), (_, began, _, back) = rows
    assert grown == pytest.approx(7 * start, rel=0.05) and back == pytest.approx(began, rel=0.06)


def of_networks_in_use(column):
    """What the kept table has of a column along the training of each whole network of the first figure."""
    whole = [r for r in results.kept("pruning-further") if (r["pruning"], r["columns"]) == ("none", "kept")]
    whole = [r for r in whole if r["statistics"] != "running"]
    names = "ResNet20", "ResNet32", "FcNN", "ViT"
    return {name: [r[column] for r in whole if r["network"] == name] for name in names}


def test_no_direction_is_lost_in_the_networks_in_use():
    """Their condition numbers can be compared."""
    ranks = of_networks_in_use("rank")
    assert [len(path) for path in ranks.values()] == [6] * 4 and {r for path in ranks.values() for r in path} == {1280}
    assert "all 1,280 eigenvalues count" in prose("notebooks/training")


def test_which_end_of_the_spectrum_moves_in_the_networks_in_use():
    """In the ResNets the smallest eigenvalue falls; in the transformer both ends grow."""
    page = prose("notebooks/training")
    largest, smallest, kappa = (of_networks_in_use(name) for name in ("largest", "smallest", "kappa"))
    top, low = ({name: path[-1] / path[0] for name, path in ends.items()} for ends in (largest, smallest))
    assert f"of the ResNet20 falls {1 / low['ResNet20']:.0f}-fold, and the" in page
    assert top["ResNet20"] == pytest.approx(1, abs=0.05)
    said = f"the largest {round(top['ViT'], -1):.0f}-fold, the smallest {round(low['ViT'], -3):,.0f}-fold."
    assert said in page
    for name in ("ResNet20", "ResNet32"):
        assert max(largest[name]) == largest[name][0] and low[name] < 1 / 100
        assert kappa[name][-1] > 100 * kappa[name][0] and max(kappa[name]) == kappa[name][1]
    assert kappa["FcNN"][-1] == pytest.approx(2 * kappa["FcNN"][0], rel=0.06)
