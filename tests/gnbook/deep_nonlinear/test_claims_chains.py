"""Bounds on the kernel of deep networks, on hostile chains and under attack; heads, shared weights, preconditioners."""

import math
from functools import partial
from itertools import pairwise

import mpmath
import pytest
import torch
from gnbook.deep_nonlinear.bound import chain_bound, head_floor, schur_ends
from gnbook.deep_nonlinear.chain import Layer, Skip, kernel, layers_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gnlib.linear.bounds import zhao_lemma_2
from gnlib.linear.moment import SecondMoment
from tests.oracles import identity
from tests.strategies import INSTANCES, attack, derivatives, exact, gaussian, matrices, seeds


def entrywise(function):
    """A module for a function that torch has no module for."""
    module = nn.Module()
    module.forward = function
    return module


ACTIVATIONS = [nn.ReLU, nn.Tanh, nn.GELU, nn.Softplus, nn.Identity]
ACTIVATIONS += [partial(nn.ReLU, inplace=True), partial(nn.LeakyReLU, 0.1)]
ACTIVATIONS += [partial(entrywise, function) for function in (torch.sin, torch.abs, torch.square)]


def linear(fan_in, out, seed, *, bias=False, scale=1.0):
    """A layer in double precision, whatever torch's global generator is at."""
    layer = nn.Linear(fan_in, out, bias=bias, device="meta")
    layer.weight = nn.Parameter(scale * gaussian(seed, out, fan_in) / fan_in**0.5)
    if bias:
        layer.bias = nn.Parameter(scale * gaussian(seed + 1, out))
    return layer


def chain(widths, activation, *, bias=False, scales=None, seed=0):
    """A plain chain: layers of weights with an activation between any two of them."""
    modules = []
    for index, (shape, scale) in enumerate(zip(pairwise(widths), scales or [1.0] * len(widths[1:]), strict=True)):
        modules += [linear(*shape, seed + 10 * index, bias=bias, scale=scale), activation()]
    return nn.Sequential(*modules[:-1])


