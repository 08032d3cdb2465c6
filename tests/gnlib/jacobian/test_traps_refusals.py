"""What cannot be measured, each with one clear sentence."""

import pytest
import torch
from torch import nn

from gnlib import condition_number
from tests.gnlib.jacobian.cases import gram_matrix
from tests.gnlib.jacobian.helpers import (
    IMAGES,
    D,
    K,
    Net,
    assert_refused,
    assert_right,
    data,
    embedded,
    jacobian,
    made,
    tokens,
)


class Squeezed(nn.Module):
    def __init__(self, outputs, where=()):
        super().__init__()
        self.linear, self.where = nn.Linear(D, outputs), where

    def forward(self, x):
        return self.linear(x).squeeze(*self.where)


@pytest.mark.bad_input
def test_outputs_without_an_axis_of_their_own_are_refused_with_a_hint_that_works():
    for net in (made(lambda: Squeezed(1)), made(lambda: Squeezed(1, (-1,)))):
        for n in (8, 1):
            assert "such as lambda y: y.reshape(-1, 1)." in assert_refused(net, data(n), "samples are of shape")
        gram = gram_matrix(net, data(8), output=lambda y: y.reshape(-1, 1))
        rows = jacobian(net, data(8))
        torch.testing.assert_close(gram, rows @ rows.mT / 8)


@pytest.mark.bad_input
def test_a_squeeze_that_takes_the_axis_of_the_samples_is_refused_with_the_reason():
    net = made(lambda: Squeezed(K))
    assert_refused(net, data(8), r"fails on fewer samples.*A squeeze\(\) drops the axis of the samples")
    assert_right(net, data(8), mode="train")


def quantised():
    from torch.ao.nn.quantized import dynamic

    return nn.Sequential(nn.Linear(D, D), dynamic.Linear(D, K))


def scripted_module():
    return torch.jit.script(nn.Linear(D, K))


CLEAR = [
    (lambda: Net().to("meta"), data(4), ValueError, "body.weight is on the meta device, where it has no values"),
    (lambda: Net().to("meta"), data(4).to("meta"), ValueError, "body.weight is on the meta device"),
    (lambda: nn.Sequential(nn.LazyLinear(4)), data(4), ValueError, "0.weight has no shape yet; call the module"),
    (quantised, data(4), ValueError, r"1 \(Linear\) is quantised"),
    (scripted_module, data(4), ValueError, r"module \(RecursiveScriptModule\) is scripted"),
    (lambda: nn.Conv2d(3, 2, 3), IMAGES, ValueError, r"x is of torch.uint8, and integers are passed on.*x.double\(\)"),
    (lambda: embedded(), tokens() + 9, ValueError, "module fails on .* samples of x"),
    (lambda: lambda x: x, data(4), TypeError, "module is of type function; pass a torch.nn.Module"),
    (lambda: nn.Linear, data(4), TypeError, "module is of type type; pass a torch.nn.Module"),
    (Net, None, TypeError, "x is of type NoneType; pass a torch tensor"),
]  # fmt: skip


@pytest.mark.bad_input
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("make, x, error, message", CLEAR)
def test_what_cannot_be_measured_gets_one_clear_sentence(make, x, error, message):
    module = made(make)
    with pytest.raises(error, match=message):
        gram_matrix(module, x)
    if isinstance(module, nn.Module) and x is not None:
        with pytest.raises(error, match=message):
            condition_number(module, x)


@pytest.mark.bad_input
def test_the_condition_number_of_a_function_or_of_no_samples_is_refused():
    with pytest.raises(TypeError, match="operand is of type function; a function has no parameters"):
        condition_number(lambda x: x, data(4))
    with pytest.raises(TypeError, match="x is missing; a network is measured on samples"):
        condition_number(Net())
    with pytest.raises(TypeError, match="memory is '4GB'; a positive number of GiB was expected"):
        condition_number(Net(), data(4), memory="4GB")


@pytest.mark.bad_input
@pytest.mark.parametrize("zero_head", [False, True])
def test_parameters_that_are_kept_where_they_are_not_registered_are_refused(zero_head):
    """Only in double precision, where nothing else tells that they are not those that are differentiated by."""
    net = made(lambda: Net(lambda self, h: h @ self.kept[0], zero_head=zero_head)).double()
    net.kept = [net.body.weight]
    assert_refused(net, data(8).double(), "depend on the parameter body.weight in a place where it is not registered")
