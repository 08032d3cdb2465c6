"""Products with the Gram matrix of a network are those with the matrix itself."""

import pytest
import torch

import gnlib
from gnlib import GaussNewton
from gnlib.jacobian.passes import GramOperator
from gnlib.jacobian.trial import network_of
from tests.gnlib.jacobian.cases import COUPLED, INDEPENDENT, draw, gram_matrix, mlp, vector

KINDS = {name: INDEPENDENT[name] for name in ("mlp", "cnn", "group norm", "transformer", "tied", "pruned", "frozen")}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("memory", [0.0004, 1.0])
def test_products(name, memory):
    net, x = draw(*KINDS[name], 6)
    gram = gram_matrix(net, x)
    operator = GaussNewton(net, x, memory=memory).operator()
    v = torch.randn(len(gram), 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(operator @ v, gram @ v, rtol=0, atol=1e-12 * gram.abs().max().item())
    torch.testing.assert_close(operator.matmul(v[:, 0]), gram @ v[:, 0], rtol=0, atol=1e-12 * gram.abs().max().item())
    torch.testing.assert_close(torch.as_tensor(operator.to_scipy() @ v.numpy()), operator @ v, rtol=0, atol=0)


def test_products_of_coupled_samples():
    net, x = draw(*COUPLED["batch norm 2d"], 6)
    gram = gram_matrix(net, x, mode="train")
    operator = GaussNewton(net, x, mode="train").operator()
    assert operator.shape == gram.shape and (operator.dtype, operator.device) == (gram.dtype, gram.device)
    torch.testing.assert_close(operator.dense(), gram, rtol=0, atol=1e-12 * gram.abs().max().item())


def test_samples_that_do_not_fit_are_taken_in_parts():
    network = network_of(*draw(mlp, vector(5), 50))
    room = (network.copied + 2 * network.bytes_per_sample * 7.5) / 2**30
    calls = []
    operator = GramOperator([network], room)
    network.module.register_forward_pre_hook(lambda _, args: calls.append(len(args[0])))
    operator @ torch.ones(150)
    assert calls == [7, 7, 7, 7, 7, 7, 7, 1] * 2


@pytest.mark.parametrize("tolerance", [1e-4, 1e-9])
def test_the_largest_eigenvalue_is_within_its_error(tolerance):
    net, x = draw(*INDEPENDENT["cnn"], 20)
    expected = torch.linalg.eigvalsh(gram_matrix(net, x))[-1].item()
    found = gnlib.largest_eigenvalue(GaussNewton(net, x).operator(), tolerance=tolerance)
    assert found.error <= tolerance and abs(found.value / expected - 1) <= found.error + 1e-14


@pytest.mark.bad_input
def test_the_smallest_eigenvalue_cannot_be_had_from_products():
    operator = GaussNewton(*draw(mlp, vector(5), 4)).operator()
    with pytest.raises(TypeError, match=r"known by its products .* its largest eigenvalue is gnlib.largest_eigenvalue"):
        gnlib.condition_number(operator)


@pytest.mark.bad_input
def test_an_iteration_that_is_cut_short_says_so():
    operator = GaussNewton(*draw(mlp, vector(5), 9)).operator()
    with pytest.raises(gnlib.NotConvergedError):
        gnlib.largest_eigenvalue(operator, max_steps=1)