@st.composite
def chains(draw):
    """Draw a chain and samples: of any scale, near to each other, dead, with normalisation or skips."""
    n, d, k, depth = (draw(st.integers(1, most)) for most in (5, 5, 3, 5))
    widths = [d, *(draw(st.integers(1, 8)) for _ in range(depth - 1)), k]
    scale = st.sampled_from([1e-2, 0.3, 1.0, 1.0, 3.0, 30.0])
    activation, bias, seed = draw(st.sampled_from(ACTIVATIONS)), draw(st.booleans()), draw(seeds)
    network = chain(widths, activation, bias=bias, scales=[draw(scale) for _ in widths[1:]], seed=seed)
    modules, kind = list(network), draw(st.sampled_from(["plain", "plain", "normalised", "skip", "dead", "no weight"]))
    hidden = draw(st.integers(0, len(modules) // 2))  # the layer that is changed
    inputs = modules[2 * hidden].in_features
    if kind == "normalised":
        modules.insert(2 * hidden, nn.LayerNorm(inputs, eps=1e-3, elementwise_affine=False))
    elif kind == "skip":
        factor = draw(st.sampled_from([1e-3, 0.5, 1.0, -1.0, 10.0]))
        modules.insert(2 * hidden, Skip(chain([inputs, 3, inputs], activation, bias=bias, seed=seed % 999), factor))
    elif kind in ("dead", "no weight"):
        with torch.no_grad():
            modules[2 * hidden].weight[:: 2 if kind == "dead" else 1] = 0.0
    x = gaussian(seed + 5, n, d) * draw(scale)
    spoilt = draw(st.sampled_from(["free", "free", "near", "equal", "zero", "graded"]))
    if spoilt in ("near", "equal"):
        x = x[:1] + (draw(st.sampled_from([1e-6, 1e-3, 0.1])) if spoilt == "near" else 0) * x
    elif spoilt == "zero":
        x[0] = 0.0
    elif spoilt == "graded":
        x *= 10.0 ** -torch.arange(n, dtype=torch.float64)[:, None]
    return nn.Sequential(*modules), x


def jacobian(network, x):
    """The Jacobian of all outputs by all parameters, sample-major."""
    return derivatives(network(x.clone()), tuple(network.parameters()))


def spectrum(network, x):
    """All nk eigenvalues of the Gauss-Newton matrix in its Gram form, descending, from singular values."""
    rows = jacobian(network, x)
    values = torch.linalg.svdvals(rows) ** 2 / len(x)
    return torch.cat([values, values.new_zeros(len(rows) - len(values))])


hostile = settings(max_examples=2 * INSTANCES)


def ends(matrix):
    return torch.linalg.eigvalsh(matrix)[..., [0, -1]].unbind(-1)


def product(a, b):
    """Blocks a_ij B_ij, for B of shape (n k, n k)."""
    k = b.shape[-1] // a.shape[-1]
    return a.repeat_interleave(k, -2).repeat_interleave(k, -1) * b


def blocks_of(b, n):
    """The diagonal blocks of a matrix."""
    return b.view(n, -1, n, len(b) // n).diagonal(dim1=0, dim2=2).permute(2, 0, 1)


@pytest.mark.claim("Kernel of a chain", "Bound for any depth", "Sharper bound for any depth", verdict="holds")
@pytest.mark.claim("Condition number from below", verdict="holds")
@hostile
@given(chains())
def test_the_spectrum_is_within_the_bounds_of_which_the_sharper_are_never_worse_than_the_others(problem):
    network, x = problem
    layers, values, n, rows = layers_of(network, x), spectrum(network, x), len(x), jacobian(network, x)
    rounding = 1e-12 * values[0].item() + 1e-300
    torch.testing.assert_close(kernel(layers), rows @ rows.mT / n, rtol=0, atol=rounding)
    ours, plain = chain_bound(layers).ends, schur_ends(layers)
    for found in (ours, plain):
        assert found.smallest.lower - rounding <= values[-1].item() <= found.smallest.upper + rounding
        assert found.largest.lower - rounding <= values[0].item() <= found.largest.upper + rounding
    slack = 1e-12 * plain.largest.upper + 1e-300
    least = most = 0  # by the better of the two bounds of each end that the first claim of the page gives
    for features, reach in layers:
        a, b = features @ features.mT, reach.flatten(0, 1) @ reach.flatten(0, 1).mT
        (a_least, a_most), (b_least, b_most), own = ends(a), ends(b), ends(reach @ reach.mT)
        least += max((a_least * own[0].min()).item(), (b_least * a.diagonal().min()).item(), 0.0) / n
        most += min(a_most * own[1].max(), b_most * a.diagonal().max()).item() / n
    assert ours.smallest.lower >= max(plain.smallest.lower, least) - slack
    assert ours.largest.upper <= min(plain.largest.upper, most) + slack


@pytest.mark.claim("Equal correlations", verdict="holds")
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 4), seeds)
def test_where_all_samples_are_alike_the_bounds_are_the_ends(n, k, depth, seed):
    """Features, and derivatives, at equal angles of at most ninety degrees; outputs that are apart and alike."""
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for _ in range(depth):
        r, q, size, slope = torch.rand(4, generator=generator, dtype=torch.float64)
        features, derivatives = (
            scale * torch.cat([(1 - c).sqrt() * identity(n), c.sqrt().expand(n, 1)], 1)
            for scale, c in ((size, r), (slope, q))
        )
        layers.append(Layer(features, torch.einsum("im,kl->ikml", derivatives, identity(k)).flatten(2)))
    layers.append(Layer(layers[0].features, identity(k).expand(n, k, k)))
    least, most = (end.item() for end in ends(kernel(layers)))
    found = chain_bound(layers).ends
    assert found.smallest == pytest.approx((least,) * 2, rel=1e-9, abs=1e-13)
    assert found.largest == pytest.approx((most,) * 2, rel=1e-9)


@pytest.mark.claim("Sharper bound for any depth", verdict="holds")
@pytest.mark.parametrize("angle", [1e-3, 1e-6, 1e-8, 1e-10])
def test_two_samples_that_are_nearly_equal_keep_their_digits(angle):
    """9 (1 - r s) at angles so small that r and s round to one, of norms that make up for each other."""
    features = exact([[1, 0], [3 * math.cos(angle), 3 * math.sin(angle)]])
    derivatives = exact([[3, 0], [math.cos(3 * angle), math.sin(3 * angle)]])[:, None]
    nothing = Layer(torch.zeros(2, 1).double(), torch.ones(2, 1, 1).double())
    found = chain_bound([Layer(features, derivatives), nothing]).ends.smallest.lower
    with mpmath.workdps(50):
        expected = float(9 * (1 - mpmath.cos(angle) * mpmath.cos(3 * angle)) / 2)
    assert found == pytest.approx(expected, rel=1e-6, abs=0)


@pytest.mark.claim("Linear chains", verdict="holds")
@given(st.integers(1, 5), st.integers(0, 2), st.integers(1, 3), st.integers(1, 4), seeds)
def test_for_linear_chains_it_is_never_worse_than_lemma_2(n, more, k, depth, seed):
    d = n + more
    widths = [d, *(d + (seed >> i) % 3 for i in range(depth - 1)), k]
    network, x = chain(widths, nn.Identity, seed=seed), gaussian(seed + 7, n, d)
    weights = [weight.detach() for weight in network.parameters()]
    lemma = zhao_lemma_2(weights, SecondMoment.from_data(x)).first
    layers = layers_of(network, x)
    for found in (schur_ends(layers), chain_bound(layers).ends):
        assert found.condition.upper <= lemma * (1 + 1e-8) or lemma == math.inf


@pytest.mark.claim("Norms for blocks", verdict="fails")
def test_norms_of_derivatives_do_not_replace_their_blocks():
    """One sample, two outputs, a first layer of zeros: K is W W^T, and norms know its trace alone."""
    network = nn.Sequential(linear(1, 2, 0, scale=0.0), nn.Identity(), linear(2, 2, 1))
    network[2].weight.data = exact([[2, 0], [0, 1]])
    layers = layers_of(network, exact([[1]]))
    assert ends(kernel(layers)) == (1, 4) and chain_bound(layers).ends.condition == (4, 4)


@st.composite
def factors(draw):
    """Draw a matrix (n, n) and one of blocks (n k, n k), singular, scaled and repeated ones among them."""
    n, k, m, w = (draw(st.integers(1, most)) for most in (5, 3, 6, 12))
    features, reach = draw(matrices(n, m)), draw(matrices(n * k, w))
    if draw(st.booleans()):
        grades = torch.logspace(0, -6, n, dtype=torch.float64)
        features, reach = features * grades[:, None], reach * grades.flip(0).repeat_interleave(k)[:, None]
    return features @ features.mT, reach @ reach.mT


def assert_below(smaller, larger, scale=0.0):
    scale = max(scale, smaller.abs().max().item(), larger.abs().max().item())
    assert torch.linalg.eigvalsh(larger - smaller)[0].item() >= -1e-12 * scale * len(larger)


def relative_ends(matrix, metric):
    """The least and the largest number that a multiple of the metric has to be below and above a matrix."""
    root = torch.linalg.inv(torch.linalg.cholesky(metric))
    return ends(root @ matrix @ root.mT)


@pytest.mark.claim("Products of blocks", "Four corners", "What a layer mends", verdict="holds")
@given(factors(), seeds)
def test_what_is_below_and_above_both_factors_makes_bounds_of_the_product(problem, seed):
    (a, b), draw = problem, torch.Generator().manual_seed(seed)
    n, whole = len(a), product(a, b)
    k = len(b) // n
    (a_least, a_most), (b_least, b_most), own = ends(a), ends(b), blocks_of(b, n)
    diagonal = torch.kron(a.diagonal().diag(), torch.eye(k, dtype=a.dtype))
    for (least, most), middle in (((a_least, a_most), torch.block_diag(*own)), ((b_least, b_most), diagonal)):
        assert_below(least * middle, whole, (a_most * b_most).item())  # by which the least ones are rounded
        assert_below(whole, most * middle)
    smallest, largest = ends(own)  # the product is no worse than its features but for the spread of the blocks
    slack = 1e-12 * (a_most * largest.max()).item() + 1e-300
    assert ends(whole)[1] <= a_most * largest.max() + slack and ends(whole)[0] >= a_least * smallest.min() - slack
    d = torch.rand(n, generator=draw, dtype=a.dtype).add(0.1).diag()
    e = torch.rand(n, k, k, generator=draw, dtype=a.dtype) + 3 * torch.eye(k)
    e = torch.block_diag(*(e @ e.mT))
    (d_least, d_most), (e_least, e_most) = (relative_ends(*pair) for pair in ((a, d), (b, e)))

    def corner(p, q):
        return product(p * d, b) + product(a, q * e) - product(p * d, q * e)

    torch.testing.assert_close(corner(1, 1), torch.block_diag(*blocks_of(corner(1, 1), n)), rtol=0, atol=0)
    size = (d_most * e_most * d.max() * e.max()).item()  # of what cancels in a corner
    for below in (corner(d_least, e_least), corner(d_most, e_most)):
        assert_below(below, whole, size)
    for above in (corner(d_most, e_least), corner(d_least, e_most)):
        assert_below(whole, above, size)


def gaps(features, derivatives):
    """How far the ends of the factors, scaled, and of their product are from one, differentiable; for a batch."""
    features = features / features.norm(dim=-1, keepdim=True)
    values, vectors = torch.linalg.eigh(derivatives @ derivatives.mT)
    flat = ((vectors / values.sqrt()[..., None, :]) @ vectors.mT @ derivatives).flatten(-3, -2)
    a, b = features @ features.mT, flat @ flat.mT
    return [(1 - least, most - 1) for least, most in map(ends, (a, b, product(a, b)))]


@pytest.mark.claim("Two gaps", verdict="holds")
@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 6), st.integers(0, 9), seeds)
def test_the_gaps_of_a_product_are_at_most_products_of_gaps(n, k, m, more, seed):
    (a, a_top), (b, b_top), (low, high) = gaps(gaussian(seed, n, m), gaussian(seed + 1, n, k, k + more))
    assert low <= min(a * b, a_top * b_top) + 1e-12
    assert high <= min(a_top * b, a * b_top) + 1e-12


