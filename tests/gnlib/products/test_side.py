"""Products of any loss and from both sides, beside the whole matrix by automatic differentiation."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gnlib
from gnlib.products.curvature import curvature_of
from gnlib.products.side import ByOutputs, ByParameters, side_of

F64, F32 = torch.float64, torch.float32


class Tokens(nn.Module):
    """A language model of one layer, whose embedding is its head."""

    def __init__(self, vocabulary=5, width=4):
        super().__init__()
        self.embed, self.mix = nn.Embedding(vocabulary, width), nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.embed(ids).cumsum(1))))


class Floored(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class StraightThrough(nn.Module):
    """Rounded in a forward pass, and differentiated as if it were not."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(Floored.apply(3 * self.first(x)) / 3)


class Hidden(nn.Module):
    """A scale that backward passes take for a constant, and forward mode does not."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        with torch.no_grad():
            size = h.norm(dim=1, keepdim=True)
        return self.last(h / size)


def perceptron():
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def seeded(kind):
    torch.manual_seed(0)
    return kind().double()


def dense(module, x, y, loss):
    """Return the Gauss-Newton matrix of a loss of the outputs on all samples, column by column of second derivatives.

    The Jacobian is one of backward passes.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    f = module(x)
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(v, parameters, retain_graph=True, materialize_grads=True)])
        for v in f.flatten()
    ]
    jacobian, outputs = torch.stack(rows), f.detach()
    hessian = torch.autograd.functional.hessian(lambda f: loss(f.view(outputs.shape), y), outputs.flatten())
    return jacobian.mT @ hessian @ jacobian


def both(module, x, y, loss, **options):
    """Return the matrix from the side of the parameters, and all that is known of the side."""
    side = side_of(module, x, y, loss, **{"dtype": F64, **options})
    return ByParameters(side.passes, side.curvature, side.weight, side.passes.size).dense(), side


def half_mse(f, y):
    return (f - y).square().sum() / (2 * len(f))


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
    loss = nn.CrossEntropyLoss(**settings) if settings else "cross_entropy"
    found, side = both(module, IDS, NEXT, loss)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    with torch.no_grad():
        assert side.loss == pytest.approx(float(of_tokens(module(IDS), NEXT, **settings)), rel=1e-12)


def test_classes_may_stand_on_the_second_axis_as_torch_has_them():
    module = nn.Sequential(seeded(lambda: nn.Conv1d(2, 3, 1)))
    x, y = torch.randn(4, 2, 5, generator=torch.Generator().manual_seed(0)).double(), torch.arange(20).view(4, 5) % 3
    expected = dense(module, x, y, nn.functional.cross_entropy)
    torch.testing.assert_close(both(module, x, y, nn.CrossEntropyLoss())[0], expected, rtol=1e-9, atol=1e-11)


X = torch.randn(7, 6, generator=torch.Generator().manual_seed(1)).double()
LABELS, Y = torch.arange(7) % 3, torch.randn(7, 3, generator=torch.Generator().manual_seed(2)).double()
PROBABILITIES = Y.softmax(1)
KINDS = {
    "mse": ("mse", Y, half_mse),
    "labels": ("cross_entropy", LABELS, nn.functional.cross_entropy),
    "probabilities": ("cross_entropy", PROBABILITIES, nn.functional.cross_entropy),
    "huber": (nn.HuberLoss(delta=0.5), Y, nn.HuberLoss(delta=0.5)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", [perceptron, StraightThrough, Hidden])
def test_both_sides_are_the_matrix(kind, network):
    loss, y, function = KINDS[kind]
    module = seeded(network)
    expected = dense(module, X, y, function)
    found, side = both(module, X, y, loss)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    assert side.passes.forward_mode == (network is perceptron)
    if side.name == "outputs":
        assert isinstance(side.operator, ByOutputs)
        values, others = (torch.linalg.eigvalsh(m).flip(0) for m in (side.operator.dense(), expected))
        torch.testing.assert_close(values[:14], others[:14], rtol=1e-8, atol=1e-10)


def test_batches_of_unequal_length_weigh_by_their_samples():
    module = seeded(perceptron)
    whole, _ = both(module, X, Y, "mse")
    for x, y in (
        ([X[:2], X[2:3], X[3:]], [Y[:2], Y[2:3], Y[3:]]),
        ([X[:6], X[6:]], Y),
        (DataLoader(TensorDataset(X, Y), 3), None),
    ):
        found, side = both(module, x, y, "mse")
        torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-14)
        assert len(side.passes.parts) > 1
    plain = sum(both(module, x, y, "mse")[0] for x, y in ((X[:6], Y[:6]), (X[6:], Y[6:]))) / 2
    assert (plain - whole).norm() > 0.05 * whole.norm()  # as the mean of the batches would be


def test_what_does_not_fit_goes_in_parts():
    module = seeded(perceptron)
    whole, one = both(module, X, LABELS, "cross_entropy")
    parts, several = both(module, X, LABELS, "cross_entropy", memory=3e-6)
    assert len(one.passes.parts) == 1 and [part.samples for part in several.passes.parts] == [4, 3]
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match=r"memory is 1e-06 GiB but .* are needed for one sample"):
        both(module, X, LABELS, "cross_entropy", memory=1e-6)


