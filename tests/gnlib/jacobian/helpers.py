"""What is made of a Jacobian beside plain automatic differentiation of the whole batch, in double precision.

Modules that look harmless and are not are refused with a sentence, or measured right: as the function that is meant,
written out where that is not what the module says.
"""

import copy
import pickle
import random
import re
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor

from gnlib import condition_number
from gnlib.jacobian.gram import blocks_of, gauss_newton_of, gram_of, layered_gram
from gnlib.jacobian.passes import GramOperator, jvp, vjp
from gnlib.jacobian.trial import networks_of
from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import gram_matrix, made

HELD = torch.Generator().manual_seed(3)
CUT = 150_000  # entries of a Jacobian that the least memory that is accepted cuts into pieces
SMALL = 2000  # parameters of networks whose products are compared too


def jacobian(net, x):
    """The whole batch at once, one backward pass a row, in double precision."""
    return rows_of(copy.deepcopy(net).double(), x)


def assert_near(found, expected, tolerance=1e-12):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * expected.abs().max().item())


def generators():
    """The states of all generators of random numbers that a network may find."""
    legacy = pickle.dumps(np.random.get_state())  # noqa: NPY002
    return torch.get_rng_state().tolist(), HELD.get_state().tolist(), random.getstate(), legacy


@contextmanager
def untouched(net):
    """Check that the values and the modes of a network, and random numbers, are what they were."""

    def values():
        held = net.state_dict().items()
        return {key: v for key, v in held if type(v) is Tensor and not v.is_meta}

    state, flags, before = copy.deepcopy(values()), [m.training for m in net.modules()], generators()
    yield
    assert generators() == before
    assert [m.training for m in net.modules()] == flags
    for key, value in values().items():
        assert value.dtype == state[key].dtype and torch.equal(value.nan_to_num(), state[key].nan_to_num())


def assert_right(net, x, meant=None, **options):
    rows = jacobian(net if meant is None else meant, x)
    with untouched(net):
        gram = gram_matrix(net, x, **options)
    assert_near(gram, rows @ rows.mT / len(x), 1e-11)


def assert_refused(net, x, message, error=ValueError, **options):
    with untouched(net), pytest.raises(error, match=message) as refused:
        gram_matrix(net, x, **options)
    return str(refused.value)


def least(function, networks):
    """The smallest memory that is accepted, as the error says."""
    with pytest.raises(ValueError, match=r"memory is 1e-09 GiB but \S+ are needed") as refused:
        function(networks, 1e-9)
    return float(re.search(r"but (\S+) are needed", str(refused.value))[1])


def assert_as_autograd(make, *batches, mode=None, memory=(), products=True):
    """Compare all that is made of a Jacobian, in enough memory and in the least, with autograd's of a twin."""
    net, twins, n = made(make).double(), [made(make).double() for _ in batches], sum(map(len, batches))
    jacobian = torch.cat([rows_of(twin, x) for twin, x in zip(twins, batches, strict=True)])
    sizes = [p.numel() for p in net.parameters() if p.requires_grad]
    rows = torch.cat(jacobian.split(sizes, 1)[::-1], 1)  # blocks are handed out last parameters first
    assert rows.any()
    networks = networks_of(net, [*batches], mode=mode)
    for room in (1.0, *memory, least(gram_of, networks)):
        assert_layered_gram(net, jacobian, networks, room)
    for room in (1.0, *memory, least(blocks_of, networks)):
        blocks = [*blocks_of(networks, room)]
        assert_near(torch.cat(blocks, 1), rows)
    assert len(blocks) > 1 or rows.numel() < CUT
    if rows.shape[1] < SMALL:
        assert_near(gauss_newton_of(networks, 1.0), jacobian.mT @ jacobian / n)
        found = condition_number(net, [*batches], mode=mode)
        assert found.largest == pytest.approx(torch.linalg.svdvals(rows)[0].item() ** 2 / n, rel=1e-9)
        if products:
            assert_products(jacobian, networks, n)
    return networks


def assert_layered_gram(net, jacobian, networks, memory):
    """Compare the Gram matrix, and the traces of its parts for a loss; a bias may be a part of that of its weight."""
    n, k = sum(len(network.x) for network in networks), networks[0].outputs
    root = torch.randn(n, k, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    gram, traces = layered_gram(networks, memory, root)
    assert gram.dtype == torch.float64 and torch.equal(gram, gram.mT)
    assert_near(gram, jacobian @ jacobian.mT / n)
    parameters = {name: p.numel() for name, p in net.named_parameters() if p.requires_grad}
    columns = dict(zip(parameters, jacobian.split([*parameters.values()], 1), strict=True))
    squares = {name: (root.mT @ block.view(n, k, -1)).square().sum().item() / n for name, block in columns.items()}
    for name, trace in traces.items():
        bias = f"{name.removesuffix('weight')}bias"
        both = [name, bias] if name.endswith("weight") and bias in columns.keys() - traces else [name]
        assert trace == pytest.approx(sum(squares.pop(one) for one in both), rel=1e-12)
    assert not squares


def assert_products(jacobian, networks, n):
    """Compare products with the Jacobian and its Gram matrix, samples together and one by one."""
    generator = torch.Generator().manual_seed(5)
    v, d = (torch.randn(size, generator=generator, dtype=torch.float64) for size in jacobian.shape)
    shapes = {name: p.shape for name, p in networks[0].parameters.items()}
    parts = d.split([shape.numel() for shape in shapes.values()])
    direction = {name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)}
    for memory in (1.0, 1e-5):
        pulled = vjp(networks, memory)(v.view(n, -1)).values()
        assert_near(torch.cat([g.flatten() for g in pulled]), jacobian.mT @ v / n)
        assert_near(jvp(networks, direction, memory).flatten(), jacobian @ d)
        assert_near(GramOperator(networks, memory) @ v, jacobian @ (jacobian.mT @ v) / n)
