"""Modules that wrap, hook, store or change something: measured as the function that is meant, or refused."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from gnlib import condition_number
from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import gram_matrix
from tests.gnlib.jacobian.helpers import D, K, Net, assert_refused, assert_right, data, embedded, made, tokens
from tests.gnlib.networks import Whole


def test_an_input_that_is_changed_in_place_is_left_as_it_was():
    net = Whole(lambda self, x: self.linear(x.sub_(1).mul_(2)).tanh_(), linear=nn.Linear(D, K)).double()
    meant, x = Whole(lambda self, x: self.linear((x - 1) * 2).tanh(), linear=net.linear), data(8).double()
    kept, rows = x.clone(), rows_of(meant, x)
    gram = gram_matrix(net, x)
    assert torch.equal(x, kept)
    torch.testing.assert_close(gram, rows @ rows.mT / 8, rtol=0, atol=1e-12 * gram.abs().max().item())


def test_spectral_norm_in_training_asks_which_function_is_meant():
    for wrap in (parametrizations.spectral_norm, nn.utils.spectral_norm):
        for zero_head in (False, True):
            net = made(lambda: Net(zero_head=zero_head))  # noqa: B023
            wrap(net.body)
            assert_refused(net, data(8), "is in training mode.*mode='eval'.*mode='train'")
            assert_right(net, data(8), copy.deepcopy(net).eval(), mode="eval")


class Tracking(nn.Module):
    """Normalises by a running mean, which it moves in training, or always."""

    def __init__(self, always):
        super().__init__()
        self.always = always
        self.register_buffer("mean", torch.zeros(D))

    def forward(self, x):
        y = x - self.mean
        if self.training or self.always:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return y.exp()


def test_a_state_that_outputs_depend_on_is_refused_unless_it_is_meant():
    net = made(lambda: Net(lambda self, h: self.norm(h), norm=Tracking(True), zero_head=True))
    for mode in (None, "eval"):
        assert_refused(net, data(8), r"norm \(Tracking\) changes its mean, on which they depend", mode=mode)
    net.norm.always = False
    assert_right(net, data(8), copy.deepcopy(net).eval(), mode="eval")


def test_a_layer_that_is_another_one_in_training_asks_which_is_meant():
    switch = Whole(lambda self, h: h.sin() if self.training else h.cos())
    net = made(lambda: Net(lambda self, h: self.switch(h), switch=switch, zero_head=True))
    assert_refused(net, data(8), r"switch \(Whole\) is in training mode, where it is another function")
    assert_right(net, data(8), mode="train")
    assert_right(net, data(8), copy.deepcopy(net).eval(), mode="eval")
    assert_right(net.eval(), data(8))


@pytest.mark.parametrize("options", [{}, {"sparse": True}, {"scale_grad_by_freq": True}, {"padding_idx": 3}])
def test_embeddings_have_the_derivative_of_their_function(options):
    plain = {key: value for key, value in options.items() if key == "padding_idx"}
    net = made(lambda: embedded(**options))
    assert_right(net, tokens(), made(lambda: embedded(**plain)))


def test_a_sparse_bag_is_right():
    bag = lambda sparse: nn.Sequential(nn.EmbeddingBag(11, D, sparse=sparse), nn.Linear(D, K))  # noqa: E731
    assert_right(made(lambda: bag(True)), tokens(), made(lambda: bag(False)))


@pytest.mark.bad_input
def test_weights_that_a_forward_pass_changes_are_refused_and_left_alone():
    assert_refused(made(lambda: embedded(max_norm=0.5)).double(), tokens(), "changes the parameter 0.weight in place")


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_checkpointed_blocks_are_right_or_refused(reentrant, dtype):
    def between(self, h):
        return checkpoint(self.block, h, use_reentrant=reentrant)

    net = made(lambda: Net(between, block=nn.Sequential(nn.Linear(D, D), nn.Tanh()))).to(dtype)
    meant = copy.deepcopy(net)
    meant.between = lambda self, h: self.block(h)
    if reentrant:
        assert_refused(net, data(8), "cannot be differentiated")
    else:
        assert_right(net, data(8), meant)


def test_a_checkpoint_that_drops_gradients_is_refused():
    def forward(self, x):
        return self.head(checkpoint(self.net, x, use_reentrant=True))

    net = Whole(forward, net=embedded(), head=nn.Linear(K, K))
    assert_refused(net, tokens(), "None of the inputs have requires_grad=True")


@pytest.mark.parametrize("kind", ["full", "pre", "old"])
def test_hooks_on_gradients_change_nothing(kind):
    net = made(Net)
    meant, calls = copy.deepcopy(net), []
    if kind == "full":
        net.body.register_full_backward_hook(lambda m, given, taken: (given[0] * 0,))
    elif kind == "pre":
        net.head.register_full_backward_pre_hook(lambda m, taken: (taken[0] * 0,))
    else:
        net.body.register_backward_hook(lambda m, given, taken: calls.append(1))
    assert_right(net, data(8), meant)
    assert not calls
    assert len(net.body._backward_hooks) + len(net.head._backward_pre_hooks) == 1


@pytest.mark.parametrize(
    "wrap",
    [
        nn.DataParallel,
        functools.partial(torch.compile, backend="eager"),
        lambda net: nn.DataParallel(torch.compile(net, backend="eager")),
        lambda net: nn.Sequential(torch.compile(net, backend="eager")),
        lambda net: net.compile(backend="eager") or net,
    ],
)
def test_modules_that_are_wrapped_are_unwrapped(wrap):
    net = made(lambda: Net(lambda self, h: h.sin()))
    wrapped = wrap(copy.deepcopy(net))
    assert torch.equal(gram_matrix(wrapped, data(8)), gram_matrix(net, data(8)))
    torch._dynamo.reset()


def test_inference_mode_is_left_for_the_derivatives():
    net, x = made(Net).double(), data(8).double()
    expected = gram_matrix(net, x)
    with torch.inference_mode():
        assert torch.equal(gram_matrix(net, x), expected)
        inside = made(Net).double()
        found = condition_number(inside, x.clone())
        assert torch.is_inference_mode_enabled()
    assert found == condition_number(net, x)
    with torch.no_grad():
        assert torch.equal(gram_matrix(net, x), expected)