def test_vectors_that_do_not_fit_are_refused():
    g = gnlib.GaussNewton(seeded(perceptron), X, Y, dtype=F64, memory=3e-6)
    for ask in (g.spectral_density, g.trace):
        with pytest.raises(ValueError, match=r"memory is 3e-06 GiB but .* are needed for \d+ vectors of 21 numbers"):
            ask()
    assert g.loss_bounds(steps=10).products < 30  # as many as there is room for


class InPlace(nn.Sequential):
    """It changes its own input."""

    def forward(self, x):
        return super().forward(x.mul_(2))


def test_data_frozen_weights_and_settings_are_left_as_they_are():
    module, x = seeded(lambda: InPlace(*perceptron())), X.clone()
    module[0].requires_grad_(False)
    with torch.autocast("cpu", torch.bfloat16):
        found, side = both(torch.compile(module, backend="eager"), x, Y, "mse")
    assert torch.equal(x, X) and side.error < 1e-15
    frozen = seeded(perceptron)
    frozen[0].requires_grad_(False)
    torch.testing.assert_close(found, both(frozen, 2 * X, Y, "mse")[0], rtol=1e-12, atol=1e-14)
    assert torch.get_default_dtype() == torch.float32


def test_frozen_parameters_are_no_part_of_it():
    module = seeded(perceptron)
    module[0].weight.requires_grad_(False)
    found, side = both(module, X, Y, "mse")
    assert side.passes.size == 5 + 18
    torch.testing.assert_close(found, dense(module, X, Y, half_mse), rtol=1e-9, atol=1e-11)


def test_batch_normalisation_in_training_takes_the_whole_batch_and_leaves_the_module():
    module = seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)))
    before = {name: t.clone() for name, t in module.state_dict().items()}
    found, _ = both(module, X, Y, "mse", mode="train")
    assert all(torch.equal(t, before[name]) for name, t in module.state_dict().items())
    torch.testing.assert_close(found, dense(module.train(), X, Y, half_mse), rtol=1e-8, atol=1e-10)
    assert (both(module, X, Y, "mse", mode="eval")[0] - found).norm() > 0.1 * found.norm()
    assert module.training
    with pytest.raises(ValueError, match=r"1 \(BatchNorm1d\) is in training mode; say which function is meant"):
        both(module, X, Y, "mse")
    with pytest.raises(
        ValueError, match="Batch normalisation in training depends on the whole batch, and the data are 2"
    ):
        both(module, [X[:4], X[4:]], Y, "mse", mode="train")


@pytest.mark.parametrize("loss, y", [("mse", Y), ("cross_entropy", LABELS)])
def test_the_residual_and_the_gradient_are_one(loss, y):
    """R u is the gradient by the outputs, and u the shortest; on the other side stands J^T R u."""
    module = seeded(perceptron)
    curvature = curvature_of(loss)
    f = module(X).detach()
    u = curvature.residual(f, y)
    torch.testing.assert_close(curvature.root(f, y, u), curvature.gradient(f, y), rtol=1e-9, atol=1e-11)
    g = gnlib.GaussNewton(module, X, y, loss)
    expected = g._problem.root  # of the library's own, thin one
    thin = torch.linalg.pinv(expected) @ curvature.gradient(f, y)[..., None]
    assert float(u.square().sum()) == pytest.approx(float(thin.square().sum()), rel=1e-9)
    _, side = both(module, X, y, loss)
    small = seeded(lambda: nn.Linear(6, 3))  # 21 parameters, 21 outputs
    _, other = both(small, X.repeat(2, 1), y.repeat(2, *[1] * (y.ndim - 1)), loss)
    assert (side.name, other.name) == ("outputs", "parameters")
    start, square = other.residual
    gradient = torch.autograd.grad(
        (half_mse if loss == "mse" else nn.functional.cross_entropy)(small(X), y), [*small.parameters()]
    )
    torch.testing.assert_close(start, torch.cat([p.flatten() for p in gradient]), rtol=1e-9, atol=1e-11)
    assert square == pytest.approx(2 * float(curvature.residual(small(X).detach(), y).square().sum()), rel=1e-9)


def test_the_error_of_single_precision_is_measured():
    module = seeded(perceptron)
    exact, side = both(module, X, Y, "mse")
    rounded, single = both(module, X, Y, "mse", dtype=F32)
    _, half = both(module, X, Y, "mse", dtype=torch.bfloat16)
    off = float((rounded - exact).norm() / exact.norm())
    assert side.error < 1e-15 and 1e-9 < off < 1e-6 and off / 30 < single.error < 30 * off
    assert 1e-4 < half.error < 0.1
    assert next(module.parameters()).dtype == F64


