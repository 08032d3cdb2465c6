"""How far Ritz values are off."""

import numpy as np
import torch

from gnlib.eigen.ritz_errors import relative_errors, residual_errors
from tests.gnlib.eigen.helpers import both, double
from tests.oracles import normal, orthogonal


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
