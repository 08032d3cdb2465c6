"""Kronecker sums of layers: single precision and then double, and white data that a first layer is too narrow for."""

import pytest
import torch

from gnlib import SecondMoment, condition_number, linear_gauss_newton, linear_weights
from gnlib.eigen import layered_sum
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.layered_sum import LayeredBlocks, restrict_to_first_layer
from gnlib.eigen.result import Limits
from gnlib.operators import LayeredSum, apply_kronecker_sum
from tests.gnlib.eigen.helpers import EPS
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
wide = pytest.mark.parametrize(("d", "widths", "k"), WIDE)
narrow = pytest.mark.parametrize(("d", "r", "widths", "k"), NARROW)


def moment(d, r=None, *, spread=0.0, scale=1.0):
    """A second moment of this rank in a random basis, its eigenvalues within so many decades."""
    r = r or d
    return SecondMoment(orthogonal(d, r, seed=5), scale * torch.logspace(0, -spread, r, dtype=torch.float64))


def network(d, widths, k, seed=0):
    return linear_weights([d, *widths, k], generator=torch.Generator().manual_seed(seed))


def ends(op):
    values = torch.linalg.eigvalsh(op.dense())
    return values[-1].item(), values[0].item()


def iterate(op, max_steps=100):
    return layered_sum.iteration(Terms(op), Limits(max_steps=max_steps))


def assert_right(result, op):
    largest, smallest = ends(op)
    assert result.resolved
    assert result.rank == op.shape[0]
    assert result.largest == pytest.approx(largest, rel=1e-8)
    assert result.smallest == pytest.approx(smallest, rel=1e-8)
    assert result.gap == pytest.approx(smallest / (EPS * largest), rel=1e-7)


