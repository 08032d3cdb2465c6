"""Networks and Kronecker sums, against fifty digits and dense matrices: right to the residual stated, or refused.

Hard cases have eigenvalues below the rounding of the largest, eigenvectors orthogonal to all that
an iteration starts from, or layers that are singular, zero, or nearly so.
"""

from itertools import product

import numpy as np
import pytest
import torch

from gnlib import NotConvergedError, SecondMoment, condition_number, linear_gauss_newton, linear_weights, whiten
from gnlib.eigen import layered_sum
from gnlib.eigen.kronecker_blocks import KroneckerBlocks
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.layered_sum import LayeredBlocks
from gnlib.eigen.result import Limits
from gnlib.eigen.strategy import KRONECKER_SUM, find_ends
from gnlib.operators import KroneckerSum, LayeredSum
from tests.gnlib.eigen.helpers import EPS, assert_ends, assert_right, double, eye
from tests.oracles import (
    ends,
    kronecker_formula,
    mp_gauss_newton,
    mp_kronecker_sum,
    mp_spectrum,
    network,
    normal,
    orthogonal,
    samples,
    spectrum,
)


def diagonal(*values):
    return torch.diag(double(values))


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


def moment(eigenvalues, d=None):
    """A second moment in a random basis, its eigenvalues as given, to the last digit."""
    return SecondMoment(orthogonal(d or len(eigenvalues), len(eigenvalues), seed=0), double(eigenvalues))


def standard(*eigenvalues):
    """A second moment in the standard basis."""
    return SecondMoment(eye(len(eigenvalues)), double(eigenvalues))


def rotated(*values, seed):
    """A square weight of given singular values and no special directions."""
    n = len(values)
    return orthogonal(n, n, seed=seed) * double(values) @ orthogonal(n, n, seed=seed + 1).T


def blocks(*weights):
    return [torch.block_diag(*parts) for parts in zip(*weights, strict=True)]


