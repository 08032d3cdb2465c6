"""Data, losses and operators that have no right answer, or one that is easily missed: what products say of them."""

import os
import re
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import gnlib
from gnlib.eigen.density import spectral_density
from gnlib.eigen.top import largest_eigenpairs
from gnlib.operators import SymmetricOperator
from tests.gnlib.networks import Whole
from tests.gnlib.products.test_side import LABELS, X, Y, dense, perceptron, seeded

pytestmark = pytest.mark.bad_input
F64 = torch.float64


def ask(x, y=None, loss="mse", module=None, **options):
    return gnlib.GaussNewton(module or seeded(perceptron), x, y, loss, dtype=F64, **options)


def top(*given, **options):
    return float(ask(*given, **options).eigenpairs(tolerance=1e-10).values[0])


class Items(Dataset):
    """Samples that come by a function of their number."""

    def __init__(self, item):
        self.item = item

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return self.item(i)


class Once(torch.utils.data.IterableDataset):
    """Samples of a generator, which is read once."""

    def __init__(self):
        self.items = zip(X, Y, strict=True)

    def __iter__(self):
        return self.items


def noisy(i):
    return X[i] + torch.randn(6), Y[i]


def dies(i):
    if i == 5:
        os._exit(1)
    return X[i], Y[i]


DATA = TensorDataset(X, Y)


@pytest.mark.parametrize(
    "x, y, message",
    [
        (lambda: DataLoader(DATA, 4, shuffle=True), None, "another one when it is read again"),
        (lambda: DataLoader(Items(noisy), 4), None, "set shuffle=False and transforms without chance"),
        (lambda: DataLoader(Once(), 4), None, "first batch of the loader is another one"),
        (lambda: iter([X, X]), Y, "x can be read only once, as a generator; pass a list"),
        (lambda: [X], iter([Y]), "y can be read only once"),
        (lambda: DataLoader(DATA, 8, drop_last=True), None, "The loader has no batch: its dataset is empty"),
        (lambda: DataLoader(Items(lambda i: 1 / (4 - i)), 2), None, r"loader fails at batch 2: .*division by zero"),
        (lambda: DataLoader(DATA, 4, collate_fn=lambda s: [X, Y][: len(s) - 2]), None, "Batch 1 of the loader"),
        (lambda: [X[:4], X[4:]], [Y[:4], None], "y of batch 1 is missing; pass the targets of each"),
        (lambda: X.where(X != X[4, 2], torch.nan), Y, "part 0 of 1 .* sample 4, whose input is not finite"),
        (lambda: [X[:4], X[4:].where(X[4:] != X[5, 0], torch.nan)], Y, "part 1 of 2 .* sample 5, whose input"),
        (lambda: X, Y.where(Y != Y[5, 0], torch.inf), "y has NaN or infinite entries, first for sample 5"),
        (lambda: X.long(), Y, r"fails on the first 2 samples, in torch.float64: .*x is of torch.int64, and"),
        (lambda: X[:, :5], Y, r"module fails on the first 2 samples.*Check the shape of x"),
        (lambda: X, Y.to("meta"), "x, y and the module are on cpu and meta; move them to one device"),
    ],
)  # fmt: skip
def test_data_of_which_there_is_no_matrix_are_refused(x, y, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        ask(x(), y)


def test_the_worker_of_a_loader_that_dies_is_an_error():
    """In a process of its own: torch raises in a handler of signals, between any two steps of whatever runs.

    Where the worker had sent a batch and is gone before it is read, the loader says that the connection is reset.
    """
    code = f"from {__name__} import *; ask(DataLoader(Items(dies), 2, num_workers=1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    said = r"Refused.* The loader fails at batch [12]: |RuntimeError: DataLoader worker .* exited unexpectedly"
    assert done.returncode and re.search(said, done.stderr), done.stderr


def test_a_loader_of_unequal_batches_leaves_the_random_numbers_and_is_the_whole():
    before = torch.random.get_rng_state()
    loader = DataLoader(Items(lambda i: (X[i] + 0 * torch.randn(6), Y[i])), 3)  # it draws, and always has the same
    assert top(loader) == pytest.approx(top(X, Y), rel=1e-12)
    assert torch.equal(before, torch.random.get_rng_state())


def test_sentences_of_unequal_length_are_batches():
    """The targets of one batch have other axes than those of the next; the matrix is the sum over all tokens."""
    module = seeded(lambda: nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5)))
    ids = torch.arange(6).view(2, 3) % 5, torch.arange(5)[None]
    by = ask([*ids], [*ids], "cross_entropy", module)
    one = torch.cat([i.flatten() for i in ids])[:, None]
    assert by._side.weight == 11
    assert float(by.eigenpairs(tolerance=1e-10).values[0]) == pytest.approx(
        top(one, one, "cross_entropy", module), rel=1e-9
    )


