"""The numbers in the text of "Piecewise linear maps" are those that its tables and its slider show."""

import re
from itertools import product

import numpy as np
import pytest
from gnbook import results
from gnbook.piecewise_linear_maps import practice

from tests.pages.pages import printed, prose, says, slider, table

PAGE, FURTHER = "laboratory/piecewise-linear-maps", "laboratory/piecewise-linear-maps-further"
TEXT, MORE = prose(f"notebooks/{PAGE}"), prose(f"notebooks/{FURTHER}")


@pytest.fixture(scope="module")
def frames():
    """For each position of the slider, which names the number of pieces, its curves."""
    return {name: [(np.array(x), np.array(y)) for x, y in curves] for name, curves in slider(FURTHER).items()}


def test_condition_numbers_of_the_pieces(frames):
    ratios = {name: largest / smallest for name, ((_, largest), (_, smallest), _) in frames.items()}
    (last,) = (some for name, some in ratios.items() if name.startswith("2.0,"))
    said = "is {:.1f} times ... and {:.0f} times"
    assert says(MORE, said, last.min(), last.max())
    assert last.min() == min(map(np.min, ratios.values())) and last.max() == max(map(np.max, ratios.values()))


@pytest.fixture(scope="module")
def six():
    """κ of the three layers of each network, for both outputs, with images as they are and less their mean."""
    rows = [line.replace(",", "").split() for line in table(FURTHER, "κ of the layers of six networks")]
    kappas = np.array([[float(word) for word in row[-6:]] for row in rows])
    assert [row[1] for row in rows] == ["as", "less"] * 6 and [row[0] for row in rows[::2]] == list("801234")
    return {
        output: (kappas[::2, some], kappas[1::2, some])
        for output, some in (("linear", [0, 1, 2]), ("leaky", [3, 4, 5]))
    }


def test_at_tenths_of_the_skip_single_networks_are_not_steady_either():
    found = [printed(FURTHER, f"past {length}: falls at every tenth in ") for length in ("one layer", "two layers")]
    shares, chances = zip(*(line.split(", in all of eight with probability ") for line in found), strict=True)
    assert says(MORE, "throughout for {} and {} of the 20,000", *(share.replace("%", " %") for share in shares))
    assert max(map(float, chances)) < 1 / 3000
    assert all("below one in 3,000" in text.replace("1 in", "one in") for text in (MORE, prose("book/scorecard")))


def numbers_of(page, start, count):
    """From whether the mean is subtracted, and the layer, to the numbers in a row of a table."""
    found = {}
    for line in table(page, start):
        name, layer, *numbers = line.replace(",", "").replace(" -", " nan").rsplit(maxsplit=count + 1)
        found[name.startswith("less"), layer] = [float(number) for number in numbers]
    return found


def test_the_last_layer_has_its_inputs_alone(six):
    found = numbers_of(PAGE, "40 images of 9 pixels", 3)  # κ, that of the inputs, the bound
    assert all(kappa == inputs == bound for kappa, inputs, bound in (found[less, "3"] for less in (False, True)))
    (least, low), (most, high) = (
        [end(found[less, i][2] / found[less, i][0] for less in (False, True)) for i in "12"] for end in (min, max)
    )
    assert f"of {low:.0f} to {high:.0f} in" in TEXT
    assert least == pytest.approx(4500, rel=0.02) and most == pytest.approx(10000, rel=0.01)
    for less in (False, True):
        assert all(found[less, i][0] < found[less, "all"][0] for i in "123")


def test_with_one_rate_for_all_layers():
    found = numbers_of(FURTHER, "the same network: rank", 3)
    times = []
    for less in (False, True):
        smallest = [found[less, i][1] for i in "123"]
        times += [smallest[2] / max(smallest[:2]), smallest[2] / min(smallest[:2])]
        assert found[less, "all"][0] == 270
    said = "is {:.0f} to {:.0f} times ... image {:.0f} to {:.0f} times."
    assert says(MORE, said, *times)


def test_wider_layers_and_relus():
    rows = [re.split(r"\s{2,}", line.strip()) for line in table(FURTHER, "what subtracting the mean image does")]
    better = {(row[0], row[1]): row[2] for row in rows}
    assert [*better] == [(name, units) for name in ("leaky", "ReLU") for units in ("10", "30", "100")]
    assert all(better[name, units] == "18 of 18" for name in ("leaky", "ReLU") for units in ("30", "100"))
    assert f"ReLUs {better['ReLU', '10']} do." in MORE


@pytest.fixture(scope="module")
def taken():
    """The loss at the start, steps to 0.42 of three layers alone and of all, and of all from the lower of both starts.

    By network, images, and these six numbers.
    """
    rows = [line.replace(",", "").replace("never", "inf").split() for line in table(FURTHER, "steps to 0.42 in each")]
    return np.array([[float(word) for word in row[-6:]] for row in rows]).reshape(6, 2, 6)


def test_layers_with_better_inputs_learn_faster(taken, six):
    alone, together, from_lower = taken[..., 1:4], taken[..., 4], taken[..., 5]
    faster = alone[:, 1] < alone[:, 0]
    assert faster.sum() == 16
    assert (alone.argmin(2) == 2).all()
    kappas = np.stack(six["linear"], 1)
    assert (kappas.argmin(2) == 2).all()
    agree = ((kappas[..., 0] > kappas[..., 1]) == (alone[..., 0] > alone[..., 1])).sum()
    assert f"in {agree} of 12 cases" in TEXT
    ratios = from_lower[:, 0] / from_lower[:, 1]
    assert f"[{ratios.min():.1f} to {ratios.max():.0f} times" in TEXT
    assert f"is {ratios.min():.1f} to {ratios.max():.0f} times" in MORE
    assert f"most {(together - from_lower).max():.0f} steps" in MORE


