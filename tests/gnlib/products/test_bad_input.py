"""Data, losses and modules that have no right answer, or one that is easily missed: what products say of them."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import gnlib
from tests.gnlib.diagnosis.networks import half
from tests.gnlib.networks import Whole
from tests.gnlib.products.test_side import F64, LABELS, X, Y, checkpointed, dense, perceptron, seeded

pytestmark = pytest.mark.bad_input


def ask(x, y=None, loss="mse", module=None, **options):
    return gnlib.GaussNewton(module or seeded(perceptron), x, y, loss, **{"dtype": F64, **options})


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
        (lambda: [X[:3], X[:0]], [Y[:3], Y[:0]], "Batch 1 of x is empty; leave it out"),
        (lambda: [X, X * torch.inf], [Y, Y], "The outputs have NaN or infinite entries in part 1 of 2"),
        (lambda: X * torch.inf, Y, "NaN or infinite entries on the first samples"),
        (lambda: X.where(X != X[4, 2], torch.nan), Y, "part 0 of 1 .* sample 4, whose input is not finite"),
        (lambda: [X[:4], X[4:].where(X[4:] != X[5, 0], torch.nan)], Y, "part 1 of 2 .* sample 5, whose input"),
        (lambda: X, Y.where(Y != Y[5, 0], torch.inf), "y has NaN or infinite entries, first for sample 5"),
        (lambda: X.long(), Y, r"fails on the first 2 samples, in torch.float64: .*x is of torch.int64, and"),
        (lambda: X[:, :5], Y, r"module fails on the first 2 samples.*Check the shape of x"),
        (lambda: X, Y.to("meta"), "x, y and the module are on cpu and meta; move them to one device"),
        (lambda: X, Y[:5], "y has 5 samples, x has 7; pass one target for each"),
        (lambda: X, LABELS, r"y is of shape \(7,\), the outputs are of shape \(7, 3\)"),
        (lambda: X, [Y[:3], Y[3:]], "y is of type list"),
        (lambda: (X, 3), Y, "x holds something else than tensors of samples"),
    ],
)  # fmt: skip
def test_data_of_which_there_is_no_matrix_are_refused(x, y, message):
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        ask(x(), y).waiting()


def entropy(y):
    return dict(loss="cross_entropy", y=y)


def whole(forward):
    return dict(make=lambda: Whole(forward, layers=perceptron()))


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(loss="squared"), "loss is 'squared'; 'mse', 'cross_entropy' or a function"),
        (entropy(LABELS + 1), "y has classes from 1 to 3; 0 to 2 were expected"),
        (entropy(LABELS[:, None]), r"y has shape \(7, 1\) and type torch.int64, the outputs"),
        (entropy(torch.full((7,), -100)), "all targets are ignored"),
        (entropy(torch.tensor([1.5, -0.5, 0.0]).repeat(7, 1)), r"probability -0\.5; none below 0"),
        (dict(loss=nn.L1Loss()), "loss L1Loss has no second derivative"),
        (dict(loss=lambda f, y: -half(f, y)), "negative second derivative by the outputs"),
        (dict(loss=lambda f, y: (f - y).square().sum(1).mean().square()), "is no mean over the samples"),
        (dict(loss=lambda f, y: f - y), r"loss returned a tensor of shape \(2, 3\); one number"),
        (whole(lambda self, x: self.layers(x) + torch.randn(())), "The module is random, or changes from call"),
        (whole(lambda self, x: self.layers(x) - x.mean(0)[:3]), "depend on the other samples of its batch"),
        (whole(lambda self, x: self.layers(x).flatten()), "a tensor was expected whose first axis counts"),
        (whole(lambda self, x: (self.layers(x), x)), "The outputs of 2 samples are of type tuple"),
        (dict(make=lambda: perceptron().requires_grad_(False)), "no parameter that requires a gradient"),
        (dict(dtype=torch.int64), r"dtype is torch.int64; torch.float64, torch.float32"),
        (dict(memory=1e-6), r"memory is 1e-06 GiB but .* are needed for one sample"),
    ],
)
def test_losses_and_modules_of_which_there_is_no_matrix_are_refused(options, message):
    given = {"x": X, "y": Y, "make": perceptron} | options
    module = seeded(given.pop("make"))
    with pytest.raises((ValueError, TypeError), match=message):
        ask(**given, module=module).waiting()


def test_vectors_for_which_there_is_no_memory_are_refused():
    little = ask(X, Y, memory=3e-6)
    for method in (little.spectral_density, little.trace):
        with pytest.raises(ValueError, match=r"memory is 3e-06 GiB but .* are needed for \d+ vectors of 21 numbers"):
            method()
    assert little.loss_bounds(steps=10).products < 30  # as many as there is room for


# Answers that are easily missed


def test_a_loader_of_unequal_batches_leaves_the_random_numbers_and_is_the_whole():
    before = torch.random.get_rng_state()
    loader = DataLoader(Items(lambda i: (X[i] + 0 * torch.randn(6), Y[i])), 3)  # it draws, and always has the same
    assert top(loader) == pytest.approx(top(X, Y), rel=1e-12)
    assert torch.equal(before, torch.random.get_rng_state())


def test_sentences_of_unequal_length_are_batches():
    """The targets of one batch have other axes than those of the next; the matrix is the sum over all tokens."""
    module = seeded(lambda: nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5)))
    ids = torch.arange(6).view(2, 3) % 5, torch.arange(5)[None]
    one = torch.cat([i.flatten() for i in ids])[:, None]
    expected = top(one, one, "cross_entropy", module)
    assert top([*ids], [*ids], "cross_entropy", module) == pytest.approx(expected, rel=1e-9)


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
    kept = module(X).float()
    expected = top(2 * X, Y, module=nn.Linear(6, 3, bias=False))
    assert top(X.float(), Y, module=module.float()) == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(module(X.float()), kept)


def cauchy(f, y):
    """Convex where outputs are near their targets alone."""
    return (1 + (f - y).square()).log().sum(1).mean()


def test_curvature_is_looked_at_beyond_the_samples_that_are_tried_first():
    module = seeded(perceptron)
    flat, near = module(X).detach(), module(X).detach() + 0.1
    flat[:2] += 9
    assert top(X, flat, nn.HuberLoss(delta=0.5)) > 0 and top(X, near, cauchy) > 0
    near[6] += 5
    with pytest.raises(ValueError, match=r"loss cauchy has a negative second derivative .*, -0\..* J\^T H J is then"):
        ask(X, near, cauchy)


def graph(nodes=8):
    """A network of the nodes of a graph, each of which looks at its neighbours, and takes no fewer than all."""
    to, of = torch.arange(nodes), torch.arange(nodes).roll(1)

    def forward(self, x):
        h = self.into(x)
        return self.out(torch.tanh(h) + torch.zeros_like(h).index_add(0, to, h[of]))

    return seeded(lambda: Whole(forward, into=nn.Linear(6, 4), out=nn.Linear(4, 3)))


def test_checkpoints_that_cannot_be_differentiated_are_refused_for_what_they_are():
    for module, message in (
        (checkpointed(reentrant=True).double(), "use_reentrant=False"),
        (checkpointed().float(), "mat1 and mat2 must have the same dtype"),
    ):
        with pytest.raises(ValueError, match="module fails on the first 2 samples, in torch.float64.*" + message):
            ask(X, module=module)


def test_samples_that_belong_together_are_a_whole_batch_if_that_is_meant():
    x, y = torch.cat([X, X[:1] + 1]), torch.arange(8) % 3
    y[5:] = -100  # nodes that are not trained on
    with pytest.raises(ValueError, match=r"fails on 2 samples, though not on 8: .* pass mode='train'"):
        ask(x, y, "cross_entropy", graph())
    exact = torch.linalg.eigvalsh(dense(graph(), x, y, nn.functional.cross_entropy))
    assert top(x, y, "cross_entropy", graph(), mode="train") == pytest.approx(float(exact[-1]), rel=1e-9)
    with pytest.raises(ValueError, match=r"Outputs depend on the whole batch, and the data are \d batches"):
        ask(x, y, "cross_entropy", graph(), mode="train", memory=3e-6)
