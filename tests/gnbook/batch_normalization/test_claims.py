"""Zhao 2024, section 6, and what this book adds: one batch-normalised hidden layer."""

import math

import pytest
import torch
from gnbook.batch_normalization.bounds import batch_norm_bound, batch_norm_limit, sharp_batch_norm
from gnbook.batch_normalization.gauss_newton import batch_norm_gauss_newton
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import SecondMoment, condition_number, linear_gauss_newton, linear_weights, load, whiten
from tests import strategies
from tests.oracles import assert_same_nonzero_spectrum, identity, spectrum
from tests.strategies import derivatives, exact, gaussian, kron, problems, seeds, squares, up_to_rounding

images, _ = load("cifar10", 1000, stride=4, grayscale=True)


@st.composite
def normalised(draw):
    """Draw a network, data on which its units vary, eps, and a scale; a unit may be dead where eps is positive."""
    (v, w), x = draw(problems(2, 2))
    eps = draw(st.sampled_from([0.0, 1e-5, 0.1, 10.0]))
    centred = x - x.mean(0)
    assume(centred.norm() > 1e-8 * x.norm())
    if eps == 0:
        assume(((centred @ v.T).norm(dim=0) > 1e-6 * x.norm() * v.norm(dim=1)).all())
    scale = draw(st.sampled_from(["one", "random", "with zeros"]))
    gamma = torch.ones(len(v)).double() if scale == "one" else gaussian(draw(seeds), len(v))
    if scale == "with zeros":
        gamma[::2] = 0
    return [v, w], x, eps, gamma


def bn_jacobian(weights, x, eps=0.0, scale=None, shift=None, affine=False, statistics=None):
    """Return d f(x_i)_c / d theta, sample-major, from the definition of the layer and automatic differentiation."""
    parameters = [w.clone().requires_grad_() for w in weights]
    v, w = parameters
    scale = torch.ones(len(v)).double() if scale is None else scale.clone()
    shift = torch.zeros(len(v)).double() if shift is None else shift.clone()
    if affine:
        parameters += [scale.requires_grad_(), shift.requires_grad_()]
    hidden = x @ v.T
    mean, variance = (hidden.mean(0), hidden.var(0, correction=0)) if statistics is None else statistics
    outputs = (scale * (hidden - mean) / (variance + eps).sqrt() + shift) @ w.T
    return derivatives(outputs, parameters)


def true_bn_condition(weights, x, eps=0.0, scale=None, shift=None, affine=False):
    """Return largest over smallest eigenvalue from singular values of the Jacobian, or None where that is zero.

    There are k eigenvalues for each direction of the centred data, and k for the constant.
    """
    centred = torch.linalg.svdvals(x - x.mean(0))
    directions = int((centred > 1e-11 * x.norm()).sum()) + (affine or shift is not None)
    s = squares(bn_jacobian(weights, x, eps, scale, shift, affine), len(weights[1]) * directions)
    return (s[0] / s[-1].clamp_min(1e-32 * s[0])).item() if len(s) and s[0] > 0 else None


def offset(x):
    """How much larger the data are than what centring leaves of them: what rounding is multiplied by."""
    return (x.norm() / (x - x.mean(0)).norm()).item()


@pytest.mark.claim("BatchNorm improves the condition number", verdict="fails")
@pytest.mark.claim("The effect of BatchNorm shows on data that are not white", verdict="fails")
@pytest.mark.claim("With BatchNorm, width improves the condition number", verdict="holds if")
@pytest.mark.parametrize("copies", [1, 2, 3, 10])
def test_on_white_data_batch_norm_can_make_it_worse_and_its_effect_be_stronger_and_so_can_width(copies):
    white = 2**0.5 * exact([[1, 0], [-1, 0], [0, 1], [0, -1]])
    v, raw = exact([[1, 0]] * copies), white * exact([1, 2]).sqrt()
    for output, x, without, with_bn in ((2, white, 5 / 4, 4), (1, raw, 1, 2), (1, white, 2, 1)):
        weights = [v, exact([[output] * copies])]
        assert strategies.true_condition(weights, x) == pytest.approx(without, rel=1e-12)
        assert true_bn_condition(weights, x) == pytest.approx(with_bn, rel=1e-12)
    one_input = [torch.ones(copies, 1).double(), torch.full((1, copies), copies**-0.5, dtype=torch.float64)]
    assert true_bn_condition(one_input, exact([[0], [1], [3]])) == pytest.approx(1, rel=1e-12)
    assert true_bn_condition(one_input, exact([[0], [1], [3]]), affine=True) == pytest.approx(1 + copies, rel=1e-10)