def test_how_fast_each_layer_comes_to_its_own_minimum():
    rows = numbers_of(FURTHER, "each layer trained alone, seed 8", 4)  # κ, steps to 9/10, to 99/100, loss
    first, last = (rows[False, layer][1] for layer in "13")
    assert f"are {first / last:.1f} times" in MORE
    faster = {layer: rows[False, layer][1] / rows[True, layer][1] for layer in "123"}
    assert faster["2"] < 1 < min(faster["1"], faster["3"])
    kappas = {key: row[0] for key, row in rows.items()}
    assert f"is {kappas[False, '1'] / kappas[False, '3']:.0f} times" in MORE


def test_the_mean_image_is_what_spoils_layers(six):
    before, after = six["linear"]
    assert (after < before).sum() == 17
    ((network, layer),) = np.argwhere(after > before)
    said = f"from {before[network, layer]:,.0f} to {after[network, layer]:,.0f}."
    assert said in MORE and layer == 2 and network == 1


def test_leaky_outputs_put_a_factor_of_a_hundred_behind_the_last_layer(six):
    (linear, _), (before, after) = six["linear"], six["leaky"]
    assert before[0, 2] == pytest.approx(100 * linear[0, 2], rel=1e-2) and before[0].argmax() == 2
    assert (after < before).all()


@pytest.fixture(scope="module")
def kept():
    return results.kept("piecewise-linear-maps-further")


def pairs(kept, share, *, batches, kind=1, rates=None):
    """For each way of training all layers, the steps of each seed with images as they are, and less a mean."""
    fewest = practice.fewest(kept, share, rates)
    ways = {key[1:3] for key in fewest if key[0] == batches}  # a rate may be one of Adam's only
    return {
        way: [np.array(fewest[batches, *way, "all", practice.KINDS[which]]) for which in (0, kind)]
        for way in product((False, True), practice.RATES)
        if way in ways
    }


def saved(both):
    """The share of steps that is saved in the median."""
    raw, less = map(np.median, both)
    return 1 - less / raw


def test_the_mean_of_each_channel_in_a_convolutional_network(kept):
    at_best = pairs(kept, "half", batches=True)
    assert [(less < raw).sum() for raw, less in at_best.values()] == [4] * 4
    middle = {way: [np.median(took) for took in both] for way, both in at_best.items()}
    rows = [re.split(r" {2,}", line) for line in table(PAGE, "steps to half")]
    shown = {(row[0], row[1]): row[2:] for row in rows}
    for (norm, optimizer), both in middle.items():
        assert shown[optimizer, "group norm" if norm else "none"][:2] == [f"{value:,.0f}" for value in both]
    shares = [100 * saved(both) for both in at_best.values()]
    assert f"{min(shares):.0f} to {max(shares):.0f} %" in TEXT
    share = saved(pairs(kept, "half", batches=True, rates=[0.001])[True, "Adam"])
    assert f"saves {100 * share:.0f} %." in TEXT


def test_each_rate(kept):
    shares = [
        f"{100 * saved(pairs(kept, 'half', batches=True, rates=[rate])[True, 'Adam']):.0f} %" for rate in (0.001, 0.01)
    ]
    assert says(MORE, f"saves {shares[0]} at ... and {shares[1]} at")


def test_the_best_rate_is_not_smaller_less_the_channel_means(kept):
    def best(norm, optimizer, name, seed):
        """The rates with the fewest steps in mini-batches, of which there may be two."""
        of = {"batches": True, "norm": norm, "optimizer": optimizer, "images": name, "seed": seed}
        took = {row["rate"]: row["half"] for row in kept if of.items() <= row.items() and row["half"] is not None}
        return [rate for rate, steps in took.items() if steps == min(took.values())]

    cases = [
        [best(*way, name, seed) for name in practice.KINDS[:2]]
        for *way, seed in product((False, True), practice.RATES, range(4))
    ]
    larger = [min(less) > max(raw) for raw, less in cases]
    assert len(cases) == 16 and all(max(less) >= max(raw) and min(less) >= min(raw) for raw, less in cases)
    assert f"In {sum(larger)} of 16 cases the best rate" in TEXT


@pytest.fixture(scope="module")
def layers_alone(kept):
    """For each norm, optimiser, images and seed, κ of the three layers and the steps of each to eight tenths."""
    kappas = {(row["norm"], row["images"], str(row["layer"]), row["seed"]): row["kappa"] for row in kept}
    fewest, found = practice.fewest(kept, "eight_tenths"), {}
    for norm, optimizer, name, seed in product((False, True), practice.RATES, practice.KINDS, range(4)):
        found[norm, optimizer, name, seed] = (
            [kappas[norm, name, layer, seed] for layer in "123"],
            [fewest[False, norm, optimizer, layer, name][seed] for layer in "123"],
        )
    return found


def test_the_order_of_the_layers(layers_alone):
    slowest_first = [took[0] > took[1] > took[2] for _, took in layers_alone.values()]
    agree = [
        len({*took}) == 3 and np.argsort(kappas).tolist() == np.argsort(took).tolist()
        for kappas, took in layers_alone.values()
    ]
    assert f"in {sum(agree)} of {len(agree)} cases" in TEXT
    assert f"in {sum(agree)} of {len(agree)} cases" in MORE
    assert f"In {sum(slowest_first)} cases" in MORE
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in practice.weighted(practice.network(0, True, 16))]
    assert "have {:,}, {:,} and {:,} weights".format(*sizes) in MORE
