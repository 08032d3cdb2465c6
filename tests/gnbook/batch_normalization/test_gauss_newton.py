"""The smallest exact form of a batch-normalised layer, against autograd, the Gram matrix, torch modules and mpmath."""

import itertools

import mpmath
import pytest
import torch
from gnbook.batch_normalization.gauss_newton import batch_norm_gauss_newton, batch_norm_gram, normalized_units
from torch import nn
from torch.nn import functional

from gnlib import GaussNewton, condition_number
from tests.gnbook.hidden_layers import GOOD, case, shapes, special
from tests.oracles import assert_same_nonzero_spectrum, autograd_gram, network, normal, orthogonal, spectrum

LAYERS = ["plain", "fixed scale and shift", "affine", "affine at its start", "scales of zero", "shifts of zero"]
layers = pytest.mark.parametrize("layer", LAYERS)
modes = pytest.mark.parametrize("mode", ["train", "eval"])


def options(layer, m):
    """What the layer multiplies by and adds, and whether it learns that."""
    scale, shift = normal(m, seed=5), normal(m, seed=6)
    scale[0], shift[-1] = -abs(scale[0]), 0.0
    if layer == "scales of zero":
        scale[::2] = 0
    if layer == "shifts of zero":
        return {"scale": scale, "affine": True}
    if layer in ("plain", "affine at its start"):
        return {"affine": layer != "plain"}
    return {"scale": scale, "shift": shift, "affine": layer == "affine"}


def autograd(weights, x, eps=0.0, scale=None, shift=None, affine=False, mode="train"):
    """The Gram matrix from the function alone, as torch has it."""
    m, eps = len(weights[0]), max(eps, 1e-300)  # lost in the sum; torch refuses 0
    scale = torch.ones(m).double() if scale is None else scale
    shift = torch.zeros(m).double() if shift is None else shift
    hidden = x @ weights[0].T
    statistics = (hidden.mean(0), hidden.var(0, correction=0)) if mode == "eval" else (None, None)

    def outputs(v, w, scale=scale, shift=shift):
        return functional.batch_norm(x @ v.T, *statistics, scale, shift, training=mode == "train", eps=eps) @ w.T

    return autograd_gram(outputs, [*weights, scale, shift] if affine else weights, len(x))


def as_gram(reduced, weights, x, eps=0.0):
    """The Gram matrix, sample-major, from the reduced matrix: its coordinates are orthonormal vectors of samples."""
    units, n, k = normalized_units(weights, x, eps=eps), len(x), len(weights[1])
    u = (x - x.mean(0)) @ units.basis / (n * units.eigenvalues).sqrt()
    u = torch.cat([u, torch.full((n, 1), n**-0.5, dtype=torch.float64)], 1)[:, : len(reduced) // k]
    return torch.einsum("ip,apbq,jq->iajb", u, reduced.view(k, u.shape[1], k, -1), u).reshape(n * k, n * k)


def assert_equal_to(found, expected, tolerance=1e-10):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * expected.abs().max().item())


@special
@layers
@modes
@pytest.mark.parametrize(("shape", "eps"), [((4, 6, 3, 9), 0.0), ((5, 3, 2, 4), 1e-5), ((3, 1, 1, 6), 2.0)])
def test_the_reduced_matrix_is_that_of_autograd(shape, eps, kind, layer, mode):
    weights, x = case(shape, kind)
    how = {"eps": eps, "mode": mode, **options(layer, shape[1])}
    reduced = batch_norm_gauss_newton(weights, x, **how)
    assert torch.equal(reduced, reduced.T)
    assert_equal_to(as_gram(reduced, weights, x, eps), autograd(weights, x, **how))


@layers
@modes
@pytest.mark.parametrize("dead", ["zero weights", "a constant feature alone", "all"])
def test_dead_units_need_eps_and_are_those_of_autograd(layer, mode, dead):
    (v, w), x = case((4, 6, 3, 9), "constant feature")
    v[0] = 0
    if dead == "a constant feature alone":
        v[0, 0] = 1
    elif dead == "all":
        v[:] = 0
    how = {"eps": 1e-3, "mode": mode, **options(layer, 6)}
    reduced = batch_norm_gauss_newton([v, w], x, **how)
    assert_equal_to(as_gram(reduced, [v, w], x, 1e-3), autograd([v, w], x, **how))


@shapes
def test_the_spectrum_is_that_of_the_large_gram_matrix(shape):
    weights, x = case(shape)
    small, large = (spectrum(form(weights, x)) for form in (batch_norm_gauss_newton, batch_norm_gram))
    assert_same_nonzero_spectrum(small, large, 1e-12)


def module(weights, affine, eps):
    (m, d), k = weights[0].shape, len(weights[1])
    norm = nn.BatchNorm1d(m, affine=affine, eps=eps, momentum=None)
    layers = nn.Sequential(nn.Linear(d, m, bias=False), norm, nn.Linear(m, k, bias=False)).double()
    for layer, w in zip((layers[0], layers[2]), weights, strict=True):
        layer.weight.data = w.clone()
    return layers