@pytest.mark.claim("With BatchNorm, width improves the condition number", verdict="holds if")
def test_the_trend_on_images_without_a_trained_shift_and_with_one():
    plain, affine = [], []
    for m in (64, 512, 4096):
        weights = linear_weights([64, m, 10], generator=torch.Generator().manual_seed(0))
        plain.append(float(condition_number(batch_norm_gauss_newton(weights, images))))
        affine.append(float(condition_number(batch_norm_gauss_newton(weights, images, affine=True))))
    assert plain[0] > 2 * plain[1] > 2 * plain[2]
    assert affine[0] > 2 * affine[1] and affine[2] > 3 * affine[1]


LAYERS = ["plain", "shifted", "affine", "affine, shifted"]


@pytest.mark.claim("BatchNorm in training mode, exactly", "BatchNorm with trained scale and shift", verdict="holds")
@pytest.mark.claim("BatchNorm in evaluation mode", verdict="holds")
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("layer", LAYERS)
@given(normalised())
def test_the_reduced_form_has_the_spectrum_of_autograd(layer, mode, problem):
    weights, x, eps, scale = problem
    assume(offset(x) < 1e3)
    shift, affine = gaussian(len(x), len(scale)) if "shifted" in layer else None, "affine" in layer
    hidden = x @ weights[0].T
    statistics = (hidden.mean(0), hidden.var(0, correction=0)) if mode == "eval" else None
    reduced = batch_norm_gauss_newton(weights, x, eps=eps, scale=scale, shift=shift, affine=affine, mode=mode)
    assert mode == "eval" or layer != "plain" or len(reduced) <= len(weights[1]) * min(x.shape[1], len(x) - 1)
    jacobian = bn_jacobian(weights, x, eps, scale, shift, affine, statistics)
    assert_same_nonzero_spectrum(spectrum(reduced), torch.linalg.svdvals(jacobian).square() / len(x), 1e-9)


@pytest.mark.claim("What BatchNorm does not see", verdict="holds")
@given(normalised(), st.sampled_from([1e-2, 1.0, 30.0]))
def test_neither_the_mean_nor_the_unit_of_the_data_matters_in_training_mode(problem, factor):
    weights, x, _, scale = problem
    assume(offset(x) < 1e3 and ((x - x.mean(0)) @ weights[0].T).norm(dim=0).min() > 1e-6 * x.norm())
    moved = factor * x + gaussian(0, x.shape[1])
    found, expected = (spectrum(batch_norm_gauss_newton(weights, y, scale=scale)) for y in (moved, x))
    assume(found.shape == expected.shape)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7 * expected[0].item() + 1e-300)


@pytest.mark.claim("BatchNorm as a linear network", verdict="holds")
@given(problems(2, 2, regular=True), seeds)
def test_on_white_and_centred_data_a_trained_scale_makes_it_linear(problem, seed):
    (v, w), x = problem
    n, d, norms = x.shape[1] + 3, x.shape[1], v.norm(dim=1)
    x = gaussian(seed, n, d)
    x = whiten(x - x.mean(0))
    assume(norms.min() > 0)
    jacobian = bn_jacobian([v, w], x, 0.0, norms, None, True)[:, : -len(v)]  # no shift
    expected = spectrum(linear_gauss_newton([v, w], identity(d)).dense())
    assert_same_nonzero_spectrum(squares(jacobian, len(w) * d) / n, expected, 1e-9)


