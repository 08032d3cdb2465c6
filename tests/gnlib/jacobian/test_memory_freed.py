"""What a call leaves behind: nothing, or a loop over networks runs out of memory."""

import gc
import warnings

import pytest
import torch
from torch import nn

from gnlib import GaussNewton

N, OUTPUTS = 6, 3
LAYERS = {
    "relu": [nn.Linear(5, 7), nn.ReLU()],  # saves its own output
    "tanh and softmax": [nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 7), nn.Softmax(dim=1)],
    "in place": [nn.Linear(5, 7), nn.ReLU(inplace=True)],
    "batch statistics": [nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Sigmoid()],
}
CALLS = (
    lambda g: g.gram(),
    lambda g: g.condition_number(),
    lambda g: g.operator().matmul(torch.ones(N * OUTPUTS, 1)),
    lambda g: g.cost(),
    lambda g: g.forecast(steps=3),
    lambda g: g.report(budget=1e-3),
)


def tensors_alive():
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names of torch that it deprecates, met while types are looked at
        return sum(type(found) in (torch.Tensor, nn.Parameter) for found in gc.get_objects())


@pytest.mark.slow
def test_no_tensor_is_left_behind():
    torch.manual_seed(0)
    modules = [nn.Sequential(*layers, nn.Linear(7, OUTPUTS)).double() for layers in LAYERS.values()]
    x, y = torch.randn(N, 5, dtype=torch.float64), torch.randn(N, OUTPUTS, dtype=torch.float64)
    alive = []
    for _ in range(2):  # the first round leaves constants that are made once
        for module in modules:
            for call in CALLS:
                call(GaussNewton(module, x, y, mode="train"))
        alive.append(tensors_alive())
    assert alive[1] == alive[0]
