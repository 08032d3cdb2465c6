"""What the laboratory says of the Gauss-Newton matrix is what its tables show."""

import pytest
import torch

import gnlib
from tests.pages.pages import table


def test_descent_of_the_network_is_that_of_its_later_curvature():
    lines = map(str.split, table("laboratory/gauss-newton", "share of the"))
    rows = {name: [float(cell) for cell in row] for name, *row in lines}
    _, predicted, later, _, network = rows["whitened"]
    assert predicted < network < later < network + 0.01
    assert all(row[3] < row[1] for row in rows.values())


def bottleneck(hidden):
    x = gnlib.load("mnist", 60, stride=7)[0]
    assert torch.linalg.matrix_rank(x) == 9
    weights = gnlib.linear_weights([16, hidden, 10], generator=torch.Generator().manual_seed(0))
    return gnlib.condition_number(gnlib.linear_gauss_newton(weights, gnlib.second_moment(x)))


@pytest.mark.parametrize(("hidden", "rank"), [(30, 90), (3, 48)])
def test_rank_behind_a_bottleneck(hidden, rank):
    assert bottleneck(hidden).rank == rank
