"""The Gauss-Newton matrix of a module, against plain autograd, and what wrong arguments are told."""

import copy
import math
import sys
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from gnlib import GaussNewton, linear_gauss_newton, second_moment
from gnlib.jacobian.trial import network_of
from tests.gnlib.jacobian.cases import (
    COUPLED,
    INDEPENDENT,
    Lambda,
    Tokens,
    assert_gram,
    draw,
    gram_matrix,
    jacobian_blocks,
    mlp,
    plain_jacobian,
    tokens,
    vector,
    warmed,
    wide,
)


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("name", INDEPENDENT)
def test_gram_is_that_of_plain_autograd(name, n):
    make, data = INDEPENDENT[name]
    assert_gram(gram_matrix(*draw(make, data, n)), *plain_jacobian(make, data, n))


@pytest.mark.parametrize("name", INDEPENDENT)
def test_samples_are_differentiated_together_where_vmap_can(name):
    assert network_of(*draw(*INDEPENDENT[name], 3)).vmapped == (name not in ("in place", "control flow"))


@pytest.mark.parametrize("name", COUPLED)
def test_gram_of_samples_that_depend_on_each_other(name):
    make, data = COUPLED[name]
    assert_gram(gram_matrix(*draw(make, data, 5), mode="train"), *plain_jacobian(make, data, 5, "train"))


def test_batch_norm_has_two_meanings():
    make, data = lambda: warmed(mlp(nn.BatchNorm1d(7)), (5,)), vector(5)
    for mode in ("eval", "train"):
        assert_gram(gram_matrix(*draw(make, data, 6), mode=mode), *plain_jacobian(make, data, 6, mode))
    net, x = draw(make, data, 6)
    assert torch.equal(gram_matrix(net, x), gram_matrix(net.train(), x, mode="eval"))


def test_batch_norm_without_running_statistics_couples_samples_in_eval_mode_too():
    make, data = COUPLED["batch norm, no statistics"]
    assert_gram(gram_matrix(*draw(make, data, 5), mode="eval"), *plain_jacobian(make, data, 5, "eval"))


def test_output_picks_what_is_differentiated():
    net, x = draw(lambda: Lambda(lambda self, x: {"logits": self.linear(x), "loss": 0}), vector(5), 4)
    gram = gram_matrix(net, x, output=lambda result: result["logits"][:, :2])
    jacobian, n = plain_jacobian(lambda: Lambda(lambda self, x: self.linear(x)[:, :2]), vector(5), 4)
    assert_gram(gram, jacobian, n)


def test_rows_are_sample_major():
    net, x = draw(lambda: nn.Linear(2, 3, bias=False), vector(2), 4)
    x = x.double()
    torch.testing.assert_close(gram_matrix(net, x), torch.kron(x @ x.mT, torch.eye(3).double()) / 4)


def test_equal_inputs_make_a_tangent_kernel_of_rank_one_which_is_n_times_the_gram_matrix():
    net, x = draw(lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)), vector(5), 1)
    g = GaussNewton(net, x.expand(4, 5))
    values = torch.linalg.eigvalsh(g.tangent_kernel())
    assert values[-1] > 0.1 and values[:-1].abs().max() < 1e-12 * values[-1]
    torch.testing.assert_close(g.tangent_kernel(), 4 * g.gram(), rtol=1e-14, atol=0)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.integers(1, 12), st.integers(1, 3))
def test_linear_networks_have_the_spectrum_of_their_kronecker_sum(d, width, k, n, depth):
    torch.manual_seed(d + 10 * width + 100 * k + 1000 * n)
    sizes = [d, *[width] * (depth - 1), k]
    weights = [torch.randn(o, i, dtype=torch.float64) for i, o in pairwise(sizes)]
    net = nn.Sequential(*[nn.Linear(i, o, bias=False) for i, o in pairwise(sizes)]).double()
    for layer, w in zip(net, weights, strict=True):
        layer.weight.data = w
    x = torch.randn(n, d, dtype=torch.float64)
    gram = torch.linalg.eigvalsh(gram_matrix(net, x)).flip(0)
    sums = torch.linalg.eigvalsh(linear_gauss_newton(weights, second_moment(x)).dense()).flip(0)
    common = min(len(gram), len(sums))
    torch.testing.assert_close(gram[:common], sums[:common], rtol=1e-9, atol=1e-12 * gram[0].item())
    for rest in (gram[common:], sums[common:]):
        assert (rest.abs() <= 1e-12 * gram[0]).all()


