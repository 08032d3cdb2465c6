"""Samples that are spread over processes: the same numbers as in one."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import gnlib

ROOT = Path(__file__).parents[3]
PROGRAM = """
import datetime, sys, torch
from torch import distributed
from tests.gnlib.products.test_shared import numbers, parts
rank, port, dies = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "dies"
distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2,
                               timeout=datetime.timedelta(seconds=20))
if dies and rank:
    sys.exit(0)
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
    g = gnlib.GaussNewton(module, x, y, dtype=torch.float64)
    bounds = g.loss_bounds(steps=100, products=15)
    adam = gnlib.GaussNewton(module, x, y, optimizer="adam", dtype=torch.float64).forecast(rate=0.01, steps=9)
    found = [*g.eigenpairs(2, tolerance=1e-10).values, g._side.loss, g.trace(products=9).value]
    return [*found, *bounds.upper[::20], *adam.losses, *adam.followed]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def run(how):
    port = free_port()
    command = [sys.executable, "-c", PROGRAM]
    started = [
        subprocess.Popen(
            [*command, str(rank), port, how], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    return [(*process.communicate(timeout=100), process.returncode) for process in started]


@pytest.mark.slow
def test_two_processes_find_what_one_does():
    found = [[float.fromhex(x) for x in eval(out)] for out, _, _ in run("lives")]
    (x, y), (x2, y2) = parts()
    expected = numbers(torch.cat([x, x2]), torch.cat([y, y2]))
    assert found[0] == found[1] == pytest.approx([float(e) for e in expected], rel=1e-12)


@pytest.mark.slow
@pytest.mark.bad_input
def test_a_process_that_dies_is_an_error_on_the_other():
    begun = time.monotonic()
    (_, error, code), _ = run("dies")
    assert code and "Error" in error and time.monotonic() - begun < 60
