"""One hidden layer of ReLUs: how wide it must be for a kernel as regular as that of infinite width.

One wide hidden layer of ReLUs as a series of powers, and bounds on its smallest eigenvalue. Heads, shared weights,
normalisation and preconditioners: the bound on chains beyond them.
"""

import math

import pytest
import scipy
import torch
from gnbook.deep_nonlinear.chain import layers_of
from gnbook.deep_nonlinear.duals import leaky_relu
from gnbook.deep_nonlinear.head import head_floor
from gnbook.deep_nonlinear.wide_limit import wide_kernel
from gnbook.deep_nonlinear.width import (
    bernstein_width,
    chernoff_width,
    hidden_layer_kernel,
    smallest_shares,
    unit_spread,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import gnlib
from tests.gnbook.deep_nonlinear.chains import ACTIVATIONS, chain, chains, jacobian, linear, spectrum
from tests.gnbook.deep_nonlinear.wide_helpers import on_a_sphere
from tests.oracles import ends
from tests.strategies import derivatives, gaussian, instances, samples, seeds

ASKED = {"shortfall": 0.5, "failure": 0.01}
SLACK = 1 + 1e-9


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(kind, n=100):
    x, _ = gnlib.load("mnist", n)
    return gnlib.whiten(x) if kind == "white" else x


def exponent(shortfall):
    return shortfall + (1 - shortfall) * math.log1p(-shortfall)


def exact_failure(units, n, shortfall):
    """The probability that one of n orthogonal samples has too few active units, which are independent coins."""
    return -math.expm1(n * scipy.stats.binom.logsf(math.floor((1 - shortfall) * units / 2), units, 0.5))


@pytest.mark.claim("The mean of a unit", verdict="holds")
@instances
@given(st.integers(2, 4).flatmap(samples))
def test_a_unit_and_its_mean_lie_between_multiples_of_the_gram_matrix(x):
    x = x[(x.norm(dim=1) > 0) & (x.norm(dim=1) < math.inf)]
    if len(x) == 0:
        return
    gram, mean = x @ x.mT, hidden_layer_kernel(x)
    top = ends(gram)[1]
    assert ends(mean - gram / 4)[0] >= -1e-12 * top
    assert top / 4 <= ends(mean)[1] * SLACK and ends(mean)[1] <= top / 2 * SLACK
    for active in gaussian(0, 5, x.shape[1]) @ x.mT > 0:
        unit = active[:, None] * gram * active
        assert ends(unit)[0] >= -1e-12 * top and ends(unit)[1] <= top * SLACK


@pytest.mark.claim("Width by Chernoff", verdict="holds")
@instances
@given(st.integers(1, 4), st.integers(1, 6), st.floats(0.05, 0.95), seeds)
def test_the_probability_is_bounded_where_it_is_known(n, tens, shortfall, seed):
    """Orthogonal samples of different norms: the smallest entry of a diagonal matrix of counts."""
    sizes = gaussian(seed, n).exp()
    units, least, most = 10 * tens, sizes.min().item(), sizes.max().item()
    needed = [(1 - shortfall) * least * units / 2 / size for size in sizes.tolist()]
    none = math.prod(scipy.stats.binom.sf(math.floor(count + 1e-12), units, 0.5) for count in needed)
    bound = n * math.exp(-exponent(shortfall) * units * least / 2 / most)
    assert 1 - none <= bound * SLACK and bound <= n * math.exp(-(shortfall**2) / 2 * units * least / 2 / most) * SLACK


@pytest.mark.claim("Width by Bernstein", verdict="holds")
def test_two_hundred_networks_keep_half_of_every_eigenvalue():
    x = images("white", 30)
    spread = unit_spread(x, 1000, generator=generator())
    units = bernstein_width(30, spread, **ASKED)
    first, second = smallest_shares(x, units, 200, generator=generator(1))
    assert (second > 0.5).double().mean() >= 0.99 and (first >= second / SLACK).all()


@pytest.mark.claim("White samples, exactly", verdict="holds")
def test_orthogonal_samples_are_independent_coins():
    x, units = 3 * torch.eye(5).double(), 20
    first, second = smallest_shares(x, units, 4000, generator=generator())
    assert torch.allclose(first, second)
    found = (first <= 0.5).double().mean().item()
    assert found == pytest.approx(exact_failure(units, 5, 0.5), abs=0.02)


@pytest.mark.claim("White samples, exactly", verdict="holds")
def test_of_the_units_that_are_asked_for_half_are_needed():
    failures = [exact_failure(units, 200, 0.5) for units in range(1, 300)]
    needed = 2 + max(index for index, failure in enumerate(failures) if failure > 0.01)
    assert needed == 61
    asked, spread = chernoff_width(torch.eye(200), **ASKED), math.log(200 / 0.01)
    assert asked == 130 and (asked - 1) * exponent(0.5) / 2 < spread <= asked * exponent(0.5) / 2
    assert bernstein_width(200, 2.0, **ASKED) == 159 and 158 < 16 * spread <= 159


@pytest.mark.claim("Whitening, in units of width", verdict="fails")
def test_raw_images_need_a_few_times_the_units_of_white_ones_not_a_thousand_times():
    asked, needed = {}, {}
    for kind in ("white", "raw"):
        x = images(kind)
        asked[kind] = chernoff_width(x, **ASKED)
        for units in (30, 60, 120, 240):
            first, _ = smallest_shares(x, units, 60, generator=generator())
            if (first <= 0.5).double().mean() <= 0.05:
                needed[kind] = units
                break
    assert asked["white"] == 121 and asked["raw"] > 500 * asked["white"]
    assert needed["raw"] <= 4 * needed["white"]


DEGREES = 200


def kernel(x, factors=(1, 1)):
    return wide_kernel(x, leaky_relu(0.0), factors, gain=2**0.5)


def relu_squares(degrees):
    """Squares of the Hermite coefficients of the ReLU: 1 / (2 pi), 1 / 4, and ((k - 3)!!)^2 / (2 pi k!) for even k."""
    squares, even = [1 / (2 * math.pi), 1 / 4], 1 / (4 * math.pi)
    for k in range(2, degrees):
        squares.append(0.0 if k % 2 else even)
        even *= 1.0 if k % 2 else (k - 1) ** 2 / ((k + 1) * (k + 2))  # from degree k to k + 2
    return torch.tensor(squares[:degrees], dtype=torch.float64)


def power_floors(x, degrees=DEGREES):
    """The share of each power of the correlations, at its smallest eigenvalue; the last is for all higher ones too."""
    squares = x.square().sum(1).mean()
    correlations = (x @ x.mT / squares).fill_diagonal_(1.0)
    smallest = torch.linalg.eigvalsh(correlations ** torch.arange(degrees)[:, None, None])[:, 0].clamp_min(0.0)
    weights = relu_squares(degrees) * (1 + torch.arange(degrees))
    weights[-1] = 1 - weights[:-1].sum()  # all of them add up to E (z_+)^2 and the mean of its squared slope
    return 4 / x.shape[1] * squares * weights * smallest


def bottom(matrix):
    return torch.linalg.eigvalsh(matrix)[0].item()


@pytest.mark.claim("Powers of the correlations", verdict="holds")
@instances
@given(seeds, st.integers(2, 6), st.integers(2, 5))
def test_the_kernel_is_the_series_of_powers(seed, n, d):
    x = on_a_sphere(n, d, seed)
    correlations = (x @ x.mT / d).fill_diagonal_(1.0)
    weights = 4 * relu_squares(4000) * (1 + torch.arange(4000))
    found = (weights[:, None, None] * correlations ** torch.arange(4000)[:, None, None]).sum(0)
    tail = 4 - float(weights.sum())  # on the diagonal; elsewhere no more
    assert ((found - kernel(x)).abs() <= tail + 1e-9).all() and tail < 0.08


@pytest.mark.claim("Powers of the correlations", verdict="holds")
@instances
@given(seeds, st.integers(1, 12), st.integers(1, 6), st.integers(1, 60))
def test_no_samples_fall_below_the_floors_of_powers(seed, n, d, degrees):
    x = on_a_sphere(n, d, seed)
    floors = power_floors(x, degrees)
    assert (floors >= 0).all() and float(floors.sum()) <= bottom(kernel(x)) + 1e-9
    assert float(power_floors(x, degrees + 5).sum()) >= float(floors.sum()) - 1e-9  # more degrees say more


@pytest.mark.claim("Close samples", verdict="holds")
@pytest.mark.parametrize("theta", [1e-3, 1e-2, 1e-1, 1.0, 1.97, 1.98, 2.5, 3.1])
def test_two_samples(theta):
    x = torch.tensor([[1.0, 0.0], [math.cos(theta), math.sin(theta)]]).double()
    between = (math.sin(theta) + 2 * (math.pi - theta) * math.cos(theta)) / math.pi
    assert (between > 0) == (theta < 1.976)
    exact = 2 - abs(between)
    assert bottom(kernel(x)) == pytest.approx(exact, abs=1e-7)  # the root of rounding, as an angle of zero is
    if theta <= 0.1:
        assert exact / theta == pytest.approx(1 / math.pi, abs=1.1 * theta)


@pytest.mark.claim("Linear head", verdict="holds")
@instances
@given(chains())
def test_the_head_of_a_chain_holds_its_smallest_eigenvalue_up(problem):
    network, x = problem
    values = spectrum(network, x)
    assert head_floor(network, x, network[-1]) <= values[-1].item() + 1e-12 * values[0].item() + 1e-300


def assert_between_its_positions(outputs, weight, inputs, products):
    """The products are at all positions, of which each has a row of features."""
    by_weight, by_products = derivatives(outputs, [weight, products]).split([weight.numel(), products.numel()], 1)
    each, features = by_products.reshape(len(by_products), -1, products.shape[-1]), inputs.flatten(0, -2)
    whole, reach = by_weight @ by_weight.mT, torch.einsum("apw,bpw->ab", each, each)
    formula = torch.einsum("apw,pq,bqw->ab", each, features @ features.mT, each)
    ends = torch.linalg.eigvalsh(features @ features.mT)[[0, -1]].clamp_min(0)
    slack = 1e-11 * (ends[1] * reach.abs().max()).item() + 1e-300
    torch.testing.assert_close(formula, whole, rtol=0, atol=slack)
    assert torch.linalg.eigvalsh(whole - ends[0] * reach)[0] >= -slack
    assert torch.linalg.eigvalsh(ends[1] * reach - whole)[0] >= -slack
    return reach


@pytest.mark.claim("Shared weights and samples that mix", verdict="holds")
@instances
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.sampled_from(ACTIVATIONS), seeds)
def test_weights_that_are_shared_among_positions(n, k, size, activation, seed):
    """A convolution on a line, as a layer of weights on patches. Samples do not mix, and the sum is block diagonal."""
    patches = gaussian(seed, n, 6).unfold(1, size, 1)
    weight = gaussian(seed + 1, 4, size).requires_grad_()
    products = patches @ weight.mT
    outputs = activation()(products.clone()).flatten(1) @ gaussian(seed + 2, 4 * patches.shape[1], k)
    reach = assert_between_its_positions(outputs, weight, patches, products).view(n, k, n, k)
    for i in range(n):
        for j in range(n):
            assert i == j or not reach[i, :, j].any()


