"""The Gauss-Newton matrix of a module in blocks: the same in any memory, which is honoured."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from gnlib import GaussNewton
from tests.gnlib.jacobian.cases import (
    Lambda,
    assert_gram,
    draw,
    gram_matrix,
    jacobian_blocks,
    plain_jacobian,
    vector,
    wide,
)


@pytest.mark.parametrize("memory", [0.0016, 0.0018, 0.002, 0.003, 0.01, 1.0])
def test_result_does_not_depend_on_memory(memory):
    net, x = draw(wide, vector(60), 9)
    blocks = list(jacobian_blocks(net, x, memory=memory))
    assert (len(blocks) > 1) == (memory < 0.01)
    jacobian, n = plain_jacobian(wide, vector(60), 9)
    torch.testing.assert_close(torch.cat(blocks, 1), jacobian, rtol=0, atol=1e-12 * jacobian.abs().max().item())
    assert_gram(gram_matrix(net, x, memory=memory), jacobian, n, 1e-12)


@pytest.mark.slow
def test_many_rows():
    """More rows than a tile of the Gram matrix."""
    make, data = lambda: nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 6)), vector(5)
    assert_gram(gram_matrix(*draw(make, data, 190)), *plain_jacobian(make, data, 190), 1e-12)


def test_ways_of_layers():
    """A wide layer goes by pairs; small filters, and a weight that is masked, by columns."""

    def make():
        net = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(116, 90), nn.Tanh(), nn.Linear(90, 3))
        prune.l1_unstructured(net[4], "weight", 0.5)
        return net

    plan = GaussNewton(*draw(make, vector(1, 60), 9)).cost()
    ways = {name: step.way for step in plan.steps for name in step.parameters}
    assert ways.pop("2.weight") == ways.pop("2.bias") == "pairs"
    assert set(ways.values()) == {"columns"} and len(ways) == 4
    assert (plan.forward, plan.backward) == (9, 27)


def test_gradients_are_held_where_columns_take_more():
    """All filters of a wide convolution at few positions, for many outputs: k backward passes, whatever the memory."""

    def make():
        return nn.Sequential(nn.Conv1d(40, 50, 5, 2), nn.Tanh(), nn.Flatten(), nn.Linear(800, 20))

    net, x = draw(make, vector(40, 35), 2)
    plan = GaussNewton(net, x, memory=0.006).cost()
    assert [(step.way, step.parameters) for step in plan.steps] == [
        ("pairs", ("3.weight", "3.bias")),
        ("columns", ("0.weight", "0.bias")),
    ]
    assert (plan.forward, plan.backward) == (2, 40)
    assert_gram(gram_matrix(net, x, memory=0.006), *plain_jacobian(make, vector(40, 35), 2), 1e-12)


def test_what_is_used_in_another_way_is_differentiated():
    net = Lambda(lambda self, x: self.linear(x) @ self.linear.weight @ self.linear.weight.T)
    plan = GaussNewton(net, torch.randn(4, 5)).cost()
    assert {step.parameters: step.way for step in plan.steps} == {
        ("linear.bias",): "columns",
        ("linear.weight",): "gradients",
    }


PEAK = """
import resource, torch
from torch import nn
from tests.gnlib.jacobian.cases import gram_matrix
def net(width, kernel):
    return nn.Sequential(
        nn.Conv2d(3, width, kernel, padding="same"), nn.ReLU(), nn.Conv2d(width, width, kernel, padding="same"),
        nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(width * 36, 300), nn.ReLU(), nn.Linear(300, 10))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
gram_matrix(net(2, 3), torch.randn(20, 3, 24, 24))  # what torch itself takes
module, x = net({width}, {kernel}), torch.randn({n}, 3, 24, 24)
before = peak()
gram_matrix(module, x, memory={memory})
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "width, kernel, n, memory", [(16, 3, 20, 0.125), pytest.param(32, 7, 6, 0.2, marks=pytest.mark.nightly)]
)
def test_memory_is_honoured(width, kernel, n, memory):
    code = PEAK.format(width=width, kernel=kernel, n=n, memory=memory)
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert float(run.stdout) < memory + 0.05


SINGULAR = """
import resource, torch
from torch import nn
from gnlib.problem import Problem
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
x = torch.randn(200, 30, dtype=torch.float64)
x[1::2] = x[::2]  # the Gram matrix is singular: its Jacobian tells the rank
net = lambda: nn.Sequential(nn.Linear(30, 400), nn.Tanh(), nn.Linear(400, 10)).double()
Problem(net(), x[:10], torch.arange(10), "cross_entropy").condition  # what torch itself takes
problem, before = Problem(net(), x, torch.arange(200) % 10, "cross_entropy", memory=0.3), peak()
problem.spectrum, problem.condition
print(peak() - before)
"""


@pytest.mark.slow
def test_memory_of_singular_values_is_beside_that_of_the_matrices_that_are_kept():
    command = [sys.executable, "-c", SINGULAR]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert float(run.stdout) < 0.3 + 0.03


@pytest.mark.bad_input
def test_too_little_memory_says_how_much_is_needed():
    net, x = draw(wide, vector(60), 9)
    with pytest.raises(ValueError, match=r"memory is 0.0002 GiB but .* are needed") as refused:
        gram_matrix(net, x, memory=0.0002)
    needed = float(str(refused.value).split(" but ")[1].split()[0])
    gram_matrix(net, x, memory=needed)
