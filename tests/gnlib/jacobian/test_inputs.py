"""The one parser of inputs: what is taken apart, joined, and refused."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gnlib.jacobian.gram import gram_of
from gnlib.jacobian.inputs import networks_on, read_batches
from tests.gnlib.networks import TwoInputs, two_inputs


def test_batches_that_can_be_joined_are():
    torch.manual_seed(0)
    net, x = nn.Linear(2, 3), torch.randn(6, 2)
    (network,), (whole,) = networks_on(net, [x[:4], x[4:]]), networks_on(net, [x])
    assert torch.equal(gram_of([network], 4.0), gram_of([whole], 4.0))


def test_targets_come_with_a_loader_or_apart():
    x, y = torch.arange(6.0).view(6, 1), torch.arange(6)
    batches, targets = read_batches(DataLoader(TensorDataset(x, y), 4))
    assert [*map(len, batches)] == [4, 2] and torch.equal(targets, y)
    batches, targets = read_batches(DataLoader(TensorDataset(x, x), 4), y)
    assert all(isinstance(batch, tuple) and len(batch) == 2 for batch in batches) and targets is y
    batches, targets = read_batches(DataLoader(TensorDataset(x), 4))
    assert all(isinstance(batch, torch.Tensor) for batch in batches) and targets is None
    assert torch.equal(read_batches([x[:4], x[4:]], [y[:4], y[4:]])[1], y)


@pytest.mark.bad_input
def test_what_wrong_inputs_are_told():
    tokens, mask, features = two_inputs()
    with pytest.raises(ValueError, match=r"shapes \(5, 4\), \(4, 4\), \(5, 2\)"):
        networks_on(TwoInputs(), [(tokens, mask[:4], features)])
    for x in ((tokens, 3), (), {"a": None}):
        with pytest.raises(TypeError, match="something else than tensors of samples"):
            networks_on(TwoInputs(), [x])
    with pytest.raises(TypeError, match="module is of type function"):
        networks_on(lambda x: x, [(tokens,)])
    with pytest.raises(ValueError, match="x is an empty list"):
        read_batches([])
