"""Zhao 2024, end of section 4 and appendix B: convolutional layers; and what holds when filters are shared."""

import itertools

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from gnlib import SecondMoment, whiten
from gnlib.bounds import zhao_lemma_2
from gnlib.chapters import results
from gnlib.chapters.convolution.bounds import convolution_bound, sharp_convolution
from gnlib.chapters.convolution.gauss_newton import convolution_gauss_newton, path_moment
from gnlib.chapters.convolution.networks import convolution_weights, toeplitz
from gnlib.gauss_newton import linear_gauss_newton
from tests.strategies import (
    EPS,
    a_hundred,
    data_condition,
    exact,
    gaussian,
    hundreds,
    jacobian,
    kron,
    nonzero_eigenvalues,
    orthogonal,
    samples,
    seeds,
    up_to_rounding,
)

CONVOLVE = {1: functional.conv1d, 2: functional.conv2d}
tens = settings(hundreds, max_examples=20)


def outputs(filters, x, strides=None, paddings=None):
    """Return the outputs of the network by torch alone."""
    for i, w in enumerate(filters):
        stride, padding = strides[i] if strides else 1, paddings[i] if paddings else 0
        x = CONVOLVE[x.ndim - 2](x, w, stride=stride, padding=padding)
    return x


def shared_jacobian(filters, x, strides=None, paddings=None):
    """Return the derivative of all outputs by the filters, sample-major, from automatic differentiation alone."""

    def flat(*weights):
        return outputs(weights, x, strides, paddings).flatten()

    parts = torch.func.jacrev(flat, argnums=tuple(range(len(filters))))(*filters)
    return torch.cat([part.flatten(1) for part in parts], 1)


def true_values(filters, x, strides=None, paddings=None):
    return nonzero_eigenvalues(shared_jacobian(filters, x, strides, paddings), len(x))


@st.composite
def some_filters(draw, *shape):
    """Draw the filters of a layer, in general position or not."""
    seed, kind = draw(seeds), draw(st.sampled_from(["gaussian", "integer", "scaled", "one tap", "all equal", "zero"]))
    w = gaussian(seed, *shape)
    if kind == "integer":
        return w.round()
    if kind == "scaled":
        return w * draw(st.sampled_from([1e-2, 1e2]))
    if kind == "one tap":
        return torch.where(torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.3, w, 0)
    if kind == "all equal":
        return w[:1, :1].expand(shape).clone()
    return w * (kind != "zero")


