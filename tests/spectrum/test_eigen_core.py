"""The methods below the dispatcher, on spectra that are prescribed: right to the residual stated, or refused."""

import mpmath
import numpy as np
import pytest
import torch

from gnlib import NotConvergedError, SecondMoment, condition_number, linear_gauss_newton
from gnlib.operators import KroneckerSum
from gnlib.spectrum import gram
from gnlib.spectrum.davidson import extreme_eigenpair, krylov_space, orthonormal
from gnlib.spectrum.dense import dense_ends, graded_ends
from gnlib.spectrum.kronecker_blocks import KroneckerBlocks
from gnlib.spectrum.kronecker_sum import Terms, _is_scalar
from gnlib.spectrum.result import Limits
from gnlib.spectrum.ritz_errors import relative_errors, residual_errors
from gnlib.spectrum.singular_values import singular_value_ends
from gnlib.spectrum.strategy import KRONECKER_SUM, find_ends
from tests.oracles import mp_gauss_newton, mp_spectrum, network, normal, orthogonal, with_spectrum

EPS = 2.0**-52
SIZE = 510  # divided by every number of outputs below
OUTPUTS = [1, 2, 5, 10]


def double(values):
    return torch.as_tensor(values, dtype=torch.float64)


def assert_right(result, largest, smallest, rank, factor=10):
    """Both ends are right to a small multiple of the error stated."""
    assert result.rank == rank
    assert result.largest == pytest.approx(float(largest), rel=factor * min(result.residual, 1e-9) + 1e-12)
    assert result.smallest == pytest.approx(float(smallest), rel=factor * result.residual + 1e-12)


def spectrum_of(lower, upper, size=SIZE, *, least=1e-6, seed=0):
    """Two clusters, of these numbers of eigenvalues and relative widths, and random eigenvalues between."""
    random = np.random.default_rng(seed)
    (low, low_width), (high, high_width) = lower, upper
    between = np.exp(random.uniform(np.log(min(2 * least, 0.5)), np.log(0.9), size - low - high))
    ends = least * (1 + low_width * random.random(low)), 1 - high_width * random.random(high)
    return double(np.concatenate([ends[0], between, ends[1]])).sort().values


ENDS = [(1, 0.0), (3, 0.0), (10, 0.0), (25, 0.0), (3, 1e-14), (10, 1e-10), (25, 1e-6), (10, 1e-3)]
ends = pytest.mark.parametrize("lower, upper", list(zip(ENDS, ENDS[3:] + ENDS[:3], strict=True)), ids=str)


# All eigenvalues