@pytest.mark.claim("Two gaps", verdict="holds")
@pytest.mark.parametrize("n, k", [(2, 1), (3, 2)])
@pytest.mark.parametrize("end", ["low", "high"])
def test_an_attack_attains_the_products_of_gaps_and_does_not_pass_them(n, k, end):
    def excess(features, derivatives):
        (a, a_top), (b, b_top), (low, high) = gaps(features, derivatives)
        if end == "low":
            return low / torch.minimum(a * b, a_top * b_top) - 1
        return high / torch.minimum(a_top * b, a * b_top) - 1

    assert -1e-2 < attack(excess, gaussian(1, 32, n, 3), gaussian(2, 32, n, k, 6)) < 1e-7


@pytest.mark.claim("Linear head", verdict="holds")
@given(chains())
def test_the_head_of_a_chain_holds_its_smallest_eigenvalue_up(problem):
    network, x = problem
    values, head, rounding = spectrum(network, x), network[-1], 1e-12 * spectrum(network, x)[0].item() + 1e-300
    assert head_floor(network, x, head) <= values[-1].item() + rounding
    features = network[:-1](x.clone()).detach()  # and where nothing else trains it is the smallest eigenvalue
    values = spectrum(head, features)
    assert head_floor(head, features, head) == pytest.approx(values[-1].item(), abs=1e-12 * values[0].item() + 1e-300)


