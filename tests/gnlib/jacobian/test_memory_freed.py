"""What a call leaves behind: nothing, or a loop over networks runs out of memory."""

import gc
import warnings

import pytest
import torch
from torch import nn

from gnlib import condition_number, cost, forecast, gauss_newton_gram, gauss_newton_operator, report

N, OUTPUTS = 6, 3
LAYERS = {
    "relu": [nn.Linear(5, 7), nn.ReLU()],  # saves its own output
    "tanh and softmax": [nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 7), nn.Softmax(dim=1)],
    "in place": [nn.Linear(5, 7), nn.ReLU(inplace=True)],
    "batch statistics": [nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Sigmoid()],
}
CALLS = {
    "gram": lambda module, x, y: gauss_newton_gram(module, x, mode="train"),
    "condition number": lambda module, x, y: condition_number(module, x, mode="train"),
    "operator": lambda module, x, y: gauss_newton_operator(module, x, mode="train").matmul(torch.ones(N * OUTPUTS, 1)),
    "cost": lambda module, x, y: cost(module, x, mode="train"),
    "forecast": lambda module, x, y: forecast(module, x, y, "mse", mode="train", steps=3),
    "report": lambda module, x, y: report(module, x, y, mode="train"),
}


def tensors_alive():
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names of torch that it deprecates, met while types are looked at
        return sum(type(found) in (torch.Tensor, nn.Parameter) for found in gc.get_objects())


@pytest.mark.parametrize("call", CALLS)
def test_no_tensor_is_left_behind(call):
    torch.manual_seed(0)
    modules = [nn.Sequential(*layers, nn.Linear(7, OUTPUTS)).double() for layers in LAYERS.values()]
    x, y = torch.randn(N, 5, dtype=torch.float64), torch.randn(N, OUTPUTS, dtype=torch.float64)
    for module in modules:
        CALLS[call](module, x, y)  # constants that are made once
    before = tensors_alive()
    for module in modules:
        CALLS[call](module, x, y)
    assert tensors_alive() == before
