"""Riedi 2022, sections 6.2 and 6.3, statements 39 and 40: ReLUs and other slopes, all regions, branches and batches."""

import itertools
import math

import pytest
import torch
from gnbook.piecewise_linear_maps.one_layer import layer_factors
from gnbook.random_layers import bounds as layers
from gnbook.random_layers import matrices as rm
from gnbook.shared.piecewise_linear import Layer
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.random_layers.helpers import (
    condition,
    draw,
    random_layers,
    region,
    rejected,
    scales,
    slopes,
    squares_of_any_kind,
    switches,
)
from tests.oracles import identity
from tests.strategies import exact, gaussian, instances, matrices, seeds


def corollary_40(n, r, theta):
    """Both sides of Eq. 151, on the singular values that are not zero."""
    return (1 - (2 + 2 * n + theta) / r) / 2, 1 + 1 / r


def relu_layers(seed, count=1000):
    """Random cases of Theorem 39: a layer, its activations and the numbers in the theorem."""
    generator = torch.Generator().manual_seed(seed)

    def whole(low, high):
        return int(torch.randint(low, high + 1, (), generator=generator))

    for _ in range(count):
        n = whole(5, 14)
        off = whole(0, n - 1)
        off_residual = whole(0 if off else 1, n)
        theta = 4 + (2 * math.sqrt(n) - 4) * (1 - torch.rand((), generator=generator).item())
        factor = 1 + 10.0 ** (4 * torch.rand((), generator=generator).item() - 3)
        k = rm.draw(n, 1, generator=generator)[0]
        yield k, switches(n, off_residual, generator), switches(n, off, generator), off, off_residual, theta, factor


@pytest.mark.claim("Riedi Theorem 39", verdict="holds if")
@pytest.mark.claim("Riedi Corollary 40", verdict="fails")
def test_the_bounds_for_relus_hold_as_often_as_stated():
    failures, failures_2, failures_40, allowed = [], [], [], []
    for k, d1, d, off, off_residual, theta, factor in relu_layers(0):
        n = len(k)
        nu = off + off_residual - off * off_residual / n
        assert 1 <= nu <= n and nu == pytest.approx((n**2 - (n - off) * (n - off_residual)) / n)
        r = factor * (2 + 2 * nu + theta)
        kappa = condition(region(k / (r * math.sqrt(8 * n)), d1, d), n - off).item()
        bound, failure = layers.riedi_theorem_39(n, off, off_residual, r, theta)
        assert bound == pytest.approx(2 * (1 + 1 / r) / (1 - (2 + 2 * nu + theta) / r))
        assert failure == pytest.approx(2 * math.exp(-(theta**2) / 2))
        failures.append(kappa > bound)
        allowed.append(failure)
        prime = factor  # above one
        r = factor * (prime + prime * nu + theta)
        weight = k / (r * math.sqrt(8 * n))
        kappa, s1 = condition(region(weight, d1, d), n - off).item(), torch.linalg.svdvals(weight)[0].item()
        failures_2.append(kappa > 2 * (1 + s1) / (1 - (prime + prime * nu + theta) / r))
        r = factor * (2 + 2 * n + theta)
        lower, upper = corollary_40(n, r, theta)
        singular = torch.linalg.svdvals(region(k / (r * math.sqrt(8 * n)), d1, d))[: n - off]
        failures_40.append(bool((singular[-1] < lower) or (singular[0] > upper)))
    for found in (failures, failures_2, failures_40):
        assert not rejected(torch.tensor(found), max(allowed))


@pytest.mark.claim("Riedi Theorem 39", verdict="holds if")
def test_nothing_is_left_if_the_whole_trained_layer_is_off():
    assert not region(random_layers(6, 1, 99)[0], torch.ones(6).double(), torch.zeros(6).double()).any()
    with pytest.raises(ValueError, match="fewer than n of the trained layer"):
        layers.riedi_theorem_39(6, 6, 0, 99, 4.5)


@pytest.mark.claim("Riedi Theorem 39, smaller weights for more units off", verdict="fails")
@pytest.mark.parametrize("off, off_residual", [(1, 0), (20, 20), (39, 40), (0, 40)])
def test_the_same_weights_do_whatever_units_are_off(off, off_residual):
    n, generator = 40, torch.Generator().manual_seed(0)
    for weight in random_layers(n, 30, 2):
        kappa = condition(region(weight, switches(n, off_residual, generator), switches(n, off, generator)), n - off)
        assert kappa < 2 < layers.riedi_theorem_39(n, off, off_residual, 1e6, 4.5).bound


@pytest.mark.claim("Riedi Corollary 40", verdict="fails")
def test_units_that_are_off_bring_zeros_below_any_lower_bound():
    n, off = 6, 2
    d = switches(n, off, torch.Generator().manual_seed(0))
    singular = torch.linalg.svdvals(region(random_layers(n, 1, 30)[0], torch.ones(n).double(), d))
    assert (singular[n - off :] < 1e-12).all() and singular[n - off - 1] > 0.9


