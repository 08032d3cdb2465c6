"""The rates of the MLP of "Pruning before training", and the table at its top."""

from functools import partial

import numpy as np
import pytest
from gnbook import results
from gnbook.pruning.trainings import Training, path, trainings

from tests.pages.pages import prose, words_of

lines_of = partial(words_of, "pruning-further")


@pytest.fixture(scope="module")
def text():
    """The chapter and the page of its further experiments."""
    return prose("notebooks/pruning") + " " + prose("notebooks/pruning-further")


def test_at_larger_rates_the_pruned_connected_network_is_behind():
    lines = np.array([[float(cell) for cell in line] for line in lines_of("MLP, training loss after 100 epochs at")])
    rates, whole, some, most = lines[:, 0], lines[:, 1:3], lines[:, 3:5], lines[:, 5:]
    assert len(lines) == 10
    small = rates < 0.65
    assert ((whole < some) & (some < most))[small].all()
    assert most.min() > 1e-5
    assert max(whole.min(0).max(), some.min(0).max()) < 1e-6
    blind, better = most.T
    assert blind.min() > 1 / 160
    assert better.argmin() == 9
    (beyond,) = lines_of("MLP without 80 %, at twice the largest of these rates")
    rate, *last = map(float, beyond)
    assert rate == 10.24 and (np.array(last) > 2 * most[-1]).all()
    best = [rates[column.argmin()] for column in (*whole.T, *some.T)]
    assert sorted(best) == [1.28, 2.56, 2.56, 2.56]
    assert rates[better.argmin()] == 4 * rates[whole[:, 1].argmin()] and rate == 8 * rates[whole[:, 1].argmin()]
    assert better.min() > 30 * whole.min(0).max()
    largest = float(lines_of("MLP, loss after 100 epochs, at the rate 0.01")[-1][2])
    assert 10 / largest == pytest.approx(50, rel=0.05)
    late = (rates > 1) & (rates < 3)
    assert late.sum() == 2 and (most[late].min(axis=1) > np.maximum(whole, some)[late].max(axis=1)).all()
    lost = ~((whole < some) & (some < most))[~small].all(axis=1)
    assert lost.all() and (whole[-1] > 1e4 * whole.min(0)).all()


def test_up_to_a_quarter_of_the_stable_rate_the_pruned_are_slower():
    top = float(lines_of("MLP, loss after 100 epochs, at the rate 0.01")[0][2])
    stable = 10 / top
    for rate, *losses in ([float(cell) for cell in cells] for cells in lines_of("MLP, training loss after 100 epochs")):
        of_each = losses[::2], losses[1::2]  # the two seeds
        if rate <= stable / 4:
            assert all(of_seed == sorted(of_seed) for of_seed in of_each)
        else:
            assert not all(of_seed == sorted(of_seed) for of_seed in of_each)


def test_the_table_at_the_top(text):
    """Means over the last tenth of the epochs, of each network and pruning that is kept."""
    found = trainings(results.kept("pruning-further"))
    shown = {name: cells for name, *cells in words_of("pruning", "training loss, mean over the last tenth")}
    assert [*shown] == ["ResNet20", "ViT", "ResNet32", "VGG5", "FcNN"]
    for network in shown:
        cells = []
        for what in (("none", 0.0), ("weights", 0.8), ("every tensor", 0.8)):
            at, losses = (
                path(found[Training(network, *what)], "loss") if Training(network, *what) in found else ([], [])
            )
            late = [loss for epoch, loss in zip(at, losses, strict=True) if epoch >= 0.9 * max(at)]
            cells.append(f"{np.mean(late):.3f}" if late else "-")
        assert cells == shown[network]
    means = {name: [float(cell) if cell != "-" else None for cell in cells] for name, cells in shown.items()}
    assert means["ResNet20"][1] < 1.05 * means["ResNet20"][0]
    assert means["VGG5"][2] < 0.6 * means["VGG5"][0]
    whole, weights, every = (
        path(found[Training("FcNN", *what)], "loss")[1][-1]
        for what in (("none", 0.0), ("weights", 0.8), ("every tensor", 0.8))
    )
    assert f"too, {weights:.3f} and {every:.3f}." in text
    assert whole < 0.1 * weights
