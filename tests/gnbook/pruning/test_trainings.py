"""Trainings that are kept or printed: nothing of another setting is mixed in, and what is summed up of them."""

import numpy as np
import pytest
from gnbook.pruning import printed
from gnbook.pruning.trainings import Training, late_loss, path, trainings


def rows(network="ViT", pruning="weights", fraction=0.8, **more):
    return {"network": network, "pruning": pruning, "fraction": fraction} | more


def test_only_rows_of_the_public_setting_count():
    odd = {"factor": 0.1}, {"published_loss": "mse_loss"}, {"precision": "float64"}
    usual = {"factor": 1.0, "published_loss": "cross_entropy", "precision": "float32"}
    found = trainings([rows(seed=0), rows(seed=1, **usual), *(rows(**usual | other) for other in odd)])
    assert [row["seed"] for row in found[Training("ViT", "weights", 0.8)]] == [0, 1] and len(found) == 1


def test_a_path_is_of_one_kind_of_statistics_and_of_columns():
    batch = [rows(epoch=0, kappa=4.0, statistics="batch", columns=columns) for columns in ("all", "kept")]
    others = [rows(epoch=0, kappa=1e9, statistics="running", columns="kept"), rows(epoch=0, loss=2.0)]
    later = [rows(epoch=5, kappa=kappa, statistics="batch", columns="kept") for kappa in (1.0, 16.0)]
    epochs, values = path([*batch, *others, *later], "kappa")
    assert epochs == [0, 5] and values == pytest.approx([4, 4])
    assert path([*batch, *others], "loss") == ([0], pytest.approx([2.0]))
    assert path([batch[0] | {"kappa": 9.0}, batch[1]], "kappa", "all")[1] == pytest.approx([9])


@pytest.mark.parametrize(("share", "logarithm"), [(0.2, 10.36555738), (0.4, 10.68632317)])
def test_the_curves_are_the_largest_eigenvalues_over_one_number(share, logarithm):
    """The notebook prints the logarithm of each curve's sum; no other eigenvalue would give that."""
    assert np.log(printed.ratios("ResNet20", share).drawn.sum()) == pytest.approx(logarithm, abs=1e-5)
    assert np.log(printed.ratios("ResNet20", share).own.sum()) > logarithm + 1


def test_the_other_notebook_divides_by_eigenvalues_of_the_same_spectrum():
    sums = 16.08322677, 16.76273067, 16.42153564, 17.60638548
    for share, logarithm in zip(printed.SHARES, sums, strict=False):
        line = printed.SHARES.index(share)
        largest, smallest = (np.array(ends["ResNet32"][line]) for ends in (printed.LARGEST, printed.SMALLEST))
        assert np.log((largest / smallest).sum()) == pytest.approx(logarithm, abs=1e-5)


def test_late_is_the_last_tenth_of_a_long_training_and_the_last_quarter_of_a_short_one():
    rows = [{"epoch": epoch, "loss": epoch + 1.0} for epoch in range(0, 101, 5)]
    assert late_loss(rows) == pytest.approx(96) and late_loss(rows[:9]) == pytest.approx(36)  # 90 to 100, 30 to 40