@pytest.mark.claim("All regions", verdict="holds")
@instances
@given(squares_of_any_kind, scales, slopes, seeds)
def test_no_region_is_beyond_the_bounds(weight, scale, slope, seed):
    weight, n = scale * weight, len(weight)
    lower, upper = layers.all_regions(weight, slope)
    random = torch.rand(2, 40, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    corners = exact(list(itertools.product((slope, 1.0), repeat=n)))
    d = 1 - (1 - slope) * (random[1, 0] < 0.5).double()
    d = d if d.any() else torch.ones_like(d)
    between = slope + (1 - slope) * random[0]
    singular = torch.linalg.svdvals(region(weight, torch.cat([corners, between]), d))[:, : int(d.count_nonzero())]
    assert singular.max() <= upper * (1 + 1e-12) and singular.min() >= lower - 1e-12 * upper


@pytest.mark.claim("All regions", verdict="holds")
@instances
@given(st.floats(0.01, 3), st.floats(-1, 1), st.floats(-1, 0))
def test_a_rotation_attains_both_bounds(s, cosine, slope):
    weight = s * exact([[cosine, -math.sqrt(1 - cosine**2)], [math.sqrt(1 - cosine**2), cosine]])
    lower, upper = layers.all_regions(weight, slope)
    singular = torch.linalg.svdvals(region(weight, exact([1, slope]), torch.ones(2).double()))
    assert singular[0].item() == pytest.approx(upper, rel=1e-7)
    if s < 1 or (slope == 0 and 1 + cosine * s > 1e-3):  # else the bound may be zero
        assert singular[1].item() * (abs(slope) or 1) == pytest.approx(lower, abs=1e-7)


@st.composite
def branches(draw):
    """Draw the two matrices of a branch, of any inner width, hostile ones among them."""
    n, m = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    return draw(scales) * draw(matrices(m, n)), draw(scales) * draw(matrices(n, m))


@pytest.mark.claim("All regions of a branch", verdict="holds")
@instances
@given(branches(), slopes, seeds)
def test_no_region_of_a_branch_is_beyond_the_bounds(branch, slope, seed):
    (inner, outer), n = branch, branch[0].shape[1]
    m, random = len(inner), torch.rand(40, n + len(inner), generator=torch.Generator().manual_seed(seed)).double()
    lower, upper = layers.all_regions_of_branch(inner, outer, slope)
    d1 = torch.cat([exact(list(itertools.product((slope, 1.0), repeat=m))), slope + (1 - slope) * random[:, :m]])
    whole = identity(n) + outer @ (d1[:, :, None] * inner)
    d = 1 - (1 - slope) * (random[0, m:] < 0.5).double()
    d = d if d.any() else torch.ones_like(d)
    singular = torch.linalg.svdvals(whole * d)[:, : int(d.count_nonzero())]
    assert singular.max() <= upper * (1 + 1e-12) and singular.min() >= lower - 1e-12 * upper
    product = torch.linalg.matrix_norm(inner, 2).item() * torch.linalg.matrix_norm(outer, 2).item()
    middle = torch.linalg.svdvals(identity(n) + (1 + slope) / 2 * outer @ inner)
    moved = (torch.linalg.svdvals(whole) - middle).abs().max()
    assert moved <= (1 - slope) / 2 * product + 1e-12 * upper
    assert upper <= (1 + product) * (1 + 1e-12)
    assert lower >= (abs(slope) or 1) * (1 - product) - 1e-12 * upper


@pytest.mark.claim("All regions at random", verdict="holds")
@pytest.mark.parametrize("n", [1, 3, 10, 30])
@pytest.mark.parametrize("excess", [0.3, 1.0, 2.0])
def test_the_norm_is_beyond_two_roots_as_rarely_as_stated(n, excess):
    norm = torch.linalg.svdvals(draw(n, 1000))[:, 0]
    assert not rejected(norm > 2 * math.sqrt(n) + excess, math.exp(-(excess**2) / 2))


@pytest.mark.claim("All regions at random", verdict="holds")
@pytest.mark.parametrize("law", rm.LAWS)
def test_the_bound_for_all_regions_tends_to_its_limit(law):
    for r, slope in itertools.product((0.8, 2.0), (-0.5, 0.0, 0.3)):
        limit = layers.all_regions_limit(r, slope)
        if math.isfinite(limit):
            lower, upper = layers.all_regions(random_layers(400, 1, r, law)[0], slope)
            assert upper / lower == pytest.approx(limit, rel=0.05)
    assert layers.all_regions_limit(2.0) == pytest.approx(
        (math.sqrt(5.125) + 0.125**0.5) / (math.sqrt(3.125) - 0.125**0.5), rel=1e-12
    )


@pytest.mark.claim("Riedi section 6.3, weights below 1/(3n)", verdict="holds")
@instances
@given(st.integers(1, 6), seeds, st.floats(0, 1))
def test_small_entries_bound_the_condition_number_by_two_for_relus_too(n, seed, share):
    generator = torch.Generator().manual_seed(seed)
    weight = (2 * torch.rand(n, n, generator=generator, dtype=torch.float64) - 1) / (3 * n)
    if seed % 3 == 0:
        weight = weight.sign() / (3 * n)
    off = min(int(share * n), n - 1)
    for d1 in (gaussian(seed, n).sign(), switches(n, off, generator)):
        signs, mask = gaussian(seed + 1, n).sign(), switches(n, off, generator)
        assert condition(region(weight, d1, signs)) <= 2 * (1 + 1e-12)
        assert condition(region(weight, d1, mask), n - off) <= 2 * (1 + 1e-12)


def of_a_batch(products, z, diagonals):
    """kappa of the form of a batch, and the root of that of what its units see, over all directions that are seen."""
    seen = [torch.linalg.svdvals(d[:, None] * z) for d in diagonals.mT]
    whole = torch.cat(seen).sort(descending=True).values
    rank = int((whole > 1e-9 * whole[0]).sum())
    factor = torch.einsum("gkm,gd->gkmd", products, z).flatten(0, 1).flatten(1)
    singular = torch.linalg.svdvals(factor)
    assert len(singular) == rank or (singular[rank:] < 1e-9 * singular[0]).all()
    return (singular[0] / singular[rank - 1]).item(), (whole[0] / whole[rank - 1]).item()


def gain(matrix, diagonal):
    """The extreme norms of M x over the unit vectors x on the units that a diagonal keeps."""
    singular = torch.linalg.svdvals(matrix[:, diagonal != 0])
    return (singular[-1].item(), singular[0].item()) if len(singular) else (math.inf, 0.0)


@pytest.mark.claim("Riedi section 6.3, mini-batches", verdict="fails")
@instances
@given(st.floats(1e-5, 0.9), st.integers(2, 7))
def test_the_smallest_counterexample_to_the_bound_for_a_batch(epsilon, n):
    """From five units on, as Corollary 40 has it, all but the second are active on both samples."""
    weight, bias = exact([[1], [-1]] + [[1]] * (n - 2)), exact([0, (1 + epsilon) / 2] + [0] * (n - 2))
    residual = Layer(torch.zeros(n, n).double(), torch.zeros(n).double(), 0.0, 1.0)
    f = layer_factors([Layer(weight, bias, 0.0), residual], 0, exact([[1], [epsilon]]))
    assert all(condition(x, int(d.sum())) == 1 for x, d in zip(f.product, f.slopes, strict=True))
    assert f.slopes[:, 1].tolist() == [0, 1] and f.slopes.sum() == 2 * n - 1
    factor = torch.einsum("gkm,gd->gkmd", f.product, f.z).flatten(0, 1).flatten(1)
    assert condition(factor).item() == pytest.approx(math.sqrt(1 + epsilon**2) / epsilon, rel=1e-9)
    means = f.z.square().mean(0)
    assert means.max() == means.min()


@pytest.mark.claim("All regions of a batch", verdict="holds")
@instances
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), slopes, seeds)
def test_a_batch_is_within_the_bounds_of_what_its_units_see(samples, n, d, slope, seed):
    generator = torch.Generator().manual_seed(seed)
    on = torch.rand(samples, n, generator=generator) < 0.6
    on[0, 0] = True
    diagonals = torch.ones(samples, n).double().where(on, slope)
    matrices, z = gaussian(seed + 1, samples, n + seed % 3, n), gaussian(seed + 2, samples, d)
    low, high = zip(*map(gain, matrices, diagonals), strict=True)
    found, seen = of_a_batch(matrices * diagonals[:, None], z, diagonals)
    ratio = max(high) / min(low)
    assert seen / ratio * (1 - 1e-6) <= found <= seen * ratio * (1 + 1e-6)
    if slope == -1:
        assert seen == pytest.approx(condition(z).item(), rel=1e-6)


@pytest.mark.claim("All regions of a branch", verdict="holds")
@instances
@given(st.floats(-2, 2), st.floats(-2, 2), slopes)
def test_one_unit_attains_the_bounds_of_a_branch(first, second, slope):
    lower, upper = layers.all_regions_of_branch(exact([[first]]), exact([[second]]), slope)
    ends = [1 + d1 * first * second for d1 in (slope, 1.0)]
    assert upper == pytest.approx(max(map(abs, ends)) if sum(ends) >= 0 else -min(ends))
    if sum(ends) >= 0:
        assert lower == pytest.approx((abs(slope) or 1) * max(min(ends), 0), abs=1e-12)
