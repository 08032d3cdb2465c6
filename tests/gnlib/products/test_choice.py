"""Matrix or products, in one process or in several: the library chooses, and says the same either way."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from gnlib.diagnosis.overview import Overview
from gnlib.diagnosis.report import Report
from gnlib.products import choice


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
    monkeypatch.setattr(choice, "MINUTE", 0.0)
    monkeypatch.setattr(choice, "ADVANTAGE", 0.0)
    products = GaussNewton(*problem)
    assert matrix._side is None and products._side is not None
    one, other = (g.waiting(0.5) for g in (matrix, products))
    assert other.lower <= one.lower * (1 + 1e-9) and one.upper <= other.upper
    assert other.effective_condition_number == pytest.approx(one.effective_condition_number, rel=0.02)
    bounds = products.loss_bounds(steps=50, within=1 + 1e-9)
    exact = matrix.forecast(rate=bounds.rate, steps=50).losses
    torch.testing.assert_close(bounds.lower, exact, rtol=1e-6, atol=0)
    torch.testing.assert_close(bounds.upper, exact, rtol=1e-6, atol=0)
    assert len(products.eigenvalues()) == 90  # a matrix is made for whoever asks for it


def test_outputs_of_several_axes_go_by_products_and_a_matrix_says_what_it_needs():
    torch.manual_seed(0)
    tokens = torch.randint(7, (3, 5))
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))
    g, asked = (GaussNewton(net, tokens, tokens.roll(1, 1), "cross_entropy", dtype=d) for d in (None, torch.float64))
    assert "float64, by products" in repr(g) and isinstance(g.report(budget=1e-3), Overview)
    assert g.largest_eigenvalue().value == asked.largest_eigenvalue().value
    with pytest.raises(ValueError, match=r"of shape \(2, 5, 7\); .* Pass output="):
        g.gram()


def test_a_module_that_changes_is_refused_either_way(problem):
    net, *data = problem
    for options in ({}, {"memory": 6e-5}, {"dtype": torch.float32}):
        g = GaussNewton(net, *data, **options)
        g.waiting()
        with torch.no_grad():
            net[0].weight.mul_(1.5)
        with pytest.raises(ValueError, match="has changed since"):
            g.waiting()


# Samples that are spread over processes


PROGRAM = """
import sys
from torch import distributed
from tests.gnlib.products.test_choice import numbers, parts
rank, port = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
print([float(x).hex() for x in numbers(*parts()[rank])])
"""


def parts():
    """The samples of each process, of unequal number."""
    torch.manual_seed(0)
    x, y = torch.randn(12, 6).double(), torch.randn(12, 3).double()
    return (x[:7], y[:7]), (x[7:], y[7:])


def numbers(x, y):
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(6, 2), nn.Tanh(), nn.Linear(2, 3)).double()  # 23 parameters for 36 outputs
    g = GaussNewton(module, x, y, dtype=torch.float64)
    bounds = g.loss_bounds(steps=100, products=15)
    adam = GaussNewton(module, x, y, optimizer="adam", dtype=torch.float64).forecast(rate=0.01, steps=9)
    found = [*g.eigenpairs(2, tolerance=1e-10).values, g._side.loss, g.trace(products=9).value]
    return [*found, *bounds.upper[::20], *adam.losses, *adam.followed]


@pytest.mark.slow
def test_two_processes_find_what_one_does():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = dict(cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True)
    started = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), port], **options) for rank in range(2)]
    found = [[float.fromhex(x) for x in eval(process.communicate(timeout=100)[0])] for process in started]
    expected = numbers(*map(torch.cat, zip(*parts(), strict=True)))
    assert found[0] == found[1] == pytest.approx([float(e) for e in expected], rel=1e-12)