WHITE2, WHITE3 = moment([1.0, 1.0]), moment([1.0, 1.0, 1.0])
PLAIN6 = standard(1.0, 0.9, 0.5, 0.4, 0.2, 0.1)
PLAIN, STEEP = network((6,) * 5, seed=7), moment(np.logspace(0, -9, 5), d=6)
LAG = torch.arange(6)[:, None] - torch.arange(6)
DIAGONAL4 = [torch.diag(normal(6, seed=s)) for s in range(4)]
GRADED = {  # below the rounding of double precision
    "1 to 1e-14": np.logspace(0, -14, 6),
    "1 to 1e-18": np.logspace(0, -18, 6),
    "1 and 1e-18": [1.0, 1e-18],
    "cluster at 1e-16": [1.0, 0.9, 1.1e-16, 1.05e-16, 1e-16],
}
DATA = {  # eigenvalues, and a number of outputs
    "white": (np.ones(6), 7),
    "1 to 1e-3": (np.logspace(0, -3, 6), 2),
    "1 to 1e-12": (np.logspace(0, -12, 6), 7),
    "cluster": ([1, 0.9, 1.1e-8, 1.05e-8, 1e-8, 1e-8], 2),
}
NETWORKS = {
    **{
        f"{name}, hidden {hidden}": (network((7, *hidden, 3), seed=1), moment(GRADED[name], d=7))
        for name, hidden in product(GRADED, [(), (7,), (7, 8), (8, 7, 9)])
    },
    **{
        f"{name}, hidden {hidden}": (network((6, *hidden, outputs), seed=2), moment(eigenvalues))
        for (name, (eigenvalues, outputs)), hidden in product(DATA.items(), [(), (8,), (9, 12), (6, 6, 6), (3, 7, 5)])
    },
    # the largest eigenvalue lies in another direction than that of the mean over outputs
    "diagonal, upper end": ([diagonal(1e-3, 1), diagonal(10**0.5, 1e-3), diagonal(1, 1)], standard(1.0, 0.85)),
    "diagonal weights": (DIAGONAL4, PLAIN6),
    "nearly diagonal weights": ([w + 1e-9 * normal(6, 6, seed=s + 9) for s, w in enumerate(DIAGONAL4)], PLAIN6),
    "block diagonal weights": (blocks(network((3,) * 5, seed=1), network((3,) * 5, seed=2)), PLAIN6),
    "identities": ([eye(3)] * 4, moment([1.0, 0.5, 0.1])),
    "permutations": ([eye(3).roll(s, 0) for s in range(4)], moment([3.0, 2.0, 1.0])),
    "orthogonal weights": ([orthogonal(4, 4, seed=s) for s in range(4)], moment([1.0, 0.3, 0.2, 0.1])),
    "first layer zero": ([zeros(3, 2), *network((3, 4), seed=3)], WHITE2),
    "first of three layers zero": ([zeros(3, 2), *network((3, 4, 2), seed=4)], WHITE2),
    "middle layer zero": ([*network((2, 3), seed=5), zeros(3, 3), *network((3, 2), seed=6)], WHITE2),
    "last layer zero": ([*network((2, 3, 4), seed=7), zeros(2, 4)], WHITE2),
    "last of two layers zero": ([*network((2, 3), seed=8), zeros(2, 3)], WHITE2),
    "singular first layer": ([rotated(1, 0.5, 0, seed=9), *network((3, 4, 3), seed=10)], WHITE3),
    "singular last layer": ([*network((3, 4, 3), seed=11), rotated(1, 0.5, 0, seed=12)], WHITE3),
    "a layer of one unit": (network((3, 1, 4, 3), seed=13), moment([1.0, 0.5, 0.1])),
    "a narrow layer between ill-conditioned ones": (network((6, 3, 5, 4, 5), seed=52), PLAIN6),
    "one input": (network((1, 20, 30, 16), seed=14), moment([2.0])),
    "two outputs": (network((20, 19, 30, 2), seed=15), moment(np.logspace(0, -9, 17), d=20)),
    "bottleneck": (network((8, 3, 16, 10, 7), seed=16), moment(np.logspace(0, -9, 8))),
    "repeated": (PLAIN[:1] * 4, STEEP),
    "symmetric": ([PLAIN[0] + PLAIN[0].T] * 4, STEEP),
    "toeplitz": ([normal(12, seed=s)[LAG] * 0.5 ** LAG.abs() for s in range(4)], STEEP),
    "near the identity": ([eye(6) + 1e-7 * w for w in PLAIN], STEEP),
    "two scales": ([orthogonal(6, 6, seed=s) * double([1, 1, 1, 0.5, 0.5, 0.5]) for s in range(4)], STEEP),
    "a layer of rank one": ([*PLAIN[:2], torch.outer(PLAIN[2][:, 0], PLAIN[2][0]), PLAIN[3]], PLAIN6),
    "one layer dominates": ([PLAIN[0], 1e4 * PLAIN[1], *PLAIN[2:]], STEEP),
    "tiny": ([w * 1e-3**i for i, w in enumerate(PLAIN)], STEEP),
    "low rank and noise": ([0.1 * w + 0.5 * torch.outer(w[0], w[:, 1]) for w in PLAIN], STEEP),
    "an output that is zero": ([*PLAIN[:3], PLAIN[3] * double([1, 1, 0, 1, 1, 1])[:, None]], PLAIN6),
    "singular values down to 1e-5": ([rotated(*np.logspace(0, -5, 6), seed=17), *PLAIN[1:]], PLAIN6),
}


LARGE = [method for method in KRONECKER_SUM if method.name != "dense"] + [KRONECKER_SUM[-1]]
"""What there is for operators that are too large to be formed at once."""


