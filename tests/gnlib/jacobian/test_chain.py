"""Chains of torch's own layers, which are not tried, have what the trial finds; what only looks like one is tried."""

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from gnlib.jacobian import chain, trial
from gnlib.jacobian.trial import network_of
from tests.gnlib.jacobian.cases import made, mlp, normal
from tests.gnlib.jacobian.helpers import assert_refused, assert_right
from tests.gnlib.jacobian.kinds import Named, head, tied


def images():
    layers = nn.Conv2d(3, 4, 3, 2, bias=False), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding=1)
    layers[3].weight.requires_grad_(False)
    return nn.Sequential(nn.Sequential(*layers), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 3))


CHAINS = {
    "layer": (lambda: nn.Linear(5, 3), normal(5)),
    "images": (images, normal(3, 12, 12)),
    "signals": (lambda: nn.Sequential(nn.Conv1d(2, 4, 3, padding_mode="circular", padding=1), *head(28)), normal(2, 7)),
    "tied": (tied, normal(5)),
}


@pytest.mark.parametrize("n", [1, 6])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_has_what_the_trial_finds(name, n, monkeypatch):
    make, data = CHAINS[name]
    with monkeypatch.context() as patch:
        patch.setattr(trial, "Comparison", None)  # by which a trial begins
        known = network_of(made(make), data(n))
    monkeypatch.setattr(trial, "is_chain", lambda _: False)
    tried = network_of(made(make), data(n))
    for trait in ("coupled", "vmapped", "outputs", "bytes_per_sample", "backward"):
        assert getattr(known, trait) == getattr(tried, trait)
    torch.testing.assert_close(known.known, tried.known, rtol=1e-13, atol=1e-13)
    ours, theirs = known.structure, tried.structure
    assert ours.uses.keys() == known.parameters.keys() and ours._replace(forms=[]) == theirs._replace(forms=[])
    assert [form.shape for form in ours.forms] == [form.shape for form in theirs.forms]


def centred(x):
    return x - x.mean(0)


class Centred(nn.Linear):
    def forward(self, x):
        return super().forward(centred(x))


COUPLED = "depend on the other samples"
DISGUISES = {
    "hook": (lambda net: net[1].register_forward_hook(lambda _, args, y: centred(y)), COUPLED),
    "hook before": (lambda net: net[1].register_forward_pre_hook(lambda _, args: centred(*args)), COUPLED),
    "forward pass of its own": (lambda net: setattr(net[1], "forward", lambda x: centred(x).tanh()), COUPLED),
    "subclass": (lambda net: setattr(net[0], "__class__", Centred), COUPLED),
    "noise": (lambda net: net[1].register_forward_hook(lambda _, args, y: y + torch.rand_like(y)), "call to call"),
    "layer that is not known": (lambda net: net.append(nn.Dropout()), "Dropout"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", DISGUISES)
def test_what_only_looks_like_a_chain_is_refused(name):
    disguise, message = DISGUISES[name]
    net = made(mlp)
    disguise(net)
    assert_refused(net, normal(5)(6), message)


@pytest.mark.bad_input
def test_classes_that_are_changed_make_no_chains(monkeypatch):
    net, x = made(mlp), normal(5)(6)
    handle = register_module_forward_hook(lambda m, args, y: centred(y) if isinstance(m, nn.Linear) else None)
    assert_refused(net, x, COUPLED)
    handle.remove()
    monkeypatch.setattr(nn.Tanh, "forward", lambda self, x: centred(x).tanh())
    assert_refused(net, x, COUPLED)


@pytest.mark.bad_input
def test_an_axis_that_torch_takes_for_channels_counts_no_samples():
    """A convolution of two axes is one of a single sample: its first axis is that of the channels."""
    net, x = made(lambda: nn.Sequential(nn.Conv1d(6, 6, 3), nn.Tanh(), nn.Linear(5, 3))), normal(7)(6)
    assert_refused(net, x, "fails on fewer samples")
    assert_right(net, x, mode="train")


def test_a_chain_has_plain_tensors_parameters_and_outputs():
    net, x = made(mlp).double(), normal(5)(6)

    def is_chain(x, **options):
        return chain.is_chain(network_of(net, x, **options))

    assert is_chain(x) and not is_chain(x, output=torch.sin) and not is_chain(x.as_subclass(Named))
    net[0].bias = nn.Parameter(net[0].bias.detach().as_subclass(Named))
    assert not is_chain(x)
    weight = net[2].weight.detach().clone()
    del net[2].weight, net[0].bias
    net[2].weight, net[0].bias = weight, None
    assert not is_chain(x)
    assert_right(net, x)
