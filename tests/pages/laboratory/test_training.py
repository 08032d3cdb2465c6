"""The findings of the laboratory's "Along the training", by its tables and by kept ones."""

import pytest

from tests.pages.pages import cells, kept, named


def test_what_full_batches_and_minibatches_do_to_the_extreme_eigenvalues():
    """The smallest shrinks most, and without noise it rests."""
    steps, *columns = zip(*cells("laboratory/training", "unit images, full batches and minibatches"), strict=True)
    for full, mini in zip(columns[::2], columns[1::2], strict=True):
        assert len({*full[1:]}) == 1 and list(mini) == sorted(mini, reverse=True) and mini[-1] < full[-1] < full[0]
    (_, large_full, small_full), (squares, large, small) = columns[::2], columns[1::2]
    ends = small[0], small_full[-1], large[0], large_full[-1], small[-1], large[-1]
    assert ends == pytest.approx((2.0, 1.4, 15.55, 14.05, 0.7, 11.7), abs=0.06) and steps[-1] / 4 == 800
    assert small[0] / 3 - 0.04 < small[-1] < small[0] / 3
    assert small[-1] == pytest.approx(small_full[-1] / 2, rel=0.1)
    assert 1 - squares[-1] / squares[0] == pytest.approx(0.03, abs=0.005)


def test_thirty_steps_tell_when_to_compute_it_again():
    rows = cells("laboratory/training", "thirty steps of full batches at a quarter of the largest stable rate")
    (_, unit, start, _, grown), (_, small, began, _, back) = rows
    assert unit < 1 and small > 2
    assert grown == pytest.approx(7 * start, rel=0.05) and back == pytest.approx(began, rel=0.06)


def test_the_path_of_figure_10():
    rows = [row for row in kept("training") if row["figure"] == 10]

    def ends(scale):
        path = [(row["epoch"], row["kappa"]) for row in rows if row["scale"] == scale]
        means = [sum(kappa for at, kappa in path if at == epoch) / 3 for epoch in (path[0][0], max(path)[0])]
        return *means, max(kappa for _, kappa in path)

    first, last, most = ends("small")
    assert most == pytest.approx(2 * first, rel=0.1) and last == pytest.approx(first, rel=0.05)
    first, last, _ = ends("unit")
    assert last == pytest.approx(7 * first, rel=0.05)
    assert max(row["lemma_2"] / row["kappa"] for row in rows) == pytest.approx(1.29, abs=0.005)


def of_networks_in_use(column):
    """What the kept table has of a column along the training of each whole network of the first figure."""
    whole = [r for r in kept("pruning-further") if (r["pruning"], r["columns"]) == ("none", "kept")]
    names = "ResNet20", "ResNet32", "FcNN", "ViT"
    return {name: [r[column] for r in whole if r["network"] == name and r["statistics"] != "running"] for name in names}


def test_the_networks_in_use():
    """In the ResNets the smallest eigenvalue falls; in the transformer both ends grow. No direction is lost."""
    largest, smallest, kappa, epochs, ranks = (
        of_networks_in_use(name) for name in ("largest", "smallest", "kappa", "epoch", "rank")
    )
    (rank,) = {rank for path in ranks.values() for rank in path}
    assert rank == 1280 and [len(path) for path in ranks.values()] == [6] * 4
    top, low, growth = ({name: path[-1] / path[0] for name, path in of.items()} for of in (largest, smallest, kappa))
    assert 1 / low["ResNet20"] == pytest.approx(140, abs=1)
    assert top["ResNet20"] == pytest.approx(1, abs=0.05)
    assert low["ViT"] > 50 * top["ViT"] > 50 * 600
    for name in ("ResNet20", "ResNet32"):
        assert max(largest[name]) == largest[name][0] and low[name] < 1 / 100
        assert growth[name] > 100 and max(kappa[name]) == kappa[name][1]
    assert growth["FcNN"] == pytest.approx(2, rel=0.06) and min(growth["ResNet20"], 1 / growth["ViT"]) > 80
    first, peak, *_, last = kappa["ResNet20"]
    assert (round(first, -1), round(last, -3), epochs["ResNet20"][-1]) == (430, 58_000, 100)
    before, *_, after = kappa["ViT"]
    assert (round(before, -6), round(after, -4), epochs["ViT"][-1]) == (66_000_000, 790_000, 200)
    assert (round(peak / first, -1), epochs["ResNet20"][1], round(last / first)) == (730, 20, 136)


def test_relu_networks_lose_directions():
    all_rows = [row for row in kept("counting-zeros") if row["figure"] == 18]
    rows = {(row["width"], row["epoch"]): row for row in all_rows if row["seed"] == 0}
    rank, kappa = ({key: row[f"{what}_float64"] for key, row in rows.items()} for what in ("rank", "kappa"))
    (start, _), (end, count) = named("laboratory/training", "50 units: mean over the images").values()
    assert count == rank[50, 100]
    assert (round(start), round(end)) == (23, 7)
    assert rank[50, 100] == pytest.approx(2 / 3 * rank[50, 0], rel=0.02) and 1e5 < kappa[50, 100] / kappa[50, 0] < 1e6
    cap = 1 / (1e4 * 2**-52)
    assert cap == pytest.approx(4.5e11, rel=0.01) and 0.75 < kappa[50, 100] / cap < 1
    lost = [rank[m, 0] - rank[m, 100] for m in (15, 20, 30, 50, 100)]
    assert min(lost[:-1]) > 0 == lost[-1] and kappa[100, 100] == pytest.approx(100 * kappa[100, 0], rel=0.15)
    of_all = {(row["width"], row["seed"], row["epoch"]): row for row in all_rows}
    second = [of_all[100, 2, epoch]["kappa_float64"] for epoch in (0, 100)]
    assert round(second[1] / second[0]) == 31
    assert of_all[100, 1, 100]["rank_float64"] == of_all[100, 1, 0]["rank_float64"] - 199
    shares = [of_all[50, seed, 100]["rank_float64"] / of_all[50, seed, 0]["rank_float64"] for seed in (0, 2)]
    assert shares == pytest.approx([2 / 3, 3 / 4], rel=0.04)


def test_the_mean_over_draws_of_minibatches_is_that_of_trainings_of_a_linear_network_only():
    rows = cells("laboratory/training", "largest stable rate over that of full batches")
    for name, _, _, stable, full, mean, soon, later, lost in rows:
        assert stable <= 1 and full <= mean < 1 and 1 / 1.6 < soon < 1.6
        if name == "linear":
            assert abs(soon - 1) < 0.05 and abs(later - 1) < 0.05 and not lost
    assert {name for name, *_, lost in rows if lost} == {"CNN"}
