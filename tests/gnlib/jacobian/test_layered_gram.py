"""Traces of the parts of a Gram matrix, against plain autograd."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from gnlib.jacobian.gram import gram_of, layered_gram
from gnlib.jacobian.trial import networks_of
from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import INDEPENDENT, draw, mlp, tokens, vector, wide
from tests.gnlib.jacobian.kinds import least

N = 6


def dying(*layers):
    """Layers of which the first has a unit that no output reacts to."""
    with torch.no_grad():
        layers[0].bias[1] = -100.0
    return nn.Sequential(*layers)


def head(features):
    return nn.ReLU(), nn.Flatten(), nn.Linear(features, 3)


def pruned():
    net = nn.Sequential(nn.Linear(30, 50), nn.Tanh(), nn.Linear(50, 3))
    prune.ln_structured(net[0], "weight", 0.5, n=2, dim=0)
    return net


SEVERAL = "tied", "transformer", "transformer, tied", "frozen", "pruned", "lstm", "group norm", "unused layer"
CASES = {
    "linear": (lambda: dying(nn.Linear(60, 90), nn.ReLU(), nn.Linear(90, 4)), vector(60)),
    "without bias": (wide, vector(60)),
    "many positions": (lambda: dying(nn.Conv2d(3, 4, 3), *head(64)), vector(3, 6, 6)),
    "few positions": (lambda: dying(nn.Conv2d(3, 64, 5), *head(256)), vector(3, 6, 6)),
    "groups": (lambda: dying(nn.Conv2d(4, 64, 5, groups=2), *head(256)), vector(4, 6, 6)),
    "many tokens": (lambda: nn.Sequential(nn.Embedding(3000, 8, padding_idx=3), *head(32)), tokens),
    "wide tokens": (lambda: nn.Sequential(nn.Embedding(11, 400), *head(1600)), tokens),
    "layer norm, two axes": (lambda: nn.Sequential(nn.LayerNorm((6, 6)), *head(108)), vector(3, 6, 6)),
    "pruned units": (pruned, vector(30)),
    **{name: INDEPENDENT[name] for name in SEVERAL},
}


def assert_parts(net, jacobian, networks, memory):
    """Compare with a Jacobian whose columns are in the order of the parameters."""
    n, k = sum(len(network.x) for network in networks), networks[0].outputs
    root = torch.randn(n, k, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    gram, traces = layered_gram(networks, memory, root)
    assert torch.equal(gram, gram_of(networks, memory))
    parameters = {name: p for name, p in net.named_parameters() if p.requires_grad}
    columns = dict(zip(parameters, jacobian.split([p.numel() for p in parameters.values()], 1), strict=True))
    squares = {name: (root.mT @ block.view(n, k, -1)).square().sum().item() / n for name, block in columns.items()}
    weights = [name for name in parameters if name in traces]
    for name in weights:
        both = [name]
        if name.endswith("weight") and (bias := name.removesuffix("weight") + "bias") in columns.keys() - traces:
            both.append(bias)
        assert traces[name] == pytest.approx(sum(squares.pop(one) for one in both), rel=1e-12)
    assert not squares


@pytest.mark.parametrize("name", CASES)
def test_parts_are_those_of_the_jacobian(name):
    net, x = draw(*CASES[name], N)
    net.double()
    networks, jacobian = networks_of(net, x), rows_of(net, x)
    for memory in (1.0, least(gram_of, networks[0])):
        assert_parts(net, jacobian, networks, memory)


@pytest.mark.parametrize("sizes", [[N], [N, N, 3]], ids=["one batch", "three"])
@pytest.mark.parametrize("width", [7, 300])
def test_parts_where_samples_depend_on_each_other(width, sizes):
    make = lambda: nn.Sequential(nn.Linear(5, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))  # noqa: E731
    net, x = draw(make, lambda n: torch.randn(n, 5, dtype=torch.float64), sum(sizes))
    batches = [*x.split(sizes)]
    jacobian = torch.cat([rows_of(copy.deepcopy(net).double(), batch) for batch in batches])
    assert_parts(net, jacobian, networks_of(net, batches, mode="train"), 1.0)


def test_a_layer_whose_inputs_are_all_zero_has_no_part():
    net = draw(mlp, vector(5), 1)[0]
    net[0].bias = None
    x = torch.zeros(N, 5)
    networks = networks_of(net, x)
    _, traces = layered_gram(networks, 1.0, torch.eye(3, dtype=torch.float64).expand(N, 3, 3))
    assert traces["0.weight"] == 0
