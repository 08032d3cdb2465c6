"""The numbers in the text of "Behind the figures" are those of the kept tables, and of what the chapters print."""

import numpy as np
import pytest
import torch
from gnbook.pruning.printed import LARGEST, SHARES, SMALLEST, ratios

import gnlib
from tests.oracles import normal
from tests.pages.pages import checked_lines, kappas, kept, printed, prose, says

TEXT = prose("book/behind-the-figures")


def figure_8(formula, *of, images="whitened"):
    """Medians over networks, by kernel and number of filters."""
    where = {"images": images, "formula": formula}
    return [np.median(kappas("convolution-further-published", kernel=kernel, filters=m, **where)) for kernel, m in of]


KERNELS = [*((7, m) for m in (2, 3, 4, 5)), (9, 5), (11, 5)]


def rounded(values):
    """Numbers of two digits, as they are written on a page."""
    return [f"{float(f'{value:.2g}'):,.10g}" for value in values]


def by_slope(column):
    """Condition numbers at the slopes of the chapter."""
    return [
        printed("laboratory/leaky-relu-further", f"slope {slope:<15}").split()[column] for slope in (0.0, 0.3, 0.6, 0.9)
    ]


def figure_10(images, column="kappa", of=np.mean, **where):
    return of(kappas("training-published", column, figure=10, images=images, **where))


def figure_19(images, depth, name="one-hidden-layer-published"):
    return np.mean(kappas(name, figure=19, images=images, width=3100, depth=depth))


def relu(width, epoch, column, seed=0):
    (value,) = kappas("counting-zeros", column, figure=18, width=width, epoch=epoch, seed=seed)
    return value


def figure_7(images, **where):
    """Condition numbers without batch normalisation over those with it."""
    return np.divide(
        *(
            kappas("batch-normalization-published", images=images, network=network, **where)
            for network in ("without BN", "with BN")
        )
    )


def centring():
    """By how much subtracting the mean image alone lowers condition numbers."""
    images = ("original", "centred")
    return np.divide(*(kappas("batch-normalization-published", images=x, network="without BN") for x in images))


def shifted(width):
    """In training mode, and with scale and shift."""
    lines = checked_lines("laboratory/batch-normalization-further")
    first = lines.index("width  training mode  with scale and shift  evaluation mode")
    (line,) = (line for line in lines[first:][:9] if line.split()[0] == str(width))
    return line.split()[1:3]


def rule(name, epoch):
    (row,) = (
        row for row in kept("counting-zeros") if (row["figure"], row["rule"], row["epoch"]) == ("9 rules", name, epoch)
    )
    return row


def by_absolute_rules(epoch):
    """The least and the largest condition number with absolute thresholds, for the matrix and for n times it."""
    rows = [row for row in kept("counting-zeros") if (row["figure"], row["epoch"]) == ("9 rules", epoch)]
    found = [row["kappa"] for row in rows if "e-0" in row["rule"]]
    return [min(found), max(found)]


def white(figure, column="kappa", **where):
    return np.array(kappas("deep-linear-published", column, figure=figure, **where))


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
        below, above, gamma = (
            white(11, column, line=300, seed=seed) for column in ("kappa_below", "kappa_above", "gamma")
        )
        terms = below * above * gamma**weighted
        found.append(np.log10(terms.max() / terms.min()))
    return np.mean(found)


def skips(skip, **where):
    rows = [row for row in kept("residual-published") if str(row["skip"]) == skip and where.items() <= row.items()]
    return {(row["images"], row["depth"], row["seed"]): row["kappa"] for row in rows}


def better(skip):
    with_skip, without = skips(skip), skips("no skip")
    return sum(with_skip[network] < without[network] for network in without)


def pruned(network, column, epoch, **where):
    """By what is pruned, 80 % of it: every tensor, the weights, nothing; of all columns, as published."""
    where = {"network": network, "epoch": epoch, "seed": 0, "factor": 1.0, "columns": "all", **where}
    fractions = {"every tensor": 0.8, "weights": 0.8, "none": 0.0}
    found = [kappas("pruning-further", column, pruning=of, fraction=share, **where) for of, share in fractions.items()]
    return [value for (value,) in found]


def resnet20(column, epoch):
    """With every tensor pruned, and with nothing."""
    every, _, nothing = pruned("ResNet20", column, epoch, statistics="batch")
    return every, nothing


def drawn(epoch):
    """Largest eigenvalues, nothing and every tensor pruned, over the smallest of the whole network at the start."""
    return [largest / resnet20("smallest", 0)[1] for largest in resnet20("largest", epoch)[::-1]]


