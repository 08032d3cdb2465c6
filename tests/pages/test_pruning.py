"""The numbers in the text of "Pruning before training" are those of its kept table and of its own outputs."""

from functools import cache, partial
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from gnbook import results
from gnbook.pruning.masks import apply_masks, magnitude_masks
from gnbook.pruning.printed import ratios
from gnbook.pruning.trainings import Training, path, trainings
from gnbook.shared.networks import FullyConnected
from torch import nn

import gnlib
from tests.pages.pages import ROOT, printed, prose, table, texts, words_of

lines_of = partial(words_of, "pruning-further")
lines_of_chapter = partial(words_of, "pruning")


@pytest.fixture(scope="module")
def text():
    """The chapter and the page of its further experiments."""
    return prose("notebooks/pruning") + " " + prose("notebooks/pruning-further")


@cache
def kept(network, column, columns="kept"):
    """At each epoch, for the whole network, without 80 % of the weights, and without 80 % of every tensor."""
    found = trainings(results.kept("pruning-further"))
    of = [("none", 0.0), ("weights", 0.8), ("every tensor", 0.8)]
    (epochs, whole), *others = (path(found[Training(network, *what)], column, columns) for what in of)
    assert all(found == epochs for found, _ in others)
    return dict(zip(epochs, zip(whole, *(values for _, values in others), strict=True), strict=True))


