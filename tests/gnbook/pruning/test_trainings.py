"""Kept trainings and those of today, told apart: nothing of another setting is mixed in."""

import pytest
from gnbook import results
from gnbook.pruning.trainings import PRUNINGS, Training, most_pruned, path, trainings


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
