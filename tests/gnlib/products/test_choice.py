"""Matrix or products: the library chooses, and says the same either way."""

import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from gnlib.diagnosis.overview import Overview
from gnlib.diagnosis.report import Report
from gnlib.products import choice
from tests.gnlib.networks import Whole


@pytest.fixture
def problem():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3)).double()
    return net, torch.randn(30, 6).double(), torch.randn(30, 3).double()


def test_a_small_matrix_is_made_and_one_without_room_is_not(problem):
    assert isinstance(GaussNewton(*problem).report(budget=1e-3), Report)
    little = GaussNewton(*problem, memory=6e-5)  # GiB; the matrix of 90 rows takes as much
    assert isinstance(page := little.report(budget=1e-3), Overview) and page.rows == 90
    with pytest.raises(ValueError, match=r"memory is 6e-05 GiB but .* are needed"):
        little.condition_number()


def test_both_ways_give_the_same_answers(problem, monkeypatch):
    matrix = GaussNewton(*problem)
    assert matrix._side is None
    monkeypatch.setattr(choice, "MINUTE", 0.0)
    monkeypatch.setattr(choice, "ADVANTAGE", 0.0)
    products = GaussNewton(*problem)
    assert products._side is not None
    one, other = (g.waiting(0.5) for g in (matrix, products))
    assert other.lower <= one.lower * (1 + 1e-9) and one.upper <= other.upper
    assert other.effective_condition_number == pytest.approx(one.effective_condition_number, rel=0.02)
    bounds = products.loss_bounds(steps=50, within=1 + 1e-9)
    exact = matrix.forecast(rate=bounds.rate, steps=50).losses
    torch.testing.assert_close(bounds.lower, exact, rtol=1e-6, atol=0)
    torch.testing.assert_close(bounds.upper, exact, rtol=1e-6, atol=0)
    assert len(products.eigenvalues()) == 90  # a matrix is made for whoever asks for it


@pytest.mark.parametrize("rows, once, cheaper", [(2000, 1e5, False), (40000, 1e5, True), (20000, 10.0, True)])
def test_operations_are_counted(rows, once, cheaper):
    class Counted:  # a matrix of so many rows, of a network whose forward pass takes so many operations
        memory, networks = 16.0, [nn.Identity()]

        def cost(self):
            return self

        operations, flops, forward, backward = 2.0 * rows**2 * once, once * 2 * rows, rows, rows

    Counted.networks[0].rows, Counted.networks[0].units = rows, rows // 10
    assert choice.prefers_products(Counted()) is cheaper


def test_outputs_of_several_axes_go_by_products_and_a_matrix_says_what_it_needs():
    torch.manual_seed(0)
    tokens = torch.randint(7, (3, 5))
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))
    g = GaussNewton(net, tokens, tokens.roll(1, 1), "cross_entropy")
    assert "float64, by products" in repr(g) and isinstance(g.report(budget=1e-3), Overview)
    asked = GaussNewton(net, tokens, tokens.roll(1, 1), "cross_entropy", dtype=torch.float64)
    assert g.largest_eigenvalue().value == asked.largest_eigenvalue().value
    with pytest.raises(ValueError, match=r"of shape \(2, 5, 7\); .* Pass output="):
        g.gram()


def test_a_loader_is_read_once():
    seen = []

    class Counting(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            seen.append(i)
            return torch.full((2, 3), float(i)), torch.ones(2, 1)

    net = Whole(lambda self, x: self.head(x), head=nn.Linear(3, 1))
    g = GaussNewton(net, torch.utils.data.DataLoader(Counting(), batch_size=2))
    assert seen == [0, 1, 2, 3, 0, 1]  # the first batch again, to see whether it changes
    assert g.loss_bounds(steps=3).lower.shape == (4,)


def test_a_module_that_changes_is_refused_either_way(problem):
    net, *data = problem
    for options in ({}, {"memory": 6e-5}, {"dtype": torch.float32}):
        g = GaussNewton(net, *data, **options)
        g.waiting()
        with torch.no_grad():
            net[0].weight.mul_(1.5)
        with pytest.raises(ValueError, match="has changed since"):
            g.waiting()
