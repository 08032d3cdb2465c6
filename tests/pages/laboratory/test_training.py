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


def test_thirty_steps_tell_when_to_compute_it_again():
    rows = cells("laboratory/training", "thirty steps of full batches at a quarter of the largest stable rate")
    (_, unit, start, _, grown), (_, small, began, _, back) = rows
    assert unit < 1 and small > 2
    assert grown == pytest.approx(7 * start, rel=0.05) and back == pytest.approx(began, rel=0.06)


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


def test_narrow_relu_networks_lose_directions():
    rows = {
        (row["width"], row["epoch"]): row for row in kept("counting-zeros") if (row["figure"], row["seed"]) == (18, 0)
    }
    rank, kappa = ({key: row[f"{what}_float64"] for key, row in rows.items()} for what in ("rank", "kappa"))
    lost = [rank[m, 0] - rank[m, 100] for m in (15, 20, 30, 50, 100)]
    assert min(lost[:-1]) > 0 == lost[-1] and kappa[100, 100] == pytest.approx(100 * kappa[100, 0], rel=0.15)
    assert rank[50, 100] == pytest.approx(2 / 3 * rank[50, 0], rel=0.02) and 1e5 < kappa[50, 100] / kappa[50, 0] < 1e6


def test_the_mean_over_draws_of_minibatches_is_that_of_trainings_of_a_linear_network_only():
    rows = cells("laboratory/training", "largest stable rate over that of full batches")
    for name, _, _, stable, full, mean, soon, later, lost in rows:
        assert stable <= 1 and full <= mean < 1 and 1 / 1.6 < soon < 1.6
        if name == "linear":
            assert abs(soon - 1) < 0.05 and abs(later - 1) < 0.05 and not lost
    assert {name for name, *_, lost in rows if lost} == {"CNN"}