@pytest.mark.claim("One unit without its own direction", verdict="holds")
@given(seeds, st.integers(1, 5), st.floats(0.001, 0.999), st.floats(0.0, 1.0), st.sampled_from([0, 1, 4]))
def test_what_is_left_of_a_unit_is_bounded_below_by_the_data(seed, r, theta, length, decades):
    squared = torch.logspace(0, -decades, r).double().diag()
    e = length * strategies.orthogonal(seed, r)[0]
    projector = identity(r) - torch.outer(e, e)
    left = projector @ squared @ projector
    price = (1 / theta - 1) * (e @ squared @ e) * torch.outer(e, e)
    assert torch.linalg.eigvalsh(left - (1 - theta) * squared + price)[0] >= -1e-12 / theta


@pytest.mark.claim("Lemma 1 for BatchNorm", "Sharper bound for BatchNorm", verdict="holds")
@pytest.mark.parametrize("layer", LAYERS)
@given(normalised())
def test_lemma_1_for_batch_norm_and_the_sharper_bound(layer, problem):
    weights, x, eps, scale = problem
    assume(offset(x) < 1e3)
    shift, affine = gaussian(7, len(scale)) if "shifted" in layer else None, "affine" in layer
    true = true_bn_condition(weights, x, eps, scale, shift, affine)
    assume(true is not None)
    sharp = sharp_batch_norm(weights, x, eps=eps, scale=scale, shift=shift, affine=affine)
    assert true <= sharp * up_to_rounding(true) or sharp > 1e14  # a singular matrix, up to rounding
    if layer == "plain":
        bound = batch_norm_bound(weights, x, eps=eps, scale=scale)
        assert (true <= bound * up_to_rounding(true) and sharp <= bound * (1 + 1e-4)) or bound > 1e14


@pytest.mark.claim("BatchNorm, infinite width", verdict="holds")
@pytest.mark.parametrize("eps", [0.0, 0.3])
def test_the_condition_number_converges_to_the_limit(eps):
    x = gaussian(0, 20, 4) * exact([2, 1, 1, 0.5]) + 3
    limit = batch_norm_limit(SecondMoment.from_data(x - x.mean(0)), eps=eps, variance=1.0)
    errors = []
    for m in (100, 5000, 100_000):
        networks = ([gaussian(seed, m, 4), gaussian(seed + 9, 2, m) / m**0.5] for seed in range(3))
        kappas = [condition_number(batch_norm_gauss_newton(weights, x, eps=eps)).value for weights in networks]
        errors.append(max(abs(math.log(kappa / limit)) for kappa in kappas))
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.03


@pytest.mark.claim("LayerNorm, rank", verdict="holds")
@given(seeds, st.integers(1, 4), st.integers(2, 5), st.integers(1, 3), st.integers(1, 9), st.sampled_from([1e-5, 0.1]))
def test_layer_norm_reaches_one_direction_more_for_each_sample(seed, d, m, k, n, eps):
    x, parameters = gaussian(seed, n, d) + 1, [gaussian(seed + 1, m, d), gaussian(seed + 2, k, m)]
    v, w = (parameter.requires_grad_() for parameter in parameters)
    outputs = torch.nn.functional.layer_norm(x @ v.T, (m,), eps=eps) @ w.T
    jacobian = derivatives(outputs, [v, w])
    s = torch.linalg.svdvals(jacobian)
    assert int((s > 1e-10 * s[0]).sum()) <= k * min(d, n) + n - 1
    # the columns lie in the span of the scaled data, in each output, and of each sample's own output
    scaled = x / ((x @ v.detach().T).var(1, correction=0, keepdim=True) + eps).sqrt()
    own = torch.zeros(n, k, n).double()
    own[range(n), :, range(n)] = outputs.detach()
    u, values, _ = torch.linalg.svd(torch.cat([kron(scaled, identity(k)), own.flatten(0, 1)], 1), full_matrices=False)
    u = u[:, values > 1e-10 * values[0]]
    assert (jacobian - u @ (u.T @ jacobian)).norm() <= 1e-7 * jacobian.norm()
