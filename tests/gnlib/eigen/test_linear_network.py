"""Wide linear networks: blocks in single precision, products through the layers in double precision."""

import pytest
import torch

from gnlib import NotConvergedError, SecondMoment, condition_number, linear_gauss_newton, linear_weights
from gnlib.checks import EPS
from gnlib.eigen import linear_network as layers
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.linear_network import LayeredBlocks
from gnlib.eigen.result import Limits
from gnlib.operators import KroneckerSum, LayeredSum, apply_kronecker_sum
from tests.oracles import normal, orthogonal

NETWORKS = [  # d, k, widths
    (60, 8, [70, 70, 70]),
    (80, 5, [90, 200, 100, 90]),
    (50, 3, [50, 50]),
    (64, 12, [64] * 6),
    (100, 1, [120, 110]),
    (40, 9, [90]),
]
networks = pytest.mark.parametrize(("d", "k", "widths"), NETWORKS)


def even(d, spread=0.0, scale=1.0):
    """Second moment of full rank, with eigenvalues within a factor."""
    return SecondMoment(orthogonal(d, d, seed=5), scale * torch.logspace(0, -spread, d, dtype=torch.float64))


def network(d, k, widths, seed=0):
    return linear_weights([d, *widths, k], generator=torch.Generator().manual_seed(seed))


def ends(op):
    values = torch.linalg.eigvalsh(op.dense())
    return values[-1].item(), values[0].item()


def layered_ends(op, max_steps=100):
    return layers.ends(Terms(op), Limits(max_steps=max_steps))


def assert_right(found, op):
    largest, smallest = ends(op)
    assert found.resolved
    assert found.rank == op.shape[0]
    assert found.largest == pytest.approx(largest, rel=1e-8)
    assert found.smallest == pytest.approx(smallest, rel=1e-8)
    assert found.gap == pytest.approx(smallest / (EPS * largest), rel=1e-7)


