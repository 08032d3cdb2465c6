"""What the laboratory says of the Gauss-Newton matrix is what its tables show."""

import pytest
import torch

import gnlib
from tests.pages.pages import prose, says, table

TEXT = prose("notebooks/laboratory/gauss-newton")


def test_descent_of_the_network_is_that_of_its_later_curvature():
    rows = {
        name: [float(cell) for cell in row]
        for name, *row in map(str.split, table("laboratory/gauss-newton", "share of the"))
    }
    _, predicted, later, _, network = rows["whitened"]
    assert says(TEXT, f"is {later:.3f}, ... has {network:.3f}.")
    assert predicted < network < later and later - network < 0.01
    assert round(rows["raw"][0] / rows["whitened"][0]) == 15
    assert all(row[3] < row[1] for row in rows.values())


@pytest.mark.parametrize(("hidden", "rank"), [(30, 90), (3, 48)])
def test_rank_behind_a_bottleneck(hidden, rank):
    x = gnlib.load("mnist", 60, stride=7)[0]
    assert torch.linalg.matrix_rank(x) == 9
    assert (x == 0).all(0).sum() == 7 and x.shape[1] == 16
    weights = gnlib.linear_weights([16, hidden, 10], generator=torch.Generator().manual_seed(0))
    found = gnlib.condition_number(gnlib.linear_gauss_newton(weights, gnlib.second_moment(x)))
    assert found.rank == rank
    if hidden == 3:
        assert f"= {found.value:.0f}$" in TEXT
