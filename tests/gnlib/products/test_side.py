"""Products of any loss and from both sides, beside the whole matrix by automatic differentiation."""

import socket
import subprocess
import sys
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import gnlib
from gnlib.diagnosis.overview import Overview
from gnlib.products import choice
from gnlib.products.curvature import curvature_of
from gnlib.products.side import ByOutputs, ByParameters, side_of
from tests.gnlib.derivatives import rows_of
from tests.gnlib.diagnosis.networks import half
from tests.gnlib.jacobian.cases import custom
from tests.gnlib.networks import Whole
from tests.gnlib.networks import perceptron as perceptron_of

F64 = torch.float64


class Tokens(nn.Module):
    """A language model of one layer, whose embedding is its head."""

    def __init__(self, vocabulary=5, width=4):
        super().__init__()
        self.embed, self.mix = nn.Embedding(vocabulary, width), nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.embed(ids).cumsum(1))))


FLOORED = custom(torch.round, lambda x, gradient: gradient)


perceptron = partial(perceptron_of, 6, 3, width=5)


def straight_through():
    """Rounded in a forward pass, and differentiated as if it were not."""
    return Whole(lambda self, x: self.b(FLOORED(3 * self.a(x)) / 3), a=nn.Linear(6, 4), b=nn.Linear(4, 3))


def hidden():
    """A scale that backward passes take for a constant, and forward mode does not."""

    def forward(self, x):
        h = torch.tanh(self.first(x))
        with torch.no_grad():
            size = h.norm(dim=1, keepdim=True)
        return self.last(h / size)

    return Whole(forward, first=nn.Linear(6, 4), last=nn.Linear(4, 3))


def attention():
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (1, 6)), layer, nn.Flatten(), nn.Linear(6, 3)).eval()


def checkpointed(reentrant=False):
    """A layer that a backward pass runs again."""

    def forward(self, x):
        return self.c(checkpoint(lambda h: self.b(h).tanh(), self.a(x), use_reentrant=reentrant))

    return Whole(forward, a=nn.Linear(6, 4), b=nn.Linear(4, 4), c=nn.Linear(4, 3))


def seeded(kind):
    torch.manual_seed(0)
    return kind().double()


def dense(module, x, y, loss):
    """Return the Gauss-Newton matrix of a loss of the outputs on all samples, column by column of second derivatives.

    The Jacobian is one of backward passes.
    """
    jacobian, outputs = rows_of(module, x), module(x).detach()
    hessian = torch.autograd.functional.hessian(lambda f: loss(f.view(outputs.shape), y), outputs.flatten())
    return jacobian.mT @ hessian @ jacobian


def both(module, x, y, loss, **options):
    """Return the matrix from the side of the parameters, and all that is known of the side."""
    side = side_of(module, x, y, loss, **{"dtype": F64, **options})
    return ByParameters(side.passes, side.curvature, side.weight, side.passes.size).dense(), side


def close(found, expected, rtol=1e-9, atol=1e-11):
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)


IDS = torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1], [1, 1, 0, 4]])
NEXT = torch.tensor([[1, 2, 3, -100], [3, 2, 1, -100], [1, 0, 4, 2]])
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 3.0, 0.1]).double()


def of_tokens(f, y, **settings):
    return nn.functional.cross_entropy(f.flatten(0, 1), y.flatten(), **settings)


@pytest.mark.parametrize(
    "settings", [{}, {"label_smoothing": 0.2}, {"weight": WEIGHT}, {"weight": WEIGHT, "label_smoothing": 0.3}]
)
def test_cross_entropy_over_tokens_is_that_of_torch(settings):
    module = seeded(Tokens)
    expected = dense(module, IDS, NEXT, lambda f, y: of_tokens(f, y, **settings))
    found, side = both(module, IDS, NEXT, nn.CrossEntropyLoss(**settings) if settings else "cross_entropy")
    close(found, expected)
    assert side.loss == pytest.approx(float(of_tokens(module(IDS), NEXT, **settings).detach()), rel=1e-12)


def test_classes_may_stand_on_the_second_axis_as_torch_has_them():
    module = nn.Sequential(seeded(lambda: nn.Conv1d(2, 3, 1)))
    x, y = torch.randn(4, 2, 5, generator=torch.Generator().manual_seed(0)).double(), torch.arange(20).view(4, 5) % 3
    close(both(module, x, y, nn.CrossEntropyLoss())[0], dense(module, x, y, nn.functional.cross_entropy))


X = torch.randn(7, 6, generator=torch.Generator().manual_seed(1)).double()
LABELS, Y = torch.arange(7) % 3, torch.randn(7, 3, generator=torch.Generator().manual_seed(2)).double()
KINDS = {
    "mse": ("mse", Y, half),
    "labels": ("cross_entropy", LABELS.to(torch.uint8), lambda f, y: nn.functional.cross_entropy(f, y.long())),
    "probabilities": ("cross_entropy", Y.softmax(1), nn.functional.cross_entropy),
    "huber": (nn.HuberLoss(delta=0.5), Y, nn.HuberLoss(delta=0.5)),
}


