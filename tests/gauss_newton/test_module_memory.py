"""The Gauss-Newton matrix of a module in blocks: the same in any memory, which is honoured."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from gnlib.gauss_newton.contraction import TILE
from gnlib.gauss_newton.module import gauss_newton_gram, jacobian_blocks
from gnlib.gauss_newton.network import Network
from gnlib.gauss_newton.plan import COLUMNS, BudgetError
from gnlib.gauss_newton.plan import plan_of as _plan
from gnlib.gauss_newton.trial import GIB
from tests.gauss_newton.cases import INDEPENDENT, assert_gram, draw, plain_jacobian, vector, wide


@pytest.mark.parametrize("memory", [0.0016, 0.0018, 0.002, 0.003, 0.01, 1.0])
def test_result_does_not_depend_on_memory(memory):
    net, x = draw(wide, vector(60), 9)
    blocks = list(jacobian_blocks(net, x, memory=memory))
    assert (len(blocks) > 1) == (memory < 0.01)
    jacobian, n = plain_jacobian(wide, vector(60), 9)
    torch.testing.assert_close(torch.cat(blocks, 1), jacobian, rtol=0, atol=1e-12 * jacobian.abs().max().item())
    assert_gram(gauss_newton_gram(net, x, memory=memory), jacobian, n, 1e-12)


@pytest.mark.parametrize("name", ["in place", "lstm"])
@pytest.mark.parametrize("memory", [0.001, 1.0])
def test_blocks_of_samples_one_by_one(name, memory):
    make, data = INDEPENDENT[name]
    jacobian, _ = plain_jacobian(make, data, 7)
    blocks = torch.cat(list(jacobian_blocks(*draw(make, data, 7), memory=memory)), 1)
    torch.testing.assert_close(blocks, jacobian, rtol=0, atol=1e-12)


def test_blocks_of_coupled_samples():
    make, data = lambda: nn.Sequential(nn.Linear(60, 90), nn.BatchNorm1d(90), nn.Linear(90, 4)), vector(60)
    jacobian, _ = plain_jacobian(make, data, 6, "train")
    blocks = list(jacobian_blocks(*draw(make, data, 6), mode="train", memory=0.0012))
    assert len(blocks) > 1
    torch.testing.assert_close(torch.cat(blocks, 1), jacobian, rtol=0, atol=1e-11 * jacobian.abs().max().item())


def test_many_rows():
    """More rows than a tile of the Gram matrix."""
    make, data = lambda: nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 6)), vector(5)
    assert_gram(gauss_newton_gram(*draw(make, data, 190)), *plain_jacobian(make, data, 190), 1e-12)


@pytest.mark.parametrize("with_gram", [False, True])
@pytest.mark.parametrize(("vmapped", "batch", "held"), [(True, 8, 4), (False, 1, 2)])
def test_a_plan_takes_all_of_the_memory_and_no_more(with_gram, vmapped, batch, held):
    """Counted in numbers of eight bytes: the result, a tile and what it takes to update it, a block, gradients."""
    n, k, sizes, saved = 2000, 3, (5000, 900), 100
    network = Network.__new__(Network)  # what a plan asks of it, and no module
    vars(network).update(
        x=torch.empty(n),
        outputs=k,
        parameters={str(size): torch.empty(size) for size in sizes},
        copied=8 * sum(sizes),
        bytes_per_sample=8 * saved,
        coupled=False,
        vmapped=vmapped,
    )

    def needed(columns, batch, held):
        result = (n * k) ** 2 + 3 * TILE**2 if with_gram else 0
        sample = 2 * saved + 2 * max(sizes)  # the backward pass with its margin, and gradients whole
        return 8 * (sum(sizes) + result + batch * sample + columns * (n * k + batch * held)) / GIB

    all_at_once = needed(sum(sizes), batch, held)
    groups, together = _plan(network, all_at_once, with_gram)
    assert (len(groups), together) == (1, batch)
    groups, together = _plan(network, all_at_once * (1 - 1e-6), with_gram)
    assert (len(groups), together) == (2, batch)
    least = needed(COLUMNS, 1, held)
    assert len(_plan(network, least, with_gram)[0]) == math.ceil(sum(sizes) / COLUMNS)
    with pytest.raises(BudgetError) as refused:
        _plan(network, least * (1 - 1e-6), with_gram)
    assert 0 <= refused.value.needed - least <= 1e-3


PEAK = """
import resource, torch
from torch import nn
from gnlib.gauss_newton.network import Network
from gnlib.gauss_newton.module import gauss_newton_gram
def net(width, kernel):
    return nn.Sequential(
        nn.Conv2d(3, width, kernel, padding="same"), nn.ReLU(), nn.Conv2d(width, width, kernel, padding="same"),
        nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(width * 36, 300), nn.ReLU(), nn.Linear(300, 10))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
gauss_newton_gram(net(2, 3), torch.randn(20, 3, 24, 24))  # what torch itself takes
module, x = net({width}, {kernel}), torch.randn({n}, 3, 24, 24)
before = peak()
gauss_newton_gram(module, x, memory={memory})
print(peak() - before)
"""


@pytest.mark.parametrize("width, kernel, n, memory", [(16, 3, 20, 0.125), (16, 3, 20, 0.25), (32, 7, 6, 0.2)])
def test_memory_is_honoured(width, kernel, n, memory):
    code = PEAK.format(width=width, kernel=kernel, n=n, memory=memory)
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert float(run.stdout) < memory + 0.05


@pytest.mark.bad_input
def test_too_little_memory_says_how_much_is_needed():
    net, x = draw(wide, vector(60), 9)
    with pytest.raises(ValueError, match=r"memory is 0.0002 GiB but .* are needed") as refused:
        gauss_newton_gram(net, x, memory=0.0002)
    needed = float(str(refused.value).split(" but ")[1].split()[0])
    gauss_newton_gram(net, x, memory=needed)
