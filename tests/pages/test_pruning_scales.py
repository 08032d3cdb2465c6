"""What "Pruning before training" says of scales: equal ones are pruned alike, and shut channels."""

from functools import partial

import pytest
from gnbook import results
from gnbook.pruning.trainings import PRUNINGS, path, trainings
from torch import nn
from torch.nn.utils import prune

from tests.pages.pages import printed, prose, texts, words_of

lines_of = partial(words_of, "pruning-further")


@pytest.fixture(scope="module")
def text():
    """The chapter and the page of its further experiments."""
    return prose("notebooks/pruning") + " " + prose("notebooks/pruning-further")


def test_scales_and_biases_alone_slow_three_networks_down():
    lines = [[float(cell) for cell in cells] for cells in lines_of("pruned ResNet20 of half the width: training loss")]
    assert [line[0] for line in lines] == [0, 1, 2]
    for _, whole, weights, scales, every in lines:
        assert max(whole, weights) < scales < every and weights < 1.1 * whole


def test_the_training_of_the_figure_is_that_of_the_kept_table():
    kept = trainings(row for row in results.kept("pruning-further-scales") if row["seed"] == 0)
    assert [training.pruning for training in kept] == [*PRUNINGS]
    caption = "80% pruned, of what the head names; κ by the columns that are kept"
    (found,) = (some for some in texts("pruning-further") if some.startswith(caption) and "scales and biases" in some)
    for start, column, near in (("ResNet20 loss, epoch 40 ", "loss", 0.1), ("ResNet20 κ, epoch 0 ", "kappa", 0.05)):
        (line,) = (line for line in map(" ".join, map(str.split, found.splitlines())) if line.startswith(start))
        at = {"loss": -1, "kappa": 0}[column]
        values = [path(rows, column)[1][at] for rows in kept.values()]
        assert [*map(float, line.removeprefix(start).split())] == pytest.approx(values, rel=near)


def test_condition_numbers_where_scales_are_pruned(text):
    caption = "80% pruned, of what the head names; κ by the columns that are kept"
    (found,) = (some for some in texts("pruning-further") if some.startswith(caption) and "scales and biases" in some)
    lines = [line.rsplit(maxsplit=4) for line in found.splitlines()[2:]]
    cells = {" ".join(name.split()): [*map(float, values)] for name, *values in lines}
    whole, *_, every = cells["ResNet20 loss, epoch 40"]
    of_kept, of_all = (cells[f"ResNet20 κ, epoch 0{kind}"] for kind in ("", ", all columns"))
    assert cells["ResNet20 rank, epoch 0"] == [80, 80, 79, 62] and 80 - 62 == 18 and of_kept[3] < of_kept[2]
    assert (
        "ResNet20 rank, epoch 0, all columns" not in cells and max(of_all) == of_all[3] and every == max(whole, every)
    )
    assert of_all[2:] == [8.6e5, 1e10]
    assert of_kept[2:] == [2.2e6, 1.3e5] and of_kept[1] <= of_kept[0]
    assert of_all[1] == 1.3e3
    assert f"the {of_kept[0]:.0f} of" in text
    late = [cells[f"ResNet20 κ, epoch 40{kind}"][1] for kind in ("", ", all columns")]
    assert of_all[1] / of_kept[1] > 10 and late[1] / late[0] > 100


def test_what_is_left_of_the_channels():
    left = {size: printed("pruning-further", f"7 layers of {size} channels: each keeps ") for size in (16, 32, 64)}
    assert left == {size: f"{few}, together they keep {few}" for size, few in ((16, 4), (32, 7), (64, 13))}
    assert lines_of("ResNet20 before training, 8 images")[-1][-1] == "62"


def test_equal_scales_are_pruned_alike():
    """The first exercise of the chapter."""
    layers = nn.BatchNorm2d(16), nn.BatchNorm2d(16)
    for layer in layers:
        prune.l1_unstructured(layer, "weight", 0.75)
    first, second = (layer.weight.nonzero().flatten().tolist() for layer in layers)
    assert first == second and len(first) == 4


def test_the_cell_that_prunes_spares_all_scales():
    assert printed("pruning", "scales that are zero: ") == "0 of 784"