def resnet32(column, share, epoch, columns="all"):
    where = {"network": "ResNet32", "fraction": share, "columns": columns}
    (found,) = kappas("pruning-further", column, epoch=epoch, **where)
    return found


def printed_there(network, share, at):
    """The condition number of a spectrum that the public notebook prints, by its own smallest eigenvalue."""
    return ratios(network, share).own[at]


SUMS = (12.488808655131574, 12.403948512332029, 12.556523727846123, 12.452679139558077, 13.18384246507033)
"""Logarithms of the sum of the condition numbers of six epochs, by share, as FcNN.ipynb prints them at 0af321a."""


def late_loss(what, share):
    """Mean loss of the transformer over the last twenty epochs."""
    where = {"network": "ViT", "pruning": what, "fraction": share, "columns": None}
    return np.mean([kappas("pruning-further", "loss", epoch=epoch, **where) for epoch in (180, 185, 190, 195, 200)])


SAID = {
    "8, as coded": lambda: (
        "are {:.0f}, {:.0f}, {:.0f} and {:.0f} at ... {:.0f} and {:.0f} at",
        figure_8("as coded", *KERNELS),
    ),
    "8, with the root": lambda: (
        "are {:.0f}, {:.0f}, {:.0f} and {:.0f} at ... {:.0f} and {:.0f} at",
        figure_8("with the root", *KERNELS),
    ),
    "8, shared": lambda: (
        "{:.0f} falls to {:.0f} at ... {:.0f} and {:.0f}.",
        figure_8("and shared filters", (7, 2), (7, 5), (9, 5), (11, 5)),
    ),
    "8, raw": lambda: (
        "from {} to {}, ... from {} to {}.",
        rounded([k for how in ("as coded", "with the root") for k in figure_8(how, (7, 2), (7, 5), images="raw")]),
    ),
    "23": lambda: (
        "{} for the ReLU to {}, {} and {} at ... {}, {} and {}.",
        [*by_slope(2), *by_slope(0)[1:]],
    ),
    "6": lambda: (
        "is {:.0f} with ... {:.0f} with",
        [
            *kappas("leaky-relu-further-published", figure=23, images="alone", slope=0.01),
            *kappas("leaky-relu-further-published", figure="23 published", slope=0.01),
        ],
    ),
    "10, the end of training": lambda: (
        "less than {:.4f} on ... at {:.4f}.",
        [figure_10(images, "loss", epoch=3000) for images in ("centred", "original")],
    ),
    "10, centred": lambda: (
        "at {:.1f} in ... {:.1f} and {:.1f} at ... {:.1f} at epoch 600 and {:.1f} at epoch 3,000",
        [
            figure_10("centred", epoch=0),
            *(figure_10("centred", of=end) for end in (min, max)),
            *(figure_10("centred", epoch=epoch) for epoch in (600, 3000)),
        ],
    ),
    "10, as they are": lambda: (
        "from {:.1f} to {:.1f} near ... to {:.1f}.",
        [figure_10("original", epoch=0), figure_10("original", of=max), figure_10("original", epoch=3000)],
    ),
    "10, the bound": lambda: (
        "at most {:.2f} times",
        [max(np.divide(*(kappas("training-published", column, figure=10) for column in ("lemma_2", "kappa"))))],
    ),
    "white data": lambda: (
        "{1} of {0} dimensions for MNIST and {3:,} of {2} for CIFAR-10",
        [
            int(size)
            for images in (gnlib.load(name)[0] for name in ("mnist", "cifar10"))
            for size in (images.shape[1], torch.linalg.matrix_rank(images @ images.mT, hermitian=True))
        ],
    ),
    "21": lambda: (
        "of {:.1f}, {:.1f} and {:.1f}, ... {:.1f}, {:.1f} and {:.1f} ",
        [
            figure_19("whitened", L, name)
            for name in ("one-hidden-layer", "one-hidden-layer-published")
            for L in (2, 3, 4)
        ],
    ),
    "2a": lambda: (
        "is {:.0f}, {:.0f} and {:.0f}, against {:.0f}, {:.0f} and {:.0f} ... {:.1f}, {:.1f} and {:.1f}, ... {:.2f} ",
        [
            *(
                np.mean(kappas(name, figure="2a", line=width, depth=10))
                for name in ("deep-linear-published", "deep-linear")
                for width in (400, 800, 1600)
            ),
            *exponents(),
            lemma_2_over_kappa(),
        ],
    ),
    "2b, left": lambda: (
        "gives {:.0f} and {:.0f}, against {:.0f} at",
        [*(white("2b", line=rate, depth=8).mean() for rate in (75, 150)), white("2a", line=400, depth=8).mean()],
    ),
    "2b, wide": lambda: ("from {} with ... to {}, {} and {} with", printed("laboratory/deep-linear", "600 ").split()),
    "2b, narrower": lambda: (
        "from {} to {}, and then falls to {} and {}.",
        printed("laboratory/deep-linear", "200 ").split(),
    ),
    "3": lambda: (
        "is {:.2f} times ... {:.0e} times",
        [(white(3, column, depth=6) / white(3, depth=6)).mean() for column in ("lemma_2", "maximum")],
    ),
    "11 and 12": lambda: ("by {:.1f} orders of magnitude ... by {:.1f} with", [spread(0), spread(1)]),
    "5 and 21": lambda: (
        "all {} networks, {:.0f} against {:.0f} in ... {:.1f} against {:.1f} at 3072",
        [
            better("1"),
            *(
                np.mean([*skips(skip, images=images, depth=6).values()])
                for images in ("MNIST", "CIFAR-10")
                for skip in ("1", "no skip")
            ),
        ],
    ),
    "20 and 22": lambda: (
        "these {} networks ... none on {}, ... on {}.",
        [len(skips("no skip")), better("1 / sqrt(L)"), better("1 / L")],
    ),
    "19, all images": lambda: (
        "{:.1e}, {:.1e} and {:.1e} for ... {:.1e}, {:.1e} and {:.1e} less ... {:.1f}, {:.1f} and {:.1f} for",
        [figure_19(images, depth) for images in ("raw", "centred", "whitened") for depth in (2, 3, 4)],
    ),
    "19, 48 pixels": lambda: (
        "from {} to {} over 20 networks",
        printed("laboratory/one-hidden-layer", "raw          48        20 ").split()[::2],
    ),
    "7, images as they are": lambda: (
        "by {:.0f} at width 16 and by {:.0f} at width 1,024, ... {:.2f} of that",
        [
            *(figure_7("original", width=width).mean() for width in (16, 1024)),
            (np.log(centring()) / np.log(figure_7("original"))).mean(),
        ],
    ),
    "7, centred images": lambda: (
        "{:.2f} times ... at width 16, ... to {:.2f} at width 1,024. Of the {} networks {} are",
        [
            *(figure_7("centred", width=width).mean() for width in (16, 1024)),
            *(count(figure_7("centred") > 1) for count in (len, np.sum)),
        ],
    ),
    "7, the shift": lambda: (
        "to {1} at width 1,024 and to {3} at width 2,048, ... {0} and {2} without",
        [*shifted(1024), *shifted(2048)],
    ),
    "9, the cap": lambda: (
        "at {:.1e} for the {:,} eigenvalues of {:,} images",
        [1 / (10_000 * np.finfo(float).eps), relu(100, 0, "rank_float64"), relu(100, 0, "relu_images")],
    ),
    "9, 20 units": lambda: (
        "is {:,} before training and {:,} after, ... factor of {:.2f} and of {:.1f}",
        [rule("float64, relative", epoch)[what] for what in ("rank", "gap") for epoch in (0, 100)],
    ),
    "9, 20 units, singular values": lambda: (
        "rank {:,} before training and {:,} after, ... {:.1e} and {:.1e}.",
        [rule("singular values, relative", epoch)[what] for what in ("rank", "kappa") for epoch in (0, 100)],
    ),
    "9, 20 units, other rules": lambda: (
        "{:.1e} to {:.1e} before training and from {:.1e} to {:.1e} after",
        [*by_absolute_rules(0), *by_absolute_rules(100)],
    ),
    "9, 50 units": lambda: (
        "all {:,} eigenvalues ... {:.1e}, ... after training {:,} count, ... {:.1e}.",
        [relu(50, epoch, f"{what}_float64") for epoch in (0, 100) for what in ("rank", "kappa")],
    ),
    "18": lambda: (
        "{:.1e}, {:.1e} and {:.1e}, ... {:.1e} against {:.1e} and {:.1e}.",
        [
            *(relu(width, 0, "kappa_float64") for width in (30, 50, 100)),
            *(relu(width, 100, "kappa_float64") for width in (100, 30, 50)),
        ],
    ),
    "18, other networks": lambda: (
        "{:.1e} before training and {:.1e} after it, ... {:.1e} and {:.1e}, which is",
        [relu(100, epoch, "kappa_float64", seed=seed) for seed in (2, 1) for epoch in (0, 100)],
    ),
    "13": lambda: ("is {:.2f} there and {:.2f} with", [late_loss("every tensor", 0.6), late_loss("none", 0.0)]),
    "17, published": lambda: ("is {:.1e}, {:.1e}, {:.1e}, {:.1e} and {:.1e} from", np.exp(SUMS) / 6),
    "17": lambda: (
        "at {:.2f} and {:.2f} of what",
        [np.divide(*pruned("FcNN", end, 0)[1:]) for end in ("largest", "smallest")],
    ),
    "1, what is left": lambda: (
        "{} of {} parameters ... {} of 16, {} of 32 and {} of 64",
        [
            *(printed("laboratory/pruning-further", f"{share} pruning: ").split()[0] for share in ("80 %", "no")),
            *(
                printed("laboratory/pruning-further", f"7 layers of {m} channels: each keeps ").split(",")[0]
                for m in (16, 32, 64)
            ),
        ],
    ),
    "14, the divisor": lambda: ("is {:.2f} wherever", [SMALLEST["ResNet20"][0][0]]),
    "14, its own smallest": lambda: (
        "from {:.2f} to {:.3f}, ... from {:.1e} to {:.1e}, ... {:.1e} and {:.1e}.",
        [
            *(SMALLEST["ResNet20"][0][at] for at in (0, -1)),
            *(printed_there("ResNet20", 0.0, at) for at in (0, -1)),
            *(printed_there("ResNet20", share, -1) for share in (0.2, 0.4)),
        ],
    ),
    "14, ours by one eigenvalue": lambda: (
        "are {:.0f} with ... {:,.0f} with ... {:.0f} and {:.1e} after ... {:.1e} times ... {:.1e} times",
        [
            *drawn(0),
            *drawn(100),
            np.divide(*drawn(100)[::-1]),
            ratios("ResNet20", 0.8).drawn[-1] / ratios("ResNet20", 0.0).drawn[-1],
        ],
    ),
    "14, ours": lambda: (
        "are {:.0f} and {:.1e} before training, and {:.1e} and {:.1e} after",
        [kappa for epoch in (0, 100) for kappa in resnet20("kappa", epoch)[::-1]],
    ),
    "15, ours": lambda: (
        "of {:.3f} after ... at {:.3f}, ... {:.1e} before ... {:.1e} after it, against {:.1e} and {:.1e} with ... "
        "{:.0f} of the {:.0f} eigenvalues ... {:.1e} and {:.1e}.",
        [
            *(resnet32("loss", share, 100, None) for share in (0.8, 0.0)),
            *(resnet32("kappa_public", share, epoch) for share in (0.8, 0.0) for epoch in (0, 100)),
            *(resnet32("rank", share, 100) for share in (0.8, 0.0)),
            *(resnet32("kappa", 0.8, epoch) for epoch in (0, 100)),
        ],
    ),
    "15, the threshold": lambda: (
        "between {:.1e} and {:.1e}, ... {:.1e} before training and {:.1e} after",
        [end(SMALLEST["ResNet32"][-1]) for end in (min, max)] + [LARGEST["ResNet32"][-1][at] for at in (0, -1)],
    ),
    "15, the order": lambda: (
        "{:.1e}, {:.1e}, {:.1e} and {:.1e} from ... {:.1e}, {:.1e}, {:.1e} and {:.1e}.",
        [printed_there("ResNet32", share, at) for at in (0, -1) for share in SHARES[:-1]],
    ),
}