@wide
@pytest.mark.parametrize("spread", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("skip", [0.0, 1.0])
def test_the_ends_are_those_of_the_matrix(d, widths, k, spread, skip):
    op = linear_gauss_newton(network(d, widths, k), moment(d, spread=spread), skip)
    assert_right(iterate(op), op)


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


def rounding(op, blocks):
    """The rounding of the blocks, relative to their first term."""
    exact = torch.einsum("lg,lab->gab", blocks.shares, op.right)
    relative = (exact - blocks.shared) / op.roots[:, None] / op.roots
    return (torch.linalg.matrix_norm(relative, 2) / blocks.shares[0]).max().item()


def test_layers_that_cancel_are_not_trusted_to_single_precision():
    """The rounding of a product that nearly vanishes is large beside it; it is measured, not assumed."""
    d = 60
    plane = orthogonal(d, d, seed=1)[:, :30]
    p = plane @ plane.mT
    weights = [1e4 * p, 1e4 * (torch.eye(d) - p), normal(d, d, seed=2), normal(5, d, seed=3)]
    weights[0] = weights[0] + 1e-4 * normal(d, d, seed=4)
    op = linear_gauss_newton(weights, moment(d))
    single = op.form_right(torch.float32)
    norm = torch.linalg.matrix_norm(op.right - single, 2).max()
    assert norm > 1e-4 * torch.linalg.matrix_norm(op.right[-1], 2)
    blocks = LayeredBlocks(op, torch.eye(5).double() * op.left.diagonal(dim1=1, dim2=2)[:, None], single, largest=False)
    assert blocks.rounding_of_blocks() >= rounding(op, blocks)
    result = iterate(op)
    assert result is None or result.smallest == pytest.approx(ends(op)[1], rel=10 * result.residual)


@pytest.mark.parametrize("spread", [0.0, 6.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_rounding_of_the_blocks_is_measured(spread, scale):
    op = linear_gauss_newton(network(60, [70, 70, 70], 6), moment(60, spread=spread, scale=scale))
    _, basis = torch.linalg.eigh(op.left[0])
    left = basis.mT @ op.left @ basis
    blocks = LayeredBlocks(op, left, op.form_right(torch.float32), largest=False)
    assert rounding(op, blocks) <= blocks.rounding_of_blocks() <= 20 * rounding(op, blocks)


def test_the_rounding_of_the_factors_is_allowed_for():
    """Blocks of small whole numbers, without any rounding, still have factors that are rounded."""
    identity = torch.eye(400, dtype=torch.float64)
    op = LayeredSum(torch.eye(2).double().repeat(3, 1, 1), torch.ones(400).double(), [2 * identity] * 2, identity)
    blocks = LayeredBlocks(op, op.left, op.form_right(torch.float32), largest=False)
    assert rounding(op, blocks) == 0
    assert blocks.rounding_of_blocks() >= 400**0.5 * torch.finfo(torch.float32).eps * (1 + 4 + 16)


def test_errors_allow_for_the_rounding_of_the_blocks(monkeypatch):
    op = linear_gauss_newton(network(60, [70, 70, 70], 6), moment(60))
    slacks = []

    def lower_errors(self, values, residual, solved, shift):
        slacks.append(self.slack)
        return original(self, values, residual, solved, shift)

    original = LayeredBlocks.lower_errors
    monkeypatch.setattr(LayeredBlocks, "lower_errors", lower_errors)
    for error in (0.0, 0.05):
        monkeypatch.setattr(LayeredBlocks, "rounding_of_blocks", lambda self, error=error: error)
        assert_right(iterate(op), op)
    assert min(slacks) == pytest.approx(0.95 * max(slacks))
    for error in (0.2, torch.nan):
        monkeypatch.setattr(LayeredBlocks, "rounding_of_blocks", lambda self, error=error: error)
        assert iterate(op) is None


def test_what_single_precision_does_not_resolve_is_left_to_double():
    weights = network(60, [70] * 3, 8)
    weights[-1] = weights[-1] * torch.logspace(0, -6, 8).double()[:, None]
    assert iterate(linear_gauss_newton(weights, moment(60))) is None
    bottleneck = network(60, [5, 70, 70], 8)  # narrower than the output
    assert iterate(linear_gauss_newton(bottleneck, moment(60))) is None


@wide
def test_products_through_the_layers_are_those_with_the_factors(d, widths, k):
    op = linear_gauss_newton(network(d, widths, k), moment(d, spread=1.0))
    x, left = normal(3, 7, d, seed=1), normal(len(op.left), 7, 7, seed=2)
    torch.testing.assert_close(op.apply_layers(x, left), apply_kronecker_sum(left, op.right, x))


# White data with more dimensions than the first layer has units


@narrow
@pytest.mark.parametrize("scale", [1.0, 1e-200])
@pytest.mark.parametrize("skip", [0.0, 1.0])
def test_ends_and_rank_are_those_of_the_matrix(d, r, widths, k, scale, skip):
    op = linear_gauss_newton(network(d, widths, k), moment(d, r, scale=scale), skip)
    assert layered_sum.has_narrow_first_layer(Terms(op), Limits())
    result = condition_number(op)
    values = torch.linalg.eigvalsh(op.dense())
    values = values[values > len(values) * EPS * values[-1]]
    assert result.resolved
    assert result.rank == len(values)
    assert result.largest == pytest.approx(values[-1].item(), rel=1e-8)
    assert result.smallest == pytest.approx(values[0].item(), rel=max(1e-8, 100 * EPS * result.value))
    assert result.gap == pytest.approx(result.smallest / (EPS * result.largest))


@narrow
def test_on_the_range_of_the_first_layer_the_operator_is_that_of_a_smaller_network(d, r, widths, k):
    op = linear_gauss_newton(network(d, widths, k), moment(d, r))
    basis = torch.kron(torch.eye(k).double(), op.basis @ torch.linalg.qr(op.weights[0].mT).Q)
    inside = basis.mT @ (op @ basis)
    close = 1e-13 * torch.linalg.matrix_norm(inside).item()
    torch.testing.assert_close(restrict_to_first_layer(op).dense(), inside, rtol=0, atol=close)


@narrow
@pytest.mark.parametrize("spread", [1e-12, 1e-9, 1e-6, 1e-3])
def test_data_that_are_nearly_white_bring_an_error_that_is_told(d, r, widths, k, spread):
    nearly = 1 - spread * torch.linspace(0, 1, r, dtype=torch.float64)
    op = linear_gauss_newton(network(d, widths, k), SecondMoment(orthogonal(d, r, seed=5), nearly))
    result = condition_number(op, tolerance=11 * spread)
    assert result.method.endswith("on the range of the first layer")
    values = torch.linalg.eigvalsh(op.dense())
    largest, smallest = values[-1].item(), values[-result.rank].item()
    assert spread <= result.residual
    assert abs(result.largest / largest - 1) <= result.residual
    assert abs(result.smallest / smallest - 1) <= max(result.residual, 100 * EPS * result.value)


@pytest.mark.parametrize(
    ("widths", "last", "expected"),
    [
        ([12], 1.0, True),
        ([20], 1.0, False),
        ([], 1.0, False),
        ([12], 1 - 1e-14, True),
        ([12], 1 - 0.9e-9, True),
        ([12], 1 - 1.1e-9, False),
    ],
)
def test_which_networks_have_a_narrow_first_layer_on_white_data(widths, last, expected):
    eigenvalues = torch.tensor([1.0] * 19 + [last], dtype=torch.float64)
    op = linear_gauss_newton(network(20, widths, 3), SecondMoment(orthogonal(20, 20, seed=5), eigenvalues))
    assert layered_sum.has_narrow_first_layer(Terms(op), Limits()) is expected


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
