"""A module on its data for a loss: its matrix, against plain autograd."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gnlib
from gnlib import GaussNewton
from gnlib.problem import Problem, with_root
from tests.gnlib.derivatives import rows_of
from tests.gnlib.diagnosis.networks import CASES, classes, drawn, half, plain_eigenvalues
from tests.gnlib.networks import perceptron

LOSSES = {
    "mse": ("mse", lambda y: lambda f: half(f, functional.one_hot(y, f.shape[1]))),
    "cross_entropy": ("cross_entropy", lambda y: lambda f: functional.cross_entropy(f, y)),
    "own": (nn.CrossEntropyLoss(label_smoothing=0.1), lambda y: lambda f: functional.cross_entropy(f, y)),  # as curved
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", CASES)
def test_eigenvalues_are_those_of_plain_autograd(name, loss):
    net, x = drawn(name)
    given, oracle = LOSSES[loss]
    y = classes(len(x), net(x).shape[1])
    expected = plain_eigenvalues(net, x, oracle(y))
    found = GaussNewton(net, x, y, loss=given).eigenvalues()
    size = min(len(found), len(expected))
    torch.testing.assert_close(found[:size], expected[:size], rtol=0, atol=1e-10 * expected[0].item())
    assert len(found) == len(y) * (net(x).shape[1] - (loss != "mse"))


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_both_ends_are_those_of_exact_singular_values(scale):
    """A network that is sure of some samples has a matrix with digits to lose, which the Jacobian keeps."""
    net, x = drawn("wide", 4)
    with torch.no_grad():
        net[4].weight *= scale
    problem = Problem(net, x, loss="cross_entropy")
    rooted = problem.rooted(rows_of(net, x)) / 2
    values = torch.linalg.svdvals(rooted).square()
    found = problem.condition
    assert found.resolved and found.rank == 12
    assert found.largest == pytest.approx(values[0].item(), rel=1e-10)
    assert found.smallest == pytest.approx(values[-1].item(), rel=max(1e-8, 2 * found.residual))


@pytest.mark.bad_input
def test_a_perfect_fit_has_no_matrix():
    net = nn.Linear(2, 2).double()
    with torch.no_grad():
        net.weight.copy_(torch.eye(2) * 1e4)
        net.bias.zero_()
    with pytest.raises(ValueError, match="probabilities of 0 and 1"):
        _ = Problem(net, torch.eye(2), torch.tensor([0, 1]), loss="cross_entropy").condition


@pytest.mark.slow
@pytest.mark.parametrize("loss", [pytest.param("mse", marks=pytest.mark.nightly), "cross_entropy"])
def test_layers_ask_for_no_more_memory_than_the_condition_number(loss):
    """Twelve layers of few parameters: one matrix for each would not fit."""
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (nn.Linear(6, 6), nn.Tanh())]
    net, x = nn.Sequential(*layers, nn.Linear(6, 3)).double(), torch.randn(200, 6, dtype=torch.float64)
    g = gnlib.GaussNewton(net, x, torch.arange(200) % 3, loss, memory=0.034)  # of which the matrix takes .0027
    assert 13 * 8 * 600**2 / 2**30 > 0.034
    assert g.condition_number().rank > 0
    assert len(g.by_layer().layers) == 13 and g.report(budget=1e-3).layers == g.by_layer()


def singular(**options):
    """Two equal samples, so that both ends come from singular values."""
    net, x = perceptron(6, 2, width=9).double(), torch.randn(20, 6, dtype=torch.float64)
    x[1] = x[0]
    return Problem(net, x, **options)


def test_what_is_held_counts_against_the_memory():
    problem = singular(memory=0.01)
    assert problem.held == 0
    matrix = problem.gram.nbytes / 2**30
    assert problem.held == pytest.approx(matrix) and problem.free == pytest.approx(0.01 - matrix)
    with pytest.raises(ValueError, match=r"memory is 1e-05 GiB but 0\.\d+ are needed"):
        _ = singular(memory=1e-5).condition


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_a_matrix_with_no_room_for_a_copy_is_factored_where_it_lies(monkeypatch, loss):
    """And a singular one leaves both ends to singular values."""
    net, x = drawn("wide", 8)
    problem, one, other = Problem(net, x, torch.arange(8) % 3, loss), singular(), singular()
    before, expected = problem.loss_gram.clone(), torch.linalg.eigvalsh(problem.loss_gram)
    assert one.condition and other.gram.any()
    monkeypatch.setattr(Problem, "free", 0.0)
    found = problem.condition
    assert found.method.startswith("Gram matrix: Cholesky factor")
    assert found.value == pytest.approx((expected[-1] / expected[0]).item(), rel=1e-8)
    assert torch.equal(problem.loss_gram, before) and other.condition == one.condition


@pytest.mark.bad_input
def test_the_matrix_of_a_loss_is_refused_where_it_does_not_fit_beside_the_gram_matrix():
    """Of 1,500 rows, 1,350 of the loss: 17, 14 and 34 MiB with what is held while it is made."""
    net, x = nn.Linear(6, 10).double(), torch.randn(150, 6, dtype=torch.float64)
    y = torch.arange(150) % 10
    assert len(Problem(net, x, y, "mse", memory=0.06).loss_gram) == 1500
    problem = Problem(net, x, y, "cross_entropy", memory=0.06)
    with pytest.raises(ValueError, match=r"memory is 0.06 GiB but 0.065 are needed for the Gram matrix and that of t"):
        _ = problem.condition
    assert "layered" not in vars(problem)
    assert len(Problem(net, x, y, "cross_entropy", memory=0.066).loss_gram) == 1350


@pytest.mark.parametrize("n, k, r", [(7, 3, 2), (130, 10, 9)])
def test_the_root_of_a_loss_is_applied_sample_by_sample(n, k, r):
    torch.manual_seed(0)
    root, gram = torch.randn(n, k, r, dtype=torch.float64), torch.randn(n * k, n * k, dtype=torch.float64)
    gram += gram.mT.clone()
    whole, found = torch.block_diag(*root), with_root(root, gram)
    torch.testing.assert_close(found, whole.mT @ gram @ whole, rtol=1e-12, atol=1e-10)
    assert torch.equal(found, found.mT)
