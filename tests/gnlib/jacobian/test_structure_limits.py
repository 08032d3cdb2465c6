"""Where the structure of layers ends: many samples, few parameters, hooks that count, and what is refused."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib import condition_number
from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import (
    COUPLED,
    INDEPENDENT,
    assert_gram,
    draw,
    gram_matrix,
    jacobian_blocks,
    plain_jacobian,
)
from tests.gnlib.jacobian.helpers import assert_refused, made
from tests.gnlib.jacobian.kinds import ROWS, D, Frame, K, M, N, Whole, assert_as_autograd, linear
from tests.gnlib.jacobian.kinds_layers import LAYERS
from tests.gnlib.jacobian.kinds_passes import PASSES
from tests.gnlib.jacobian.kinds_sharing import SHARING
from tests.gnlib.jacobian.kinds_traps import TRAPS

pytestmark = pytest.mark.slow
SMALL = {name: INDEPENDENT[name] for name in INDEPENDENT if name not in ("one output", "control flow", "lstm", "gru")}
MANY = {
    **{name: LAYERS[name] for name in ("mlp", "cnn", "tokens", "conv 2d, grouped", "embedding", "transformer")},
    **{name: SHARING[name] for name in ("tied, embedding and head", "twice called, by two shapes", "pruned")},
    **{name: PASSES[name] for name in ("windows", "bias of relative positions", "experts, samples routed")},
    **{name: TRAPS[name] for name in ("strangers first", "ragged")},
}


@pytest.mark.parametrize("name", MANY)
def test_more_samples_than_are_taken_together(name):
    make, data = MANY[name]
    assert_as_autograd(make, data(9))


@pytest.mark.parametrize(
    "mode, make, data", [*(("eval", *SMALL[name]) for name in SMALL), *(("train", *case) for case in COUPLED.values())]
)
def test_more_rows_than_parameters(mode, make, data):
    gram = gram_matrix(*draw(make, data, 40), mode=mode)
    assert_gram(gram, *plain_jacobian(make, data, 40, mode), 1e-12)


@pytest.mark.parametrize(
    "name", ["mlp", "cnn", "layer norm", "batch norm 2d", "attention", "tied", "weight norm", "frozen", "pruned"]
)
@pytest.mark.parametrize("n", [4, 40])
def test_condition_numbers_of_more_and_of_fewer_parameters_than_rows(name, n):
    make, data = INDEPENDENT[name]
    jacobian, _ = plain_jacobian(make, data, n)
    values = torch.linalg.svdvals(jacobian)
    rank = int((values > 1e-11 * values[0]).sum())
    found = condition_number(*draw(make, data, n))
    assert found.rank == rank
    assert found.value == pytest.approx((values[0] / values[rank - 1]).item() ** 2, rel=1e-6)


# Hooks of the user's own


@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
def test_hooks_are_called_with_each_forward_pass_however_many_samples_it_takes(kind):
    """The calls of a hook are those of its layer, and are no more for samples that are differentiated together."""
    counts = {}
    for n in (4, 8):
        net, seen = made(linear(lambda self, h: self.fc(h).sin())).double(), []
        getattr(net.fc, f"register_{kind}_hook")(lambda *given, seen=seen: seen.append(given))
        passes = []
        net.register_forward_pre_hook(lambda *given, passes=passes: passes.append(given))
        gram_matrix(net, ROWS(n))
        assert len(seen) == len(passes) > 0
        assert len(getattr(net.fc, f"_{kind}_hooks")) == 1
        counts[n] = len(seen)
    assert counts[4] == counts[8]


def test_a_hook_that_applies_to_all_modules_is_part_of_the_function():
    make, x = linear(lambda self, h: self.fc(h).sin()), ROWS(N)
    expected = gram_matrix(made(make).double(), x)

    def doubled(module, given, y):
        return 2 * y if isinstance(module, nn.Linear) and module.out_features == K else None

    handle = nn.modules.module.register_module_forward_hook(doubled)
    try:
        found = gram_matrix(made(make).double(), x)
    finally:
        handle.remove()
    torch.testing.assert_close(found, 4 * expected, rtol=0, atol=1e-12 * found.abs().max().item())


# Other precisions, compiled and scripted parts


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "embedding", "layer norm"])
def test_parameters_of_lower_precision_count_as_the_numbers_that_they_are(name, dtype):
    make, data = LAYERS[name]
    net, x = made(make).to(dtype), data(N)
    rows = rows_of(copy.deepcopy(net).double(), x)
    assert_gram(gram_matrix(net, x), rows, N, 1e-12)
    assert {p.dtype for p in net.parameters()} == {dtype}


@pytest.mark.bad_input
@pytest.mark.parametrize("trained", [True, False])
def test_complex_parameters_are_refused(trained):
    w = nn.Parameter(torch.randn(M, M, dtype=torch.complex128), requires_grad=trained)
    net = Frame(lambda self, h: (h.to(self.w.dtype) @ self.w).abs(), w=w)
    assert_refused(net, ROWS(N), r"The parameter w is complex \(torch.complex128\)", TypeError)


# What changes while it runs


def scaled_in_place(self, h):
    self.fc.weight.data.mul_(0.9)
    return self.fc(h).sin()


def normalised_in_place(self, h):
    with torch.no_grad():
        self.fc.weight.div_(self.fc.weight.norm(dim=1, keepdim=True))
    return self.fc(h).sin()


def changed_afterwards(self, h):
    y = self.fc(h).sin()
    with torch.no_grad():
        self.fc.weight.mul_(0.9)
    return y


def changed_for_many(self, h):
    return scaled_in_place(self, h) if len(h) > 3 else self.fc(h).sin()


def frozen_part_changed(self, h):
    self.fc.bias.data.add_(1)
    return self.fc(h).sin()


def with_frozen_bias():
    net = Frame(frozen_part_changed, fc=nn.Linear(M, M))
    net.fc.bias.requires_grad_(False)
    return net


CHANGING = {
    "before": linear(scaled_in_place),
    "normalised": linear(normalised_in_place),
    "after": linear(changed_afterwards),
    "for many samples": linear(changed_for_many),
    "frozen": with_frozen_bias,
}


@pytest.mark.bad_input
@pytest.mark.parametrize("function", [gram_matrix, jacobian_blocks, condition_number])
@pytest.mark.parametrize("name", CHANGING)
def test_a_module_that_changes_its_weights_while_it_runs_is_refused(name, function):
    net = made(CHANGING[name]).double()
    state = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match=r"The forward pass changes the parameter fc.(weight|bias) in place"):
        function(net, ROWS(N))
    for key, value in net.state_dict().items():
        assert torch.equal(value, state[key])


def overwritten(self, h):
    """The tensor that the layer was given serves for its activation too."""
    y = self.fc(h)
    functional.relu_(h)
    return y.sin() + h


def overwritten_data(self, x):
    x = x.clone()
    y = self.fc(x)
    functional.relu_(x)
    return self.head(y.sin()) + x[:, :K]


def overwritten_output(self, h):
    y = self.fc(h).exp()
    return y.mul_(2) + h


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "make",
    [
        linear(overwritten),
        lambda: Whole(overwritten_data, fc=nn.Linear(D, M), head=nn.Linear(M, K)),
        linear(overwritten_output),
    ],
)
def test_what_a_gradient_needs_and_finds_overwritten_is_refused_as_autograd_does(make):
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        rows_of(made(make).double(), ROWS(N))
    assert_refused(made(make).double(), ROWS(N), "module cannot be differentiated.*modified by an inplace operation")


@pytest.mark.bad_input
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("wrap", [torch.jit.script, lambda layer: torch.jit.trace(layer, torch.ones(2, M))])
def test_scripted_parts_are_refused(wrap):
    net = made(lambda: Frame(lambda self, h: self.fc(h).sin(), fc=wrap(nn.Linear(M, M))))
    assert_refused(net, ROWS(N), r"fc \(\w+Module\) is scripted, and its parameters are fixed")
