"""The findings of "Piecewise linear maps" and of its further experiments, by their tables and by the kept one."""

from functools import cache
from itertools import product

import numpy as np
from gnbook import results
from gnbook.piecewise_linear_maps import practice

from tests.pages.pages import slider, table

PAGE = "laboratory/piecewise-linear-maps-further"
WAYS = [*product((False, True), practice.RATES)]  # with a norm or without, by an optimiser


def ratios():
    """Condition numbers of all pieces, at the last position of the slider."""
    ((largest, smallest, _),) = (curves for name, curves in slider(PAGE).items() if name.startswith("2.0,"))
    return np.divide(largest[1], smallest[1])


def rows_of(start):
    """By network and images, the last six numbers of a line."""
    rows = [line.replace(",", "").replace("never", "inf").split()[-6:] for line in table(PAGE, start)]
    return np.array(rows, float).reshape(6, 2, 6)


@cache
def six():
    """κ of the three layers of each network, as it is and less the mean image, of linear and of leaky outputs."""
    found = rows_of("κ of the layers of six networks")
    return found[..., :3], found[..., 3:]


@cache
def taken():
    """The loss at the start, steps of three layers alone and of all, and of all from the lower of both starts."""
    return rows_of("steps to 0.42 in each")


def times_faster():
    """How many times fewer steps all layers take less the mean image, from the lower of both starts."""
    return taken()[:, 0, 5] / taken()[:, 1, 5]


def test_layers_with_better_inputs_learn_faster():
    alone, kappas = taken()[..., 1:4], six()[0]
    assert (alone[:, 1] < alone[:, 0]).sum() == 16
    assert (alone.argmin(2) == 2).all() and (kappas.argmin(2) == 2).all()


@cache
def kept():
    return results.kept("piecewise-linear-maps-further")


def pairs():
    """For each way of training in mini-batches, the steps to half the loss with images as they are, and less a mean."""
    fewest = practice.fewest(kept(), "half")
    return {way: [np.array(fewest[True, *way, "all", kind]) for kind in practice.KINDS[:2]] for way in WAYS}


def saved(both):
    """The share of steps that is saved in the median, in per cent."""
    raw, less = map(np.median, both)
    return 100 * (1 - less / raw)


@cache
def layers_alone():
    """For each norm, optimiser, images and seed, κ of the three layers and the steps of each to eight tenths."""
    kappas = {(row["norm"], row["images"], str(row["layer"]), row["seed"]): row["kappa"] for row in kept()}
    fewest = practice.fewest(kept(), "eight_tenths")
    found = []
    for (norm, optimizer), name, seed in product(WAYS, practice.KINDS, range(4)):
        steps = [fewest[False, norm, optimizer, layer, name][seed] for layer in "123"]
        found.append(([kappas[norm, name, layer, seed] for layer in "123"], steps))
    return found


def in_order():
    """Of each case, whether the steps of the layers have the order of their condition numbers."""
    return [
        len({*took}) == 3 and np.argsort(kappas).tolist() == np.argsort(took).tolist()
        for kappas, took in layers_alone()
    ]


def test_the_layers_are_as_slow_as_their_condition_numbers_say():
    assert np.mean(in_order()) > 0.9
    assert np.mean([took[0] > took[1] > took[2] for _, took in layers_alone()]) > 0.9


def weights():
    return [sum(p.numel() for p in layer.parameters()) for layer in practice.weighted(practice.network(0, True, 16))]