@pytest.mark.claim("Layer normalisation", verdict="holds")
@instances
@given(st.integers(1, 5), st.integers(2, 6), st.booleans(), seeds)
def test_features_behind_a_normalisation_are_of_one_norm(n, m, bias, seed):
    normalised = nn.LayerNorm(m, eps=0.0, elementwise_affine=False)
    network = nn.Sequential(linear(3, m, seed % 999), nn.Tanh(), normalised, linear(m, 2, 1, bias=bias))
    features = layers_of(network, gaussian(seed, n, 3))[1].features
    torch.testing.assert_close(features.square().sum(1), features.new_full((n,), m + bias), rtol=1e-9, atol=0)
    torch.testing.assert_close(features[:, :m].sum(1), features.new_zeros(n), rtol=0, atol=1e-9)
    gram = features @ features.mT
    correlations = torch.linalg.eigvalsh(gram / (m + bias))
    torch.testing.assert_close(torch.linalg.eigvalsh(gram), (m + bias) * correlations, rtol=1e-9, atol=1e-9)


@pytest.mark.claim("Input-side preconditioning", verdict="holds")
@instances
@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from(ACTIVATIONS), st.sampled_from([0.0, 1e-3, 1.0]), seeds)
def test_a_layer_preconditioned_by_its_features_is_within_damping_of_its_diagonal_blocks(
    n, k, activation, damping, seed
):
    """Against the Jacobian, with the preconditioner formed in full."""
    network, x = chain([6, 9, 9, k], activation, seed=seed % 2**31), gaussian(seed % 2**31 + 3, n, 6)
    layers, rows = layers_of(network, x), jacobian(network, x)
    parts = rows.split([module.weight.numel() for module in network if isinstance(module, nn.Linear)], 1)
    for (features, reach), part in zip(layers, parts, strict=True):
        s = torch.linalg.svdvals(features)
        if len(s) < n or s[-1] < 1e-3 * s[0]:
            continue
        second = features.mT @ features + damping * torch.eye(features.shape[1], dtype=features.dtype)
        inverse = torch.linalg.pinv(second, rtol=1e-9, hermitian=True)
        units = part.view(n * k, -1, features.shape[1])
        found = torch.einsum("aui,ij,buj->ab", units, inverse, units)
        blocks = torch.block_diag(*(reach @ reach.mT))
        least, most = (v**2 / (v**2 + damping) for v in (s[-1], s[0]))
        slack = 1e-7 * blocks.abs().max().item() + 1e-300
        assert torch.linalg.eigvalsh(found - least * blocks)[0] >= -slack
        assert torch.linalg.eigvalsh(most * blocks - found)[0] >= -slack


@pytest.mark.claim("Width by Bernstein", verdict="holds")
@pytest.mark.parametrize("kind", ["white", "raw", "sphere"])
def test_the_spread_is_at_most_the_inverse_share(kind):
    x = on_a_sphere(30, 12) if kind == "sphere" else images(kind, 60)
    share = ends(hidden_layer_kernel(x))[0] / torch.linalg.matrix_norm(x, 2).item() ** 2
    spread = unit_spread(x, 2000, generator=generator())
    assert 1 <= spread <= 1.1 / share
    if kind == "white":
        assert spread == pytest.approx(2.0, rel=0.1)