# the caller's module


@pytest.mark.parametrize(
    "name", ["residual", "pruned", "tied", "lstm", "transformer, dropout", "weight norm", "spectral norm"]
)
@pytest.mark.parametrize("mode", ["eval", "train", None])
def test_module_is_left_as_it_was(name, mode):
    make, data = INDEPENDENT[name]
    net, x = draw(make, data, 4)
    if mode == "train" and "dropout" in name:
        net.encoder = nn.Identity()
    state = copy.deepcopy(net.state_dict())
    flags = [m.training for m in net.modules()]
    attributes = [{key: id(value) for key, value in vars(m).items()} for m in net.modules()]
    parameters = [id(p) for p in net.parameters()]
    random, y = torch.get_rng_state(), net.eval()(x)
    for m, flag in zip(net.modules(), flags, strict=True):
        m.training = flag
    gram_matrix(net, x, mode=mode)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.get_default_dtype() == torch.float32
    assert torch.backends.mha.get_fastpath_enabled()
    assert [m.training for m in net.modules()] == flags
    if name not in ("pruned", "lstm"):  # their forward pass sets attributes
        assert [{key: id(value) for key, value in vars(m).items()} for m in net.modules()] == attributes
    for key, value in net.state_dict().items():
        assert value.dtype == state[key].dtype
        assert torch.equal(value, state[key])
    assert [id(p) for p in net.parameters()] == parameters
    assert all(p.grad is None for p in net.parameters())
    assert torch.equal(net.eval()(x), y)
    if name == "pruned":
        assert net[0].weight.dtype == torch.float32


def test_module_is_left_as_it_was_by_blocks_that_nobody_asks_for():
    net, x = draw(wide, vector(60), 9)
    next(jacobian_blocks(net.train(), x, mode="eval", memory=0.0016))
    assert net.training
    assert torch.get_default_dtype() == torch.float32


def test_tqdm_is_not_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert gram_matrix(*draw(mlp, vector(5), 3)).shape == (9, 9)


def test_a_sum_over_no_terminal_shows_no_bar(capfd):
    gram_matrix(*draw(mlp, vector(5), 3))
    assert capfd.readouterr() == ("", "")


# errors

