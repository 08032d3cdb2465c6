"""The findings of "Adding the identity", by the tables of its pages."""

import numpy as np
import torch
from gnbook import results

from tests.pages.pages import named

FIRST, SECOND = "laboratory/adding-the-identity", "laboratory/adding-the-identity-further"


def gaussian(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LARGE = 0.3 * gaussian(15, 15)  # the matrices of the first figure


def large(weight):
    """Singular values of the large layer and its skip."""
    return torch.linalg.svdvals(LARGE + weight * torch.eye(15, dtype=torch.float64))


def least_gap():
    """How near the smallest two singular values of the large layer come, and at which weight of the skip."""
    return min(((large(weight)[-2] - large(weight)[-1]).item(), weight) for weight in np.linspace(0, 1, 201))


def test_a_skip_of_one_enlarges_all_singular_values():
    assert (large(1.0) > large(0.0)).all()


def test_when_all_singular_values_are_larger():
    larger = {rho: found[2] for rho, found in named(FIRST, "singular values of the layer of 15 units").items()}
    enough = -torch.linalg.eigvalsh(LARGE + LARGE.mT)[0].item()
    assert all(count == 15 for rho, count in larger.items() if rho > enough)


def test_branches_that_start_at_zero():
    found = named(SECOND, "four blocks that start at zero", 2)
    assert found["Adam", 100][2] < 1 < found["Adam", 300][1]
    ends = [found[way, 1000][at] for way in ("SGD", "Adam") for at in (0, 4)]
    assert 0.4 < ends[1] / ends[0] < 0.65 and 0.9 < ends[3] / ends[2] < 1


def of_normalised(end):
    rows = results.kept("adding-the-identity-further")
    return np.median([row[end] for row in rows if row["network"] == "one, normalised"])