@pytest.mark.claim("Shared weights and samples that mix", verdict="holds")
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.sampled_from(ACTIVATIONS), seeds)
def test_weights_that_are_shared_among_positions(n, k, size, activation, seed):
    """A convolution on a line, as a layer of weights on patches. Samples do not mix, and the sum is block diagonal."""
    patches = gaussian(seed, n, 6).unfold(1, size, 1)
    weight = gaussian(seed + 1, 4, size).requires_grad_()
    products = patches @ weight.mT
    outputs = activation()(products.clone()).flatten(1) @ gaussian(seed + 2, 4 * patches.shape[1], k)
    by_weight, by_products = derivatives(outputs, [weight, products]).split([weight.numel(), products.numel()], 1)
    each, features = by_products.reshape(n * k, -1, 4), patches.flatten(0, 1)  # a row for each position
    whole, reach, gram = by_weight @ by_weight.mT, torch.einsum("apw,bpw->ab", each, each), features @ features.mT
    least, most = ends(gram)
    slack = 1e-11 * (most * reach.abs().max()).item() + 1e-300
    torch.testing.assert_close(torch.einsum("apw,pq,bqw->ab", each, gram, each), whole, rtol=0, atol=slack)
    assert ends(whole - least.clamp_min(0) * reach)[0] >= -slack and ends(most * reach - whole)[0] >= -slack
    assert torch.equal(reach, torch.block_diag(*blocks_of(reach, n)))