@ends
@pytest.mark.parametrize("least", [0.5, 1e-6, 1e-13])
def test_dense_ends_of_clusters(lower, upper, least):
    values = spectrum_of(lower, upper, 60, least=least)
    result = dense_ends(with_spectrum(values, seed=1))
    assert_right(result, values[-1], values[0], 60)
    assert result.resolved == (least > 1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_graded_ends_down_to_1e_22(seed):
    """D H D in fifty digits, where all eigenvalues of H are close to one."""
    n, scale = 9, 10.0 ** -np.random.default_rng(seed).uniform(0, 11, 9)
    scale[:2] = 1, 1e-11
    factor = normal(n, 3 * n, seed=seed) / (3 * n) ** 0.5
    matrix = double(scale)[:, None] * (factor @ factor.T) * double(scale)
    matrix = (matrix + matrix.T) / 2
    result, truth = graded_ends(matrix), mp_spectrum(matrix)
    assert truth[-1] < 1e-20 * truth[0]
    assert result.resolved
    assert_right(result, truth[0], truth[-1], n)
    assert result.gap == pytest.approx(result.smallest / (EPS * result.largest))


def test_the_error_of_graded_ends_is_that_of_the_matrix_scaled_to_a_unit_diagonal():
    near = 2.0**-20  # to a singular one
    scale = double([1.0, 1e-6])
    result = graded_ends(scale[:, None] * double([[1.0, 1 - near], [1 - near, 1.0]]) * scale)
    assert result.residual == pytest.approx(2 * EPS / near, rel=1e-6, abs=0)


# Gram matrices


def by_output(*blocks):
    """The matrix with one of these blocks an output, in the order of samples."""
    k, n = len(blocks), len(blocks[0])
    order = torch.arange(n * k).reshape(k, n).T.flatten()
    return torch.block_diag(*blocks)[order][:, order]


def with_eigenvector(matrix, vector, value):
    """Move one direction of a positive definite matrix down to the eigenvalue `value` or close to it, by rank one."""
    vector = vector / vector.norm()
    image = matrix @ vector
    matrix = matrix - (1 - value / (vector @ image)) * torch.outer(image, image) / (vector @ image)
    return (matrix + matrix.T) / 2


def gram_or_none(matrix, outputs):
    return gram.iteration(gram.Gram(matrix, outputs), Limits())


def assert_gram(matrix, outputs, *, found):
    """The result of the iteration, if it is `found`, is that of all eigenvalues."""
    result = gram_or_none(matrix, outputs)
    values = torch.linalg.eigvalsh(matrix)
    assert (result is not None) or not found
    if result is not None:
        assert_right(result, values[-1], values[0], len(matrix))
        assert result.resolved or values[0] < 1e-10 * values[-1]
        assert result.residual >= EPS * (values[-1] / values[0]).item() * (1 - 1e-3)


@ends
@pytest.mark.parametrize("outputs", OUTPUTS)
def test_gram_ends_where_outputs_are_coupled_strongly_are_right_or_none(lower, upper, outputs):
    assert_gram(with_spectrum(spectrum_of(lower, upper), seed=2), outputs, found=outputs == 1)


@pytest.mark.parametrize("least", [1e-2, 1e-7, 1e-11])
@pytest.mark.parametrize("outputs", OUTPUTS[1:])
@pytest.mark.parametrize("coupling", [0.0, 1e-8, 1e-3])
def test_gram_ends_where_outputs_are_coupled_weakly(outputs, coupling, least):
    n = SIZE // outputs
    values = [spectrum_of((2, 1e-10), (3, 0.0), n, least=least, seed=s) for s in range(outputs)]
    matrix = by_output(*(with_spectrum(v, seed=s) for s, v in enumerate(values)))
    noise = normal(SIZE, SIZE, seed=3)
    root = torch.linalg.cholesky(matrix)
    matrix = matrix + coupling * root @ (noise + noise.T) @ root.T / (2 * SIZE) ** 0.5
    assert_gram((matrix + matrix.T) / 2, outputs, found=least == 1e-2)


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("hidden", ["first", "last"])
def test_gram_ends_hidden_in_the_block_of_one_output(outputs, hidden):
    n = SIZE // outputs
    blocks = [with_spectrum(np.linspace(0.4, 0.9, n), seed=s) for s in range(outputs)]
    one = np.linspace(0.4, 0.9, n)
    one[:2] = 1e-5, 2.0
    blocks[0 if hidden == "first" else -1] = with_spectrum(one, seed=9)
    result = gram_or_none(by_output(*blocks), outputs)
    assert_right(result, 2.0, 1e-5, SIZE)


@pytest.mark.parametrize("value", [1e-6, 1e-2, 50.0])
@pytest.mark.parametrize("outputs", OUTPUTS[1:])
def test_gram_ends_that_no_block_shows(outputs, value):
    """An eigenvector across two outputs whose blocks are all alike and far from the end."""
    n = SIZE // outputs
    matrix = torch.eye(SIZE, dtype=torch.float64)
    across = torch.zeros(n, outputs, dtype=torch.float64)
    across[:, 0] = normal(n, seed=4)
    across[:, 1] = -across[:, 0]
    matrix = with_eigenvector(matrix, across.flatten(), value)
    result = gram_or_none(matrix, outputs)
    assert_right(result, max(1.0, value), min(1.0, value), SIZE)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_gram_ends_in_an_invariant_subspace(outputs):
    """Degenerate but for two eigenvalues: every start but a random one is invariant without them."""
    values = torch.ones(SIZE, dtype=torch.float64)
    values[0], values[-1] = 1e-4, 3.0
    assert_right(gram_or_none(with_spectrum(values, seed=5), outputs), 3.0, 1e-4, SIZE)
    assert_right(gram_or_none(torch.diag(values[torch.randperm(SIZE, generator=seeded(5))]), outputs), 3.0, 1e-4, SIZE)


@pytest.mark.parametrize("outputs", [2, 5])
def test_gram_ends_that_the_ends_of_the_blocks_are_orthogonal_to(outputs):
    """Two coordinates that are coupled, in the middle of blocks that are diagonal: the guess is another eigenvector."""
    n = SIZE // outputs
    diagonal = torch.linspace(0.79, 0.81, n, dtype=torch.float64)
    diagonal[:8], diagonal[-8:] = double(np.linspace(0.4, 0.41, 8)), double(np.linspace(0.9, 0.91, 8))
    matrix = torch.diag(diagonal.repeat_interleave(outputs))
    first, second = n // 2 * outputs, n // 2 * outputs + 1
    matrix[first, second] = matrix[second, first] = 0.99 * diagonal[n // 2]
    result = gram_or_none(matrix, outputs)
    assert_right(result, 1.99 * diagonal[n // 2], 0.01 * diagonal[n // 2], SIZE)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_gram_ends_of_repeated_blocks(outputs):
    values = spectrum_of((3, 1e-10), (3, 0.0), SIZE // outputs, least=1e-4)
    matrix = with_spectrum(values, seed=6)
    result = gram_or_none(torch.kron(matrix, torch.eye(outputs, dtype=torch.float64)), outputs)
    assert_right(result, values[-1], values[0], SIZE)


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("lowest", [0.0, 1e-18, -1e-18, -1e-3, -2.0])
def test_gram_ends_leaves_what_is_not_definite_to_others(outputs, lowest):
    values = np.linspace(1, 2, SIZE)
    values[0] = lowest
    matrix = with_spectrum(values, seed=7)
    assert gram_or_none(matrix, outputs) is None
    if lowest < -1e-6:
        with pytest.raises(ValueError, match="negative eigenvalue"):
            condition_number(matrix, outputs=outputs)
    else:
        result = condition_number(matrix, outputs=outputs)
        assert_right(result, 2.0, values[1], SIZE - 1)
        assert result.method.startswith("dense")


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_gram_ends_cut_short_leaves_the_matrix_to_others(outputs):
    matrix = with_spectrum(spectrum_of((10, 1e-3), (10, 1e-3)), seed=8)
    assert gram.iteration(gram.Gram(matrix, outputs), Limits(1e-15, 1)) is None
    assert condition_number(matrix, outputs=outputs, tolerance=1e-15, max_steps=1).resolved


# Scale


SCALES = [1e-290, 1e-200, 1e-170, 1e-160, 1e-100, 1e100, 1e160, 1e200, 1e290]


@pytest.mark.parametrize("factor", SCALES)
def test_the_scale_of_a_large_matrix_does_not_matter(factor):
    matrix = with_spectrum(np.linspace(1, 1000, SIZE), seed=1)
    assert condition_number(matrix * factor).value == pytest.approx(1000, rel=1e-8)


@pytest.mark.parametrize("factor", SCALES)
def test_the_scale_of_a_kronecker_sum_does_not_matter(factor):
    op = linear_gauss_newton(network((40, 60, 50, 12), seed=3), torch.eye(40, dtype=torch.float64))
    scaled = KroneckerSum(op.left, op.right * factor, op.basis)
    found = condition_number(scaled)
    assert found.value == pytest.approx(condition_number(op).value, rel=1e-8)
    assert found.gap == pytest.approx(1 / (EPS * found.value))


@pytest.mark.parametrize("sizes", [(40, 60, 12), (40, 60, 50, 12)])  # exact blocks, and an iteration
def test_errors_of_a_kronecker_sum_allow_for_the_rounding_of_its_factors(sizes, monkeypatch):
    op = linear_gauss_newton(network(sizes, seed=3), torch.eye(40, dtype=torch.float64))
    monkeypatch.setattr(KroneckerBlocks, "rounding", lambda self, bottom: 1e-5)
    assert 1e-5 <= condition_number(op).residual <= 1e-5 + 1e-8


@pytest.mark.parametrize("size", [2, 30])
@pytest.mark.parametrize("scale", [-3e-5, 7.0, 4e5])
def test_a_factor_is_scalar_up_to_the_rounding_of_a_change_of_basis(size, scale):
    """Beyond it two terms are no exact blocks."""
    basis = orthogonal(size, size, seed=size)
    assert _is_scalar(basis.T @ (scale * torch.eye(size, dtype=torch.float64)) @ basis)
    for entry in ((0, 1), (1, 1)):
        for rounding, expected in ((5, True), (20, False)):
            matrix = scale * torch.eye(size, dtype=torch.float64)
            matrix[entry] += rounding * size * EPS * abs(scale)
            assert _is_scalar(matrix) is expected


# Singular values


def factor_of(values, rows, columns, *, seed):
    """A matrix of these singular values, up to its rounding."""
    left, right = (orthogonal(size, len(values), seed=seed + i) for i, size in enumerate((rows, columns)))
    return left * double(values) @ right.T


def in_blocks(jacobian, seed, zeros=False):
    """The same columns in blocks of random widths, and a block of zeros."""
    random = np.random.default_rng(seed)
    cuts = sorted({*random.integers(1, jacobian.shape[1] + 1, 4).tolist()} - {jacobian.shape[1]})
    parts = list(torch.tensor_split(jacobian, cuts, dim=1))
    if zeros:
        parts.insert(int(random.integers(len(parts) + 1)), torch.zeros(len(jacobian), 3, dtype=torch.float64))
    return parts


def mp_singular_values(matrix):
    """In fifty digits, of the matrix as it is."""
    with mpmath.workdps(60):
        exact = mpmath.matrix(matrix.tolist())
        square = exact * exact.T if exact.rows <= exact.cols else exact.T * exact
        return [mpmath.sqrt(abs(v)) for v in mp_spectrum(square, 60)]


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("rows, columns", [(9, 4), (9, 9), (9, 40), (1, 7), (7, 1), (1, 1)])
@pytest.mark.parametrize("kind", ["1 to 1e-11", "random", "clusters", "deficient", "rank one"])
def test_factor_ends_are_those_of_fifty_digits(kind, rows, columns, zeros):
    size = min(rows, columns)
    random = np.random.default_rng(size)
    values = {
        "1 to 1e-11": np.logspace(0, -11, size),
        "random": 10 ** -random.uniform(0, 9, size),
        "clusters": np.where(np.arange(size) < size / 2, 1, 1e-9) * (1 + 1e-8 * random.random(size)),
        "deficient": np.where(np.arange(size) < (size + 1) // 2, 1.5, 0),
        "rank one": np.where(np.arange(size) < 1, 1e-3, 0),
    }[kind]
    jacobian = factor_of(values, rows, columns, seed=1)
    result = singular_value_ends(iter(in_blocks(jacobian, 2, zeros)))
    truth = mp_singular_values(jacobian)
    assert result.rank == np.count_nonzero(values)
    assert result.largest == pytest.approx(float(truth[0] ** 2), rel=1e-13)
    assert result.smallest == pytest.approx(float(truth[result.rank - 1] ** 2), rel=2 * result.residual)
    assert result.resolved


def test_factor_ends_of_graded_columns():
    jacobian = factor_of([1.0, 0.9, 0.5], 3, 60, seed=3) * torch.logspace(0, -12, 60, dtype=torch.float64)
    truth = mp_singular_values(jacobian)
    for parts in (in_blocks(jacobian, 4), in_blocks(jacobian.flip(1), 4), jacobian.split(1, dim=1)):
        result = singular_value_ends(parts)
        assert result.smallest == pytest.approx(float(truth[-1] ** 2), rel=2 * result.residual)


def test_1e_22_is_found_from_the_factor_and_refused_from_its_square():
    values = np.logspace(0, -11, 12)
    jacobian = factor_of(values, 12, 200, seed=5)
    result = singular_value_ends(in_blocks(jacobian, 6))
    assert result.resolved
    assert result.rank == 12
    assert float(result) == pytest.approx(1e22, rel=4 * result.residual)
    try:
        squared = condition_number(jacobian @ jacobian.T, rank=12)
    except ValueError as error:
        assert "not positive" in str(error)
    else:
        assert not squared.resolved
        assert squared.value <= 1e22
    assert not condition_number(jacobian @ jacobian.T).resolved


def test_singular_values_at_the_threshold_count_as_zero_and_those_above_it_do_not():
    for factor, rank in ((0.9, 1), (1.1, 2)):
        jacobian = torch.zeros(2, 50, dtype=torch.float64)
        jacobian[0, 0], jacobian[1, 1] = 1.0, factor * 50 * EPS
        assert singular_value_ends([jacobian]).rank == rank
        assert singular_value_ends(jacobian.split(10, 1)).rank == rank
        assert singular_value_ends([jacobian.T]).rank == rank


def test_the_gap_tells_what_counts_as_zero():
    jacobian = torch.zeros(2, 1000, dtype=torch.float64)
    jacobian[0, 0], jacobian[1, 1] = 1.0, 1e-13
    result = singular_value_ends([jacobian])
    assert result.rank == 1
    assert result.gap == pytest.approx(1e26)
    assert result.residual == pytest.approx(2e-13, abs=0)  # of a square, twice that of the singular value


@pytest.mark.bad_input
@pytest.mark.parametrize("parts, message", [([], "no block"), ([torch.zeros(3, 2)] * 2, "The Jacobian is zero")])
def test_a_factor_that_is_nothing_is_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        singular_value_ends(parts)


# Kronecker sums


LARGE = [method for method in KRONECKER_SUM if method.name != "dense"] + [KRONECKER_SUM[-1]]
"""What there is for operators that are too large to be formed at once."""


DATA = {
    "white": np.ones(6),
    "1 to 1e-3": np.logspace(0, -3, 6),
    "1 to 1e-12": np.logspace(0, -12, 6),
    "cluster": [1, 0.9, 1.1e-8, 1.05e-8, 1e-8, 1e-8],
}
HIDDEN = {"one layer": (), "two layers": (8,), "wide": (9, 12), "square": (6, 6, 6), "narrow": (3, 7, 5)}


@pytest.mark.parametrize("outputs", [2, 7])
@pytest.mark.parametrize("eigenvalues", DATA.values(), ids=DATA.keys())
@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN.keys())
def test_the_iteration_on_small_networks_agrees_with_fifty_digits(hidden, eigenvalues, outputs):
    second = SecondMoment(orthogonal(6, 6, seed=1), double(eigenvalues))
    weights = network((6, *hidden, outputs), seed=2)
    truth = mp_gauss_newton(weights, *second)
    truth = [v for v in truth if v > 1e-25 * truth[0]]
    try:
        result = find_ends(Terms(linear_gauss_newton(weights, second)), LARGE, Limits())
    except NotConvergedError:
        assert truth[0] > 1e10 * truth[-1]
    else:
        assert result.resolved or truth[0] > 1e10 * truth[-1]
        assert_right(result, truth[0], truth[-1], len(truth))


def prescribed_weights(kind, random):
    """Weights of networks that are no Gaussian noise, of a size from 301 on."""
    seed, depth, d, k = (int(random.integers(*limits)) for limits in ((0, 999), (2, 6), (18, 26), (18, 26)))
    if kind in ("one input", "few inputs"):
        d, k = (1, 320) if kind == "one input" else (4, 160)
    if kind == "two outputs":
        d, k = 170, 2
    if kind in ("repeated", "symmetric", "permutations", "toeplitz", "near the identity", "two scales"):
        k = d
    inner = {"bottleneck": (d // 3, 4 * d), "one unit": (1, 2)}.get(kind, (max(d, k), 2 * max(d, k)))
    widths = [d, *map(int, random.integers(*inner, depth - 1)), k]
    widths = [d] * (depth + 1) if k == d else widths
    weights = network(widths, seed=seed)
    match kind:
        case "repeated":
            return weights[:1] * depth
        case "symmetric":
            return [weights[0] + weights[0].T] * depth
        case "permutations":
            return [torch.eye(d, dtype=torch.float64)[torch.as_tensor(random.permutation(d))] for _ in weights]
        case "toeplitz":
            lag = torch.arange(d)[:, None] - torch.arange(d)
            return [normal(2 * d, seed=seed + i)[lag] * 0.5 ** lag.abs() for i in range(depth)]
        case "near the identity":
            return [torch.eye(d, dtype=torch.float64) + 1e-7 * w for w in weights]
        case "two scales":
            half = (torch.arange(d) < d // 2) * 0.5 + 0.5
            return [orthogonal(d, d, seed=seed + i) * half for i in range(depth)]
        case "a layer of rank one":
            weights[-2] = torch.outer(weights[-2][:, 0], weights[-2][0])
        case "one layer dominates":
            weights[depth // 2] *= 1e4
        case "tiny":
            weights = [w * 1e-3**i for i, w in enumerate(weights)]
        case "low rank and noise":
            weights = [
                0.1 * w + 3 * torch.outer(normal(o, seed=seed + i), normal(p, seed=seed + i + 9)) / p
                for i, w in enumerate(weights)
                for o, p in [w.shape]
            ]
        case "an output that is zero":
            weights[-1][k // 2] = 0
        case "singular values down to 1e-5":
            u, s, v = torch.linalg.svd(weights[0], full_matrices=False)
            weights[0] = u * torch.logspace(0, -5, len(s), dtype=torch.float64) @ v
    return weights


PRESCRIBED = [
    "one input",
    "few inputs",
    "two outputs",
    "repeated",
    "symmetric",
    "permutations",
    "toeplitz",
    "near the identity",
    "two scales",
    "a layer of rank one",
    "one layer dominates",
    "tiny",
    "low rank and noise",
    "an output that is zero",
    "singular values down to 1e-5",
    "bottleneck",
    "one unit",
]


@pytest.mark.parametrize("data", ["white", "random", "1 to 1e-9", "deficient"])
@pytest.mark.parametrize("kind", PRESCRIBED)
def test_kronecker_sums_of_prescribed_weights_are_right_or_refused(kind, data):
    random = np.random.default_rng(PRESCRIBED.index(kind))
    weights = prescribed_weights(kind, random)
    d = weights[0].shape[1]
    one, basis = torch.ones(d, dtype=torch.float64), orthogonal(d, d, seed=3)
    second = {
        "white": lambda: SecondMoment(basis, one),
        "random": lambda: SecondMoment.from_data(normal(2 * d, d, seed=4)),
        "1 to 1e-9": lambda: SecondMoment(basis, torch.logspace(0, -9 if d > 1 else 0, d, dtype=torch.float64)),
        "deficient": lambda: SecondMoment.from_data(normal(d - d // 8, d, seed=5)),
    }[data]()
    op = linear_gauss_newton(weights, second)
    reference = graded_ends(KroneckerSum(op.left, op.right, torch.eye(len(second.eigenvalues)).double()).dense())
    try:
        result = condition_number(op)
    except NotConvergedError:
        assert not reference.resolved or reference.value > 1e10
        return
    if result.resolved and reference.resolved:
        assert result.rank == reference.rank
        assert result.largest == pytest.approx(reference.largest, rel=2 * result.residual + 1e-12)
        close = 10 * (result.residual + reference.residual) + 1e-9
        assert result.smallest == pytest.approx(reference.smallest, rel=close)
    elif reference.resolved:
        assert result.value <= reference.value * (1 + 1e-9)
        assert reference.value > 1e10


@pytest.mark.parametrize("seed", [17, 519, 1939, 0, 1, 2])
def test_ends_of_diagonal_networks_wherever_they_hide(seed):
    """Every eigenvector is a pair of an output and an input, orthogonal to all but those of the guess."""
    random = np.random.default_rng(seed)
    size, depth = int(random.integers(18, 60)), int(random.integers(3, 6))
    least = np.log(10.0 ** -random.uniform(0.3, 3))
    weights = [double(np.exp(random.uniform(least, 0, size))) for _ in range(depth)]
    s = double(np.sort(np.exp(random.uniform(least, 0, size)))[::-1].copy())
    one = torch.ones(1, size, dtype=torch.float64)
    values = s * sum(
        torch.outer(
            torch.cat([one, *(w[None] for w in weights[layer + 1 :])]).prod(0) ** 2,
            torch.cat([one, *(w[None] for w in weights[:layer])]).prod(0) ** 2,
        )
        for layer in range(depth)
    )
    second = SecondMoment(torch.eye(size, dtype=torch.float64), s)
    result = condition_number(linear_gauss_newton([torch.diag(w) for w in weights], second))
    assert_right(result, values.max(), values.min(), size**2)


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("outputs", [40, 12])
def test_outputs_that_the_last_layer_leaves_silent_see_the_first_layer_alone(scale, outputs):
    """The null space of W W^T, up to its rounding, has the singular values of V; W may be as large as it likes."""
    d = 12 if outputs == 40 else 40
    v, w = normal(12, d, seed=1) / d**0.5, normal(outputs, 12, seed=2) * scale
    second = SecondMoment(torch.eye(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64))
    left, right = torch.zeros(outputs, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    left[:12], right[:12] = (torch.linalg.svdvals(m)[:12] ** 2 for m in (w, v))
    values = (left[:, None] + right).flatten()
    values = values[values > 0]
    try:
        result = condition_number(linear_gauss_newton([v, w], second))
    except NotConvergedError:
        assert scale > 1e4
        return
    if result.resolved:
        assert_right(result, values.max(), values.min(), len(values))
    else:
        assert scale >= 1e4
        assert result.value <= values.max() / values.min() * (1 + 1e-9)


@pytest.mark.parametrize("largest", [False, True])
def test_the_guess_at_the_crowded_end_of_a_block_saves_the_steps(largest):
    weights = network((400, 500, 1), seed=0)
    op = linear_gauss_newton(weights, torch.eye(400, dtype=torch.float64))
    blocks = KroneckerBlocks(op.left, op.right, double([0]).bool(), op.right[0, :, :0], largest=largest)
    pair = blocks.end(largest=largest, tolerance=1e-8, max_steps=100)
    values = torch.linalg.eigvalsh(op.dense())
    assert pair.value == pytest.approx(values[-1 if largest else 0].item(), rel=1e-10)
    assert pair.steps <= 2


@pytest.mark.parametrize("widths", [(60, 40, 50, 20), (20, 25, 30, 40)])
@pytest.mark.parametrize("max_steps", [1, 2])
def test_a_kronecker_sum_cut_short_raises_unless_it_has_converged(widths, max_steps):
    op = linear_gauss_newton(network(widths, seed=1), torch.eye(widths[0], dtype=torch.float64))
    try:
        result = condition_number(op, max_steps=max_steps, tolerance=1e-13)
    except NotConvergedError as error:
        assert "steps its relative error is" in str(error)
    else:
        assert result.value == pytest.approx(condition_number(op).value, rel=1e-8)


# The iteration itself


def davidson(matrix, start, **changes):
    options = dict(
        block=3,
        largest=True,
        precondition=lambda r: r,
        errors=lambda values, residual, _: residual_errors(values, residual),
        tolerance=1e-8,
        max_steps=100,
    )
    apply = changes.pop("apply", None) or matrix.matmul
    return extreme_eigenpair(apply, start, **{**options, **changes})


LADDER = with_spectrum(np.linspace(1, 100, 60), seed=1)
END = {True: 100, False: 1}
both = pytest.mark.parametrize("largest", [True, False])


@both
@pytest.mark.parametrize("block", [1, 2, 5, 60])
def test_an_extreme_eigenpair_has_the_error_that_it_states(largest, block):
    pair = davidson(LADDER, normal(60, block, seed=2), largest=largest, block=block)
    assert pair.error <= 1e-8
    assert pair.value == pytest.approx(END[largest], rel=2e-8)
    assert torch.linalg.norm(LADDER @ pair.vectors[:, 0] - pair.value * pair.vectors[:, 0]) < 1e-2
    assert torch.linalg.norm(pair.vectors[:, 0]) == pytest.approx(1)


@both
@pytest.mark.parametrize("max_steps", [1, 2])
def test_an_iteration_that_has_not_converged_raises(largest, max_steps):
    end = "largest" if largest else "smallest"
    with pytest.raises(NotConvergedError, match=f"The {end} eigenvalue did not converge: after {max_steps} steps"):
        davidson(LADDER, normal(60, 3, seed=2), largest=largest, max_steps=max_steps)


@pytest.mark.parametrize("decades", [10, 12, 14])
def test_the_rounding_of_large_columns_does_not_stay_in_a_small_value(decades):
    diagonal = torch.logspace(0, decades, 60, dtype=torch.float64)[:, None]
    pair = davidson(
        None,
        normal(60, 6, seed=0),
        apply=lambda v: diagonal * v,
        largest=False,
        block=4,
        precondition=lambda r: r / (diagonal - 0.9),
        norm=10.0**decades,
    )
    assert abs(pair.value - 1) <= pair.error + 1e-11


@both
def test_a_restart_loses_nothing(largest):
    pair = davidson(LADDER, normal(60, 3, seed=2), largest=largest, max_blocks=4, max_steps=400)
    assert pair.value == pytest.approx(END[largest], rel=2e-8)


@both
@pytest.mark.parametrize("columns", [4, 60])
def test_a_start_with_equal_columns_is_a_start_with_one(largest, columns):
    pair = davidson(LADDER, normal(60, 1, seed=2).repeat(1, columns), largest=largest)
    assert pair.value == pytest.approx(END[largest], rel=2e-8)


@both
def test_a_start_that_has_the_eigenvector_needs_one_step(largest):
    vectors = torch.linalg.eigh(LADDER).eigenvectors
    pair = davidson(LADDER, vectors[:, [0, 30, 31, 59]], largest=largest)
    assert pair.steps == 1
    assert pair.value == pytest.approx(END[largest], rel=1e-12)


@both
def test_an_eigenvector_inside_the_spectrum_does_not_end_the_search(largest):
    """The others of its block are far from settled."""
    inside = torch.linalg.eigh(LADDER).eigenvectors[:, [50 if largest else 9]]
    pair = davidson(LADDER, torch.cat([inside, normal(60, 2, seed=2)], 1), largest=largest)
    assert pair.value == pytest.approx(END[largest], rel=2e-8)


@both
def test_a_preconditioner_that_returns_nothing_raises_at_once(largest):
    with pytest.raises(NotConvergedError, match="after 1 steps"):
        davidson(LADDER, normal(60, 3, seed=2), largest=largest, precondition=torch.zeros_like)


@both
@pytest.mark.parametrize("good", [0, 1, 5])
def test_products_that_turn_nan_raise(largest, good):
    calls = iter(range(1000))

    def apply(x):
        return LADDER @ x * (1.0 if next(calls) < good else torch.nan)

    with pytest.raises((NotConvergedError, torch.linalg.LinAlgError)):
        davidson(LADDER, normal(60, 3, seed=2), largest=largest, apply=apply)
    assert next(calls) <= good + 2


@both
@pytest.mark.parametrize("start", [0.0, torch.nan])
@pytest.mark.bad_input
def test_a_start_that_spans_nothing_is_told_so(largest, start):
    with pytest.raises((ValueError, NotConvergedError, torch.linalg.LinAlgError)):
        davidson(LADDER, torch.full((60, 3), start, dtype=torch.float64), largest=largest)


@both
@pytest.mark.parametrize("matrix", [-LADDER, 0 * LADDER], ids=["negative", "zero"])
def test_no_relative_error_of_a_value_that_is_not_positive(largest, matrix):
    with pytest.raises(NotConvergedError, match="relative error is inf"):
        davidson(matrix, normal(60, 3, seed=2), largest=largest)


def assert_orthonormal(basis):
    identity = torch.eye(basis.shape[1], dtype=torch.float64)
    torch.testing.assert_close(basis.T @ basis, identity, rtol=0, atol=1e-14)


def assert_spans(basis, columns):
    columns = scaled(columns)
    torch.testing.assert_close(basis @ (basis.T @ columns), columns, rtol=0, atol=1e-12)


def scaled(columns):
    largest = columns.abs().amax(0)
    return columns / torch.where(largest > 0, largest, 1)


A, B, C = normal(3, 9, 1, seed=3)
COLUMNS = {
    "independent": ([A, B, C], 3),
    "a zero": ([A, 0 * A, B], 2),
    "zeros": ([0 * A, 0 * B], 0),
    "duplicates last": ([A, B, A], 2),
    "duplicates first": ([A, A, B], 2),
    "duplicates": ([A, A, B, B, C, -C, A + B], 3),
    "tiny": ([1e-200 * A, B, 1e-290 * C], 3),
    "huge": ([1e150 * A, B], 2),
    "nearly equal": ([A, A + 1e-9 * B], 2),
    "equal up to rounding": ([A, A + 1e-15 * B, C], 2),
    "more than rows": ([*normal(14, 9, 1, seed=4)], 9),
}


@pytest.mark.parametrize("columns, rank", COLUMNS.values(), ids=COLUMNS.keys())
def test_orthonormal_columns_span_what_they_are_made_of(columns, rank):
    columns = torch.cat(columns, 1)
    basis = orthonormal(columns)
    assert basis.shape == (9, rank)
    assert_orthonormal(basis)
    if rank:
        assert_spans(basis, columns)


@pytest.mark.parametrize("columns, rank", COLUMNS.values(), ids=COLUMNS.keys())
def test_orthonormal_columns_complete_a_basis(columns, rank):
    columns, given = torch.cat(columns, 1), orthonormal(torch.cat([A, normal(9, 1, seed=5)], 1))
    whole = torch.cat([given, orthonormal(columns, given)], 1)
    assert_orthonormal(whole)
    assert_spans(whole, columns)
    assert whole.shape[1] == int(torch.linalg.matrix_rank(torch.cat([given, scaled(columns)], 1), atol=1e-11))


@pytest.mark.parametrize("steps", [0, 1, 3, 30])
@pytest.mark.parametrize("twice", [False, True])
def test_a_krylov_space_contains_the_powers(steps, twice):
    matrix = with_spectrum(np.linspace(1, 2, 20), seed=1)
    start = normal(20, 2, seed=6)
    start = torch.cat([start, start], 1) if twice else start
    basis = krylov_space(matrix.matmul, start, steps)
    assert_orthonormal(basis)
    assert basis.shape[1] == min(20, 2 * (steps + 1))
    for power in range(min(steps, 9) + 1):
        assert_spans(basis, torch.linalg.matrix_power(matrix, power) @ start)


# How far Ritz values are off


def ritz_block(seed, largest):
    """A matrix, and Ritz vectors of some quality at one of its ends."""
    random = np.random.default_rng(seed)
    p = int(random.integers(3, 14))
    b = int(random.integers(1, p))
    values = 10.0 ** random.uniform(-5, 0, p) if seed % 2 else random.uniform(0.01, 1, p)
    if seed % 3 == 0:
        near = values.argmax() if largest else values.argmin()
        values[:3] = values[near] * (1 + 10.0 ** -random.uniform(2, 12, 3))
    q = orthogonal(p, p, seed=seed)
    order = np.sort(values)[::-1].copy() if largest else np.sort(values)
    matrix = q * double(order) @ q.T
    matrix = (matrix + matrix.T) / 2
    x = torch.linalg.qr(q[:, :b] + 10.0 ** -random.uniform(0, 8) * normal(p, b, seed=seed + 1)).Q
    ritz, rotation = torch.linalg.eigh(x.T @ matrix @ x)
    if largest:
        ritz, rotation = ritz.flip(0), rotation.flip(1)
    x = x @ rotation
    return matrix, torch.linalg.eigvalsh(matrix), ritz, x, matrix @ x - x * ritz


def rest(matrix, x):
    """Extreme eigenvalues of the matrix on what is orthogonal to all of x but its last column."""
    others = torch.linalg.qr(x[:, :-1], mode="complete").Q[:, x.shape[1] - 1 :]
    return torch.linalg.eigvalsh(others.T @ matrix @ others)[[0, -1]]


@both
def test_residual_errors_bound_the_errors_of_ritz_values(largest):
    second_order = 0
    for seed in range(500):
        matrix, values, ritz, x, residual = ritz_block(seed, largest)
        error = residual_errors(ritz, residual)
        size = torch.linalg.vector_norm(residual, dim=0)
        rounding = 1e-14 * values[-1] / ritz
        nearest = (values[:, None] - ritz).abs().min(0).values / ritz
        assert (error <= size / ritz * (1 + 1e-12)).all()
        assert (nearest[1:] <= error[1:] * (1 + 1e-9) + rounding[1:]).all()
        if error[0] == size[0] / ritz[0]:
            assert nearest[0] <= error[0] * (1 + 1e-9) + rounding[0]
            continue
        lowest, highest = rest(matrix, x)
        if highest <= ritz[-1] + size[-1] if largest else lowest >= ritz[-1] - size[-1]:
            second_order += 1
            end = values[-1] if largest else values[0]
            assert (end - ritz[0]).abs() / ritz[0] <= error[0] * (1 + 1e-9) + rounding[0]
    assert second_order > 100


def test_relative_errors_bound_the_errors_of_ritz_values():
    second_order = 0
    for seed in range(500):
        matrix, values, ritz, x, residual = ritz_block(seed, largest=False)
        random, p = np.random.default_rng(seed), len(matrix)
        root, q = torch.linalg.cholesky(matrix), orthogonal(p, p, seed=seed + 2)
        slack = float(random.choice([0.1, 0.5, 1.0]))
        smaller = root @ (q * double(random.uniform(0.1, 1, p)) @ q.T) @ root.T / slack  # slack N <= G
        shift = float(random.choice([0.0, 0.5, 0.9])) * torch.linalg.eigvalsh(smaller)[0].item()
        solved = torch.linalg.solve(smaller - shift * torch.eye(p, dtype=torch.float64), residual)
        first, error = (
            relative_errors(ritz, residual, solved, slack=slack, shift=shift, proved=proved) for proved in (False, True)
        )
        rounding = 1e-13 * values[-1] / ritz
        nearest = ((values[:, None] - ritz).abs() / values[:, None].maximum(ritz)).min(0).values
        assert (error <= first).all()
        assert torch.equal(error[1:], first[1:])
        assert (nearest <= first * (1 + 1e-9) + rounding).all()
        if error[0] < first[0] and rest(matrix, x)[0] >= ritz[-1] * (1 - first[-1]):
            second_order += 1
            assert 1 - values[0] / ritz[0] <= error[0] * (1 + 1e-9) + rounding[0]
    assert second_order > 100


def test_errors_of_second_order_are_squares():
    """With a gap behind the block, an eigenvector off by a thousandth costs a millionth."""
    matrix = torch.diag(double([1.0, 1.1, 1.2, 5.0, 6.0, 7.0]))
    start = torch.eye(6, dtype=torch.float64)[:, :4] + 1e-3 * normal(6, 4, seed=1)
    for sign in (1, -1):
        shifted = matrix if sign == 1 else 10 * torch.eye(6, dtype=torch.float64) - matrix
        ritz, rotation = torch.linalg.eigh(sign * start.T @ shifted @ start)
        x = torch.linalg.qr(start).Q
        ritz, rotation = torch.linalg.eigh(sign * x.T @ shifted @ x)
        ritz, x = sign * ritz, x @ rotation
        residual = shifted @ x - x * ritz
        truth = torch.linalg.eigvalsh(sign * shifted)[0].abs()
        error = residual_errors(ritz, residual)[0]
        assert (ritz[0] - truth).abs() / ritz[0] <= error < 1e-4
        assert torch.linalg.vector_norm(residual[:, 0]) / ritz[0] > 10 * error


def test_values_that_are_rounding_have_no_relative_error():
    residual = torch.full((3, 1), 1e-3, dtype=torch.float64)
    for value in (0.0, -1.0):
        assert torch.isinf(residual_errors(double([value]), residual)).all()
    assert torch.isinf(relative_errors(double([1.0]), residual, residual, slack=0.5, shift=4.0, proved=True)).all()


def test_the_error_of_a_smallest_value_allows_for_the_coupling_of_the_outputs():
    s = torch.tensor([1.0, 1.001, 2.0, 3.0], dtype=torch.float64)
    coupled = torch.tensor([[1.0, 0.75], [0.75, 1.0]], dtype=torch.float64)
    left = torch.stack([1e-9 * torch.eye(2).double(), coupled])
    blocks = KroneckerBlocks(
        left, s.diag().expand(2, -1, -1), torch.zeros(2, dtype=torch.bool), s.new_empty(4, 0), largest=False
    )
    # antisymmetric in the outputs, where the matrix is a quarter of its blocks, and halfway between two eigenvectors
    x = torch.tensor([1.0, 1, 0, 0, -1, -1, 0, 0], dtype=torch.float64)[:, None] / 2
    value = x.mT @ blocks.apply(x)
    residual = blocks.apply(x) - value * x
    error = blocks.lower_errors(value[0], residual, residual / s.repeat(2)[:, None], 0.0)
    assert error.item() == pytest.approx(1 - 0.25 / value.item(), rel=1e-4)


def test_columns_that_share_their_last_bit_of_news_add_one_direction():
    q = orthogonal(50, 50, seed=1)
    basis, last = q[:, :-1], q[:, -1:]
    columns = basis @ normal(49, 3, seed=2) + 1e-9 * last * torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    found = orthonormal(columns, basis)
    assert found.shape == (50, 1)
    assert (basis.mT @ found).abs().max() < 1e-15
