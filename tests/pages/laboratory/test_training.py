"""The findings of the laboratory's "Along the training", by its tables and by kept ones."""

import numpy as np
import pytest

from tests.pages.pages import cells, kappas, kept, named


def test_minibatches_shrink_both_extreme_eigenvalues_and_the_smallest_most_where_full_batches_rest():
    _, *columns = zip(*cells("laboratory/training", "unit images, full batches and minibatches"), strict=True)
    for full, mini in zip(columns[::2], columns[1::2], strict=True):
        assert len({*full[1:]}) == 1 and list(mini) == sorted(mini, reverse=True) and mini[-1] < full[-1] < full[0]
    squares, large, small = columns[1::2]
    assert small[-1] / small[0] < 0.4 < 0.7 < large[-1] / large[0] < squares[-1] / squares[0]


def test_noise_and_not_the_rate_keeps_kappa_up():
    found = named("laboratory/training", "one network, κ after 200 epochs", 2)
    _, start, *_ = found["small", 0.2]
    for rate, times in ((20, 2), (64, 10)):
        noisy, full = found["small", rate][2:]
        assert full == pytest.approx(start, rel=0.1) and noisy > times * start


def test_kappa_of_unit_images_grows_sevenfold_and_that_of_small_ones_doubles_and_comes_back():
    def ends(scale):
        last = max(row["epoch"] for row in kept("training") if row["scale"] == scale)
        return [np.mean(kappas("training", figure=10, scale=scale, epoch=epoch)) for epoch in (0, last)]

    small, unit = ends("small"), ends("unit")
    assert unit[1] == pytest.approx(7 * unit[0], rel=0.05) and small[1] == pytest.approx(small[0], rel=0.05)
    assert max(kappas("training", figure=10, scale="small")) == pytest.approx(2 * small[0], rel=0.1)


def whole(network, column):
    """A column of the kept table along the training of a whole network."""
    of = {"pruning": "none", "columns": "kept", "network": network}
    rows = [row for row in kept("pruning-further") if of.items() <= row.items() and row["statistics"] != "running"]
    return [row[column] for row in rows]


def test_in_resnets_the_smallest_eigenvalue_falls_and_in_the_transformer_both_ends_grow():
    for network in ("ResNet20", "ResNet32"):
        (*_, low), (*_, kappa) = whole(network, "smallest"), whole(network, "kappa")
        assert low < whole(network, "smallest")[0] / 100 and kappa > 100 * whole(network, "kappa")[0]
        assert max(whole(network, "largest")) == whole(network, "largest")[0]
    (first, *_, last), (top, *_, late) = whole("ViT", "smallest"), whole("ViT", "largest")
    assert last / first > 50 * late / top > 50 * 600
    assert {rank for name in ("ResNet20", "ResNet32", "FcNN", "ViT") for rank in whole(name, "rank")} == {1280}