def on_the_scorecard(figure):
    """Return what stands behind the verdict on a figure that is about pruning."""
    lines = (ROOT / "book" / "scorecard.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"- **Figure {figure}.**"))
    return line


def by_fraction(caption):
    return {name: [float(cell) for cell in cells] for name, *cells in lines_of(caption)}


def test_the_transformer_tells_weights_from_tensors():
    whole, weights, every = kept("ViT", "loss")[200]
    assert weights < whole < every
    kappa = kept("ViT", "kappa")
    assert kappa[0][0] < kappa[0][1] < kappa[0][2]
    assert all((every < whole) == (epoch >= 80) for epoch, (whole, _, every) in kappa.items())
    both = kept("ViT", "kappa", "all").items()
    assert all((max(pruned) < whole) == (epoch >= 40) for epoch, (whole, *pruned) in both)
    assert kappa[0][1] / kappa[0][0] == pytest.approx(10, abs=0.5)


def test_the_residual_network_needs_its_scales(text):
    """Figures 1 and 14: slow and badly conditioned without scales, neither without weights."""
    card = (ROOT / "book" / "scorecard.md").read_text()
    loss, (whole, weights, every) = kept("ResNet20", "loss"), kept("ResNet20", "loss")[100]
    (_, first, _), *later = kept("ResNet20", "kappa").values()
    assert f"{every:.2f} and not {whole:.3f} after" in card and f"is {weights:.3f}" in card
    of_all = kept("ResNet20", "kappa", "all")
    orders = [np.log10(of_all[epoch][2] / of_all[epoch][0]) for epoch in (0, 100)]
    assert orders == pytest.approx([3, 5], abs=0.5) and first < 3 * kept("ResNet20", "kappa")[0][0]
    assert f"notebook, {16 * every:.1f} and {16 * whole:.2f}" in card
    tops = [kept("ResNet20", "largest", "all")[100], [ratios("ResNet20", share).drawn[-1] for share in (0.0, 0.0, 0.8)]]
    ours, theirs = (round(every / whole, -3) for whole, _, every in tops)
    assert f"ends {ours:,.0f} times" in card and f"is {theirs:,.0f} times" in card
    assert all(weights < whole < every for whole, weights, every in later) and len(later) == 5
    assert all(weights < 1.15 * whole for epoch, (whole, weights, _) in loss.items()) and every > 10 * whole
    by_all, by_kept = of_all, kept("ResNet20", "kappa")
    words = "{:,.0f} by all columns and {:,.0f} by those that are kept before training, {:,.0f} and {:,.0f} after"
    ends = [of[epoch][1] for epoch in (0, 100) for of in (by_all, by_kept)]
    assert words.format(*(round(value, 1 - len(f"{value:.0f}") + 1) for value in ends)) in text
    for what in ("losses at the end", "condition numbers before training, kept columns"):  # the network of this run
        assert printed("pruning-further", f"the two smallest {what}: ") == "none and weights"


def test_the_connected_network_does_not():
    whole, weights, every = kept("FcNN", "loss")[200]
    assert every == pytest.approx(weights, rel=0.03) and weights > 10 * whole
    assert all(max(pruned) < 1.4 * whole for whole, *pruned in kept("FcNN", "kappa").values())
    ends = {kind: [kept("FcNN", end, kind)[0] for end in ("largest", "smallest")] for kind in ("kept", "all")}
    shares = {kind: [weights / whole for whole, weights, _ in found] for kind, found in ends.items()}
    assert shares["kept"] == pytest.approx([1 / 20] * 2, rel=0.1) and shares["all"] == pytest.approx(
        [1 / 4] * 2, rel=0.1
    )


def test_at_nineteen_times_the_rate_the_pruned_connected_network_passes_the_whole_one():
    factor = np.divide(*kept("FcNN", "largest")[0][:2])
    assert round(factor) == 19
    whole, weights, raised = (float(line[-1]) for line in lines_of("fully connected network (FcNN), 1,000 images"))
    assert [whole, weights] == pytest.approx(kept("FcNN", "loss")[200][:2], abs=1e-4)
    (last,) = (
        row["loss"]
        for row in results.kept("pruning-further")
        if (row["factor"], row["epoch"], row["fraction"]) == (19, 200, 0.8)
    )
    assert raised == pytest.approx(last, abs=1e-4)
    assert raised < 0.1 * whole < 0.01 * weights


def test_how_many_runs_are_kept(text):
    rows = results.kept("pruning-further")
    runs = {row["run_name"] for row in rows}
    assert f"keeps {len(runs)} of" in text and {row["seed"] for row in rows} == {0}
    assert {row["network"] for row in rows if row["factor"] != 1} == {"FcNN"}
    assert {row["published_loss"] for row in rows} == {"cross_entropy"}


def test_behind_the_figures_on_all_six_epochs():
    """Figure 17: pruned, it is worse conditioned throughout. Figure 13: before training only."""
    of_17 = kept("FcNN", "kappa", "all").values()
    assert len(of_17) == 6 and all(min(pruned) > whole for whole, *pruned in of_17)
    first, *later = kept("ViT", "kappa", "all").values()
    assert list(first) == sorted(first) and len(later) == 5 and all(max(pruned) < whole for whole, *pruned in later)


def test_the_more_is_pruned_of_the_connected_network_the_slower_it_is():
    found = trainings(results.kept("pruning-further"))

    def along(column, kind, share):
        return dict(zip(*path(found[Training("FcNN", kind if share else "none", share)], column, "all"), strict=True))

    shares = (0.0, 0.2, 0.4, 0.6, 0.8)
    for kind in ("weights", "every tensor"):
        ends = [along("loss", kind, share)[200] for share in shares]
        assert ends == sorted(ends)
        kappas = {share: along("kappa", kind, share) for share in shares}
        most = [kappas[0.8][epoch] / kappas[0.0][epoch] for epoch in kappas[0.0]]
        assert min(most) > 1 and max(most) < 1.375
        assert [kappas[share][0] for share in shares] != sorted(kappas[share][0] for share in shares)


def test_weights_sink_and_tensors_tilt():
    lines = {
        line[0]: [float(cell.replace(",", "")) for cell in line[1:]] for line in lines_of("ResNet20 before training")
    }
    top, bottom, kappa, *_, rank = (pruned / whole for pruned, whole in zip(lines["80%"], lines["0%"], strict=True))
    assert 1 / top == pytest.approx(3, abs=0.5) and 1 / bottom == pytest.approx(5, abs=0.5)
    assert 1 < kappa < 2 and rank < 1
    assert lines["60%"][2] / lines["0%"][2] == pytest.approx(3, abs=0.5)
    assert max(line[2] for line in lines.values()) == lines["60%"][2]


def test_every_network_is_worse_conditioned_before_training():
    kappas = by_fraction("condition number before training, with running statistics\n")
    steps = {name: np.diff(values) for name, values in kappas.items()}
    assert len(kappas) == 5
    assert {name: int((step < 0).sum()) for name, step in steps.items() if min(step) < 0} == {"ResNet20": 1}
    growth = {name: values[-1] / values[0] for name, values in kappas.items()}
    assert growth.pop("MLP") == pytest.approx(3, abs=0.5)
    assert 10 < min(growth.values()) < max(growth.values()) < 300
    lines = [
        line.replace(",", "").split()
        for line in table("pruning-further", "running statistics and those of the batch, before")
    ]
    of_batch = [float(pruned[3]) / float(whole[3]) for whole, pruned in zip(lines[::2], lines[1::2], strict=True)]
    assert len(of_batch) == 3 and max(np.abs(np.log(of_batch))) < np.log(2.2)
    last = {
        name for name, values in kappas.items() if values[-1] / values[-2] == max(b / a for a, b in pairwise(values))
    }
    assert last == set(kappas) - {"ResNet32"}


def test_where_losses_follow():
    losses = by_fraction("training loss after 20 epochs")
    assert {name for name, values in losses.items() if values == sorted(values)} == {"MLP", "ViT"}
    assert all(min(losses[name]) == losses[name][-1] for name in ("VGG5", "ResNet32"))
    after = by_fraction("condition number after training")
    assert {name for name, values in after.items() if min(values) == values[-1]} == {"VGG5", "ResNet32"}


def test_at_a_rate_far_too_small_a_raised_rate_makes_up_for_pruned_weights():
    lines = [
        [float(cell.strip("%").replace(",", "")) for cell in line] for line in lines_of("MLP, loss after 100 epochs")
    ]
    whole, *pruned = lines
    assert all(line[5] < 1.04 * whole[3] for line in pruned)
    assert pruned[-1][5] < 0.9 * whole[3]
    assert pruned[-1][1] / whole[1] == pytest.approx(3, abs=0.5)
    assert 10 / whole[2] == pytest.approx(2.6, abs=0.05)
    assert sum(line[3] > 0.0891 for line in lines) == 2


def test_the_spectrum_of_the_transformer_tilts_more_than_it_sinks():
    top, bottom = (np.divide(*kept("ViT", end)[0][1::-1]) for end in ("largest", "smallest"))
    assert bottom < 0.1 < 0.5 < top


def test_one_output_of_the_small_network_is_blind_to_one_image(text):
    torch.manual_seed(0)
    weights = [nn.Linear(*sizes).weight for sizes in pairwise([192, 50, 50, 10])]
    network = nn.Sequential(nn.Flatten(), FullyConnected(weights, relu=True, dtype=torch.float64)).double()
    masks = magnitude_masks(network, 0.8)
    apply_masks(network, masks)
    images = gnlib.load("cifar10", 16, stride=4)[0].view(16, 3, 8, 8)
    images = (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True)
    gram = gnlib.GaussNewton(network, images[:8]).gram()
    assert int((gram.diagonal() == 0).sum()) == 1
    assert len(gram) == 80 and gnlib.condition_number(network, images[:8]).rank == 79
    columns = sum(int(kept.sum()) for kept in masks.values())
    assert f"columns: {columns:,} are left, and there are {len(gram)} rows." in text


def test_the_rank_correlations(text):
    """At rates that are small enough, those of the paper for two networks, and at rates that are not."""
    captions = (f"rank correlation with the loss after 20 epochs, {of}" for of in ("κ with running", "of two numbers"))
    running, batch = ([line.rsplit(maxsplit=3) for line in table("pruning-further", caption)] for caption in captions)
    by_kappa, by_batch, by_share = (
        {tuple(line[0].rsplit(maxsplit=1)): float(line[column]) for line in lines}
        for lines, column in ((running, 2), (batch, 2), (running, 3))
    )
    paper, hundredth = "rates of the paper", "a hundredth of the rate"
    normalised = ("ResNet20", "ResNet32", "VGG5")
    small = {"MLP": by_kappa[paper, "MLP"], "ViT": by_kappa[paper, "ViT"]} | {
        n: by_kappa[hundredth, n] for n in normalised
    }
    assert f"${min(small.values()):+.2f}$ to ${max(small.values()):+.2f}$" in text
    large = [by_kappa[paper, name] for name in normalised]
    assert f"${min(large):.2f}$ to ${max(large):+.2f}$" in text
    assert f"${by_kappa['all', 'all']:.2f}$" in text
    where = [(paper, "MLP"), (paper, "ViT"), *((hundredth, name) for name in normalised)]
    assert sum(by_share[key] == 1 for key in where) == 4
    assert {by_share[k] for k in where[2:]} == {1}
    same = [(rate, name) for rate, name in by_share if name in ("ViT", "ResNet32", "VGG5")]
    assert all(by_share[key] == by_kappa[key] for key in same)
    ahead = "(${:+.2f}$ and ${:+.2f}$), for the two MLPs it is behind (${:+.2f}$ and ${:+.2f}$)"
    two = [of[key] for key in ((hundredth, "ResNet20"), (paper, "MLP")) for of in (by_share, by_kappa)]
    assert ahead.format(*two) in text and two[0] > two[1] and two[2] < two[3]
    assert f"(${by_kappa[paper, 'together']:+.2f}$)" in text
    assert by_kappa[paper, "ResNet20"] == 0
    three = [by_batch[paper, "MLP"], by_batch[paper, "ViT"], by_batch[hundredth, "ResNet20"]]
    few = [min(three), max(three), by_batch[hundredth, "VGG5"], by_batch[hundredth, "ResNet32"]]
    words = "${:+.2f}$ to ${:+.2f}$ for the MLP, the transformer and the ResNet20, ${:+.2f}$ for VGG5 and ${:+.2f}$"
    assert words.format(*few) in text and f"${by_batch[paper, 'together']:+.2f}$" in text
    ranges = [f"{min(of[k] for k in where):+.2f} to {max(of[k] for k in where):+.2f}" for of in (by_batch, by_share)]
    assert f"| {ranges[0]} | {ranges[1]} |" in text
    for key, count in (((paper, "together"), 30), ((hundredth, "together"), 15)):
        assert f"| {count} | {by_batch[key]:+.2f} | {by_share[key]:+.2f} |" in text
    assert [k for k in where if by_batch[k] > by_share[k]] == where[:1]
    kappas = by_fraction("condition number before training, on 8 images")
    growth = {name: values[-1] / values[0] for name, values in kappas.items()}
    assert {n for n in growth if growth[n] < 1} == {"ResNet32"}
    assert growth["VGG5"] < growth["ResNet20"] < 2.05
    assert [growth["MLP"], growth["ViT"]] == pytest.approx([6, 40], rel=0.1)
    assert "(${:+.2f}$) and the transformer (${:+.2f}$)".format(*list(small.values())[:2]) in text
    assert "(${:+.2f}$), ResNet32 (${:+.2f}$) and VGG5 (${:+.2f}$)".format(*list(small.values())[2:]) in text
    assert f"(${by_kappa[hundredth, 'together']:+.2f}$)" in text
    assert max(large[1:]) < -0.5


def test_the_last_loss_of_the_transformer_is_a_spike(text):
    loss = kept("ViT", "loss")
    late = [losses for epoch, losses in loss.items() if epoch >= 180]
    whole, weights, every = np.mean(late, axis=0)
    *before, last = (losses[0] for losses in late)
    assert last > 1.4 * max(before) and f"the {last:.2f} of" in text
    assert f"{weights:.2f} with pruned weights, {whole:.2f} for the whole network, {every:.2f} with" in text


def test_the_verdict_on_figure_13():
    row = on_the_scorecard("13")
    whole, _, every = kept("ViT", "kappa", "all")[0]
    assert "but smaller from epoch 40 on" in row
    assert 100 < every / whole < 1000


def test_the_verdict_on_figure_15():
    row = on_the_scorecard("15")
    found = trainings(results.kept("pruning-further"))
    whole, every = (found[Training("ResNet32", *what)] for what in (("none", 0.0), ("every tensor", 0.8)))
    slow, fast = (path(some, "loss")[1][-1] for some in (every, whole))
    assert f"loss is {slow:.2f} and not {fast:.3f} after 100 epochs" in row
    (first, *_, last), (start, *_, end) = (path(some, "kappa_public", "all")[1] for some in (every, whole))
    assert f"ours is {first:.1e} before training and {last:.1e} after it, against {start:,.0f} and {end:,.0f}" in row
    true = path(every, "kappa", "all")[1]
    assert f"one is {true[0]:.1e} and {true[-1]:.1e}." in row


def test_a_zero_may_raise_an_eigenvalue():
    def eigenvalue(v, w, mask):
        columns = [v * mask[0], v * mask[1], w[0] * mask[0] + w[1] * mask[1]]  # by w1, w2 and v, at the sample (1, 1)
        return sum(column**2 for column in columns)

    assert (eigenvalue(1, (2, -2), (1, 1)), eigenvalue(1, (2, -2), (1, 0))) == (2, 5)


def test_before_training_the_largest_condition_number_is_that_of_every_tensor(text):
    for network in ("ResNet20", "ViT"):
        *others, every = kept(network, "kappa")[0]
        assert every > 100 * max(others)
    whole, *_, most = (float(line[1].replace(",", "")) for line in lines_of("MLP, loss after 100 epochs, at the rate"))
    start = "MLP, full rank, whole and without 80 %: "
    (line,) = (line for some in texts("pruning-further") for line in some.splitlines() if line.startswith(start))
    first, last = map(int, line.removeprefix(start).split())
    assert f"from {first} to {last}." in text
    assert round(last / first) == 4
    assert any("MLP, ranks without 80 %: 159 and 160" in some for some in texts("pruning-further"))
    assert round(most / whole) == 3


def test_together_at_one_small_rate(text):
    kinds = ("of two numbers", "κ with running")
    batch, running = (
        next(
            line.split()[-2:]
            for line in table("pruning-further", f"rank correlation with the loss after 20 epochs, {kind}")
            if line.startswith("a hundredth") and "together" in line
        )
        for kind in kinds
    )
    said = f"${batch[0]}$ for $\\kappa$, ${batch[1]}$ for the share (with running statistics"
    said += f" $\\kappa$ is ahead, ${running[0]}$)"
    assert said in text and batch[1] == running[1] < running[0]


def test_more_than_sixty_per_cent_slow_the_transformer_down(text):
    found = trainings(results.kept("pruning-further"))
    of = [found[Training("ViT", *what)] for what in (("every tensor", 0.8), ("every tensor", 0.6), ("none", 0.0))]
    most, much, nothing = (path(some, "loss")[1][-1] for some in of)
    assert much < nothing < most
    late = [np.mean([loss for epoch, loss in zip(*path(some, "loss"), strict=True) if epoch >= 180]) for some in of]
    assert f"is {late[1]:.2f}." in text and late[1] < late[2] < late[0]


def test_without_sixty_per_cent_the_transformer_is_a_false_alarm(text):
    """Its condition number before training is far larger, at the same full rank, and it is not slow."""
    found = trainings(results.kept("pruning-further"))
    much, whole = (found[Training("ViT", *what)] for what in (("every tensor", 0.6), ("none", 0.0)))
    large, small = (path(some, "kappa")[1][0] for some in (much, whole))
    said = f"is {large / small:.0f} times as large, ${large / 1000000000.0:.1f} \\cdot"
    assert said in text and f"it is {large / small:.0f} times" in text
    assert path(much, "rank")[1][0] == path(whole, "rank")[1][0] == 1280


def test_the_ranks_before_training():
    found = trainings(results.kept("pruning-further"))

    def rank(network, pruning, fraction):
        return path(found[Training(network, pruning, fraction)], "rank")[1][0]

    six = [
        (network, *of)
        for network in ("ResNet20", "ViT")
        for of in (("none", 0.0), ("weights", 0.8), ("every tensor", 0.8))
    ]
    assert {round(rank(*one)) for one in six} == {1280} == {round(rank("ResNet32", "none", 0.0))}
    assert round(rank("ResNet32", "every tensor", 0.8)) == 1152


def test_how_large_a_rank_correlation_of_five_is_by_chance():
    found = [1 - sum((i - j) ** 2 for i, j in enumerate(order)) / 20 for order in permutations(range(5))]
    six, of_24 = (len(found) / sum(value > least - 1e-9 for value in found) for least in (0.6, 0.9))
    assert six == pytest.approx(6, abs=0.5) and of_24 == 24


def test_the_pruned_vgg_is_faster(text):
    found = trainings(results.kept("pruning-further"))
    whole, every = (found[Training("VGG5", *what)] for what in (("none", 0.0), ("every tensor", 0.8)))
    slow, fast = (path(some, "loss")[1][-1] for some in (whole, every))
    assert f"loss, {fast:.2f} and not {slow:.2f}." in text
    (start, end), (before, after) = (path(some, "kappa", "all")[1] for some in (whole, every))
    assert f"from {start:.0f} to" in text
    assert round(end / 1e6) == 3 and round(before, -1) == 100 and round(after, -1) == 120
    top, less = (path(some, "largest", "all")[1][0] for some in (whole, every))
    assert round(top / less) == 3
    row = on_the_scorecard("16")
    assert f"training is {before:.0f} and not {start:.0f}" in row
    assert f"loss of {fast:.2f} and not {slow:.2f} after 100 epochs" in row
    assert f"numbers are {after:.0f} and {end:.1e}." in row


def test_four_residual_networks_without_most_of_their_weights(text):
    """How much larger the condition number before training is, by the tables of the page."""
    whole, weights, _ = kept("ResNet20", "kappa")[0]
    slider = {cells[0]: float(cells[3].replace(",", "")) for cells in lines_of("ResNet20 before training, 8 images")}
    (scales,) = (
        float(b) / float(a) for _, *of, a, b, _, _ in lines_of_last("80% pruned") if " ".join(of) == "κ, epoch 0"
    )
    small = by_fraction("condition number before training, on 8 images")["ResNet20"]
    changes = weights / whole, slider["80%"] / slider["0%"], scales, small[-1] / small[0]
    said = (
        "by factors of {:.1f} (at the paper's size), {:.1f} (the table above), {:.1f} (scales and biases, first seed)"
    )
    assert (said + " and {:.1f} (five small networks)").format(*changes) in text
    every, nothing = (kept("ResNet20", "kappa")[0][i] for i in (2, 0))
    assert 1000 < every / nothing < 2000


def test_the_table_of_condition_numbers_is_sorted_by_them_and_losses_are_not():
    """The losses of the transformer are in another order than its condition numbers before training."""
    lines = [line.rsplit(maxsplit=2) for line in table("pruning", "sorted by κ on 128 images")]
    of = {name: [(float(a), float(b)) for what, a, b in lines if what.startswith(name)] for name in ("ResNet20", "ViT")}
    assert all(some == sorted(some) for some in of.values()) and len(lines) == 7
    (_, whole), (_, weights), (_, much), (_, most) = of["ViT"]
    assert weights < much < whole < most and whole - much < 0.02  # "as fast as the whole one"
    (_, first), (_, second), (_, third) = of["ResNet20"]
    assert second < first < third
    flagged = [loss for name in of for kappa, loss in of[name] if kappa > 9 * of[name][0][0]]
    assert sorted(flagged) == [weights, much, most, third]


def test_three_small_transformers_are_slower_without_their_weights():
    lines = [[float(cell) for cell in cells] for cells in lines_of("small transformers before training")]
    assert len(lines) == 3
    assert all(loss < pruned for *_, loss, pruned in lines)
    assert all(pruned > 20 * whole for _, whole, pruned, *_ in lines)


def test_larger_rates_make_up_for_pruned_weights_and_help_the_whole_network_too():
    """The fully connected network of the paper's size, by the kept table, as the table of the chapter shows it."""
    rows = results.kept("pruning-further-rates")
    ends = {(row["factor"], row["fraction"]): row["loss"] for row in rows if row["epoch"] == 200}
    shown = lines_of_chapter("fully connected network, training loss after 200 epochs")
    assert [line[0] for line in shown] == ["0.01", "0.04", "0.19", "0.76"] and shown[-1][1:] == ["-", "-"]
    for factor, line in zip((1, 4, 19), shown, strict=False):
        assert [float(cell) for cell in line[1:]] == pytest.approx([ends[factor, 0.0], ends[factor, 0.8]], abs=1e-5)
    assert all(ends[factor, 0.0] < ends[factor, 0.8] for factor in (1, 4, 19)) and len(ends) == 6
    assert ends[19, 0.8] < 0.1 * ends[1, 0.0] and ends[19, 0.0] < ends[4, 0.0] < ends[1, 0.0]
    top, bottom = (np.divide(*kept("FcNN", end)[0][:2]) for end in ("largest", "smallest"))
    assert round(top) == 19
    assert bottom == pytest.approx(20, abs=1.5)


def lines_of_last(caption):
    """Return the cells of the last table whose caption begins like this."""
    return [
        line.split()
        for line in [text for text in texts("pruning-further") if text.startswith(caption)][-1].splitlines()[2:]
    ]
