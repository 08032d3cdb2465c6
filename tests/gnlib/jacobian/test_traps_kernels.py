"""Functions that torch has in single precision alone: the networks that use them, beside their formulas."""

import pytest
import torch
import torch.ao.quantization as tq
from torch import Tensor, nn

import gnlib
from gnlib.jacobian.in_double import fake_quantize, grouped_product
from tests.gnlib.jacobian.helpers import assert_right

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}") for text in ("torch.ao.quantization is", "Please use quant_min")
]


def x(n: int, d: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(1))


class Quantised(nn.Module):
    """A network in quantisation-aware training, whose observers have seen data and are switched off."""

    def __init__(self, *, observing: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        net = nn.Sequential(tq.QuantStub(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).train()
        net.qconfig = tq.get_default_qat_qconfig("fbgemm")
        with torch.no_grad():
            self.net = tq.prepare_qat(net)
            self.net(x(8, 6))
        if not observing:
            self.net.apply(tq.disable_observer)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class StraightThrough(nn.Module):
    """The same network, each rounding written as its formula."""

    def __init__(self, of: Quantised) -> None:
        super().__init__()
        self.stub, self.layers = of.net[0], nn.ModuleList([of.net[1], of.net[3]])

    def forward(self, x: Tensor) -> Tensor:
        x = self.rounded(x, self.stub.activation_post_process)
        for layer, between in zip(self.layers, (torch.relu, torch.clone), strict=True):
            x = x @ self.rounded(layer.weight, layer.weight_fake_quant).T + layer.bias
            x = between(self.rounded(x, layer.activation_post_process))
        return x

    @staticmethod
    def rounded(x: Tensor, by: nn.Module) -> Tensor:
        scale, zero = by.scale.double(), by.zero_point
        if by.is_per_channel:
            scale, zero = scale[:, None], zero[:, None]
        level = (x / scale).round() + zero
        low, high = by.activation_post_process.quant_min, by.activation_post_process.quant_max
        y = (level.clamp(low, high) - zero) * scale
        return y.detach() + (x - x.detach()) * ((level >= low) & (level <= high))


def test_a_network_in_quantisation_aware_training_has_the_derivatives_of_its_training() -> None:
    net = Quantised().eval()
    assert_right(net, x(8, 6), StraightThrough(net).eval())
    assert gnlib.condition_number(net, x(8, 6)).rank > 3


def test_observers_that_are_switched_on_are_named() -> None:
    with pytest.raises(ValueError, match="disable_observer"):
        gnlib.condition_number(Quantised(observing=True), x(8, 6), mode="train")


class Experts(nn.Module):
    """Two experts in one product, as in mixtures of many."""

    def __init__(self, *, plain: bool = False) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.w = nn.Parameter(torch.randn(2, 16, 16, generator=generator))
        self.head = nn.Parameter(torch.randn(16, 3, generator=generator))
        self.plain = plain

    def forward(self, x: Tensor) -> Tensor:
        n = len(x)
        offsets = torch.tensor([n, 2 * n], dtype=torch.int32)
        if self.plain:
            h = torch.cat([x @ self.w[0], x @ self.w[1]])
        else:
            h = torch._grouped_mm(x.repeat(2, 1), self.w, offs=offsets)
        return (h[:n].sin() + h[n:].tanh()) @ self.head


def test_grouped_products_are_products_of_each_group() -> None:
    assert_right(Experts(), x(8, 16), Experts(plain=True))


def test_grouped_products_of_unequal_groups_and_rows_of_none() -> None:
    a, b = x(7, 4).double(), torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(3)).double()
    expected = torch.cat([a[:2] @ b[0], a[2:2] @ b[1], a[2:6] @ b[2], torch.zeros(1, 2)])
    torch.testing.assert_close(grouped_product(a, b, torch.tensor([2, 2, 6])), expected)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_fake_quantisation_is_that_of_torch(axis: int | None) -> None:
    """In single precision, outside of the range too, values and derivatives."""
    size = 1 if axis is None else (5, 6)[axis]
    scale = torch.rand(size, generator=torch.Generator().manual_seed(4)) * 0.01 + 0.01
    zero = torch.arange(size, dtype=torch.int32)
    ours, theirs = (x(5, 6).requires_grad_() for _ in range(2))
    y = fake_quantize(ours, scale, zero, axis, -100, 100)
    if axis is None:
        expected = torch.fake_quantize_per_tensor_affine(theirs, scale, zero, -100, 100)
    else:
        expected = torch.fake_quantize_per_channel_affine(theirs, scale, zero, axis, -100, 100)
    torch.testing.assert_close(y, expected)
    weights = x(5, 6).cos()
    for z in (y, expected):
        (z * weights).sum().backward()
    assert 0 < (ours.grad == 0).sum() < 30
    torch.testing.assert_close(ours.grad, theirs.grad)