BAD_ARGUMENTS = [
    (dict(module=lambda x: x), TypeError, "pass a torch.nn.Module"),
    (dict(x=[[1.0] * 5]), TypeError, "x is of type list; pass a torch tensor"),
    (dict(x=torch.ones(2, 5, dtype=torch.complex64)), TypeError, "x is complex"),
    (dict(x=torch.ones(0, 5)), ValueError, "x is empty"),
    (dict(x=torch.ones(0, 5, dtype=torch.int64)), ValueError, "x is empty"),
    (dict(x=torch.tensor(1.0)), ValueError, "first axis of x must count samples"),
    (dict(x=torch.full((2, 5), math.nan)), ValueError, "x has 10 entries that are NaN"),
    (dict(x=torch.ones(2, 4)), ValueError, "module fails on the first 2 samples of x.*Check the shape"),
    (dict(mode="test"), ValueError, "mode is 'test'"),
    (dict(memory=0.0), ValueError, "memory is 0.0; a positive number"),
    (dict(memory=math.nan), ValueError, "memory is nan"),
    (
        dict(output=lambda y: y.argmax(1)),
        ValueError,
        r"outputs of 2 samples are of shape \(2,\); a tensor of shape \(2, k\)",
    ),
    (dict(output=lambda y: y[:, :0]), ValueError, r"shape \(2, 0\)"),
    (dict(output=lambda y: y[:1]), ValueError, r"shape \(1, 3\)"),
    (dict(output=lambda y: (y, y)), ValueError, "type tuple"),
    (dict(output=lambda y: y.argmax(1, keepdim=True)), ValueError, "outputs are of torch.int64"),
    (dict(memory=math.inf), ValueError, "memory is inf; a positive number"),
    (dict(memory="4GB"), TypeError, "memory is '4GB'; a positive number of GiB"),
    (dict(output=lambda y: y.to(torch.complex128)), ValueError, "outputs are of torch.complex128"),
    (dict(output=lambda y: y.detach()), ValueError, "can be differentiated"),
    (dict(output=lambda y: y * math.inf), ValueError, "outputs have NaN or infinite entries"),
    (dict(output=lambda y: y + torch.randn(len(y), 1)), ValueError, "change from call to call"),
    (dict(output=lambda y: y - y.mean(0)), ValueError, "depend on the other samples of the batch"),
    (dict(output=lambda y: (y - y).abs().sqrt()), ValueError, "Jacobian with respect to .* has NaN"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize("function", [gram_matrix, jacobian_blocks])
@pytest.mark.parametrize("changed, error, message", BAD_ARGUMENTS)
def test_bad_arguments(function, changed, error, message):
    net, x = draw(mlp, vector(5), 2)
    arguments = {"module": net, "x": x, **changed}
    with pytest.raises(error, match=message):
        list(function(**arguments))


def with_weight(value):
    net = mlp()
    with torch.no_grad():
        net[2].weight[0, 0] = value
    return net


BAD_MODULES = [
    (lambda: nn.Flatten(), None, "no parameter that requires a gradient"),
    (lambda: mlp().requires_grad_(False), None, "no parameter that requires a gradient"),
    (lambda: with_weight(math.nan), None, "The parameter 2.weight has 1 entries that are NaN"),
    (
        lambda: Lambda(lambda self, x: self.linear(x), none=nn.ParameterList([torch.zeros(0)])),
        None,
        "The parameter none.0 is empty",
    ),
    (lambda: mlp(nn.BatchNorm1d(7)), None, r"1 \(BatchNorm1d\) is in training mode; say which.*mode='eval'"),
    (lambda: mlp(nn.Dropout(0.5)), None, r"1 \(Dropout\) is in training mode; say which"),
    (lambda: mlp(nn.Dropout(0.5)), "train", r"1 \(Dropout\) drops out in training mode"),
    (lambda: Tokens(0.1), "train", "drops out in training mode"),
    (lambda: Lambda(lambda self, x: functional.dropout(self.linear(x))), None, "change from call to call"),
    (lambda: Lambda(lambda self, x: self.linear(x).squeeze(0)), None, r"outputs of 1 samples are of shape \(3,\)"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize("make, mode, message", BAD_MODULES)
def test_bad_modules(make, mode, message):
    data = tokens if make().__class__ is Tokens else vector(5)
    net, x = draw(make, data, 2)
    with pytest.raises(ValueError, match=message):
        gram_matrix(net, x, mode=mode)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.bad_input
def test_outputs_of_late_samples_are_checked():
    def forward(self, x):
        return self.linear(x) + torch.where(x[:, :1] > 1e3, math.nan, 0.0)

    net, x = draw(lambda: Lambda(forward), vector(5), 12)
    x[10] = 1e4
    with pytest.raises(ValueError, match="outputs have NaN or infinite entries from sample 10 on"):
        gram_matrix(net, x)


@pytest.mark.bad_input
def test_data_elsewhere():
    with pytest.raises(ValueError, match="x is on meta but the module on cpu"):
        gram_matrix(mlp(), torch.ones(2, 5, device="meta"))


def test_dropout_that_drops_nothing():
    net, x = draw(lambda: mlp(nn.Dropout(0.0)), vector(5), 4)
    assert torch.equal(gram_matrix(net, x, mode="train"), gram_matrix(net, x))
