"""Trainings that are kept or printed: nothing of another setting is mixed in, and what is summed up of them."""

import numpy as np
import pytest
from gnbook import results
from gnbook.pruning import drawing, printed
from gnbook.pruning.trainings import PRUNINGS, Training, late_loss, most_pruned, path, trainings


def rows(network="ViT", pruning="weights", fraction=0.8, **more):
    return {"network": network, "pruning": pruning, "fraction": fraction} | more


def test_only_rows_of_the_public_setting_count():
    odd = {"factor": 0.1}, {"published_loss": "mse_loss"}, {"precision": "float64"}
    usual = {"factor": 1.0, "published_loss": "cross_entropy", "precision": "float32"}
    found = trainings([rows(seed=0), rows(seed=1, **usual), *(rows(**usual | other) for other in odd)])
    assert [row["seed"] for row in found[Training("ViT", "weights", 0.8)]] == [0, 1] and len(found) == 1


def test_the_order_and_what_is_pruned_most():
    every = [rows(name, pruning, f) for name in "ba" for pruning in PRUNINGS[:0:-1] for f in (0.8, 0.4)]
    found = trainings([*every, rows("a", "none", 0.0)])
    assert [training.network for training in found] == ["a"] * 7 + ["b"] * 6
    assert [str(training) for training in found][:3] == ["nothing", "40 % of the weights", "80 % of the weights"]
    most = most_pruned(found, "a")
    assert list(most) == list(PRUNINGS) and [training.fraction for training in most.values()] == [0.0, 0.8, 0.8, 0.8]


def test_a_path_is_of_one_kind_of_statistics_and_of_columns():
    batch = [rows(epoch=0, kappa=4.0, statistics="batch", columns=columns) for columns in ("all", "kept")]
    others = [rows(epoch=0, kappa=1e9, statistics="running", columns="kept"), rows(epoch=0, loss=2.0)]
    later = [rows(epoch=5, kappa=kappa, statistics="batch", columns="kept") for kappa in (1.0, 16.0)]
    epochs, values = path([*batch, *others, *later], "kappa")
    assert epochs == [0, 5] and values == pytest.approx([4, 4])
    assert path([*batch, *others], "loss") == ([0], pytest.approx([2.0]))
    assert path([batch[0] | {"kappa": 9.0}, batch[1]], "kappa", "all")[1] == pytest.approx([9])


def test_the_kept_table_has_whole_networks_beside_pruned_ones():
    found = trainings(results.kept("pruning-further"))
    networks = {training.network for training in found}
    assert networks == {"FcNN", "ResNet20", "ResNet32", "VGG5", "ViT"}
    for network in networks:  # the ResNet32 and the VGG5 with pruned weights have not been run
        assert {"none", "every tensor", *["weights"] * (network not in ("ResNet32", "VGG5"))} <= set(
            most_pruned(found, network)
        )


@pytest.mark.parametrize(("share", "logarithm"), [(0.2, 10.36555738), (0.4, 10.68632317)])
def test_the_curves_are_the_largest_eigenvalues_over_one_number(share, logarithm):
    """The notebook prints the logarithm of each curve's sum; no other eigenvalue would give that."""
    assert np.log(printed.ratios("ResNet20", share).drawn.sum()) == pytest.approx(logarithm, abs=1e-5)
    assert np.log(printed.ratios("ResNet20", share).own.sum()) > logarithm + 1


@pytest.mark.parametrize(("share", "logarithm"), [(0.0, 10.25518654), (0.6, 16.27353429), (0.8, 17.47366568)])
def test_where_fewer_eigenvalues_count_the_divisor_is_larger_by_less_than_seven(share, logarithm):
    assert 0 <= np.log(printed.ratios("ResNet20", share).drawn.sum()) - logarithm < np.log(7)


def test_the_other_notebook_divides_by_eigenvalues_of_the_same_spectrum():
    sums = 16.08322677, 16.76273067, 16.42153564, 17.60638548
    for share, logarithm in zip(printed.SHARES, sums, strict=False):
        line = printed.SHARES.index(share)
        largest, smallest = (np.array(ends["ResNet32"][line]) for ends in (printed.LARGEST, printed.SMALLEST))
        assert np.log((largest / smallest).sum()) == pytest.approx(logarithm, abs=1e-5)


def test_what_is_rounding_is_no_condition_number():
    """The whole ResNet20 at epoch 20 has a negative eigenvalue; without 80 %, both networks have nothing else."""
    assert np.isnan(printed.ratios("ResNet20", 0.0).own).tolist() == [False, True, False, False, False, False]
    for network in printed.LARGEST:
        assert np.isnan(printed.ratios(network, 0.8).own).all()
    known = (printed.ratios("ResNet32", share).own for share in printed.SHARES[:-1])
    assert all(ratio[np.isfinite(ratio)].max() < 1 / np.finfo(np.float32).eps for ratio in known)


def training(pruning, fraction, losses, kappas):
    about = {"network": "ViT", "pruning": pruning, "fraction": fraction}
    rows = [about | {"epoch": 10 * i, "loss": loss} for i, loss in enumerate(losses)]
    for columns, factor in (("kept", 1), ("all", 10)):
        at = [
            {"epoch": epoch, "kappa": factor * kappa, "rank": 5} for epoch, kappa in zip((0, 100), kappas, strict=True)
        ]
        rows += [about | {"statistics": "none", "columns": columns} | row for row in at]
    return rows


FOUND = trainings(
    training("none", 0.0, [2.0] * 9 + [1.0, 3.0], (7.0, 8.0))
    + training("weights", 0.4, [2.0] * 11, (1.0, 1.0))
    + training("weights", 0.8, [0.1] * 11, (50.0, 60.0))
)


def test_late_is_the_last_tenth_of_a_long_training_and_the_last_quarter_of_a_short_one():
    rows = [{"epoch": epoch, "loss": epoch + 1.0} for epoch in range(0, 101, 5)]
    assert late_loss(rows) == pytest.approx(96) and late_loss(rows[:9]) == pytest.approx(36)  # 90 to 100, 30 to 40


def test_the_summary_is_of_what_is_pruned_most():
    found = drawing.summary(FOUND, ("kept", "all"))
    assert found.head == ("", "of", "nothing", "weights") and found.caption.startswith("80% pruned")
    assert found.rows == [
        ("ViT", "loss, epoch 100", "3", "0.1"),
        ("ViT", "loss, mean from epoch 90 on", "2", "0.1"),
        ("ViT", "κ, epoch 0", "7.0e+00", "5.0e+01"),
        ("ViT", "κ, epoch 100", "8.0e+00", "6.0e+01"),
        ("ViT", "κ, epoch 0, all columns", "7.0e+01", "5.0e+02"),
        ("ViT", "κ, epoch 100, all columns", "8.0e+01", "6.0e+02"),
    ]


def test_a_rank_is_told_where_it_differs():
    fewer = [
        row | {"rank": 4} if "rank" in row and row["pruning"] == "weights" else row
        for rows in FOUND.values()
        for row in rows
    ]
    names = [row[1] for row in drawing.summary(trainings(fewer)).rows]
    assert names[-4:] == ["κ, epoch 0", "rank, epoch 0", "κ, epoch 100", "rank, epoch 100"]
