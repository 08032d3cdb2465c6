"""What 'Behind the figures' says of figures 1 and 13 to 17, sentence by sentence, and where its numbers come from."""

from typing import NamedTuple

import numpy as np
from gnbook.pruning.printed import LARGEST, SHARES, SMALLEST, ratios

from tests.pages.kept import kappas
from tests.pages.pages import printed


def pruned(network, column, epoch):
    """By what is pruned, 80 % of it: every tensor, the weights, nothing; of all columns, as published."""
    where = {"network": network, "epoch": epoch, "seed": 0, "factor": 1.0}
    where["columns"] = None if column == "loss" else "all"
    if network == "ResNet20" and column != "loss":
        where["statistics"] = "batch"
    fractions = {"every tensor": 0.8, "weights": 0.8, "none": 0.0}
    found = [
        kappas("pruning-further", column, pruning=what, fraction=fraction, **where)
        for what, fraction in fractions.items()
    ]
    assert all(len(values) == 1 for values in found)
    return [value for (value,) in found]


def deeper(column, share, epoch, columns="all"):
    """Of our ResNet32, with a share of every tensor pruned."""
    (found,) = kappas("pruning-further", column, network="ResNet32", fraction=share, epoch=epoch, columns=columns)
    return found


class Ends(NamedTuple):
    largest: float
    smallest: float


def whole(network, at):
    """Both ends of the spectrum that the public notebook prints of the whole network."""
    return Ends(LARGEST[network][0][at], SMALLEST[network][0][at])


def theirs(network, share):
    """Condition numbers of the public notebook's spectra, by their own smallest eigenvalue."""
    return ratios(network, share).own


def their_drawn():
    """As drawn there: with 80 % pruned, over those of the whole network."""
    return ratios("ResNet20", 0.8).drawn / ratios("ResNet20", 0.0).drawn


def drawn(epoch):
    """Our largest eigenvalues, nothing and every tensor pruned, over the smallest of the whole network at the start."""
    every, _, nothing = pruned("ResNet20", "largest", epoch)
    divisor = pruned("ResNet20", "smallest", 0)[-1]
    return [nothing / divisor, every / divisor]


SUMS = (12.488808655131574, 12.403948512332029, 12.556523727846123, 12.452679139558077, 13.18384246507033)
"""Logarithms of the sum of the condition numbers of six epochs, by share, as FcNN.ipynb prints them at 0af321a."""


def late_loss(what, share):
    """Mean loss of the transformer over the last twenty epochs."""
    epochs = (180, 185, 190, 195, 200)
    where = {"network": "ViT", "pruning": what, "fraction": share, "columns": None}
    return np.mean([kappas("pruning-further", "loss", epoch=epoch, **where) for epoch in epochs])


HELD = {
    "figure 13": lambda: (
        "over the last twenty epochs the mean loss is {:.2f} there and {:.2f} with nothing pruned",
        [late_loss("every tensor", 0.6), late_loss("none", 0.0)],
    ),
    "figure 17, published": lambda: (
        "is {:.1e}, {:.1e}, {:.1e}, {:.1e} and {:.1e} from nothing to 80 % pruned, so only 80 % stands out.",
        np.exp(SUMS) / 6,
    ),
    "figure 17": lambda: (
        "before training pruned weights have both ends of the spectrum at {:.2f} and {:.2f} of what",
        [np.divide(*pruned("FcNN", end, 0)[1:]) for end in ("largest", "smallest")],
    ),
    "figure 1, what is left": lambda: (
        "{} of {} parameters are left, and only {} of 16, {} of 32 and {} of 64 channels in the layers of its three "
        "stages.",
        [
            *(printed("pruning-further", f"{share} pruning: ").split()[0] for share in ("80 %", "no")),
            *(printed("pruning-further", f"7 layers of {m} channels: each keeps ").split(",")[0] for m in (16, 32, 64)),
        ],
    ),
    "figure 14, the divisor": lambda: (
        "So the smallest eigenvalue is {:.2f} wherever",
        [whole("ResNet20", 0).smallest],
    ),
    "figure 14, its own smallest": lambda: (
        "of the whole network falls from {:.2f} to {:.3f}, which the published curve does not show. The condition "
        "number rises from {:.1e} to {:.1e}, and ends *above* those of the networks with 20 and 40 % pruned, {:.1e} "
        "and {:.1e}.",
        [
            *(whole("ResNet20", at).smallest for at in (0, -1)),
            *theirs("ResNet20", 0.0)[[0, -1]],
            *(theirs("ResNet20", share)[-1] for share in (0.2, 0.4)),
        ],
    ),
    "figure 14, ours by one eigenvalue": lambda: (
        "are {:.0f} with nothing pruned and {:,.0f} with 80 % of every tensor before training, and {:.0f} and {:.1e} "
        "after it. So they grow to {:.1e} times those of the whole network; in the spectra of the notebook it is "
        "{:.1e} times.",
        [*drawn(0), *drawn(100), np.divide(*drawn(100)[::-1]), their_drawn()[-1]],
    ),
    "figure 14, ours": lambda: (
        "the condition numbers are {:.0f} and {:.1e} before training, and {:.1e} and {:.1e} after it.",
        [pruned("ResNet20", "kappa", epoch)[i] for epoch in (0, 100) for i in (2, 0)],
    ),
    "figure 15, ours": lambda: (
        "with 80 % of every tensor pruned it is at a loss of {:.3f} after 100 epochs, and with nothing pruned at "
        "{:.3f}, and by the public rule its condition number is {:.1e} before training and {:.1e} after it, against "
        "{:.1e} and {:.1e} with nothing pruned. By a relative threshold, above which are {:.0f} of the {:.0f} "
        "eigenvalues of 128 images, it is {:.1e} and {:.1e}.",
        [
            *(deeper("loss", share, 100, None) for share in (0.8, 0.0)),
            *(deeper("kappa_public", share, epoch) for share in (0.8, 0.0) for epoch in (0, 100)),
            *(deeper("rank", share, 100) for share in (0.8, 0.0)),
            *(deeper("kappa", 0.8, epoch) for epoch in (0, 100)),
        ],
    ),
    "figure 15, the threshold": lambda: (
        "between {:.1e} and {:.1e}, where the largest is {:.1e} before training and {:.1e} after it.",
        [f(SMALLEST["ResNet32"][-1]) for f in (min, max)] + [LARGEST["ResNet32"][-1][at] for at in (0, -1)],
    ),
    "figure 15, the order": lambda: (
        "before training, {:.1e}, {:.1e}, {:.1e} and {:.1e} from none to 60 %, and in no order after it, {:.1e}, "
        "{:.1e}, {:.1e} and {:.1e}.",
        [theirs("ResNet32", share)[at] for at in (0, -1) for share in SHARES[:-1]],
    ),
}