@pytest.mark.parametrize("affine", [False, True])
def test_a_torch_module_in_evaluation_mode_up_to_its_unbiased_variance(affine):
    weights, x = case((4, 6, 3, 9))
    layers = module(weights, affine, 1e-9)
    layers.train()(x)  # momentum=None: the running statistics are those of this batch
    layers[1].running_var *= 8 / 9
    gram = GaussNewton(layers, x, mode="eval").gram()
    reduced = batch_norm_gauss_newton(weights, x, eps=1e-9, affine=affine, mode="eval")
    assert_equal_to(as_gram(reduced, weights, x, 1e-9), gram)


@pytest.mark.parametrize("seed", range(2))
def test_badly_conditioned_data_cost_about_the_root_of_the_condition_number(seed):
    """With 60 digits; the eigenvalues spread over 10 decades, so a squared error would leave 6 digits."""
    d, m, k, n = 3, 4, 2, 6
    x = orthogonal(n, d, seed=seed) * torch.tensor([1, 1e-2, 1e-5]).double() @ orthogonal(d, d, seed=seed + 10).T
    weights = network((d, m, k), seed=seed)
    with mpmath.workdps(60):
        jacobian = mpmath_jacobian(weights, x)
        exact = sorted(mpmath.eigsy(jacobian * jacobian.T / n, eigvals_only=True), reverse=True)[: k * d]
        wanted = float(exact[0] / exact[-1])
    found = float(condition_number(batch_norm_gauss_newton(weights, x)))
    assert wanted > 1e8
    assert found == pytest.approx(wanted, rel=1e-15 * wanted**0.5 * 100 + 1e-15 * wanted)


def mpmath_jacobian(weights, x):
    """Derivatives of the outputs by V and W, in the working precision, from the quotient rule."""
    (v, w), n = (mpmath.matrix(a.tolist()) for a in weights), len(x)
    x = mpmath.matrix(x.tolist())
    for j in range(x.cols):
        mean = mpmath.fsum(x[:, j]) / n
        for i in range(n):
            x[i, j] -= mean
    hidden = x * v.T
    rows = []
    deviation = [mpmath.sqrt(mpmath.fsum(h**2 for h in hidden[:, u]) / n) for u in range(v.rows)]
    slope = [[mpmath.fsum(hidden[i, u] * x[i, j] for i in range(n)) / n for j in range(x.cols)] for u in range(v.rows)]
    for i, a in itertools.product(range(n), range(w.rows)):
        row = [
            w[a, u] * (x[i, j] / deviation[u] - hidden[i, u] * slope[u][j] / deviation[u] ** 3)
            for u in range(v.rows)
            for j in range(x.cols)
        ]
        row += [hidden[i, u] / deviation[u] if a == b else 0 for b in range(w.rows) for u in range(v.rows)]
        rows.append(row)
    return mpmath.matrix(rows)


def test_one_input_is_normalised_away():
    """The derivative of a unit by its only weight vanishes, and every unit is the same up to its sign."""
    (v, w), x = case((1, 5, 3, 7))
    assert_equal_to(batch_norm_gauss_newton([v, w], x), 5 * torch.eye(3).double(), 1e-13)


def test_the_coordinate_of_the_constant_is_there_only_where_something_reaches_it():
    weights, x = case((4, 6, 3, 9))
    assert len(batch_norm_gauss_newton(weights, x)) == 3 * 4
    assert len(batch_norm_gauss_newton(weights, x, shift=torch.zeros(6))) == 3 * 4
    assert len(batch_norm_gauss_newton(weights, x, shift=torch.ones(6))) == 3 * 5
    assert len(batch_norm_gauss_newton(weights, x, affine=True)) == 3 * 5
    assert len(batch_norm_gauss_newton(weights, x, mode="eval")) == 3 * 5


@pytest.mark.parametrize("value", [0.7, 1e6 + 0.7])
def test_a_constant_feature_is_no_direction_whatever_rounding_centring_leaves_of_it(value):
    weights, x = case((4, 6, 3, 9))
    x[:, 0] = value
    assert len(batch_norm_gauss_newton(weights, x)) == 3 * 3


# ---- bad input
X = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])


@pytest.mark.bad_input
@pytest.mark.parametrize("n", [1, 5])
def test_a_batch_of_one_sample_is_refused(n):
    with pytest.raises(ValueError, match=f"x holds the same sample {n} times, of which centring leaves nothing"):
        batch_norm_gauss_newton(GOOD, X[:1].expand(n, 2))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "v, x, unit",
    [
        (torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), normal(5, 2, seed=1), 2),
        (torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), torch.tensor([[1, 1e6 + 0.7], [2, 1e6 + 0.7]]), 1),
    ],
    ids=["zero weights", "a large constant"],
)
def test_a_unit_that_is_constant_over_the_batch_needs_eps(v, x, unit):
    with pytest.raises(ValueError, match=rf"Hidden unit {unit} is constant over the batch \(n = {len(x)}\).*eps > 0"):
        batch_norm_gauss_newton([v.double(), torch.ones(4, 3)], x.double())
    batch_norm_gauss_newton([v.double(), torch.ones(4, 3)], x.double(), eps=1e-5)
