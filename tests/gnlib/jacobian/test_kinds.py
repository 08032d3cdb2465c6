"""All that is made of the Jacobian of modules of many kinds is that of plain autograd, in any memory."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gnlib.jacobian.gram import gram_of
from gnlib.jacobian.inputs import read_batches
from gnlib.jacobian.passes import GramOperator, outputs_of, replace_parameters
from gnlib.jacobian.plan import cost_of
from gnlib.jacobian.structure import BATCHABLE, structure_of
from gnlib.jacobian.trial import network_of, networks_of
from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import Tokens, cnn, integers, made, mlp, normal, vector
from tests.gnlib.jacobian.helpers import assert_as_autograd, assert_near
from tests.gnlib.jacobian.kinds import APART, COUPLED, LAYERS, PASSES, RECURRENT, TOGETHER, N
from tests.gnlib.networks import TwoInputs, Whole, two_inputs

ONE_BY_ONE = {"in place", "control flow", "checkpointed and called outside", "ragged", "another thread"}
ONE_BY_ONE |= {"channels last", "packed sequences"}


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
@pytest.mark.parametrize("name", [*LAYERS, *(pytest.param(name, marks=pytest.mark.slow) for name in PASSES)])
def test_kinds_of_layers_and_of_passes(name):
    """Where `vmap` can, samples are differentiated together, and layers are seen."""
    make, data = {**LAYERS, **PASSES}[name]
    (network,) = assert_as_autograd(make, data(N), memory=(0.0018, 0.003) if name == "mlp, wide" else ())
    assert network.vmapped == (name not in ONE_BY_ONE)
    structure = structure_of(network)
    if name in LAYERS:
        assert structure.uses.keys() == network.parameters.keys()
    if name in RECURRENT | TOGETHER | APART:
        assert structure.batched == (name not in APART)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_all_that_is_taken_together_is_compared_with_autograd():
    networks = [network_of(made(make).double(), data(2)) for make, data in (LAYERS | PASSES).values()]
    found = [n.backward for n in networks if structure_of(n).batched]
    assert frozenset().union(*found) == BATCHABLE


@pytest.mark.parametrize("name", COUPLED)
def test_kinds_of_layers_that_couple_the_samples(name):
    make, data = COUPLED[name]
    (network,) = assert_as_autograd(make, data(7), mode="train")
    assert name != "recurrent" or all(structure_of(network).uses.values())


# Several batches, of other lengths or of other shapes


def step_by_step(self, x):
    """A layer that is called as often as a sentence is long."""
    h = self.linear.weight.new_zeros(len(x), 3)
    for step in x.unbind(1):
        h = (self.linear(step) + h).tanh()
    return h


def centred(self, x):
    y = self.linear(x - x.mean(0)).tanh()
    return y.mean(1) if x.ndim > 2 else y


def of_a_layer(forward):
    return lambda: Whole(forward, linear=nn.Linear(5, 3))


BATCHES = {
    "sentences": (Tokens, [integers(4)(3), integers(7)(2), integers(1)(4)], 3),
    "images": (lambda: cnn(nn.GroupNorm(2, 4)), [normal(3, 6, 6)(3), normal(3, 9, 7)(1)], 2),
    "as many calls as words": (of_a_layer(step_by_step), [normal(2, 5)(3), normal(4, 5)(2)], 2),
    "coupled": (COUPLED["batch norm"][0], [normal(5)(6), vector(5)(6).double(), normal(5)(3)], 3),
    "coupled sentences": (of_a_layer(centred), [normal(2, 5)(4), normal(6, 5)(3)], 2),
    "coupled, but for the first": (of_a_layer(centred), [normal(5)(1), normal(5)(4)], 2),
    "more rows than a tile": (lambda: nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 6)), [normal(5)(190)], 1),
    "independent": (mlp, [normal(5)(4), normal(5)(3)], 1),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_have_the_jacobian_of_all_their_samples(name):
    make, batches, count = BATCHES[name]
    networks = assert_as_autograd(make, *batches, mode="train" if "coupled" in name else None)
    assert len(networks) == count
    assert all(network.parameters is networks[0].parameters for network in networks)
    cost = cost_of(networks, 1.0)
    assert cost.backward == sum(network.rows for network in networks) and cost.seconds > 0


def test_arguments_by_name_and_outputs_elsewhere():
    """Sentences of four words and of seven, with the parameters of the trial, and with others."""
    net, batches = made(Tokens).double(), [integers(4)(3), integers(7)(2)]
    networks = networks_of(copy.deepcopy(net), [{"x": x} for x in batches])
    jacobian = torch.cat([rows_of(net, x) for x in batches])
    assert_near(gram_of(networks, 4.0), jacobian @ jacobian.mT / 5)
    expected = torch.cat([net(x) for x in batches]).detach()
    moved = replace_parameters(networks, {name: 2 * p for name, p in networks[0].parameters.items()})
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(2)
    assert_near(outputs_of(moved, 4.0), torch.cat([net(x) for x in batches]).detach())
    assert_near(outputs_of(networks, 4.0), expected)


def test_samples_that_do_not_fit_are_taken_in_parts():
    network = network_of(made(mlp), vector(5)(50))
    room = (network.copied + 2 * network.bytes_per_sample * 7.5) / 2**30
    calls = []
    operator = GramOperator([network], room)
    network.module.register_forward_pre_hook(lambda _, args: calls.append(len(args[0])))
    operator @ torch.ones(150)
    assert calls == [7, 7, 7, 7, 7, 7, 7, 1] * 2


def test_targets_come_with_a_loader_or_apart():
    x, y = torch.arange(6.0).view(6, 1), torch.arange(6)
    batches, targets = read_batches(DataLoader(TensorDataset(x, x), 4), y)
    assert all(isinstance(batch, tuple) and len(batch) == 2 for batch in batches) and targets is y
    batches, targets = read_batches(DataLoader(TensorDataset(x), 4))
    assert all(isinstance(batch, torch.Tensor) for batch in batches) and targets is None
    assert torch.equal(read_batches([x[:4], x[4:]], [y[:4], y[4:]])[1], y)


@pytest.mark.bad_input
def test_each_batch_is_checked():
    tokens, mask, features = two_inputs()
    with pytest.raises(ValueError, match=r"shapes \(5, 4\), \(4, 4\), \(5, 2\)"):
        networks_of(TwoInputs(), [(tokens, mask[:4], features)])
    for x in ((tokens, 3), (), {"a": None}):
        with pytest.raises(TypeError, match="something else than tensors of samples"):
            networks_of(TwoInputs(), [x])
    with pytest.raises(ValueError, match="x is an empty list"):
        read_batches([])
    with pytest.raises(ValueError, match="module fails on the first 2 samples of x"):
        networks_of(mlp(), [normal(5)(2), normal(4)(2)])
