"""The findings of "Which eigenvalues are zero?" in the laboratory, and the numbers of its further experiments."""

import math

from gnbook.counting_zeros.rules import EPSILON

from tests.pages.pages import kept, named, number, slider, texts

FIRST, PAGE = "laboratory/counting-zeros", "laboratory/counting-zeros-further"
KEPT = kept("counting-zeros")
SIZE = 10 * KEPT[0]["relu_images"]
WIDTHS = [row for row in KEPT if row["figure"] == 18]
TRUE, FLOAT64 = "singular values, relative", "float64, relative"


def rules(epoch):
    """By rule: rank, condition number and gap."""
    at = slice(0, 3) if epoch == 0 else slice(3, 6)
    return {name: row[at] for name, row in named(FIRST, "seven rules, 2000 eigenvalues").items()}


def by_width():
    """Width, loss, rule, and κ and rank before training and after."""
    (lines,) = (text.splitlines()[2:] for text in texts(FIRST) if "caps κ at" in text.partition("\n")[0])
    return [[number(word) for word in line.split()] for line in lines]


def right():
    """Exponents of the thresholds at which the condition number after training is right."""
    found = [name.partition(", κ ") for name in slider(PAGE)]
    kappa = rules(100)[TRUE][1]
    return [int(tau.removeprefix("1e")) for tau, _, pair in found if float(pair.split(" → ")[1]) == kappa]


def paths(width, column="kappa_float64"):
    """Before training and after it, for each network of a width."""
    found = {(row["seed"], row["epoch"]): row[column] for row in WIDTHS if row["width"] == width}
    return [(value, found[seed, 100]) for (seed, epoch), value in found.items() if epoch == 0]


def still_regular():
    """Condition numbers of the widest networks that keep all eigenvalues."""
    both = zip(paths(100), paths(100, "rank_float64"), strict=True)
    return [kappas for kappas, (_, rank) in both if rank == SIZE]


def ends(numbers):
    found = sorted(numbers)
    return [found[0], found[-1]]


def values():
    _, whole, fewer = named(PAGE, "gnlib.condition_number(net, x)").values()
    (free,) = {row["directions"] for row in KEPT if (row["figure"], row["epoch"]) == (9, 0)}
    return {
        "right": right(),
        "stops": rules(100)[FLOAT64][0],
        "missed": rules(100)[FLOAT64][2],
        "rank": rules(100)[TRUE][0],
        "of_one_unit": whole[0] - fewer[0],
        "kept_images": SIZE / 10,
        "kept_size": SIZE,
        "lost": ends(100 * (1 - after / before) for before, after in paths(50, "rank_float64")),
        "jump": min(math.log10(after / before) for before, after in paths(50)) // 1,
        "regular": len(still_regular()),
        "networks": len(paths(100)),
        "left": min(after for _, after in paths(100, "rank_float64")),
        "growth": ends(after / before for before, after in still_regular()),
        "free": free,
        "epsilon": math.log2(EPSILON["float32"]),
        "cap": round(1 / (SIZE * EPSILON["float32"]), -1),
    }
