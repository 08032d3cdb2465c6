"""Kronecker sums of layers: single precision and then double, and white data that a first layer is too narrow for."""

from itertools import product

import pytest
import torch

from gnlib import SecondMoment, condition_number, linear_gauss_newton, linear_weights
from gnlib.eigen import layered_sum
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.layered_sum import LayeredBlocks
from gnlib.eigen.result import Limits
from gnlib.operators import LayeredSum
from tests.gnlib.eigen.helpers import EPS, eye
from tests.oracles import normal, orthogonal

WIDE = [  # d, widths, k
    (60, [70, 70, 70], 8),
    (80, [90, 200, 100, 90], 5),
    (50, [50, 50], 3),
    (64, [64] * 6, 12),
    (100, [120, 110], 1),
    (40, [90], 9),
]
NARROW = [  # d, rank of the data, widths, k
    (40, 40, [12], 5),
    (40, 25, [12, 30], 5),
    (30, 30, [29, 50, 40], 6),
    (60, 50, [4, 20, 4], 7),  # narrower than the outputs too
    (50, 50, [9, 3, 9], 4),  # with a neck
    (30, 20, [5], 1),
    (20, 20, [1, 1, 1], 3),
    (45, 40, [15] * 10, 4),
]


def moment(d, r=None, *, spread=0.0, scale=1.0):
    """A second moment of this rank in a random basis, its eigenvalues within so many decades."""
    r = r or d
    return SecondMoment(orthogonal(d, r, seed=5), scale * torch.logspace(0, -spread, r, dtype=torch.float64))


def network(d, widths, k, seed=0):
    return linear_weights([d, *widths, k], generator=torch.Generator().manual_seed(seed))


def ends(op):
    values = torch.linalg.eigvalsh(op.dense())
    return values[-1].item(), values[0].item()


def iterate(op):
    return layered_sum.iteration(Terms(op), Limits(max_steps=100))