def test_classes_of_any_integer_type_and_their_range():
    loss, whole = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0])), top(X, LABELS, "cross_entropy")
    for kind in (torch.uint8, torch.int32):
        assert top(X, LABELS.to(kind), "cross_entropy") == pytest.approx(whole, rel=1e-12)
    with pytest.raises(ValueError, match="y has classes from 1 to 3; 0 to 2 were expected"):
        ask(X, LABELS + 1, loss)
    with pytest.raises(ValueError, match=r"y has the probability -0\.5; none below 0 was expected"):
        ask(X, torch.tensor([1.5, -0.5, 0.0]).repeat(7, 1), "cross_entropy")


def test_a_module_in_low_precision_has_the_matrix_of_its_weights():
    low = seeded(perceptron).bfloat16()
    assert top(X, Y, module=low) == pytest.approx(top(X, Y, module=seeded(perceptron).bfloat16().double()), rel=1e-12)
    assert low[0].weight.dtype == torch.bfloat16


def test_a_module_that_is_trained_in_between_is_asked_in_the_mode_that_it_had():
    module = seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3))).eval()
    g = ask(X, Y, module=module)
    module.train()
    values = [float(g.eigenpairs(tolerance=1e-10).values[0]) for _ in range(2)]
    assert module[1].training and values[0] == values[1] == top(X, Y, module=module, mode="eval")


class Cached(nn.Linear):
    """It keeps a tensor that is made of its weights from call to call, until its mode is set."""

    kept = None

    def train(self, mode=True):
        self.kept = None
        return super().train(mode)

    def forward(self, x):
        self.kept = self.weight * 2 if self.kept is None else self.kept
        return x @ self.kept.mT


def test_what_a_module_keeps_of_its_weights_between_calls_is_no_constant():
    module = seeded(lambda: Cached(6, 3, bias=False)).eval()
    kept = module(X) @ torch.eye(3).double()
    assert top(X.float(), Y, module=module.float()) == pytest.approx(
        top(2 * X, Y, module=nn.Linear(6, 3, bias=False)), rel=1e-6
    )
    torch.testing.assert_close(module(X.float()), kept.float())


def cauchy(f, y):
    """Convex where outputs are near their targets alone."""
    return (1 + (f - y).square()).log().sum(1).mean()


def test_a_loss_that_is_not_convex_at_any_sample_is_refused_and_one_that_is_there_is_not():
    module = seeded(perceptron)
    near = module(X).detach() + 0.1
    assert top(X, near, cauchy) > 0
    near[6] += 5  # beyond the samples that are tried first
    with pytest.raises(ValueError, match=r"loss cauchy has a negative second derivative .*, -0\..* J\^T H J is then"):
        ask(X, near, cauchy)


def test_a_loss_that_is_flat_at_the_first_samples_is_no_loss_without_curvature():
    module = seeded(perceptron)
    y = module(X).detach()
    y[:2] += 9
    assert top(X, y, nn.HuberLoss(delta=0.5)) > 0


class Given(SymmetricOperator):
    def __init__(self, matrix):
        super().__init__(len(matrix), F64, torch.device("cpu"))
        self.matrix = matrix

    def matmul(self, v):
        return self.matrix @ v


def test_products_that_are_not_symmetric_or_not_positive_are_refused():
    skew = (
        torch.arange(30.0).double().diag()
        + torch.randn(30, 30, generator=torch.Generator().manual_seed(0)).double().triu()
    )
    for matrix, message in (
        (skew, "not those of a symmetric matrix"),
        (-torch.arange(30.0).double().diag(), "negative eig"),
    ):
        for function in (largest_eigenpairs, spectral_density):
            with pytest.raises(ValueError, match=message):
                function(Given(matrix))
    with pytest.raises(gnlib.NotConvergedError, match="A product has NaN"):
        spectral_density(Given(torch.full((30, 30), torch.nan).double()))


def graph(nodes=8):
    """A network of the nodes of a graph, each of which looks at its neighbours, and takes no fewer than all."""
    edges = torch.arange(nodes), torch.arange(nodes).roll(1)

    def forward(self, x):
        return self.out(
            torch.tanh(self.into(x)) + torch.zeros(len(x), 4).to(x).index_add(0, edges[0], self.into(x)[edges[1]])
        )

    return seeded(lambda: Whole(forward, into=nn.Linear(6, 4), out=nn.Linear(4, 3)))


def test_samples_that_belong_together_are_a_whole_batch_if_that_is_meant():
    x, y = torch.cat([X, X[:1] + 1]), torch.arange(8) % 3
    y[5:] = -100  # nodes that are not trained on
    with pytest.raises(ValueError, match=r"fails on 2 samples, though not on 8: .* pass mode='train'"):
        ask(x, y, "cross_entropy", graph())
    by = ask(x, y, "cross_entropy", graph(), mode="train")
    exact = torch.linalg.eigvalsh(dense(graph(), x, y, nn.functional.cross_entropy))
    assert float(by.eigenpairs(tolerance=1e-10).values[0]) == pytest.approx(float(exact[-1]), rel=1e-9)
    with pytest.raises(ValueError, match=r"Outputs depend on the whole batch, and the data are \d batches"):
        ask(x, y, "cross_entropy", graph(), mode="train", memory=3e-6)