@pytest.mark.claim("Layer normalisation", verdict="holds")
@given(st.integers(1, 5), st.integers(2, 6), st.booleans(), seeds)
def test_features_behind_a_normalisation_are_of_one_norm(n, m, bias, seed):
    normalised = nn.LayerNorm(m, eps=0.0, elementwise_affine=False)
    network = nn.Sequential(linear(3, m, seed % 999), nn.Tanh(), normalised, linear(m, 2, 1, bias=bias))
    features = layers_of(network, gaussian(seed, n, 3))[1].features
    torch.testing.assert_close(features.square().sum(1), features.new_full((n,), m + bias), rtol=1e-9, atol=0)
    torch.testing.assert_close(features[:, :m].sum(1), features.new_zeros(n), rtol=0, atol=1e-9)


@pytest.mark.claim("Input-side preconditioning", verdict="holds")
@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from(ACTIVATIONS), st.sampled_from([0.0, 1e-3, 1.0]), seeds)
def test_a_layer_preconditioned_by_its_features_is_within_damping_of_its_diagonal_blocks(
    n, k, activation, damping, seed
):
    """Against the Jacobian, with the preconditioner formed in full."""
    network, x = chain([6, 9, 9, k], activation, seed=seed), gaussian(seed + 3, n, 6)
    parts = jacobian(network, x).split([weight.numel() for weight in network.parameters()], 1)
    for (features, reach), part in zip(layers_of(network, x), parts, strict=True):
        s = torch.linalg.svdvals(features)
        if len(s) < n or s[-1] < 1e-3 * s[0]:
            continue
        second = features.mT @ features + damping * identity(features.shape[1])
        units = part.view(n * k, -1, features.shape[1])
        found = torch.einsum("aui,ij,buj->ab", units, torch.linalg.pinv(second, rtol=1e-9, hermitian=True), units)
        blocks = torch.block_diag(*(reach @ reach.mT))
        least, most = (v**2 / (v**2 + damping) for v in (s[-1], s[0]))
        slack = 1e-7 * blocks.abs().max().item() + 1e-300
        assert ends(found - least * blocks)[0] >= -slack and ends(most * blocks - found)[0] >= -slack