@pytest.mark.parametrize(
    "network, kind",
    [*product([perceptron, straight_through, hidden], KINDS), (attention, "mse"), (checkpointed, "mse")],
)
def test_both_sides_are_the_matrix(network, kind):
    loss, y, function = KINDS[kind]
    module = seeded(network)
    expected = dense(module, X, y, function)
    found, side = both(module, X, y, loss)
    close(found, expected, 1e-8, 1e-10)
    assert side.passes.together == (network in (perceptron, attention))
    assert side.passes.forward_mode == (network in (perceptron, attention, checkpointed))
    assert (side.operator @ torch.ones(side.operator.shape[0], dtype=torch.float32)).dtype == torch.float32
    assert torch.backends.mha.get_fastpath_enabled()
    if side.name == "outputs":
        assert isinstance(side.operator, ByOutputs)
        values, others = (torch.linalg.eigvalsh(m).flip(0) for m in (side.operator.dense(), expected))
        close(values[:14], others[:14], 1e-8, 1e-10)


@pytest.mark.parametrize(
    "x, y, options, lengths",
    [
        ([X[:2], X[2:3], X[3:]], [Y[:2], Y[2:3], Y[3:]], {}, [2, 1, 4]),
        ([X[:6], X[6:]], Y, {}, [6, 1]),
        (DataLoader(TensorDataset(X, Y), 3), None, {}, [3, 3, 1]),
        (X, Y, dict(memory=3e-6), [4, 3]),
    ],
)
def test_batches_and_what_does_not_fit_go_in_parts_that_weigh_by_their_samples(x, y, options, lengths):
    module = seeded(perceptron)
    found, side = both(module, x, y, "mse", **options)
    assert [part.samples for part in side.passes.parts] == lengths
    close(found, both(module, X, Y, "mse")[0], 1e-12, 1e-14)


def test_data_frozen_weights_and_settings_are_left_as_they_are_and_frozen_ones_are_no_part_of_it():
    """Of a module that changes its own input."""
    module, x = seeded(lambda: Whole(lambda self, x: self.net(x.mul_(2)), net=perceptron())), X.clone()
    module.net[0].weight.requires_grad_(False)
    with torch.autocast("cpu", torch.bfloat16):
        found, side = both(torch.compile(module, backend="eager"), x, Y, "mse")
    assert torch.equal(x, X) and side.error < 1e-15 and side.passes.size == 5 + 18
    close(found, dense(module, X.clone(), Y, half))
    assert torch.get_default_dtype() == torch.float32


def test_batch_normalisation_in_training_takes_the_whole_batch_and_leaves_the_module():
    module = seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)))
    before = {name: t.clone() for name, t in module.state_dict().items()}
    found, _ = both(module, X, Y, "mse", mode="train")
    assert all(torch.equal(t, before[name]) for name, t in module.state_dict().items())
    close(found, dense(module.train(), X, Y, half), 1e-8, 1e-10)
    assert (both(module, X, Y, "mse", mode="eval")[0] - found).norm() > 0.1 * found.norm()
    assert module.training
    with pytest.raises(ValueError, match=r"1 \(BatchNorm1d\) is in training mode; say which function is meant"):
        both(module, X, Y, "mse")
    with pytest.raises(ValueError, match=r"Batch normalisation in training .* whole batch, and the data are 2"):
        both(module, [X[:4], X[4:]], Y, "mse", mode="train")


@pytest.mark.parametrize("kind", ["mse", "labels"])
def test_the_residual_and_the_gradient_are_one(kind):
    """R u is the gradient by the outputs, and u the shortest; on the other side stands J^T R u."""
    loss, y, function = KINDS[kind]
    module, curvature = seeded(perceptron), curvature_of(loss)
    f = module(X).detach()
    u, gradient = curvature.residual(f, y), curvature.gradient(f, y)
    close(curvature.root(f, y, u), gradient)
    thin = torch.linalg.pinv(gnlib.GaussNewton(module, X, y, loss)._problem.root) @ gradient[..., None]
    assert float(u.square().sum()) == pytest.approx(float(thin.square().sum()), rel=1e-9)
    small = seeded(lambda: nn.Linear(6, 3))  # 21 parameters, 21 outputs
    _, side = both(module, X, y, loss)
    _, other = both(small, X.repeat(2, 1), y.repeat(2, *[1] * (y.ndim - 1)), loss)
    assert (side.name, other.name) == ("outputs", "parameters")
    start, square = other.residual
    close(start, torch.cat([p.flatten() for p in torch.autograd.grad(function(small(X), y), [*small.parameters()])]))
    assert square == pytest.approx(2 * float(curvature.residual(small(X).detach(), y).square().sum()), rel=1e-9)