@pytest.mark.parametrize(("d", "widths", "k"), WIDE)
@pytest.mark.parametrize("spread", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("skip", [0.0, 1.0])
def test_the_ends_are_those_of_the_matrix(d, widths, k, spread, skip):
    op = linear_gauss_newton(network(d, widths, k), moment(d, spread=spread), skip)
    result, (largest, smallest) = iterate(op), ends(op)
    assert result.resolved and result.rank == op.shape[0]
    assert (result.largest, result.smallest) == pytest.approx((largest, smallest), rel=1e-8)
    assert result.gap == pytest.approx(smallest / (EPS * largest), rel=1e-7)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_claimed_is_right(seed):
    """Random networks of every kind, with bottlenecks, graded layers and null outputs: right or refused."""
    g = torch.Generator().manual_seed(seed)
    d, k, depth = (int(torch.randint(low, high, (), generator=g)) for low, high in ((20, 90), (1, 12), (3, 7)))
    widths = torch.randint(k, 2 * d, (depth - 1,), generator=g).tolist()
    weights = network(d, widths, k, seed)
    layer, decades = weights[seed % depth], 2 * (seed % 3)
    weights[seed % depth] = layer * torch.logspace(0, -decades, len(layer)).double()[:, None]
    op = linear_gauss_newton(weights, moment(d, spread=seed % 4))
    result = iterate(op)
    if result is not None and result.resolved:
        assert (result.largest, result.smallest) == pytest.approx(ends(op), rel=10 * max(result.residual, 1e-12))


def cancelling():
    """Layers whose product nearly vanishes: its rounding is large beside it."""
    d = 60
    plane = orthogonal(d, d, seed=1)[:, :30]
    p = plane @ plane.mT
    weights = [1e4 * p + 1e-4 * normal(d, d, seed=4), 1e4 * (eye(d) - p), normal(d, d, seed=2), normal(5, d, seed=3)]
    return linear_gauss_newton(weights, moment(d))


@pytest.mark.parametrize("spread, scale", [*product([0.0, 6.0], [1e-6, 1.0, 1e6]), (None, None)])
def test_the_rounding_of_the_blocks_is_measured(spread, scale):
    """And not assumed, where layers cancel."""
    if spread is None:
        op = cancelling()
    else:
        op = linear_gauss_newton(network(60, [70, 70, 70], 6), moment(60, spread=spread, scale=scale))
    basis = torch.linalg.eigh(op.left[0]).eigenvectors
    blocks = LayeredBlocks(op, basis.mT @ op.left @ basis, op.form_right(torch.float32), largest=False)
    exact = torch.einsum("lg,lab->gab", blocks.shares, op.right)
    relative = (exact - blocks.shared) / op.roots[:, None] / op.roots
    rounding = (torch.linalg.matrix_norm(relative, 2) / blocks.shares[0]).max().item()
    assert rounding <= blocks.rounding_of_blocks()
    if spread is None:
        result = iterate(op)
        assert result is None or result.smallest == pytest.approx(ends(op)[1], rel=10 * result.residual)
    else:
        assert blocks.rounding_of_blocks() <= 20 * rounding


def test_the_rounding_of_the_factors_is_allowed_for():
    """Blocks of small whole numbers, without any rounding, still have factors that are rounded."""
    op = LayeredSum(eye(2).repeat(3, 1, 1), torch.ones(400).double(), [2 * eye(400)] * 2, eye(400))
    blocks = LayeredBlocks(op, op.left, op.form_right(torch.float32), largest=False)
    assert blocks.rounding_of_blocks() >= 400**0.5 * torch.finfo(torch.float32).eps * (1 + 4 + 16)


def test_what_single_precision_does_not_resolve_is_left_to_double():
    graded = network(60, [70] * 3, 8)
    graded[-1] = graded[-1] * torch.logspace(0, -6, 8).double()[:, None]
    for weights in (graded, network(60, [5, 70, 70], 8)):  # one with a layer narrower than the output
        assert iterate(linear_gauss_newton(weights, moment(60))) is None


# White data with more dimensions than the first layer has units


@pytest.mark.parametrize(("d", "r", "widths", "k"), NARROW)
@pytest.mark.parametrize(
    "skip, scale, spread", [*product([0, 1], [1, 1e-200], [0]), *product([0], [1], [1e-12, 1e-9, 1e-6, 1e-3])]
)
def test_ends_and_rank_are_those_of_the_matrix_up_to_what_data_lack_of_white(d, r, widths, k, skip, scale, spread):
    nearly = scale * (1 - spread * torch.linspace(0, 1, r, dtype=torch.float64))
    op = linear_gauss_newton(network(d, widths, k), SecondMoment(orthogonal(d, r, seed=5), nearly), skip)
    result = condition_number(op, tolerance=11 * spread or 1e-8)
    values = torch.linalg.eigvalsh(op.dense())
    values = values[values > len(values) * EPS * values[-1]]
    assert result.rank == len(values) and result.resolved == (spread < 1e-3)
    assert result.method.endswith("on the range of the first layer")
    assert spread <= result.residual
    assert result.largest == pytest.approx(values[-1].item(), rel=result.residual or 1e-8)
    assert result.smallest == pytest.approx(values[0].item(), rel=max(result.residual, 100 * EPS * result.value))
    assert result.gap == pytest.approx(result.smallest / (EPS * result.largest))


@pytest.mark.parametrize("depth", [4, 10, 20])
def test_the_error_allows_for_the_rounding_of_the_first_factor(depth):
    """It is a square, of which the singular values of its root know twice the digits."""
    op = linear_gauss_newton(weights := network(200, [12] * depth, 10), moment(200))
    result = condition_number(op)
    exact = torch.linalg.svdvals(torch.linalg.multi_dot(weights[:0:-1]))[-1].item() ** 2
    assert result.resolved is (depth <= 10)
    if result.resolved:
        assert abs(result.smallest / exact - 1) <= result.residual
    else:
        assert result.value <= result.largest / exact