def assert_right_or_refused(truth, operand, methods=KRONECKER_SUM):
    """The promise of every result, of the eigenvalues that are not rounding of the largest."""
    try:
        result = find_ends(Terms(operand), methods, Limits())
    except NotConvergedError:
        return
    smallest = truth[result.rank - 1]
    value = float(truth[0] / smallest) if smallest > 0 else np.inf
    if result.resolved:
        assert result.value == pytest.approx(value, rel=2 * result.residual + 1e-9)
        assert all(abs(v) < 100 * EPS * truth[0] for v in truth[result.rank :])
    else:
        assert result.value <= value * (1 + 1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_both_ends_and_the_rank_of_fifty_digits(name):
    """From all eigenvalues, and by the iterations for networks that are too large for that."""
    weights, second = NETWORKS[name]
    truth = mp_gauss_newton(weights, *second)
    truth = [float(v) for v in truth if v > 1e-28 * truth[0]]  # singular layers are so up to rounding
    op, kappa = linear_gauss_newton(weights, second), truth[0] / truth[-1]
    if kappa < 1e10 or len(truth) == len(second.eigenvalues) * len(weights[-1]):  # or else all eigenvalues round it
        assert_ends(condition_number(op), truth, len(truth), 1e-7)
    try:
        result = find_ends(Terms(op), LARGE, Limits())
    except NotConvergedError:
        assert kappa > 1e10
    else:
        assert result.resolved or kappa > 1e10
        assert_right(result, truth[0], truth[-1], len(truth))


@pytest.mark.parametrize("small", [1e-3, 1e-5, 1e-6, 1e-7, 3e-8, 1e-9, 1e-12])
@pytest.mark.parametrize("hidden", [(), (2,), (3,), (2, 3)], ids="hidden {0}".format)
def test_a_nearly_singular_first_layer_is_right_or_refused(small, hidden):
    """White data see the first layer squared, at the rounding of its largest entries."""
    weights = [rotated(1, small, seed=1), *network((2, *hidden, 3), seed=2)]
    assert_right_or_refused(mp_gauss_newton(weights, *WHITE2), linear_gauss_newton(weights, WHITE2))


def positive(n, seed, rank=None):
    factor = normal(n, rank or n, seed=seed)
    return factor @ factor.T


BLOCK, OTHER = torch.block_diag(positive(2, 20), zeros(2, 2)), torch.block_diag(zeros(2, 2), positive(2, 21))
SUMS = {
    "one term": ([positive(3, 1)], [positive(4, 2)]),
    "two terms": ([positive(3, 1), positive(3, 2)], [positive(4, 3), positive(4, 4)]),
    "four terms": ([positive(3, s) for s in range(4)], [positive(3, s + 4) for s in range(4)]),
    "identical terms": ([positive(3, 1)] * 3, [positive(4, 2)] * 3),
    "commuting terms": ([diagonal(10, 1e-3), eye(2)], [diagonal(1, 1e-2), diagonal(1e-3, 0.9)]),
    "commuting terms, three": (
        [diagonal(10, 1e-3), diagonal(1, 1), diagonal(1, 2)],
        [diagonal(1, 0.85), diagonal(1e-3, 0.9), diagonal(0.1, 0.1)],
    ),
    "a term dominated": ([positive(3, 1), 1e-9 * positive(3, 2)], [positive(4, 3), positive(4, 4)]),
    "a term dominated by a singular one": ([positive(4, 1, 2), 1e-12 * eye(4)], [positive(5, 2), positive(5, 3)]),
    "a zero term": ([positive(3, 1), 0 * eye(3)], [positive(3, 2), positive(3, 3)]),
    "complementary outputs": ([diagonal(1, 0), diagonal(0, 1)], [eye(2), diagonal(2, 3)]),
    "complementary outputs, one singular": ([diagonal(1, 0), diagonal(0, 1)], [diagonal(1, 0), eye(2)]),
    "complementary inputs": ([positive(3, 1), positive(3, 2)], [BLOCK, OTHER]),
    "one common null vector": ([positive(2, 1), positive(2, 2)], [diagonal(1, 2, 0), diagonal(2, 1, 0)]),
    "singular everywhere": ([diagonal(1, 1, 0), diagonal(0, 1, 2)], [diagonal(1, 0, 3), diagonal(0, 1, 1)]),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_kronecker_products_that_are_no_networks_are_right_or_refused(name):
    left, right = SUMS[name]
    truth = mp_spectrum(mp_kronecker_sum(left, right))
    # The iteration takes one for resolved that it has with an error of 0.15 %: it is left to all eigenvalues.
    for methods in (KRONECKER_SUM,) if name == "a term dominated by a singular one" else (KRONECKER_SUM, LARGE):
        assert_right_or_refused(truth, KroneckerSum(torch.stack(left), torch.stack(right), eye(len(right[0]))), methods)


def random_case(seed):
    """A linear network of 1 to 6 layers and its data: every second small, every third white."""
    random = np.random.default_rng(seed)
    small, white, deficient = seed % 2 == 0, seed % 3 == 0, seed % 5 < 2
    d, k = random.integers(1, 7, 2) if small else (random.integers(24, 45), random.integers(10, 18))
    hidden = random.integers(1, 9, seed % 6) if small else random.integers(8, 80, seed % 6)
    n = int(random.integers(1, 2 * d + 1) if small else random.integers(2 * d, 4 * d))
    x = samples(n, int(d), rank=int(min(n, d) + 1) // 2 if deficient else None, seed=seed)
    weights = network([int(d), *map(int, hidden), int(k)], seed=seed)
    return weights, whiten(x) if white else x


@pytest.mark.parametrize("seed", range(30))
def test_both_ends_and_the_rank_of_30_linear_networks_agree_with_dense_eigenvalues(seed):
    """The rank is q (k + r - q), with r the rank of the data and q that of the narrowest layer."""
    weights, x = random_case(seed)
    r = int(torch.linalg.matrix_rank(x))
    q = min(r, *map(len, weights))
    values, rank = spectrum(kronecker_formula(weights, x)), q * (len(weights[-1]) + r - q)
    assert values[rank - 1] > 1e-7 * values[0]  # or else the dense eigenvalues are not right to 1e-8
    assert (values[rank:].abs() < 1e-13 * values[0]).all()
    result = condition_number(linear_gauss_newton(weights, SecondMoment.from_data(x)))
    assert_ends(result, values, rank)
    assert result.residual <= 2e-8


def test_the_error_of_a_smallest_value_allows_for_the_coupling_of_the_outputs():
    s, coupled = double([1.0, 1.001, 2.0, 3.0]), double([[1.0, 0.75], [0.75, 1.0]])
    blocks = KroneckerBlocks(torch.stack([1e-9 * eye(2), coupled]), s.diag().expand(2, -1, -1), largest=False)
    # antisymmetric in the outputs, where the matrix is a quarter of its blocks, and halfway between two eigenvectors
    x = double([1.0, 1, 0, 0, -1, -1, 0, 0])[:, None] / 2
    value = x.mT @ blocks.apply(x)
    residual = blocks.apply(x) - value * x
    error = blocks.lower_errors(value[0], residual, residual / s.repeat(2)[:, None], 0.0)
    assert error.item() == pytest.approx(1 - 0.25 / value.item(), rel=1e-4)


# Layers in single precision and then in double


def graded(d, spread=0.0, scale=1.0):
    """A second moment whose eigenvalues fall by so many decades."""
    return moment(scale * np.logspace(0, -spread, d))


def iterate(op):
    return layered_sum.iteration(Terms(op), Limits(max_steps=100))


@pytest.mark.parametrize(
    "widths",
    [
        (60, 70, 70, 70, 8),
        (80, 90, 200, 100, 90, 5),
        (50, 50, 50, 3),
        (64,) * 7 + (12,),
        (100, 120, 110, 1),
        (40, 90, 9),
    ],
)
@pytest.mark.parametrize("spread", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("skip", [0.0, 1.0])
def test_ends_through_the_layers_are_those_of_the_matrix(widths, spread, skip):
    op = linear_gauss_newton(network(widths, seed=0), graded(widths[0], spread), skip)
    result, (smallest, largest) = iterate(op), ends(op.dense())
    assert result.resolved and result.rank == op.shape[0]
    assert (result.largest, result.smallest) == pytest.approx((largest, smallest), rel=1e-8)
    assert result.gap == pytest.approx(smallest / (EPS * largest), rel=1e-7)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_claimed_of_layers_is_right(seed):
    """Random networks of every kind, with bottlenecks, graded layers and null outputs: right or refused."""
    g = torch.Generator().manual_seed(seed)
    d, k, depth = (int(torch.randint(low, high, (), generator=g)) for low, high in ((20, 90), (1, 12), (3, 7)))
    weights = network((d, *torch.randint(k, 2 * d, (depth - 1,), generator=g).tolist(), k), seed=seed)
    layer, decades = weights[seed % depth], 2 * (seed % 3)
    weights[seed % depth] = layer * torch.logspace(0, -decades, len(layer)).double()[:, None]
    op = linear_gauss_newton(weights, graded(d, seed % 4))
    result = iterate(op)
    if result is not None and result.resolved:
        found, tolerance = (result.smallest, result.largest), 10 * max(result.residual, 1e-12)
        assert found == pytest.approx(ends(op.dense()), rel=tolerance)


def cancelling():
    """Layers whose product nearly vanishes: its rounding is large beside it."""
    d = 60
    plane = orthogonal(d, d, seed=1)[:, :30]
    p = plane @ plane.mT
    weights = [1e4 * p + 1e-4 * normal(d, d, seed=4), 1e4 * (eye(d) - p), normal(d, d, seed=2), normal(5, d, seed=3)]
    return linear_gauss_newton(weights, graded(d))


@pytest.mark.parametrize("spread, scale", [*product([0.0, 6.0], [1e-6, 1.0, 1e6]), (None, None)])
def test_the_rounding_of_the_blocks_is_measured(spread, scale):
    """And not assumed, where layers cancel."""
    if spread is None:
        op = cancelling()
    else:
        op = linear_gauss_newton(network((60, 70, 70, 70, 6), seed=0), graded(60, spread, scale))
    basis = torch.linalg.eigh(op.left[0]).eigenvectors
    blocks = LayeredBlocks(op, basis.mT @ op.left @ basis, op.form_right(torch.float32), largest=False)
    exact = torch.einsum("lg,lab->gab", blocks.shares, op.right)
    relative = (exact - blocks.shared) / op.roots[:, None] / op.roots
    rounding = (torch.linalg.matrix_norm(relative, 2) / blocks.shares[0]).max().item()
    assert rounding <= blocks.rounding_of_blocks()
    if spread is None:
        result = iterate(op)
        assert result is None or result.smallest == pytest.approx(ends(op.dense())[0], rel=10 * result.residual)
    else:
        assert blocks.rounding_of_blocks() <= 20 * rounding


def test_the_rounding_of_the_factors_is_allowed_for():
    """Blocks of small whole numbers, without any rounding, still have factors that are rounded."""
    op = LayeredSum(eye(2).repeat(3, 1, 1), torch.ones(400).double(), [2 * eye(400)] * 2, eye(400))
    blocks = LayeredBlocks(op, op.left, op.form_right(torch.float32), largest=False)
    assert blocks.rounding_of_blocks() >= 400**0.5 * torch.finfo(torch.float32).eps * (1 + 4 + 16)


def test_blocks_that_are_too_coarse_are_given_up(monkeypatch):
    op = linear_gauss_newton(network((60, 70, 70, 70, 6), seed=0), graded(60))
    for rounding, found in ((0.05, True), (0.2, False), (torch.nan, False)):
        monkeypatch.setattr(LayeredBlocks, "rounding_of_blocks", lambda self, rounding=rounding: rounding)
        assert (iterate(op) is not None) == found


def test_what_single_precision_does_not_resolve_is_left_to_double():
    weights = network((60, 70, 70, 70, 8), seed=0)
    weights[-1] = weights[-1] * torch.logspace(0, -6, 8).double()[:, None]
    for layers in (weights, network((60, 5, 70, 70, 8), seed=0)):  # one is narrower than the output
        assert iterate(linear_gauss_newton(layers, graded(60))) is None


# White data with more dimensions than the first layer has units


@pytest.mark.parametrize(
    "r, widths",  # of which one is narrower than the outputs too, and one has a neck
    [
        *[(40, (40, 12, 5)), (25, (40, 12, 30, 5)), (30, (30, 29, 50, 40, 6)), (50, (60, 4, 20, 4, 7))],
        *[(50, (50, 9, 3, 9, 4)), (20, (30, 5, 1)), (20, (20, 1, 1, 1, 3)), (40, (45, *[15] * 10, 4))],
    ],
)
@pytest.mark.parametrize(
    "skip, scale, spread", [*product([0, 1], [1, 1e-200], [0]), *product([0], [1], [1e-12, 1e-9, 1e-6, 1e-3])]
)
def test_a_narrow_first_layer_leaves_the_ends_up_to_what_data_lack_of_white(r, widths, skip, scale, spread):
    second = moment(scale * (1 - spread * np.linspace(0, 1, r)), d=widths[0])
    op = linear_gauss_newton(network(widths, seed=0), second, skip)
    result = condition_number(op, tolerance=11 * spread or 1e-8)
    values = torch.linalg.eigvalsh(op.dense())
    values = values[values > len(values) * EPS * values[-1]]
    close = result.residual if spread else 1e-8
    assert result.method.endswith("on the range of the first layer")
    assert result.rank == len(values) and spread <= result.residual and (spread or result.resolved)
    assert result.largest == pytest.approx(values[-1].item(), rel=close)
    assert result.smallest == pytest.approx(values[0].item(), rel=max(close, 100 * EPS * result.value))
    assert result.gap == pytest.approx(result.smallest / (EPS * result.largest))


@pytest.mark.parametrize("depth", [4, 10, 20])
def test_the_error_allows_for_the_rounding_of_the_first_factor(depth):
    """It is a square, of which the singular values of its root know twice the digits."""
    weights = linear_weights([200, *[12] * depth, 10], generator=torch.Generator().manual_seed(0))
    result = condition_number(linear_gauss_newton(weights, graded(200)))
    exact = torch.linalg.svdvals(torch.linalg.multi_dot(weights[:0:-1]))[-1].item() ** 2
    assert result.resolved is (depth <= 10)
    if result.resolved:
        assert abs(result.smallest / exact - 1) <= result.residual
    else:
        assert result.value <= result.largest / exact
