"""The whole, against dense matrices and fifty digits: right to the residual stated, or refused.

Hard cases have eigenvalues below the rounding of the largest, eigenvectors orthogonal to all that
an iteration starts from, or layers that are singular, zero, or nearly so.
"""

import numpy as np
import pytest
import torch

from gnlib import (
    NotConvergedError,
    NotResolvedError,
    SecondMoment,
    condition_number,
    linear_gauss_newton,
    second_moment,
    whiten,
)
from gnlib.operators import KroneckerSum
from tests.gnlib.eigen.helpers import EPS, assert_ends, double
from tests.oracles import (
    autograd_jacobian,
    kronecker_formula,
    mp_gauss_newton,
    mp_kronecker_sum,
    mp_spectrum,
    network,
    normal,
    orthogonal,
    samples,
    spectrum,
    with_spectrum,
)


def diagonal(*values):
    return torch.diag(double(values))


def moment(eigenvalues, d=None, seed=0):
    """A second moment in a random basis, its eigenvalues as given, to the last digit."""
    return SecondMoment(orthogonal(d or len(eigenvalues), len(eigenvalues), seed=seed), double(eigenvalues))


def assert_right_or_refused(truth, operand, **options):
    """The promise of every result, of the eigenvalues that are not rounding of the largest."""
    try:
        result = condition_number(operand, **options)
    except NotConvergedError:
        return
    smallest = truth[result.rank - 1]
    value = float(truth[0] / smallest) if smallest > 0 else np.inf
    if result.resolved:
        assert result.value == pytest.approx(value, rel=2 * result.residual + 1e-9)
        assert all(abs(v) < 100 * EPS * truth[0] for v in truth[result.rank :])
    else:
        with pytest.raises(NotResolvedError):
            float(result)
        assert result.value <= value * (1 + 1e-9)


GRADED = {
    "1 to 1e-14": np.logspace(0, -14, 6),
    "1 to 1e-18": np.logspace(0, -18, 6),
    "1 and 1e-18": [1.0, 1e-18],
    "cluster at 1e-16": [1.0, 0.9, 1.1e-16, 1.05e-16, 1e-16],
}
graded = pytest.mark.parametrize("eigenvalues", GRADED.values(), ids=GRADED.keys())
layers = pytest.mark.parametrize("hidden", [(), (7,), (7, 8), (8, 7, 9)], ids="hidden {0}".format)


@graded
@layers
def test_graded_data_are_resolved_below_the_rounding_of_double_precision(eigenvalues, hidden):
    second = moment(sorted(eigenvalues, reverse=True), d=7)
    weights = network((7, *hidden, 3), seed=1)
    truth = mp_gauss_newton(weights, *second)
    assert EPS * truth[0] > 1e-2 * truth[-1]
    result = condition_number(linear_gauss_newton(weights, second))
    assert result.largest == pytest.approx(float(truth[0]), rel=1e-7)
    assert result.smallest == pytest.approx(float(truth[-1]), rel=1e-7)
    assert result.rank == len(truth)
    assert result.resolved


def prescribed(kind, seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(4, 16))
    match kind:
        case "log-uniform to 1e-12":
            return 10 ** random.uniform(-12, 0, n)
        case "log-uniform to 1e-22":
            return 10 ** random.uniform(-22, 0, n)
        case "two clusters":
            ends = np.where(random.random(n) < 0.5, 1, 10 ** -random.uniform(8, 15))
            return ends * (1 + 1e-3 * random.random(n))
        case "rank deficient":
            return np.append(1, np.where(random.random(n) < 0.4, 0, 10 ** random.uniform(-10, 0, n)))
        case "even steps":
            return 10 ** -np.linspace(0, random.uniform(5, 18), n)


