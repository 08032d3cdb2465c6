"""What the numbers of "Behind the figures" are computed from, in words that the page uses, and its findings."""

import numpy as np
import torch
from gnbook.pruning.printed import LARGEST, SMALLEST, ratios  # noqa: F401 (the page has them)

import gnlib
from tests.pages.pages import checked_lines, kappas, kept, number, word

SUMS = (12.488808655131574, 12.403948512332029, 12.556523727846123, 12.452679139558077, 13.18384246507033)
"""Logarithms of the sum of the condition numbers of six epochs, by share, as FcNN.ipynb prints them at 0af321a."""


def figure_8(formula, kernel, filters, images="whitened"):
    """The median over networks."""
    where = {"images": images, "formula": formula}
    return np.median(kappas("convolution-further-published", kernel=kernel, filters=filters, **where))


def by_slope(slope, column):
    return word("laboratory/leaky-relu-further", f"slope {slope:<15}", column)


def figure_10(images, column="kappa", of=np.mean, **where):
    return of(kappas("training-published", column, figure=10, images=images, **where))


def rank(name):
    images = gnlib.load(name)[0]
    return int(torch.linalg.matrix_rank(images @ images.mT, hermitian=True))


def figure_19(images, depth, name="one-hidden-layer-published"):
    return np.mean(kappas(name, figure=19, images=images, width=3100, depth=depth))


def relu(width, epoch, column="kappa_float64", seed=0):
    (value,) = kappas("counting-zeros", column, figure=18, width=width, epoch=epoch, seed=seed)
    return value


def figure_7(images, **where):
    """Condition numbers without batch normalisation over those with it."""
    networks = "without BN", "with BN"
    return np.divide(*(kappas("batch-normalization-published", images=images, network=n, **where) for n in networks))


def centring():
    """By how much subtracting the mean image alone lowers condition numbers."""
    images = "original", "centred"
    return np.divide(*(kappas("batch-normalization-published", images=x, network="without BN") for x in images))


def shifted(width):
    """In training mode, and with scale and shift."""
    lines = checked_lines("laboratory/batch-normalization-further")
    first = lines.index("width  training mode  with scale and shift  evaluation mode")
    (line,) = (line for line in lines[first:][:9] if line.split()[0] == str(width))
    return [number(cell) for cell in line.split()[1:3]]


def rule(name, epoch):
    (row,) = (row for row in rules(epoch) if row["rule"] == name)
    return row


def rules(epoch):
    return [row for row in kept("counting-zeros") if (row["figure"], row["epoch"]) == ("9 rules", epoch)]


def by_absolute_rules(epoch):
    """Condition numbers with absolute thresholds, for the matrix and for n times it."""
    return [row["kappa"] for row in rules(epoch) if "e-0" in row["rule"]]


def white(figure, column="kappa", of="deep-linear-published", **where):
    return np.array(kappas(of, column, figure=figure, **where))


def exponents():
    """Fitted from depth 4 to 10, as in the chapter; means over networks."""
    depths = [4, 6, 8, 10]

    def of(width, seed):
        found = [white("2a", line=width, seed=seed, depth=depth)[0] for depth in depths]
        return np.polyfit(np.log(depths), np.log(found), 1)[0]

    return [np.mean([of(width, seed) for seed in range(3)]) for width in (400, 800, 1600)]


def lemma_2_over_kappa():
    rows = [row for row in kept("deep-linear-published") if row["figure"] == "2a" and row["lemma_2"] is not None]
    return max(row["lemma_2"] / row["kappa"] for row in rows)


def spread(weighted):
    """Orders of magnitude between the largest and the smallest term of Lemma 2, bare or weighted."""
    found = []
    for seed in range(3):
        columns = "kappa_below", "kappa_above", "gamma"
        below, above, gamma = (white(11, column, line=300, seed=seed) for column in columns)
        terms = below * above * gamma**weighted
        found.append(np.log10(terms.max() / terms.min()))
    return np.mean(found)


def skips(skip, **where):
    rows = [row for row in kept("residual-published") if str(row["skip"]) == skip and where.items() <= row.items()]
    return {(row["images"], row["depth"], row["seed"]): row["kappa"] for row in rows}


def six_layers(images, skip):
    return np.mean([*skips(skip, images=images, depth=6).values()])


def better(skip):
    with_skip, without = skips(skip), skips("no skip")
    return sum(with_skip[network] < without[network] for network in without)


def pruned(network, what, column, epoch, **where):
    """With 80 % of something pruned, or nothing; of all columns, as published."""
    share = 0.0 if what == "none" else 0.8
    where = {"network": network, "epoch": epoch, "seed": 0, "factor": 1.0, "columns": "all", **where}
    (value,) = kappas("pruning-further", column, pruning=what, fraction=share, **where)
    return value


def resnet20(what, column, epoch):
    return pruned("ResNet20", what, column, epoch, statistics="batch")


def drawn(what, epoch):
    """The largest eigenvalue over the smallest of the whole network at the start."""
    return resnet20(what, "largest", epoch) / resnet20("none", "smallest", 0)


def resnet32(column, share, epoch, columns="all"):
    where = {"network": "ResNet32", "fraction": share, "columns": columns}
    (found,) = kappas("pruning-further", column, epoch=epoch, **where)
    return found


def late_loss(what, share):
    """Mean loss of the transformer over the last twenty epochs."""
    where = {"network": "ViT", "pruning": what, "fraction": share, "columns": None}
    return np.mean([kappas("pruning-further", "loss", epoch=epoch, **where) for epoch in (180, 185, 190, 195, 200)])


def test_the_largest_skip_is_best_for_white_data():
    assert better("1") == len(skips("no skip"))