@pytest.mark.parametrize("figure", SAID)
def test_the_text_has_the_numbers_of_the_tables(figure):
    numbers, values = SAID[figure]()
    assert says(TEXT, numbers, *values), numbers.format(*values)


def test_the_largest_skip_is_best_for_white_data():
    assert better("1") == len(skips("no skip"))


def test_whitening_by_all_of_the_svd_makes_white_what_is_not_there():
    x, _ = gnlib.load("mnist", 1000, stride=5)
    assert torch.linalg.matrix_rank(x) < x.shape[1]
    u, _, vt = torch.linalg.svd(x, full_matrices=False)
    assert torch.allclose((u @ vt).T @ (u @ vt), torch.eye(36, dtype=torch.float64), atol=1e-10)


def test_white_data_of_smaller_rank_have_the_smaller_condition_number_at_the_same_weights():
    for seed in range(5):
        weights = gnlib.linear_weights([20, 30, 25, 4], generator=torch.Generator().manual_seed(seed))
        basis = torch.linalg.qr(normal(20, 20, seed=seed)).Q
        found = [
            float(gnlib.condition_number(gnlib.linear_gauss_newton(weights, basis[:, :rank] @ basis[:, :rank].T)))
            for rank in (8, 14, 20)
        ]
        assert found == sorted(found)
