"""The one parser of inputs: what is taken apart, joined, and refused."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gnlib.jacobian.gram import gram_of
from gnlib.jacobian.inputs import read_batches
from gnlib.jacobian.passes import outputs_of
from gnlib.jacobian.trial import networks_of
from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import Tokens
from tests.gnlib.networks import TwoInputs, two_inputs


def test_batches_of_different_lengths_stay_apart():
    """Sentences of four words and of seven, as the arguments of a call."""
    torch.manual_seed(0)
    net = Tokens().double()
    batches = [torch.randint(0, 11, (3, 4)), torch.randint(0, 11, (2, 7))]
    networks = networks_of(net, [{"x": x} for x in batches])
    torch.testing.assert_close(outputs_of(networks, 4.0), torch.cat([net(x) for x in batches]).detach())
    jacobian = torch.cat([rows_of(net, x) for x in batches])
    torch.testing.assert_close(gram_of(networks, 4.0), jacobian @ jacobian.mT / 5, rtol=1e-12, atol=1e-14)


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
        networks_of(TwoInputs(), [(tokens, mask[:4], features)])
    for x in ((tokens, 3), (), {"a": None}):
        with pytest.raises(TypeError, match="something else than tensors of samples"):
            networks_of(TwoInputs(), [x])
    with pytest.raises(ValueError, match="x is an empty list"):
        read_batches([])