def test_shares_of_layers_are_those_of_the_matrix():
    module = seeded(perceptron)
    g, by = gnlib.GaussNewton(module, X, Y), gnlib.GaussNewton(module, X, Y, dtype=F64)
    shares = by._side.by_layer(by.eigenpairs(1, tolerance=1e-10).vectors[:, 0])
    assert shares == pytest.approx({share.layer: share.largest for share in g.by_layer().layers}, abs=1e-6)
    wide = torch.randn(30, 6, generator=torch.Generator().manual_seed(3)).double()
    y = torch.zeros(30, 3).double()
    g, by = gnlib.GaussNewton(module, wide, y), gnlib.GaussNewton(module, wide, y, dtype=F64)
    assert by._side.name == "parameters"
    shares = by._side.by_layer(by.eigenpairs(1, tolerance=1e-10).vectors[:, 0])
    assert shares == pytest.approx({share.layer: share.largest for share in g.by_layer().layers}, abs=1e-6)


def test_attention_has_a_derivative_along_a_direction():
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
    module = seeded(lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), layer, nn.Flatten(), nn.Linear(6, 3))).eval()
    found, side = both(module, X, Y, "mse")
    assert side.passes.forward_mode and torch.backends.mha.get_fastpath_enabled()
    torch.testing.assert_close(found, dense(module, X, Y, half_mse), rtol=1e-8, atol=1e-10)


class Noisy(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + torch.randn(()).double()


class Pair(nn.Sequential):
    def forward(self, x):
        return super().forward(x), x


class Mean(nn.Sequential):
    def forward(self, x):
        return super().forward(x) - super().forward(x).mean(0)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "module, x, y, loss, message",
    [
        (perceptron, X, Y[:5], "mse", "y has 5 samples, x has 7; pass one target for each"),
        (perceptron, X, LABELS, "mse", r"y is of shape \(7,\), the outputs are of shape \(7, 3\)"),
        (perceptron, X, Y, "squared", "loss is 'squared'; 'mse', 'cross_entropy' or a function"),
        (perceptron, X, LABELS + 1, "cross_entropy", "y has classes from 1 to 3; 0 to 2 were expected"),
        (perceptron, X, LABELS[:, None], "cross_entropy", r"y has shape \(7, 1\) and type torch.int64, the outputs"),
        (perceptron, X, torch.full((7,), -100), "cross_entropy", "all targets are ignored"),
        (perceptron, X, Y, nn.L1Loss(), "loss L1Loss has no second derivative"),
        (perceptron, X, Y, lambda f, y: -half_mse(f, y), "negative second derivative by the outputs"),
        (perceptron, X, Y, lambda f, y: (f - y).square().sum(1).mean().square(), "is no mean over the samples"),
        (perceptron, X, Y, lambda f, y: f - y, r"loss returned a tensor of shape \(2, 3\); one number"),
        (perceptron, [X[:3], X[:0]], [Y[:3], Y[:0]], "mse", "Batch 1 of x is empty; leave it out"),
        (perceptron, [X, X * torch.inf], [Y, Y], "mse", "The outputs have NaN or infinite entries in part 1 of 2"),
        (perceptron, X * torch.inf, Y, "mse", "NaN or infinite entries on the first samples"),
        (lambda: Noisy(*perceptron()), X, Y, "mse", "The module is random, or changes from call to call"),
        (lambda: Mean(*perceptron()), X, Y, "mse", "depend on the other samples of its batch"),
        (
            lambda: nn.Sequential(*perceptron(), nn.Flatten(0)),
            X,
            Y,
            "mse",
            "a tensor was expected whose first axis counts the samples",
        ),
        (lambda: Pair(*perceptron()), X, Y, "mse", "The outputs of 2 samples are of type tuple; a tensor was expected"),
        (perceptron, (X, 3), Y, "mse", "x holds something else than tensors of samples"),
        (perceptron, X, [Y[:3], Y[3:]], "mse", "y is of type list"),
    ],
)
def test_what_has_no_such_matrix_is_refused(module, x, y, loss, message):
    with pytest.raises((ValueError, TypeError), match=message):
        gnlib.GaussNewton(seeded(module), x, y, loss, dtype=F64).waiting()


@pytest.mark.bad_input
def test_matrices_other_precisions_and_changed_modules_are_refused():
    module = seeded(perceptron)
    g = gnlib.GaussNewton(module, X, Y, dtype=F32)
    assert "7 samples, 21 outputs, 53 parameters, mse, float32, by products" in repr(g)
    for method in ("gram", "eigenvalues", "condition_number", "by_layer", "cost"):
        with pytest.raises(ValueError, match=r"This needs a matrix, and dtype= asks for products"):
            getattr(g, method)()
    with pytest.raises(ValueError, match=r"dtype is torch.int64; torch.float64, torch.float32"):
        gnlib.GaussNewton(module, X, Y, dtype=torch.int64)
    with pytest.raises(ValueError, match="no parameter that requires a gradient"):
        gnlib.GaussNewton(seeded(perceptron).requires_grad_(False), X, Y, dtype=F32)
    with torch.no_grad():
        module[0].weight.mul_(2)
    with pytest.raises(ValueError, match=r"0\.weight of the module has changed"):
        g.eigenpairs()
