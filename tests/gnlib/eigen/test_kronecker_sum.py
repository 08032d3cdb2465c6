"""Kronecker sums: the ends of networks whose spectra are prescribed, right or refused."""

from itertools import product

import numpy as np
import pytest
import torch

from gnlib import NotConvergedError, SecondMoment, condition_number, linear_gauss_newton
from gnlib.eigen.dense import graded_ends
from gnlib.eigen.kronecker_blocks import KroneckerBlocks
from gnlib.eigen.kronecker_sum import Terms, _is_scalar, is_regular
from gnlib.eigen.result import Limits
from gnlib.eigen.strategy import KRONECKER_SUM, find_ends
from gnlib.operators import KroneckerSum
from tests.gnlib.eigen.helpers import EPS, assert_right, both, double
from tests.oracles import mp_gauss_newton, network, normal, orthogonal


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


@both
def test_the_guess_at_the_crowded_end_of_a_block_saves_the_steps(largest):
    weights = network((400, 500, 1), seed=0)
    op = linear_gauss_newton(weights, torch.eye(400, dtype=torch.float64))
    pair = KroneckerBlocks(op.left, op.right, largest=largest).find_end(largest=largest, limits=Limits())
    values = torch.linalg.eigvalsh(op.dense())
    assert pair.value == pytest.approx(values[-1 if largest else 0].item(), rel=1e-10)
    assert pair.steps <= 2


def test_the_error_of_a_smallest_value_allows_for_the_coupling_of_the_outputs():
    s = torch.tensor([1.0, 1.001, 2.0, 3.0], dtype=torch.float64)
    coupled = torch.tensor([[1.0, 0.75], [0.75, 1.0]], dtype=torch.float64)
    left = torch.stack([1e-9 * torch.eye(2).double(), coupled])
    blocks = KroneckerBlocks(left, s.diag().expand(2, -1, -1), largest=False)
    # antisymmetric in the outputs, where the matrix is a quarter of its blocks, and halfway between two eigenvectors
    x = torch.tensor([1.0, 1, 0, 0, -1, -1, 0, 0], dtype=torch.float64)[:, None] / 2
    value = x.mT @ blocks.apply(x)
    residual = blocks.apply(x) - value * x
    error = blocks.lower_errors(value[0], residual, residual / s.repeat(2)[:, None], 0.0)
    assert error.item() == pytest.approx(1 - 0.25 / value.item(), rel=1e-4)


LARGE = [method for method in KRONECKER_SUM if method.name != "dense"] + [KRONECKER_SUM[-1]]
"""What there is for operators that are too large to be formed at once."""

DATA = {  # eigenvalues, and a number of outputs
    "white": (np.ones(6), 7),
    "1 to 1e-3": (np.logspace(0, -3, 6), 2),
    "1 to 1e-12": (np.logspace(0, -12, 6), 7),
    "cluster": ([1, 0.9, 1.1e-8, 1.05e-8, 1e-8, 1e-8], 2),
}
HIDDEN = {"one layer": (), "two layers": (8,), "wide": (9, 12), "square": (6, 6, 6), "narrow": (3, 7, 5)}


@pytest.mark.parametrize("eigenvalues, outputs", DATA.values(), ids=DATA.keys())
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
    *("one input", "few inputs", "two outputs", "repeated", "symmetric", "permutations", "toeplitz"),
    *("near the identity", "two scales", "a layer of rank one", "one layer dominates", "tiny", "low rank and noise"),
    *("an output that is zero", "singular values down to 1e-5", "bottleneck", "one unit"),
]


@pytest.mark.parametrize(
    "kind, data",
    [*product(PRESCRIBED, ["1 to 1e-9", "deficient"]), *product(["few inputs", "bottleneck", "one unit"], ["white"])],
)
def test_kronecker_sums_of_prescribed_weights_are_right_or_refused(kind, data):
    random = np.random.default_rng(PRESCRIBED.index(kind))
    weights = prescribed_weights(kind, random)
    d = weights[0].shape[1]
    one, basis = torch.ones(d, dtype=torch.float64), orthogonal(d, d, seed=3)
    second = {
        "white": lambda: SecondMoment(basis, one),
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


def test_the_tolerance_bounds_the_residual():
    op = linear_gauss_newton(network((60, 90, 80, 20), seed=9), torch.eye(60, dtype=torch.float64))
    loose, tight = (condition_number(op, tolerance=t) for t in (1e-2, 1e-10))
    assert loose.residual <= 1e-2
    assert tight.residual <= 1e-10
    assert loose.value == pytest.approx(tight.value, rel=2e-2)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "factors, message",
    [
        (dict(left=torch.zeros(1, 3, 3)), "is zero: it has no eigenvalue to divide by"),
        (dict(left=torch.full((1, 3, 3), torch.inf)), "left has 9 entries that are NaN or infinite"),
        (dict(right=torch.full((1, 2, 2), torch.nan)), "right has 4 entries that are NaN or infinite"),
    ],
)
def test_a_kronecker_sum_that_is_zero_or_not_finite_is_refused(factors, message):
    with pytest.raises(ValueError, match=message):
        condition_number(
            KroneckerSum(**{"left": torch.eye(3)[None], "right": torch.eye(2)[None], **factors}, basis=torch.eye(2))
        )


@pytest.mark.parametrize("singular", ["left", "right"])
def test_a_sum_is_not_regular_if_its_last_factor_on_the_left_or_first_on_the_right_is_singular(singular):
    whole, part = torch.eye(3, dtype=torch.float64), torch.diag(torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))
    left = torch.stack([whole, part if singular == "left" else whole])
    right = torch.stack([part if singular == "right" else whole, whole])
    assert not is_regular(Terms(KroneckerSum(left, right, whole)), None)