@st.composite
def networks(draw, depth=(1, 3), axes=(1, 2), strides=3, padding=2, channels=4, hidden=None, inputs=3):
    """Draw a linear convolutional network and data for it."""
    depth, axes = draw(st.integers(*depth)), draw(st.integers(*axes))
    kernels = [[draw(st.integers(1, 3)) for _ in range(axes)] for _ in range(depth)]
    stride, pad = ([draw(st.integers(*ends)) for _ in range(depth)] for ends in ((1, strides), (0, padding)))
    size = [draw(st.integers(1, 8 if axes == 1 else 4)) for _ in range(axes)]
    at = size
    for kernel, s, p in zip(kernels, stride, pad, strict=True):
        assume(all(q + 2 * p >= k for q, k in zip(at, kernel, strict=True)))
        at = [(q + 2 * p - k) // s + 1 for q, k in zip(at, kernel, strict=True)]
    inner = st.integers(1, channels) if hidden is None else hidden
    counts = [draw(st.integers(1, inputs)), *(draw(inner) for _ in range(depth - 1)), draw(st.integers(1, 2))]
    filters = [draw(some_filters(counts[i + 1], counts[i], *kernels[i])) for i in range(depth)]
    flat = draw(samples(counts[0] * torch.Size(size).numel()))
    return filters, flat.reshape(len(flat), counts[0], *size), stride, pad


def one_dimensional(depth=(1, 3)):
    """Draw a network as the paper has it: one dimension, stride 1, no padding, one input channel."""
    return networks(depth, (1, 1), strides=1, padding=0, inputs=1)


@st.composite
def filter_banks(draw):
    m, k = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return draw(some_filters(m, k)), gaussian(draw(seeds), draw(st.integers(k, 9)))


@pytest.mark.claim("Appendix B, convolution", verdict="holds")
@hundreds
@given(filter_banks())
def test_entries_of_a_convolution_are_inner_products_of_filters_and_pieces(bank):
    w, x = bank
    (m, k), d = w.shape, len(x)
    printed = torch.stack([torch.stack([w[i] @ x[j : j + k] for j in range(d - k + 1)]) for i in range(m)])
    assert torch.allclose(printed, functional.conv1d(x[None], w[:, None]), rtol=1e-12, atol=1e-10)


def printed_toeplitz(w, d):
    """Return T of appendix B for one filter, written entry by entry."""
    matrix = torch.zeros(d - len(w) + 1, d, dtype=w.dtype)
    for row in range(len(matrix)):
        for tap in range(len(w)):
            matrix[row, row + tap] = w[tap]
    return matrix


@pytest.mark.claim("Appendix B, Toeplitz matrix of filters", verdict="holds")
@hundreds
@given(filter_banks())
def test_stacked_toeplitz_matrices_are_the_convolution_row_by_row(bank):
    w, x = bank
    matrix = torch.cat([printed_toeplitz(row, len(x)) for row in w])
    assert torch.equal(toeplitz(w[:, None], len(x)), matrix)
    assert torch.allclose(matrix @ x, functional.conv1d(x[None], w[:, None]).flatten(), rtol=1e-12, atol=1e-10)


@pytest.mark.claim("Appendix B, Toeplitz matrix of a layer", verdict="holds")
@hundreds
@given(one_dimensional((2, 3)))
def test_the_block_of_two_channels_is_the_toeplitz_matrix_of_their_filter(problem):
    filters, x, _, _ = problem
    d = x.shape[2]
    for w in filters:
        (out, fan_in, k), after = w.shape, d - w.shape[2] + 1
        matrix = toeplitz(w, d)
        assert matrix.shape == (out * after, fan_in * d)
        blocks = matrix.reshape(out, after, fan_in, d)
        for i, j in itertools.product(range(out), range(fan_in)):
            assert torch.equal(blocks[i, :, j], printed_toeplitz(w[i, j], d))
        d = d - k + 1


@pytest.mark.claim("Eq. 15", verdict="holds if")
@hundreds
@given(one_dimensional((2, 3)))
def test_convolutions_from_the_right_are_one_with_the_effective_kernel(problem):
    filters, x, _, _ = problem
    h = torch.eye(filters[0].shape[1]).double()[..., None]  # (out, in, taps), a product of polynomials
    for w in filters:
        total = torch.zeros(len(w), h.shape[1], w.shape[2] + h.shape[2] - 1).double()
        for tap in range(w.shape[2]):
            total[:, :, tap : tap + h.shape[2]] += torch.einsum("mn,nct->mct", w[:, :, tap], h)
        h = total
    scale = 1 + x.abs().max() * torch.stack([w.abs().sum() for w in filters]).prod()
    assert (functional.conv1d(x, h) - outputs(filters, x)).abs().max() <= 1e-13 * scale


@pytest.mark.claim("Eq. 15", verdict="holds if")
def test_the_operation_is_not_associative():
    first, second, x = exact([[[1, 2]]]), exact([[[3, 4]]]), exact([[[1, 0, 0]]])
    from_the_right = functional.conv1d(functional.conv1d(x, first), second)
    from_the_left = functional.conv1d(x, functional.conv1d(first, second))
    assert from_the_right.tolist() == [[[3]]]
    assert from_the_left.tolist() == [[[11, 0, 0]]]


@pytest.mark.claim("Eq. 15", verdict="holds if")
@pytest.mark.parametrize("first, second", [(5, 2), (2, 2), (7, 7), (4, 1)])
def test_the_operation_shortens_filters_and_the_effective_kernel_is_longer_than_both(first, second):
    filters = [gaussian(0, 1, 1, first), gaussian(1, 1, 1, second)]
    assert functional.conv1d(*filters).shape[2] == first - second + 1 <= first
    x = torch.eye(first + second - 1).double()[:, None]
    assert outputs(filters, x).shape[2] == 1 and outputs(filters, x).all()  # it reads as many places as that


@pytest.mark.claim("Eq. 16", verdict="holds")
@hundreds
@given(networks())
def test_a_network_is_the_product_of_its_toeplitz_matrices(problem):
    filters, x, strides, paddings = problem
    size, z, scale = x.shape[2:], x.flatten(1), 1 + x.abs().max()
    for i, w in enumerate(filters):
        matrix = toeplitz(w, size, strides[i], paddings[i])
        size = outputs(filters[: i + 1], x, strides, paddings).shape[2:]
        z, scale = z @ matrix.mT, scale * (1 + w.abs().sum())
    assert (z - outputs(filters, x, strides, paddings).flatten(1)).abs().max() <= 1e-13 * scale


def toeplitz_chain(filters, x):
    size, chain = x.shape[2], []
    for w in filters:
        chain.append(toeplitz(w, size))
        size = size - w.shape[2] + 1
    return chain


def same_values(values, others, tolerance=1e-9):
    """Say whether the non-zero eigenvalues agree, those being zero that only one side counts."""
    size = max(len(values), len(others))
    padded = [torch.cat([v, v.new_zeros(size - len(v))]) for v in (values, others)]
    scale = max([v[0].item() for v in (values, others) if len(v)], default=0)
    return (padded[0] - padded[1]).abs().max().item() <= tolerance * scale if size else True


@pytest.mark.claim("Appendix B with Eq. 5", verdict="fails")
@a_hundred
@given(one_dimensional((2, 3)))
def test_eq_5_with_toeplitz_matrices_has_a_parameter_for_each_of_their_entries(problem):
    filters, x, _, _ = problem
    chain = toeplitz_chain(filters, x)
    formula = torch.linalg.eigvalsh(linear_gauss_newton(chain, SecondMoment.from_data(x[:, 0])).dense()).flip(0)
    assert same_values(nonzero_eigenvalues(jacobian(chain, x[:, 0]), len(x)), formula.clamp_min(0))


ONE_AND_TWO = [exact([[[1]]]), exact([[[1, 0]]])]  # one filter of one tap, and one of two
WHITE = 2**0.5 * torch.eye(2).double()[:, None]  # two samples, whose second moment is the identity


@pytest.mark.claim("Appendix B with Eq. 5", verdict="fails")
def test_eq_5_with_toeplitz_matrices_has_other_eigenvalues():
    assert true_values(ONE_AND_TWO, WHITE).tolist() == pytest.approx([2, 1], rel=1e-12)
    formula = linear_gauss_newton(toeplitz_chain(ONE_AND_TWO, WHITE), torch.eye(2).double()).dense()
    assert torch.equal(formula, 2 * torch.eye(2).double())


@pytest.mark.claim("Appendix B with Lemma 2", verdict="fails")
def test_lemma_2_with_toeplitz_matrices_is_below_the_condition_number():
    assert zhao_lemma_2(toeplitz_chain(ONE_AND_TWO, WHITE), torch.eye(2).double()).second == pytest.approx(1, rel=1e-12)
    values = true_values(ONE_AND_TWO, WHITE)
    assert (values[0] / values[-1]).item() == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Appendix B with Lemma 2", verdict="fails")
@pytest.mark.parametrize("m", [2, 3])
def test_hidden_layers_as_wide_as_the_lemma_asks_for_do_not_help(m):
    first, second = torch.zeros(m, 1, 1).double(), torch.zeros(1, m, 2).double()
    first[0, 0, 0] = second[0, 0, 0] = 1
    chain = toeplitz_chain([first, second], WHITE)
    assert chain[0].shape[0] == 2 * m > 2
    assert zhao_lemma_2(chain, torch.eye(2).double()).first == pytest.approx(1, rel=1e-12)
    values = true_values([first, second], WHITE)
    assert (values[0] / values[-1]).item() == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Appendix B with Lemma 2", verdict="fails")
@hundreds
@given(seeds, st.integers(2, 4), st.integers(0, 4))
def test_a_family_exceeds_it_whatever_the_small_first_layer_and_the_data(seed, k, extra):
    """With an unfolded second layer near the identity and a small first layer, filters count paths, which differ."""
    d = 2 * k - 1 + extra
    x = whiten(gaussian(seed, 2 * d, d))[:, None]
    first = 1e-4 * gaussian(seed + 1, k, 1, k)
    second = orthogonal(seed + 2, k)[None]
    values = true_values([first, second], x)
    bound = zhao_lemma_2(toeplitz_chain([first, second], x), SecondMoment.from_data(x[:, 0])).first
    assert (values[0] / values[-1]).item() == pytest.approx(k, rel=1e-3)
    if extra == 0:  # one output: the bound says 1
        assert bound == pytest.approx(1, rel=1e-3)


@pytest.mark.claim("Appendix B with Lemma 2", verdict="fails")
@a_hundred
@given(seeds, st.integers(2, 5))
def test_filters_of_one_tap_are_far_below_it(seed, d):
    filters, x = [gaussian(seed, 1, 1, 1), gaussian(seed + 1, 1, 1, 1)], gaussian(seed + 2, d + 3, 1, d)
    assert len(true_values(filters, x)) == 1  # so that the condition number is one
    bound = zhao_lemma_2(toeplitz_chain(filters, x), SecondMoment.from_data(x[:, 0]))
    assert bound.first == pytest.approx(data_condition(x[:, 0]), rel=1e-6)


def condition(filters, x):
    values = true_values(filters, x)
    return (values[0] / values[-1]).item()


@pytest.mark.claim("Figure 8, filters as depth and kernels as width", verdict="fails")
def test_a_second_filter_lowers_the_condition_number():
    x = 3**0.5 * torch.eye(3).double()[:, None]
    one = [exact([[[2, 1]]]), exact([[[1, 2]]])]
    two = [exact([[[2, 1]], [[1, -2]]]), exact([[[1, 2], [2, -1]]])]
    assert condition(one, x) == pytest.approx((5 + 17**0.5) ** 2 / 8, rel=1e-12)
    assert condition(two, x) == pytest.approx(2, rel=1e-12)
    assert len(true_values(one, x)) == len(true_values(two, x)) == 3


@pytest.mark.claim("Figure 8, filters as depth and kernels as width", verdict="fails")
@pytest.mark.parametrize("view", ["pixels in a line", "squares"])
def test_on_whitened_images_more_filters_lower_it_and_larger_kernels_raise_it(view):
    kept = [row for row in results.kept("convolution") if row["view"] == view]
    kernels = sorted({row["kernel"] for row in kept})

    def median(kernel, filters):
        found = [row["kappa"] for row in kept if (row["kernel"], row["filters"]) == (kernel, filters)]
        return torch.tensor(found).median().item()

    assert all(median(k, 2) > median(k, 8) > median(k, 64) for k in kernels)
    values = [median(k, 64) for k in kernels]
    assert values == sorted(values) and values[-1] > 4 * values[0]


def sharing(filters, x, strides, paddings):
    """Return the matrix E of zeros and ones that puts each tap at all its places in the Toeplitz matrices."""
    blocks = []
    for i, w in enumerate(filters):
        units = torch.eye(w.numel()).double().reshape(-1, *w.shape)
        size = outputs(filters[:i], x, strides, paddings).shape[2:]
        blocks.append(torch.stack([toeplitz(unit, size, strides[i], paddings[i]).flatten() for unit in units], 1))
    return torch.block_diag(*blocks), [
        toeplitz_of(blocks[i] @ w.flatten(), filters, i, x, strides, paddings) for i, w in enumerate(filters)
    ]


def toeplitz_of(entries, filters, i, x, strides, paddings):
    before, after = (outputs(filters[:j], x, strides, paddings)[0].numel() for j in (i, i + 1))
    return entries.reshape(after, before)


@pytest.mark.claim("Sharing is a compression", verdict="holds")
@a_hundred
@given(networks((1, 2), (1, 1)))
def test_sharing_multiplies_the_jacobian_by_zeros_and_ones(problem):
    filters, x, strides, paddings = problem
    e, chain = sharing(filters, x, strides, paddings)
    unshared, shared = jacobian(chain, x.flatten(1)), shared_jacobian(filters, x, strides, paddings)
    assert (unshared @ e - shared).abs().max() <= 1e-12 * (1 + shared.abs().max())
    counts = e.mT @ e
    assert torch.equal(counts, counts.diag().diag())
    if shared.any():
        top, whole = (torch.linalg.svdvals(j)[0] ** 2 for j in (shared, unshared))
        assert top <= counts.max() * whole * (1 + 1e-9)


@pytest.mark.claim("Sharing is a compression", verdict="holds")
@a_hundred
@given(seeds, st.integers(1, 5), st.integers(1, 4))
def test_a_kernel_as_long_as_the_input_is_not_shared(seed, d, m):
    filters, x = [gaussian(seed, m, 1, d), gaussian(seed + 1, 2, m, 1)], gaussian(seed + 2, 6, 1, d)
    chain = toeplitz_chain(filters, x)
    assert same_values(true_values(filters, x), nonzero_eigenvalues(jacobian(chain, x[:, 0]), 6))


@pytest.mark.claim("Shared filters", verdict="holds")
@hundreds
@given(networks())
def test_virtual_patches_have_the_spectrum_of_all_samples_and_positions(problem):
    filters, x, strides, paddings = problem
    j = shared_jacobian(filters, x, strides, paddings)
    blind = [torch.ones_like(w) for w in filters]
    assume(outputs(blind, x.abs(), strides, paddings).any())
    reduced = torch.linalg.eigvalsh(convolution_gauss_newton(filters, x, strides, paddings)).flip(0)
    expected = torch.linalg.svdvals(j) ** 2 / len(x)
    scale = expected[0] + 1e-30
    size = min(len(reduced), len(expected))
    assert (reduced[:size] - expected[:size]).abs().max() <= 1e-10 * scale
    assert max([v.abs().max() for v in (reduced[size:], expected[size:]) if len(v)], default=0) <= 1e-10 * scale


@pytest.mark.claim("Shared filters", verdict="holds")
@a_hundred
@given(networks((1, 3), (1, 1), padding=0), seeds)
def test_any_patches_with_the_same_second_moment_will_do(problem, seed):
    filters, x, strides, _ = problem
    window, step = 1, 1
    for w, s in zip(reversed(filters), reversed(strides), strict=True):
        window = (window - 1) * s + w.shape[2]
    for s in strides:
        step *= s
    patches = x.unfold(2, window, step).movedim(1, 2).flatten(0, 1)  # a sample for each position
    mixed = torch.einsum("ij,jcq->icq", orthogonal(seed, len(patches)), patches)
    true = true_values(filters, x, strides)
    assert same_values(true, nonzero_eigenvalues(shared_jacobian(filters, patches, strides), len(x)))
    assert same_values(true, nonzero_eigenvalues(shared_jacobian(filters, mixed, strides), len(x)))


def unfolded(filters):
    """Return A_l and B_l, from their definition: a row or column for each choice of taps."""
    flat = [w.flatten(2) for w in filters]
    pairs = []
    for layer in range(len(flat)):
        above, below = torch.eye(flat[-1].shape[0]).double(), torch.eye(flat[0].shape[1]).double()
        for w in reversed(flat[layer + 1 :]):
            above = torch.stack([above @ w[:, :, tap] for tap in range(w.shape[2])], 1).flatten(0, 1)
        for w in flat[:layer]:
            below = torch.stack([w[:, :, tap] @ below for tap in range(w.shape[2])], 1).flatten(1)
        pairs.append((above, flat[layer].shape[2], below))
    return pairs


def path_features(filters, x, strides, paddings):
    """Return what each path carries to each output position: taps of the last layer outermost, channels innermost."""
    features = []
    for taps in itertools.product(*(range(w[0, 0].numel()) for w in reversed(filters))):
        for channel in range(x.shape[1]):
            single = [torch.zeros(1, 1, *w.shape[2:]).double() for w in filters]
            for w, tap in zip(single, reversed(taps), strict=True):
                w.view(-1)[tap] = 1
            features.append(outputs(single, x[:, channel : channel + 1], strides, paddings).flatten())
    return torch.stack(features, 1)


@pytest.mark.claim("Shared filters, sum over paths", verdict="holds")
@a_hundred
@given(networks((1, 3), (1, 2), channels=3))
def test_the_matrix_is_a_kronecker_sum_over_paths(problem):
    filters, x, strides, paddings = problem
    c, paths = len(filters[-1]), x.shape[1] * torch.tensor([w[0, 0].numel() for w in filters]).prod().item()
    assume(c * paths <= 400)
    features = path_features(filters, x, strides, paddings)
    total = sum(kron(a @ a.mT, kron(torch.eye(k).double(), b.mT @ b)) for a, k, b in unfolded(filters))
    root = kron(torch.eye(c).double(), features)
    values = torch.linalg.eigvalsh(root @ total @ root.mT / len(x)).flip(0)
    true = torch.linalg.svdvals(shared_jacobian(filters, x, strides, paddings)) ** 2 / len(x)
    size = min(len(values), len(true))
    assert (values[:size] - true[:size]).abs().max() <= 1e-10 * (true[0] + 1e-30)


@pytest.mark.claim("Shared filters, sum over paths", verdict="holds")
@a_hundred
@given(networks((1, 3), (1, 2), channels=2))
def test_the_second_moment_of_the_paths_is_that_of_the_library(problem):
    filters, x, strides, paddings = problem
    features = path_features(filters, x, strides, paddings)
    assume(features.any())
    values = torch.linalg.eigvalsh(path_moment(filters, x, strides, paddings)).flip(0)
    expected = torch.linalg.svdvals(features) ** 2 / len(x)
    size = min(len(values), len(expected))
    assert (values[:size] - expected[:size]).abs().max() <= 1e-10 * expected[0]


def true_bound(filters, x, strides, paddings):
    """Return the bound from its definition, with all paths."""
    s = torch.linalg.svdvals(path_features(filters, x, strides, paddings)) ** 2
    s = s[s > 1e-13 * s[0]]
    ends = [
        [(lambda v: (v[-1], v[0].clamp_min(0)))(torch.linalg.eigvalsh(m)) for m in (a @ a.mT, b.mT @ b)]
        for a, _, b in unfolded(filters)
    ]
    top, bottom = (sum(above[i] * below[i] for above, below in ends) for i in (0, 1))
    return (s[0] / s[-1] * top / bottom).item()


wide = st.sampled_from([1, 2, 4, 9, 12])


def finite_cases(problem):
    filters, x, strides, paddings = problem
    values = true_values(filters, x, strides, paddings)
    assume(len(values) and outputs([torch.ones_like(w) for w in filters], x.abs(), strides, paddings).any())
    kappa = (values[0] / values[-1]).item()
    assume(kappa < 1e10)
    return kappa, convolution_bound(*problem), sharp_convolution(*problem)


@pytest.mark.claim("Lemma 2 for shared filters", verdict="holds")
@hundreds
@given(networks(hidden=wide))
def test_the_condition_number_is_below_the_bound_for_shared_filters(problem):
    kappa, bound, _ = finite_cases(problem)
    assert kappa <= bound * up_to_rounding(kappa)


@pytest.mark.claim("Lemma 2 for shared filters", verdict="holds")
@a_hundred
@given(seeds, st.integers(1, 3), st.integers(1, 3), st.integers(0, 2))
def test_the_library_evaluates_the_bound_as_printed(seed, k, c, padding):
    filters = [gaussian(seed, 10, c, k), gaussian(seed + 1, 2, 10, 2)]
    problem = filters, gaussian(seed + 2, 30, c, 5), (1, 2), (0, padding)
    assert convolution_bound(*problem) == pytest.approx(true_bound(*problem), rel=1e-6)


@pytest.mark.claim("Lemma 2 for shared filters", verdict="holds")
@a_hundred
@given(seeds, st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_the_bound_is_attained_by_orthogonal_unfolded_filters(seed, k, above, extra):
    """Where the rows of all unfolded filters are orthonormal, nothing is lost."""
    m = max(k, above) + extra
    first = orthogonal(seed, m)[:, :k].reshape(m, 1, k)
    second = orthogonal(seed + 1, m)[:, :above].reshape(1, m, above)
    x = gaussian(seed + 2, 30, 1, 9)
    values, bound = true_values([first, second], x), convolution_bound([first, second], x)
    assert (values[0] / values[-1]).item() == pytest.approx(bound, rel=1e-8)


@pytest.mark.claim("Sharper bound for shared filters", verdict="holds")
@hundreds
@given(networks(hidden=wide))
def test_the_sharper_bound_lies_between(problem):
    kappa, bound, sharp = finite_cases(problem)
    assert kappa <= sharp * up_to_rounding(kappa)
    assert sharp <= bound * up_to_rounding(min(sharp, 1e12)) or sharp > 1e10  # where rounding decides what is zero


@pytest.mark.claim("Sharper bound for shared filters", verdict="holds")
@a_hundred
@given(networks((1, 1)))
def test_the_sharper_bound_is_exact_for_one_layer(problem):
    kappa, _, sharp = finite_cases(problem)
    assert sharp == pytest.approx(kappa, rel=1e-6 + 1e4 * EPS * kappa**0.5)


def counts(kernels, strides):
    """Return the number of paths from each place of the window: coefficients of a product of polynomials."""
    total, step = torch.ones(1).double(), 1
    for k, s in zip(kernels, strides, strict=True):
        taps = torch.zeros((k - 1) * step + 1).double()
        taps[::step] = 1
        total = functional.conv1d(total[None, None], taps[None, None], padding=len(taps) - 1)[0, 0]
        step *= s
    return total


@pytest.mark.claim("Many filters", verdict="holds")
@hundreds
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data(), seeds)
def test_for_white_data_the_limit_counts_paths(kernels, data, seed):
    strides = [data.draw(st.integers(1, 3)) for _ in kernels]
    paths = counts(kernels, strides)
    d = len(paths) + data.draw(st.integers(0, 3))
    x = whiten(gaussian(seed, d + 5, d))[:, None]
    values = torch.linalg.eigvalsh(path_moment([torch.ones(1, 1, k) for k in kernels], x, strides))
    positions = outputs([torch.ones(1, 1, k).double() for k in kernels], x, strides).shape[2]
    assert torch.allclose(values, positions * paths[paths > 0].sort().values, rtol=1e-9)
    assert paths[0] == 1


@pytest.mark.claim("Many filters", verdict="holds")
@pytest.mark.parametrize("a, b", list(itertools.product(range(1, 6), repeat=2)))
def test_for_two_layers_it_is_the_shorter_kernel(a, b):
    x = whiten(gaussian(a, 30, 12))[:, None]
    values = torch.linalg.eigvalsh(path_moment([torch.ones(1, 1, a), torch.ones(1, 1, b)], x))
    assert (values[-1] / values[0]).item() == pytest.approx(min(a, b), rel=1e-9)


@pytest.mark.claim("Many filters", verdict="holds")
@tens
@given(seeds, st.integers(1, 3), st.integers(1, 3), st.integers(0, 1))
def test_two_layers_of_many_filters_are_near_the_limit(seed, a, b, padding):
    generator, x = torch.Generator().manual_seed(seed), gaussian(seed, 40, 1, 6)
    problem = convolution_weights([1, 20000, 2], [a, b], generator=generator), x, 1, (0, padding)
    values, limit = (
        torch.linalg.eigvalsh(convolution_gauss_newton(*problem)),
        torch.linalg.eigvalsh(path_moment(*problem)),
    )
    kappa, limit = (v[-1] / v[v > 1e-10 * v[-1]][0] for v in (values, limit))
    assert kappa.item() == pytest.approx(limit.item(), rel=0.15)
    assert kappa * (1 - 1e-9) <= convolution_bound(*problem) <= 1.2 * limit


@pytest.mark.claim("Many filters", verdict="holds")
@pytest.mark.parametrize("seed", range(3))
def test_three_layers_of_many_filters_are_near_the_limit(seed):
    filters = convolution_weights([1, 1500, 1500, 1], [2, 2, 2], generator=torch.Generator().manual_seed(seed))
    x = whiten(gaussian(seed, 20, 6))[:, None]
    values = torch.linalg.eigvalsh(convolution_gauss_newton(filters, x))
    assert (values[-1] / values[0]).item() == pytest.approx(3, rel=0.25)  # 1, 3, 3, 1 paths


@pytest.mark.claim("Two taps or more", verdict="holds")
@hundreds
@given(st.data(), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), seeds)
def test_with_one_tap_it_is_one_and_with_more_at_least_two(data, k, m, more, seed):
    filters = [data.draw(some_filters(m, 1, k)), data.draw(some_filters(1, m, k))]
    d = 2 * k - 1 + more
    x = d**0.5 * orthogonal(seed, d)[:, None]
    assume(len(true_values(filters, x)) == 2 * k - 1)
    kappa = condition(filters, x)
    assert kappa == pytest.approx(1) if k == 1 else kappa >= 2 * (1 - 1e-9)