@networks
@pytest.mark.parametrize("spread", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("skip", [0.0, 1.0])
def test_the_ends_are_those_of_the_matrix(d, k, widths, spread, skip):
    op = linear_gauss_newton(network(d, k, widths), even(d, spread), skip)
    assert_right(layered_ends(op), op)


def test_the_steps_of_both_precisions_count(monkeypatch):
    iterate, steps = LayeredBlocks.iterate, []

    def counted(self, *arguments, **options):
        found = iterate(self, *arguments, **options)
        steps.append(found.steps)
        return found

    monkeypatch.setattr(LayeredBlocks, "iterate", counted)
    found = layered_ends(linear_gauss_newton(network(60, 8, [70, 70, 70]), even(60)))
    assert all(steps) and len(steps) == 4  # in single and in double precision, at either end
    assert found.method.endswith(f"layers, {sum(steps[:2])} and {sum(steps[2:])} steps")


@pytest.mark.parametrize("seed", range(30))
def test_what_is_claimed_is_right(seed):
    """Random networks of every kind, with bottlenecks, graded layers and silent outputs: right or refused."""
    g = torch.Generator().manual_seed(seed)
    d, k, depth = (int(torch.randint(low, high, (), generator=g)) for low, high in ((20, 90), (1, 12), (3, 7)))
    widths = torch.randint(k, 2 * d, (depth - 1,), generator=g).tolist()
    weights = network(d, k, widths, seed)
    graded = seed % 3
    weights[seed % depth] = (
        weights[seed % depth] * torch.logspace(0, -2 * graded, len(weights[seed % depth])).double()[:, None]
    )
    op = linear_gauss_newton(weights, even(d, seed % 4))
    found = layered_ends(op)
    if found is not None and found.resolved:
        largest, smallest = ends(op)
        assert found.largest == pytest.approx(largest, rel=10 * max(found.residual, 1e-12))
        assert found.smallest == pytest.approx(smallest, rel=10 * max(found.residual, 1e-12))


def off(op, blocks):
    """What the blocks are off, relative to their first term."""
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
    op = linear_gauss_newton(weights, even(d))
    single = op.squares(torch.float32)
    norm = torch.linalg.matrix_norm(op.right - single, 2).max()
    assert norm > 1e-4 * torch.linalg.matrix_norm(op.right[-1], 2)
    blocks = LayeredBlocks(op, torch.eye(5).double() * op.left.diagonal(dim1=1, dim2=2)[:, None], single, largest=False)
    assert blocks.rounding_of_blocks() >= off(op, blocks)
    found = layered_ends(op)
    assert found is None or found.smallest == pytest.approx(ends(op)[1], rel=10 * found.residual)


@pytest.mark.parametrize("spread", [0.0, 6.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_rounding_of_the_blocks_is_measured(spread, scale):
    op = linear_gauss_newton(network(60, 6, [70, 70, 70]), even(60, spread, scale))
    _, basis = torch.linalg.eigh(op.left[0])
    left = basis.mT @ op.left @ basis
    blocks = LayeredBlocks(op, left, op.squares(torch.float32), largest=False)
    assert off(op, blocks) <= blocks.rounding_of_blocks() <= 20 * off(op, blocks)


def test_the_rounding_of_the_factors_is_allowed_for():
    """Blocks of small whole numbers, without any rounding, still have factors that are rounded."""
    identity = torch.eye(400, dtype=torch.float64)
    op = LayeredSum(torch.eye(2).double().repeat(3, 1, 1), torch.ones(400).double(), [2 * identity] * 2, identity)
    blocks = LayeredBlocks(op, op.left, op.squares(torch.float32), largest=False)
    assert off(op, blocks) == 0
    assert blocks.rounding_of_blocks() >= 400**0.5 * torch.finfo(torch.float32).eps * (1 + 4 + 16)


def test_errors_allow_for_the_rounding_of_the_smallest_eigenvalue(monkeypatch):
    op = linear_gauss_newton(network(60, 6, [70, 70, 70]), even(60))
    monkeypatch.setattr(LayeredBlocks, "rounding", lambda self, bottom: 1e-5)
    assert 1e-5 <= layered_ends(op).residual <= 1e-5 + 1e-8


def test_errors_allow_for_the_rounding_of_the_blocks(monkeypatch):
    op = linear_gauss_newton(network(60, 6, [70, 70, 70]), even(60))
    seen = []

    def lower_errors(self, values, residual, solved, shift):
        seen.append(self.slack)
        return original(self, values, residual, solved, shift)

    original = LayeredBlocks.lower_errors
    monkeypatch.setattr(LayeredBlocks, "lower_errors", lower_errors)
    for rounding in (0.0, 0.05):
        monkeypatch.setattr(LayeredBlocks, "rounding_of_blocks", lambda self, rounding=rounding: rounding)
        assert_right(layered_ends(op), op)
    assert min(seen) == pytest.approx(0.95 * max(seen))
    for rounding in (0.2, torch.nan):
        monkeypatch.setattr(LayeredBlocks, "rounding_of_blocks", lambda self, rounding=rounding: rounding)
        assert layered_ends(op) is None


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_entries_at_the_ends_of_single_precision_are_left_to_double(scale):
    weights = network(30, 4, [40, 40, 40])
    weights[0] = weights[0] * scale
    assert layered_ends(linear_gauss_newton(weights, even(30))) is None


def test_what_single_precision_does_not_resolve_is_left_to_double():
    weights = network(60, 8, [70] * 3)
    weights[-1] = weights[-1] * torch.logspace(0, -6, 8).double()[:, None]
    assert layered_ends(linear_gauss_newton(weights, even(60))) is None
    silent = network(60, 8, [5, 70, 70])  # a bottleneck narrower than the output
    assert layered_ends(linear_gauss_newton(silent, even(60))) is None


def test_an_iteration_that_does_not_converge_is_left_to_double():
    op = linear_gauss_newton(network(60, 8, [70] * 3), even(60))
    assert layered_ends(op, max_steps=1) is None


@pytest.mark.parametrize(
    ("d", "widths", "spread", "expected"),
    [
        (500, [500, 500], 0.0, True),
        (400, [500, 500], 0.0, False),  # forming the factors is cheap
        (500, [500], 0.0, False),  # one of them
        (500, [500, 1200], 0.0, False),  # the layers are large
        (500, [500, 500], 3.0, True),
        (500, [500, 500], 9.0, False),  # single precision would not do
    ],
)
def test_which_networks_it_is_for(d, widths, spread, expected):
    op = linear_gauss_newton(network(d, 3, widths), even(d, spread))
    assert layers.pays(Terms(op), Limits()) is expected
    found = condition_number(op)
    assert ("layers" in found.method) is expected


def test_what_it_refuses_is_found_in_double_precision():
    op = linear_gauss_newton(network(60, 5, [3, 5]), even(60))
    with pytest.raises(NotConvergedError, match="The method 'layers' does not work here"):
        condition_number(op, method="layers")
    found = condition_number(op)
    assert "layers" not in found.method
    assert found.largest == pytest.approx(ends(op)[0], rel=1e-8)


@networks
def test_products_through_the_layers_are_those_with_the_factors(d, k, widths):
    op = linear_gauss_newton(network(d, k, widths), even(d, 1.0))
    x, left = normal(3, 7, d, seed=1), normal(len(op.left), 7, 7, seed=2)
    torch.testing.assert_close(op.through_layers(x, left), apply_kronecker_sum(left, op.right, x))


def test_factors_are_formed_once_in_the_precision_asked_for():
    op = linear_gauss_newton(network(20, 3, [30, 30]), even(20, 1.0))
    assert op.right is op.right
    single = op.squares(torch.float32)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), op.right, rtol=1e-4, atol=1e-5)
    assert isinstance(op, KroneckerSum)
    assert op.shape == (60, 60)