@pytest.mark.parametrize(("copies", "name"), [(1, "outputs"), (40, "parameters")])
def test_the_error_of_single_precision_is_measured(copies, name):
    module, x, y = seeded(perceptron), X.repeat(copies, 1), Y.repeat(copies, 1)
    exact, side = both(module, x, y, "mse")
    rounded, single = both(module, x, y, "mse", dtype=torch.float32)
    _, half = both(module, x, y, "mse", dtype=torch.bfloat16)
    assert single.name == name
    off = float((rounded - exact).norm() / exact.norm())
    assert side.error < 1e-15 and 1e-9 < off < 1e-6 and off / 30 < single.error < 30 * off
    assert 1e-4 < half.error < 0.1
    assert next(module.parameters()).dtype == F64


@pytest.mark.parametrize("samples, side", [(7, "outputs"), (30, "parameters")])
def test_shares_of_layers_are_those_of_the_matrix(samples, side):
    module, x = seeded(perceptron), torch.randn(samples, 6, generator=torch.Generator().manual_seed(3)).double()
    by = gnlib.GaussNewton(module, x, torch.zeros(samples, 3).double(), dtype=F64)
    assert by._side.name == side
    shares = by._side.by_layer(by.eigenpairs(1, tolerance=1e-10).vectors[:, 0])
    expected = {share.layer: share.largest for share in gnlib.GaussNewton(module, x).by_layer().layers}
    assert shares == pytest.approx(expected, abs=1e-6)


# Matrix or products, in one process or in several: the library chooses, and says the same either way


@pytest.fixture
def problem():
    return perceptron_of(6, 3, width=20).double(), torch.randn(30, 6).double(), torch.randn(30, 3).double()


def test_both_ways_give_the_same_answers(problem, monkeypatch):
    matrix = gnlib.GaussNewton(*problem)
    assert matrix._side is None
    monkeypatch.setattr(choice, "MINUTE", 0.0)
    monkeypatch.setattr(choice, "ADVANTAGE", 0.0)
    products = gnlib.GaussNewton(*problem)
    assert products._side is not None
    one, other = (g.waiting(0.5) for g in (matrix, products))
    assert other.lower <= one.lower * (1 + 1e-9) and one.upper <= other.upper
    assert other.effective_condition_number == pytest.approx(one.effective_condition_number, rel=0.02)
    bounds = products.loss_bounds(steps=50, within=1 + 1e-9)
    exact = matrix.forecast(rate=bounds.rate, steps=50).losses
    torch.testing.assert_close(bounds.lower, exact, rtol=1e-6, atol=0)
    torch.testing.assert_close(bounds.upper, exact, rtol=1e-6, atol=0)
    assert len(products.eigenvalues()) == 90  # a matrix is made for whoever asks for it


def test_outputs_of_several_axes_go_by_products_and_a_matrix_says_what_it_needs():
    torch.manual_seed(0)
    tokens = torch.randint(7, (3, 5))
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))
    g, asked = (gnlib.GaussNewton(net, tokens, tokens.roll(1, 1), "cross_entropy", dtype=d) for d in (None, F64))
    assert "float64, by products" in repr(g) and isinstance(g.report(budget=1e-3), Overview)
    assert g.largest_eigenvalue().value == asked.largest_eigenvalue().value
    with pytest.raises(ValueError, match=r"of shape \(2, 5, 7\); .* Pass output="):
        g.gram()


def test_a_module_that_changes_is_refused_either_way(problem):
    net, *data = problem
    for options in ({}, {"memory": 6e-5}, {"dtype": torch.float32}):
        g = gnlib.GaussNewton(net, *data, **options)
        g.waiting()
        with torch.no_grad():
            net[0].weight.mul_(1.5)
        with pytest.raises(ValueError, match="has changed since"):
            g.waiting()


# Samples that are spread over processes


PROGRAM = """
import sys
from torch import distributed
from tests.gnlib.products.test_side import numbers, parts
rank, port = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
print([float(x).hex() for x in numbers(*parts()[rank])])
"""


def parts():
    """The samples of each process, of unequal number."""
    torch.manual_seed(0)
    x, y = torch.randn(12, 6).double(), torch.randn(12, 3).double()
    return (x[:7], y[:7]), (x[7:], y[7:])


def numbers(x, y):
    module = perceptron_of(6, 3, width=2, seed=1).double()  # 23 parameters for 36 outputs
    g = gnlib.GaussNewton(module, x, y, dtype=F64)
    bounds = g.loss_bounds(steps=100, products=15)
    adam = gnlib.GaussNewton(module, x, y, optimizer="adam", dtype=F64).forecast(rate=0.01, steps=9)
    found = [*g.eigenpairs(2, tolerance=1e-10).values, g._side.loss, g.trace(products=9).value]
    return [*found, *bounds.upper[::20], *adam.losses, *adam.followed]


@pytest.mark.slow
def test_two_processes_find_what_one_does():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = dict(cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True)
    started = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), port], **options) for rank in range(2)]
    found = [[float.fromhex(x) for x in eval(process.communicate(timeout=100)[0])] for process in started]
    expected = numbers(*map(torch.cat, zip(*parts(), strict=True)))
    assert found[0] == found[1] == pytest.approx([float(e) for e in expected], rel=1e-12)
