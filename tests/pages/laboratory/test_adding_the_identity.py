"""The numbers in the text of "Adding the identity" and its further experiments are those of their own tables."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from gnbook import results
from gnbook.adding_the_identity.bounds import riedi_theorem_22

from tests.pages.pages import named, prose, says

FIRST, SECOND = "laboratory/adding-the-identity", "laboratory/adding-the-identity-further"
TEXT, FURTHER = prose(f"notebooks/{FIRST}"), prose(f"notebooks/{SECOND}")


def gaussian(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LARGE = 0.3 * gaussian(15, 15)  # the matrices of the first figure
SMALL = gaussian(100, 100) / (2 * math.sqrt(800))


@cache
def singular_values():
    """Of the large matrix, for 2,001 weights of the skip."""
    weights = torch.linspace(0, 1, 2001, dtype=torch.float64)
    return weights, torch.linalg.svdvals(LARGE + weights[:, None, None] * torch.eye(15, dtype=torch.float64))


def test_singular_values_of_the_first_figure():
    weights, values = singular_values()
    gap, at = (values[:, -2] - values[:, -1]).min(0)
    assert says(FURTHER, f"within {gap:.3f} of ... = {weights[at]:.1f}$)") and gap > 0
    of_small = torch.linalg.eigvals(SMALL)
    assert ((of_small.imag == 0) & (of_small.real < 0) & (of_small.real > -0.6)).sum() == 9  # spikes
    convex = (values.diff(dim=0).diff(dim=0) > -1e-9).all(0)
    assert convex.nonzero().flatten().tolist() == [0, 1] and named(SECOND, "of the 15")["are not convex"] == [13]


def test_a_skip_of_one_around_large_weights():
    weights, values = singular_values()
    kappas, (weaker,) = values[:, 0] / values[:, -1], (weights == 0.6).nonzero().flatten()
    assert says(TEXT, f"is {kappas[-1]:.0f} there, ... is {kappas[weaker]:.0f} at")
    least = torch.linalg.eigvalsh(LARGE + LARGE.mT)[0]
    assert torch.linalg.cond(SMALL + torch.eye(100).double()) < 1.7
    assert values[0, -1] ** 2 + least + 1 < 0
    assert 0.75 < 0.3 / math.sqrt(2 / 15) < 1
    assert (values[-1] > values[0]).all()


def test_when_all_singular_values_are_larger():
    larger = {rho: found[2] for rho, found in named(FIRST, "singular values of the layer of 15 units").items()}
    enough = -torch.linalg.eigvalsh(LARGE + LARGE.mT)[0].item()
    assert all(count == 15 for rho, count in larger.items() if rho > enough)
    assert larger[1] == 15 > max(larger[0.03], larger[0.6])


def test_branches_that_start_at_zero():
    found = named(SECOND, "four blocks that start at zero", 2)
    assert all(row[1:4] == [0, 0, 1] for (_, step), row in found.items() if step == 0)
    loss, _, largest, *_ = found["SGD", 1000]
    assert f"most {largest:.2f} in" in FURTHER
    assert 8e3 < found["SGD", 0][0] / loss < 2e4 and max(row[2] for (way, _), row in found.items() if way == "SGD") < 1
    assert f"most {found['Adam', 100][2]:.2f} after" in FURTHER
    assert found["Adam", 100][2] < 1 < found["Adam", 300][1] and found["Adam", 1000][3] < 3
    kappas = [found[way, 1000][at] for way in ("SGD", "Adam") for at in (5, 3)]
    assert "{} in place of {} with SGD and {} in place of {} with".format(*kappas) in FURTHER and max(kappas) < 4
    ends = [found[way, 1000][at] for way in ("SGD", "Adam") for at in (0, 4)]
    assert 5e-5 < min(ends) and max(ends) < 2e-4
    zero, drawn = found["SGD", 100][0], found["SGD", 100][4]
    assert zero < drawn
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
    zero, small, one, kept = (medians(name) for name in ("zero", "a quarter", "one", "one, size kept"))
    said = "takes {:.0f} steps ... quarter {:.0f}, by Adam {:.0f} and {:.0f} (medians"
    assert says(TEXT, said, zero[0], small[0], zero[1], small[1])
    assert one[0] > 2 * small[0]
    assert all(2 < strong / weak < 2.5 for of in (one, kept) for strong, weak in zip(of, zero, strict=True))
    right = medians("one", 2) + medians("zero", 2)
    said = "only {:.0f} and {:.0f} % ... tells {:.0f} and {:.0f} %."
    assert says(TEXT, said, *right)
    said = "is {:.0f} and {:.0f} % ... still {:.0f} and {:.0f}."
    assert says(TEXT, said, *medians("one, size kept", 2), *kept)
    assert sorted(fastest()["no skip", "Adam", seed][0] for seed in range(3)) == [370, 400, math.inf]
    assert all(fastest()["no skip", "SGD", seed][0] == math.inf for seed in range(3))
    ratios = np.divide(medians("zero", 1), medians("one", 1))
    assert 250 < ratios[0] < 350 and ratios[1] == pytest.approx(3, abs=0.4)


def test_with_normalisation_the_start_makes_no_difference():
    names = ["zero, normalised", "a quarter, normalised", "one, normalised"]
    assert {tuple(medians(name)) for name in names} == {(75, 70)}
    runs = [run for run in results.kept("adding-the-identity-further") if run["network"] == names[-1]]
    first, last = (np.median([run[end] for run in runs]) for end in ("first", "last"))
    assert says(TEXT, f"is {first:.0f} in ... and {last:.1f} in")
    slow = named(SECOND, "steps to a loss of a tenth at")
    assert slow[names[0]][0] < 0.6 * slow[names[2]][0]


def test_squeezing_alone_costs_steps():
    names = "zero", "zero, squeezing skip", "zero, hard squeezing skip", "one, size kept"
    plain, squeezed, hard, kept = map(medians, names)
    said = "from {:.0f} to {:.0f} and {:.0f}, ... from {:.0f} to {:.0f} and {:.0f}."
    assert says(TEXT, said, *(of[i] for i in range(2) for of in (plain, squeezed, hard)))
    assert squeezed == [110, 110] and sorted(plain) == [60, 80]
    shares = [(hard[i] - plain[i]) / (kept[i] - plain[i]) for i in range(2)]
    assert 0.4 < shares[0] < 0.5 and 0.72 < shares[1] < 0.8
    chains = [run["chain"] for run in results.kept("adding-the-identity-further") if run["network"] == "one, size kept"]
    assert 3e11 < np.median(chains) < 3e12


def test_a_thousand_layers():
    """The median is the same up to half of a typical stretch, where a skip harms about half of them, and then falls."""
    layers = 0.3 * gaussian(1000, 15, 15, seed=1)
    before = torch.linalg.cond(layers)
    after = {rho: torch.linalg.cond(layers + rho * torch.eye(15).double()) for rho in (0.1, 0.3, 0.6, 1, 1.5)}
    assert (after[0.6] > before).double().mean() == pytest.approx(1 / 2, abs=0.05)
    middle = [kappas.median() for kappas in after.values()]
    assert max(middle[:3]) < 1.1 * min(middle[:3]) and middle[3] < 0.75 * middle[2] and middle[4] < 10


def test_which_bound_is_the_sharpest():
    rows = [*named(SECOND, "the same layers: the four").values()]
    finite = [row for row in rows if row[2] < math.inf]
    assert 0 < len(finite) < len(rows)
    assert all(tau < norm and simple_tau < simple_norm for norm, simple_norm, tau, simple_tau in finite)
    matrix = torch.diag(torch.tensor([-0.4, 0.1], dtype=torch.float64))
    by_norm, simple, by_tau, simple_tau = riedi_theorem_22(matrix)
    kappa = torch.linalg.cond(matrix + torch.eye(2, dtype=torch.float64))
    assert kappa < by_norm < by_tau and simple < simple_tau