KINDS = ["log-uniform to 1e-12", "log-uniform to 1e-22", "two clusters", "rank deficient", "even steps"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_dense_eigenvalues_are_right_to_the_residual_stated(kind, seed):
    matrix = with_spectrum(prescribed(kind, seed), seed=seed)
    result, truth = condition_number(matrix), mp_spectrum(matrix)
    smallest = float(truth[result.rank - 1])
    assert result.largest == pytest.approx(float(truth[0]), rel=1e-13)
    assert result.smallest == pytest.approx(smallest, rel=2 * result.residual + 1e-13)
    assert all(abs(v) <= 2 * result.residual * smallest for v in truth[result.rank :])
    assert not result.resolved or float(result) == pytest.approx(float(truth[0]) / smallest, rel=2e-3)


def rotated(*values, seed):
    """A square weight of given singular values and no special directions."""
    n = len(values)
    return orthogonal(n, n, seed=seed) * double(values) @ orthogonal(n, n, seed=seed + 1).T


def blocks(*weights):
    return [torch.block_diag(*parts) for parts in zip(*weights, strict=True)]


def eye(n):
    return torch.eye(n, dtype=torch.float64)


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


def standard(*eigenvalues):
    """A second moment in the standard basis."""
    return SecondMoment(eye(len(eigenvalues)), double(eigenvalues))


WHITE2, WHITE3 = moment([1.0, 1.0]), moment([1.0, 1.0, 1.0])
PLAIN6 = standard(1.0, 0.9, 0.5, 0.4, 0.2, 0.1)
DIAGONAL4 = [torch.diag(normal(6, seed=s)) for s in range(4)]
STRUCTURED = {
    # the largest eigenvalue lies in another direction than that of the mean over outputs
    "diagonal weights, upper end": (
        [diagonal(1e-3, 1), diagonal(10**0.5, 1e-3), diagonal(1, 1)],
        standard(1.0, 0.85),
    ),
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
}


@pytest.mark.parametrize("weights, second", STRUCTURED.values(), ids=STRUCTURED.keys())
def test_structured_networks_have_the_condition_number_of_fifty_digits(weights, second):
    truth = mp_gauss_newton(weights, *second)
    truth = [v for v in truth if v > 1e-20 * truth[0]]  # singular layers are so up to rounding
    assert truth[0] < 1e8 * truth[-1]
    result = condition_number(linear_gauss_newton(weights, second))
    assert result.rank == len(truth)
    assert float(result) == pytest.approx(float(truth[0] / truth[-1]), rel=1e-7)


SINGULAR_VALUES = [1e-3, 1e-5, 1e-6, 1e-7, 3e-8, 1e-9, 1e-12]


@pytest.mark.parametrize("small", SINGULAR_VALUES)
@pytest.mark.parametrize("hidden", [(), (2,), (3,), (2, 3)], ids="hidden {0}".format)
def test_a_nearly_singular_first_layer_is_right_or_refused(small, hidden):
    """White data see the first layer squared, at the rounding of its largest entries."""
    weights = [rotated(1, small, seed=1), *network((2, *hidden, 3), seed=2)]
    truth = mp_gauss_newton(weights, *WHITE2)
    assert_right_or_refused(truth, linear_gauss_newton(weights, WHITE2))


def positive(n, seed, rank=None):
    factor = normal(n, rank or n, seed=seed)
    return factor @ factor.T


BLOCK = torch.block_diag(positive(2, 20), zeros(2, 2))
OTHER = torch.block_diag(zeros(2, 2), positive(2, 21))
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


@pytest.mark.parametrize("left, right", SUMS.values(), ids=SUMS.keys())
def test_sums_of_kronecker_products_that_are_no_networks_are_right_or_refused(left, right):
    truth = mp_spectrum(mp_kronecker_sum(left, right))
    assert_right_or_refused(truth, KroneckerSum(torch.stack(left), torch.stack(right), eye(len(right[0]))))


# Random linear networks


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


def rank_in_theory(weights, x):
    """q (k + r - q), with r the rank of the data and q that of the narrowest layer."""
    k, r = weights[-1].shape[0], int(torch.linalg.matrix_rank(x))
    q = min(r, *(w.shape[0] for w in weights))
    return q * (k + r - q)


@pytest.mark.parametrize("seed", range(30))
def test_both_ends_and_the_rank_of_30_linear_networks_agree_with_dense_eigenvalues(seed):
    weights, x = random_case(seed)
    values, rank = spectrum(kronecker_formula(weights, x)), rank_in_theory(weights, x)
    assert values[rank - 1] > 1e-7 * values[0]  # or else the dense eigenvalues are not right to 1e-8
    assert (values[rank:].abs() < 1e-13 * values[0]).all()
    result = condition_number(linear_gauss_newton(weights, SecondMoment.from_data(x)))
    assert_ends(result, values, rank)
    assert result.residual <= 2e-8
    assert result.resolved


@pytest.mark.parametrize("skip", [0.3, 1.0])
@pytest.mark.parametrize("widths", [(6, 6, 6), (5, 8, 3, 6), (4, 4, 4, 4, 4)])
def test_both_ends_agree_with_autograd_where_layers_have_skips(widths, skip):
    weights, x = network(widths, seed=1), normal(9, widths[0], seed=2)
    jacobian = autograd_jacobian(weights, x, skip)
    values = spectrum(jacobian @ jacobian.T / len(x))
    result = condition_number(linear_gauss_newton(weights, second_moment(x), skip))
    assert_ends(result, values, int(torch.linalg.matrix_rank(jacobian)))
