"""White data that a first layer is too narrow for: what it does not see, and what it does."""

import pytest
import torch

from gnlib import SecondMoment, condition_number, linear_gauss_newton, linear_weights
from gnlib.eigen import narrow_layer
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.narrow_layer import within_first_layer
from gnlib.eigen.result import Limits
from tests.oracles import orthogonal

EPS = torch.finfo(torch.float64).eps
NETWORKS = [  # d, r, widths, k
    (40, 40, [12], 5),
    (40, 25, [12, 30], 5),
    (30, 30, [29, 50, 40], 6),
    (60, 50, [4, 20, 4], 7),  # narrower than the outputs too
    (50, 50, [9, 3, 9], 4),  # with a neck
    (30, 20, [5], 1),
    (20, 20, [1, 1, 1], 3),
    (45, 40, [15] * 10, 4),
]
networks = pytest.mark.parametrize(("d", "r", "widths", "k"), NETWORKS)


def white(d, r, scale=1.0):
    return SecondMoment(orthogonal(d, r, seed=5), torch.full((r,), scale, dtype=torch.float64))


def network(d, widths, k, seed=0):
    return linear_weights([d, *widths, k], generator=torch.Generator().manual_seed(seed))


@networks
@pytest.mark.parametrize("scale", [1.0, 1e-200])
@pytest.mark.parametrize("skip", [0.0, 1.0])
def test_ends_and_rank_are_those_of_the_matrix(d, r, widths, k, scale, skip):
    op = linear_gauss_newton(network(d, widths, k), white(d, r, scale), skip)
    assert narrow_layer.applies(Terms(op), Limits())
    found = condition_number(op)
    values = torch.linalg.eigvalsh(op.dense())
    values = values[values > len(values) * EPS * values[-1]]
    assert found.resolved
    assert found.rank == len(values)
    assert found.largest == pytest.approx(values[-1].item(), rel=1e-8)
    assert found.smallest == pytest.approx(values[0].item(), rel=max(1e-8, 100 * EPS * found.value))
    assert found.gap == pytest.approx(found.smallest / (EPS * found.largest))


@networks
def test_on_the_range_of_the_first_layer_the_operator_is_that_of_a_smaller_network(d, r, widths, k):
    op = linear_gauss_newton(network(d, widths, k), white(d, r))
    basis = torch.kron(torch.eye(k).double(), op.basis @ torch.linalg.qr(op.weights[0].mT).Q)
    inside = basis.mT @ (op @ basis)
    assert torch.allclose(inside, within_first_layer(op).dense(), rtol=0, atol=1e-13 * torch.linalg.matrix_norm(inside))


@pytest.mark.parametrize(("width", "depth"), [(50, 20), (100, 40), (20, 10)])
def test_a_cluster_of_hundreds_at_the_lower_end(width, depth):
    """The smallest eigenvalue is that of the first factor: the rest of G on the range of the layer adds to it."""
    d, k = 600, 10
    op = linear_gauss_newton(network(d, [width] * (depth - 1), k), white(d, d, 2.0))
    found = condition_number(op)
    assert found.rank == k * d
    assert found.smallest == pytest.approx(2 * torch.linalg.eigvalsh(op.left[0])[0].item(), rel=1e-12)
    x = torch.randn(k * d, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for _ in range(200):
        x = op @ (x / torch.linalg.vector_norm(x))
    assert found.largest == pytest.approx(torch.linalg.vector_norm(x).item(), rel=1e-6)


@networks
@pytest.mark.parametrize("spread", [1e-12, 1e-9, 1e-6, 1e-3])
def test_data_that_are_nearly_white_bring_an_error_that_is_told(d, r, widths, k, spread):
    nearly = 1 - spread * torch.linspace(0, 1, r, dtype=torch.float64)
    op = linear_gauss_newton(network(d, widths, k), SecondMoment(orthogonal(d, r, seed=5), nearly))
    found = condition_number(op, tolerance=11 * spread)
    assert found.method.endswith("on the range of the first layer")
    values = torch.linalg.eigvalsh(op.dense())
    largest, smallest = values[-1].item(), values[-found.rank].item()
    assert spread <= found.residual
    assert abs(found.largest / largest - 1) <= found.residual
    assert abs(found.smallest / smallest - 1) <= max(found.residual, 100 * EPS * found.value)


def test_a_first_factor_that_vanishes_leaves_the_range_of_the_first_layer():
    weights = network(40, [12, 12], 5)
    weights[1] = torch.zeros_like(weights[1])
    op = linear_gauss_newton(weights, white(40, 40))
    values = torch.linalg.eigvalsh(op.dense())
    found = condition_number(op)
    assert found.rank == (values > 200 * EPS * values[-1]).sum()
    assert (found.largest, found.smallest) == pytest.approx((values[-1].item(), values[-found.rank].item()), rel=1e-10)


def test_nothing_but_zeros_is_refused():
    weights = [torch.zeros_like(w) for w in network(40, [12, 12], 5)]
    with pytest.raises(ValueError, match="The operator is zero"):
        condition_number(linear_gauss_newton(weights, white(40, 40)))


@pytest.mark.parametrize(
    ("widths", "eigenvalues", "expected"),
    [
        ([12], [1.0] * 20, True),
        ([20], [1.0] * 20, False),
        ([], [1.0] * 20, False),
        ([12], [1.0] * 19 + [1 - 1e-14], True),
        ([12], [1.0] * 19 + [1 - 0.9e-9], True),
        ([12], [1.0] * 19 + [1 - 1.1e-9], False),
    ],
)
def test_which_networks_it_is_for(widths, eigenvalues, expected):
    eigenvalues = torch.tensor(eigenvalues, dtype=torch.float64)
    op = linear_gauss_newton(network(20, widths, 3), SecondMoment(orthogonal(20, 20, seed=5), eigenvalues))
    assert narrow_layer.applies(Terms(op), Limits()) is expected


@pytest.mark.parametrize("depth", [4, 7, 10, 20, 30])
def test_the_error_allows_for_the_rounding_of_the_first_factor(depth):
    """It is a square, of which the singular values of its root know twice the digits."""
    op = linear_gauss_newton(weights := network(600, [12] * depth, 10), white(600, 600))
    found = condition_number(op)
    exact = torch.linalg.svdvals(torch.linalg.multi_dot(weights[:0:-1]))[-1].item() ** 2
    assert found.resolved is (depth <= 10)
    if found.resolved:
        assert abs(found.smallest / exact - 1) <= found.residual
    else:
        assert found.value <= found.largest / exact


@pytest.mark.parametrize("seed", range(8))
def test_the_error_allows_for_it_where_the_range_of_the_first_layer_is_large(seed):
    singular = torch.logspace(0, -5, 4, dtype=torch.float64)
    last = orthogonal(4, 4, seed=seed) * singular @ orthogonal(20, 4, seed=seed + 1).mT
    op = linear_gauss_newton([1e4 * network(60, [20], 4, seed)[0], last], white(60, 60))
    found = condition_number(op)
    assert found.rank == 240
    assert abs(found.smallest / singular[-1].item() ** 2 - 1) <= found.residual
