"""The numbers in the text of "Adding the identity" and its further experiments are those of their own tables."""

import math
from functools import cache

import numpy as np
import torch
from gnbook import results

from tests.pages.pages import named, prose, says

FIRST, SECOND = "laboratory/adding-the-identity", "laboratory/adding-the-identity-further"
TEXT, FURTHER = prose(f"notebooks/{FIRST}"), prose(f"notebooks/{SECOND}")


def gaussian(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LARGE = 0.3 * gaussian(15, 15)  # the matrices of the first figure


@cache
def singular_values():
    """Of the large matrix, for 2,001 weights of the skip."""
    weights = torch.linspace(0, 1, 2001, dtype=torch.float64)
    return weights, torch.linalg.svdvals(LARGE + weights[:, None, None] * torch.eye(15, dtype=torch.float64))


def test_singular_values_of_the_first_figure():
    weights, values = singular_values()
    gap, at = (values[:, -2] - values[:, -1]).min(0)
    assert says(FURTHER, f"within {gap:.3f} of ... = {weights[at]:.1f}$)") and gap > 0


def test_a_skip_of_one_around_large_weights():
    weights, values = singular_values()
    kappas, (weaker,) = values[:, 0] / values[:, -1], (weights == 0.6).nonzero().flatten()
    assert says(TEXT, f"is {kappas[-1]:.0f} there, ... is {kappas[weaker]:.0f} at")
    assert (values[-1] > values[0]).all()


def test_when_all_singular_values_are_larger():
    larger = {rho: found[2] for rho, found in named(FIRST, "singular values of the layer of 15 units").items()}
    enough = -torch.linalg.eigvalsh(LARGE + LARGE.mT)[0].item()
    assert all(count == 15 for rho, count in larger.items() if rho > enough)


def test_branches_that_start_at_zero():
    found = named(SECOND, "four blocks that start at zero", 2)
    assert f"most {found['SGD', 1000][2]:.2f} in" in FURTHER
    assert f"most {found['Adam', 100][2]:.2f} after" in FURTHER
    assert found["Adam", 100][2] < 1 < found["Adam", 300][1]
    kappas = [found[way, 1000][at] for way in ("SGD", "Adam") for at in (5, 3)]
    assert "{} in place of {} with SGD and {} in place of {} with".format(*kappas) in FURTHER
    ends = [found[way, 1000][at] for way in ("SGD", "Adam") for at in (0, 4)]
    assert 0.4 < ends[1] / ends[0] < 0.65 and 0.9 < ends[3] / ends[2] < 1


@cache
def fastest():
    """Of each network, optimiser and seed the run of the kept table that is first at a loss of a tenth."""
    found = {}
    for run in results.kept("adding-the-identity-further"):
        steps = math.inf if run["tenth"] is None else run["tenth"]
        key = run["network"], run["optimizer"], run["seed"]
        if key not in found or steps < found[key][0]:
            found[key] = steps, run["rate"], 100 * run["correct"]
    assert len(found) == 10 * 2 * 3
    return found


def medians(name, what=0):
    """Steps, rate and images told right, medians of three seeds, for a network by SGD and by Adam."""
    return [np.median([fastest()[name, way, seed][what] for seed in range(3)]) for way in ("SGD", "Adam")]


def test_strong_branches_take_twice_the_steps():
    zero, small, one, kept = map(medians, ("zero", "a quarter", "one", "one, size kept"))
    said = "takes {:.0f} steps ... quarter {:.0f}, by Adam {:.0f} and {:.0f} (medians"
    assert says(TEXT, said, zero[0], small[0], zero[1], small[1])
    assert all(2 < strong / weak < 2.5 for of in (one, kept) for strong, weak in zip(of, zero, strict=True))
    right = medians("one", 2) + medians("zero", 2)
    said = "only {:.0f} and {:.0f} % ... tells {:.0f} and {:.0f} %."
    assert says(TEXT, said, *right)
    said = "is {:.0f} and {:.0f} % ... still {:.0f} and {:.0f}."
    assert says(TEXT, said, *medians("one, size kept", 2), *kept)
    ratios = np.divide(medians("zero", 1), medians("one", 1))
    assert 250 < ratios[0] < 350


def test_with_normalisation_the_start_makes_no_difference():
    names = ["zero, normalised", "a quarter, normalised", "one, normalised"]
    assert {tuple(medians(name)) for name in names} == {(75, 70)}
    runs = [run for run in results.kept("adding-the-identity-further") if run["network"] == names[-1]]
    first, last = (np.median([run[end] for run in runs]) for end in ("first", "last"))
    assert says(TEXT, f"is {first:.0f} in ... and {last:.1f} in")
    slow = named(SECOND, "steps to a loss of a tenth at")
    assert slow[names[0]][0] < 0.6 * slow[names[2]][0]


def test_squeezing_alone_costs_steps():
    plain, squeezed, hard = map(medians, ("zero", "zero, squeezing skip", "zero, hard squeezing skip"))
    said = "from {:.0f} to {:.0f} and {:.0f}, ... from {:.0f} to {:.0f} and {:.0f}."
    assert says(TEXT, said, *(of[i] for i in range(2) for of in (plain, squeezed, hard)))
