"""Several batches of one network, of other lengths or of other shapes, against plain autograd."""

import copy

import pytest
import torch
from torch import nn

from gnlib import condition_number
from gnlib.jacobian.gram import blocks_of, gauss_newton_of, gram_of
from gnlib.jacobian.passes import GramOperator
from gnlib.jacobian.plan import cost_of
from gnlib.jacobian.trial import networks_of
from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import Lambda, Recurrent, Tokens, assert_gram, cnn, draw, gram_matrix, mlp, vector
from tests.gnlib.jacobian.kinds import last_first, least
from tests.gnlib.jacobian.test_layered_gram import assert_parts


def normal(*shapes):
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def tokens(*shapes):
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(0, 11, shape, generator=generator) for shape in shapes]


def step_by_step(self, x):
    """A layer that is called as often as a sentence is long."""
    h = self.linear.weight.new_zeros(len(x), 3)
    for step in x.unbind(1):
        h = (self.linear(step) + h).tanh()
    return h


def centred(self, x):
    y = self.linear(x - x.mean(0)).tanh()
    return y.mean(1) if x.ndim > 2 else y


def normalised():
    return nn.Sequential(nn.Linear(5, 30), nn.BatchNorm1d(30), nn.Tanh(), nn.Linear(30, 3))


CASES = {
    "sentences": (Tokens, tokens((3, 4), (2, 7), (4, 1)), 3),
    "images": (lambda: cnn(nn.GroupNorm(2, 4)), normal((3, 3, 6, 6), (1, 3, 9, 7)), 2),
    "as many calls as words": (lambda: Lambda(step_by_step), normal((3, 2, 5), (2, 4, 5)), 2),
    "one by one": (lambda: Recurrent(nn.LSTM), normal((2, 3, 4), (3, 5, 4)), 2),
    "coupled": (normalised, normal((6, 5), (6, 5), (3, 5)), 3),
    "coupled sentences": (lambda: Lambda(centred), normal((4, 2, 5), (3, 6, 5)), 2),
    "coupled, but for the first": (lambda: Lambda(centred), normal((1, 5), (4, 5)), 2),
    "independent": (mlp, normal((4, 5), (3, 5)), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_batches_have_the_jacobian_of_all_their_samples(name):
    make, batches, count = CASES[name]
    mode = "train" if "coupled" in name else "eval"
    net = draw(make, vector(1), 1)[0].double().train(mode == "train")
    n, jacobian = sum(map(len, batches)), torch.cat([rows_of(copy.deepcopy(net), x) for x in batches])
    rows = last_first(net, jacobian)
    networks = networks_of(net, batches, mode=mode)
    assert len(networks) == count
    assert all(network.parameters is networks[0].parameters for network in networks)
    for memory in (1.0, least(gram_of, *networks)):
        assert_gram(gram_of(networks, memory), rows, n)
        assert_parts(net, jacobian, networks, memory)
    for memory in (1.0, least(blocks_of, *networks)):
        blocks = torch.cat([*blocks_of(networks, memory)], 1)
        torch.testing.assert_close(blocks, rows, rtol=0, atol=1e-11 * rows.abs().max().item())
    torch.testing.assert_close(gauss_newton_of(networks, 1.0), jacobian.mT @ jacobian / n, rtol=0, atol=1e-11)
    v = torch.randn(len(rows), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    torch.testing.assert_close(GramOperator(networks, 1.0) @ v, rows @ (rows.mT @ v) / n, rtol=1e-9, atol=1e-11)
    cost = cost_of(networks, 1.0)
    assert cost.backward == len(rows) and cost.seconds > 0
    largest = torch.linalg.svdvals(rows)[0].item() ** 2 / n
    assert condition_number(net, batches, mode=mode).largest == pytest.approx(largest, rel=1e-9)


def test_batches_of_samples_that_do_not_depend_on_each_other_are_one():
    net, x = draw(mlp, vector(5), 7)
    assert torch.equal(gram_matrix(net, [x[:4], x[4:]]), gram_matrix(net, x))
    assert condition_number(net, [x[:4], x[4:]]) == condition_number(net, x)


@pytest.mark.bad_input
def test_each_batch_is_checked():
    net, (first, second) = draw(mlp, vector(5), 1)[0], normal((2, 5), (2, 4))
    with pytest.raises(ValueError, match="module fails on the first 2 samples of x"):
        networks_of(net, [first, second])
    with pytest.raises(TypeError, match="x is of type list; pass a torch tensor"):
        networks_of(net, [first, second.tolist()])