@pytest.mark.claim("Two taps or more", verdict="holds")
def test_two_filters_of_two_taps_attain_two():
    filters = [exact([[[1, 0]], [[0, 1]]]), exact([[[1, 0], [0, 1]]])]
    assert condition(filters, 3**0.5 * torch.eye(3).double()[:, None]) == pytest.approx(2, rel=1e-12)


ROOTS = (0, 1, -1, 2, None)  # None is the root at infinity


def polynomial(roots):
    """Return coefficients whose roots these are."""
    total = torch.ones(1).double()
    for root in roots:
        factor = exact([0, 1]) if root is None else exact([1, -root])
        padded = torch.zeros(len(total) + 1).double()
        padded[:-1] += factor[0] * total
        padded[1:] += factor[1] * total
        total = padded
    return total


@pytest.mark.claim("One filter", verdict="holds")
@hundreds
@given(*2 * [st.lists(st.sampled_from(ROOTS), max_size=3)], seeds)
def test_the_rank_with_one_filter_counts_the_common_roots(first, second, seed):
    filters = [polynomial(first)[None, None], polynomial(second)[None, None]]
    window = len(first) + len(second) + 1
    x = gaussian(seed, 3 * window, 1, window + 2)
    common = sum(min(first.count(root), second.count(root)) for root in ROOTS)
    assert len(true_values(filters, x)) == window - common
