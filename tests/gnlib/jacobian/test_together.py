"""Gradients of several outputs are taken together where torch takes them rightly, and there alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib.jacobian.structure import BATCHABLE, structure_of
from gnlib.jacobian.trial import network_of
from tests.gnlib.jacobian.kinds import ROWS, Frame, M, assert_as_autograd, made
from tests.gnlib.jacobian.kinds_layers import LAYERS
from tests.gnlib.jacobian.kinds_passes import PASSES
from tests.gnlib.jacobian.kinds_sharing import SHARING

RIGHT = {
    "elu": lambda self, h: functional.elu(h),
    "leaky relu": lambda self, h: functional.leaky_relu(h),
    "softplus": lambda self, h: functional.softplus(h),
    "average": lambda self, h: functional.avg_pool2d(h.view(-1, 2, 2, M // 4), 2).flatten(1),
    "average, adaptive": lambda self, h: functional.adaptive_avg_pool2d(h.view(-1, 2, 2, M // 4), 2).flatten(1),
    "difference, quotient": lambda self, h: (h - h.tanh()) / (2 + h.sigmoid()),
    "padded": lambda self, h: functional.pad(h, (1, -1)),
    "identity": lambda self, h: torch.ops.aten.alias(h),
    "reversed": lambda self, h: h.flip(1) * h,
    "stacked": lambda self, h: torch.stack(h.unbind(1)[::-1], 1) * h,
    "chunks": lambda self, h: torch.cat(h.chunk(3, 1)[::-1], 1) * h,
    "chunks, as recurrent layers take them": lambda self, h: torch.cat(h.unsafe_chunk(3, 1)[::-1], 1) * h,
}
WRONG = {
    "distances": lambda self, h: torch.cdist(h[:, None], self.fixed[None])[:, 0],
    "parametric relu": lambda self, h: functional.prelu(h, self.fixed[0]),
    "solved": lambda self, h: torch.linalg.solve(
        self.fixed @ self.fixed.T + h[:, :, None] * h[:, None], h[..., None]
    ).flatten(1),
}


def network(between):
    net = Frame(between)
    net.register_buffer("fixed", torch.randn(M, M))
    with torch.no_grad():
        net.head = nn.Linear(between(net, torch.randn(1, M)).shape[1], net.head.out_features)
    return net


@pytest.mark.parametrize("name", [*RIGHT, *WRONG])
def test_functions_without_parameters(name):
    def make():
        return network({**RIGHT, **WRONG}[name])

    assert_as_autograd(make, ROWS(7))
    assert structure_of(network_of(made(make), ROWS(7))).batched == (name in RIGHT)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_all_that_is_taken_together_is_compared_with_autograd():
    """The kinds of layers and of passes are, elsewhere."""
    networks = [
        network_of(made(make).double(), data(2))
        for make, data in [*LAYERS.values(), *PASSES.values(), *SHARING.values()]
    ]
    networks += [
        network_of(made(lambda between=between: network(between)).double(), ROWS(2)) for between in RIGHT.values()
    ]
    found = [n.backward for n in networks if structure_of(n).batched]
    assert frozenset().union(*found) == BATCHABLE
